package score

import (
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// frozenLake returns the rollouts of testdata, as one batch.
func frozenLake(t testing.TB) *reweight.Batch {
	t.Helper()
	f := must.Get(rollout.Parse(testdata.FrozenLakeSmall))
	return must.Get(f.Batch())
}

// trajectories returns copies of the trajectories of that batch.
func trajectories(t testing.TB) []*rollout.Trajectory {
	t.Helper()
	src := must.Get(rollout.Open("../testdata/frozenlake-small.safetensors"))
	defer src.Close()
	var all []*rollout.Trajectory
	for {
		one, err := src.Next()
		if err == io.EOF {
			return all
		}
		must.Do(err)
		for _, a := range one.Arrays() {
			if v := reflect.ValueOf(a.Data).Elem(); v.Kind() == reflect.Slice {
				v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v))
			}
		}
		all = append(all, one)
	}
}

// A shard is a file of trajectories.
type shard []*rollout.Trajectory

// named returns the trajectories as a file of that name.
func named(name string, of ...*rollout.Trajectory) shard {
	var s shard
	for i, t := range of {
		t := *t
		t.File, t.Line = name, i+1
		s = append(s, &t)
	}
	return s
}

// A fake is a source of trajectories that no file has.
type fake struct {
	left []*rollout.Trajectory
	err  error // after the last
}

func (f *fake) Next() (*rollout.Trajectory, error) {
	if len(f.left) == 0 {
		return nil, f.err
	}
	t := f.left[0]
	f.left = f.left[1:]
	return t, nil
}

func (f *fake) Guard(do func() error) error { return do() }

func sourceOf(shards ...shard) *fake { return &fake{slices.Concat(shards...), io.EOF} }

// of is Of, of shards.
func of(opt Options, shards ...shard) (*Partial, error) { return read(sourceOf(shards...), opt) }

func mustOf(t testing.TB, opt Options, shards ...shard) *Partial {
	t.Helper()
	return must.Get(of(opt, shards...))
}

func mustMerge(t testing.TB, partials ...*Partial) *Partial {
	t.Helper()
	return must.Get(merge(partials...))
}

func merge(partials ...*Partial) (*Partial, error) {
	var m Merger
	for _, p := range partials {
		if err := m.Add(p); err != nil {
			return nil, err
		}
	}
	return m.Merged()
}

// deal deals the trajectories out to shards at random. A shard may get none.
func deal(all []*rollout.Trajectory, shards int, seed uint64) []shard {
	rng := rand.New(rand.NewPCG(seed, 0))
	parts := make([][]*rollout.Trajectory, shards)
	for _, i := range rng.Perm(len(all)) {
		k := rng.IntN(shards)
		parts[k] = append(parts[k], all[i])
	}
	var s []shard
	for i, p := range parts {
		s = append(s, named(fmt.Sprintf("shard-%02d", i), p...))
	}
	return s
}

// A result is the scores of one trajectory.
type result struct{ weights, advantages []float32 }

// results scores the shards as part of a batch, and returns the scores of the trajectories by
// the first of their log-probabilities, which differ.
func results(t testing.TB, merged *Partial, opt Options, shards ...shard) map[float32]result {
	t.Helper()
	all := map[float32]result{}
	err := apply(sourceOf(shards...), merged, opt, func(s Scored) error {
		if len(s.Weights) != s.Tokens() || len(s.Advantages) != s.Tokens() {
			t.Errorf("%d weights and %d advantages of %d tokens", len(s.Weights), len(s.Advantages), s.Tokens())
		}
		all[keyOfTest(s.Trajectory)] = result{slices.Clone(s.Weights), slices.Clone(s.Advantages)}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func keyOfTest(t *rollout.Trajectory) float32 {
	sum := float32(0)
	for i, l := range t.OldLogprobs {
		sum += l * float32(i+1)
	}
	return sum
}
