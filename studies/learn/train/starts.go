package train

import (
	"sync"

	"github.com/seed621a2839/reweight/studies/learn/policy"
)

// Starts makes the warm starts that runs begin with, each once.
type Starts struct {
	Settings Settings

	lock sync.Mutex
	made map[Run]func() (*policy.Policy, error)
}

// For returns the start of a run, which others may share. The seeds take the warm starts
// of a game and kind of reasoning in turn.
func (s *Starts) For(run Run) (*policy.Policy, error) {
	number := run.Seed % s.Settings.Starts
	key := Run{Game: run.Game, Seed: number, Fluent: run.Fluent, Errors: run.Errors}
	if arms[run.Arm].start {
		key.Arm = run.Arm
	}
	s.lock.Lock()
	if s.made == nil {
		s.made = map[Run]func() (*policy.Policy, error){}
	}
	if s.made[key] == nil {
		s.made[key] = sync.OnceValues(func() (*policy.Policy, error) {
			return s.Settings.WarmStart(key)
		})
	}
	start := s.made[key]
	s.lock.Unlock()
	return start() // a second run that needs it waits for the first one
}
