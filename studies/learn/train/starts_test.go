package train

import (
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight/studies/learn/env"
	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// tiny are settings with which a warm start takes no time.
var tiny = func() Settings {
	s := Default
	s.Hidden, s.Demonstrations, s.Starts = 4, 32, 2
	return s
}()

// TestStartsShared: runs at the same time that need the same warm start make it once, and runs
// of other seeds take another.
func TestStartsShared(t *testing.T) {
	var games atomic.Int64
	add(t, "counted", 0.5, func() env.Environment {
		games.Add(1)
		return choice{}
	})
	starts := Starts{Settings: tiny}
	var agents [4]*policy.Policy
	var group sync.WaitGroup
	for seed := range agents {
		group.Go(func() {
			var err error
			if agents[seed], err = starts.For(Run{Game: "counted", Seed: seed}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if made := int(games.Load()) / tiny.Batch; made != 2 {
		t.Errorf("%d warm starts, want 2", made)
	}
	if agents[0] != agents[2] || agents[1] != agents[3] || reflect.DeepEqual(agents[0].Parameters, agents[1].Parameters) {
		t.Error("the seeds do not take the starts in turn")
	}
}
