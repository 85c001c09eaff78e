package train

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed621a2839/reweight/examples/learn/env"
	"github.com/seed621a2839/reweight/examples/learn/policy"
	"github.com/seed621a2839/reweight/internal/printable"
)

// Fingerprint names the settings, so that results and warm starts of others are not
// taken for theirs. What the code decides, the rules of the games for example, is
// not in it: who changes that deletes the folder of results.
func (s Settings) Fingerprint() string {
	hash := sha256.Sum256(fmt.Append(nil, s, noise))
	return fmt.Sprintf("%x", hash[:4])
}

// Starts makes the warm starts that runs begin with, each once, and keeps them
// in a folder.
type Starts struct {
	Settings Settings
	Folder   string

	lock sync.Mutex
	made map[string]*warmStart
}

type warmStart struct {
	lock  sync.Mutex
	agent *policy.Policy
}

// For returns the start of a run, from the folder if it is there.
func (s *Starts) For(ctx context.Context, run Run) (*policy.Policy, error) {
	game, err := GameNamed(run.Game)
	if err != nil {
		return nil, err
	}
	number := run.Seed % s.Settings.Starts
	name := fmt.Sprintf("%s-%s-%d-%s.safetensors", run.Game, run.Reasoning, number, s.Settings.Fingerprint())
	s.lock.Lock()
	if s.made == nil {
		s.made = make(map[string]*warmStart)
	}
	start, ok := s.made[name]
	if !ok {
		start = new(warmStart)
		s.made[name] = start
	}
	s.lock.Unlock()

	start.lock.Lock() // The second run that needs it waits for the first one.
	defer start.lock.Unlock()
	if start.agent != nil {
		return start.agent, nil
	}
	path := filepath.Join(s.Folder, name)
	agent, err := policy.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		if agent, err = s.Settings.WarmStart(ctx, game, run.Reasoning, number); err != nil {
			return nil, err
		}
		if err = os.MkdirAll(s.Folder, 0o777); err == nil {
			err = agent.Save(path)
		}
	}
	if err == nil && (agent.Vocab != len(env.Words) || agent.Hidden != s.Settings.Hidden) {
		err = fmt.Errorf("%s: the policy has %d words and a width of %d, want %d and %d; delete the file to make it again",
			printable.Text(path), agent.Vocab, agent.Hidden, len(env.Words), s.Settings.Hidden)
	}
	if err != nil {
		return nil, err
	}
	start.agent = agent
	return agent, nil
}
