package train

import (
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight/examples/learn/env"
	"github.com/seed621a2839/reweight/examples/learn/policy"
)

// addCounted lets runs name a game that counts its warm starts: each one begins
// a batch of tiny's.
func addCounted(t *testing.T) (made func() int) {
	var games atomic.Int64
	before := env.Games
	env.Games = append(slices.Clone(before), env.Game{Name: "counted", New: func() env.Environment {
		games.Add(1)
		return choice{}
	}})
	t.Cleanup(func() { env.Games = before })
	addNoise(t, "counted", 0.5)
	return func() int { return int(games.Load()) / tiny.Batch }
}

var tiny = func() Settings {
	s := Default
	s.Hidden, s.Demonstrations, s.Starts = 4, 32, 2
	return s
}()

func counted(seed int) Run { return Run{Game: "counted", Reasoning: "useful", Seed: seed} }

// files returns the names of the files in a folder.
func files(t *testing.T, folder string) (names []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Runs at the same time that need the same start get the one that is made once.
func TestStartsOnce(t *testing.T) {
	made := addCounted(t)
	s := &Starts{Settings: tiny, Folder: filepath.Join(t.TempDir(), "new", "starts")}
	var agents [12]*policy.Policy
	var wait sync.WaitGroup
	for seed := range agents {
		wait.Go(func() {
			agent, err := s.For(t.Context(), counted(seed))
			if err != nil {
				t.Error(err)
			}
			agents[seed] = agent
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	for seed, agent := range agents {
		if agent != agents[seed%2] {
			t.Errorf("the seeds %d and %d do not share a start", seed, seed%2)
		}
	}
	if slices.Equal(agents[0].Parameters, agents[1].Parameters) {
		t.Error("the seeds 0 and 1 have the same start")
	}
	if made() != 2 || len(files(t, s.Folder)) != 2 {
		t.Errorf("%d starts are made and %s kept, want 2", made(), files(t, s.Folder))
	}
	want, err := tiny.WarmStart(t.Context(), env.Games[len(env.Games)-1], "useful", 1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(agents[1].Parameters, want.Parameters) {
		t.Error("the start of seed 1 is not the warm start 1")
	}
}

// A start comes from the folder when it is there, with the same bits. Another
// game, reasoning, number or setting has a start of its own.
func TestStartsKept(t *testing.T) {
	made := addCounted(t)
	folder := t.TempDir()
	first, err := (&Starts{Settings: tiny, Folder: folder}).For(t.Context(), counted(0))
	if err != nil {
		t.Fatal(err)
	}
	second, err := (&Starts{Settings: tiny, Folder: folder}).For(t.Context(), counted(2))
	if err != nil {
		t.Fatal(err)
	}
	if made() != 1 {
		t.Errorf("%d starts are made, want 1", made())
	}
	if fingerprint(first.Parameters) != fingerprint(second.Parameters) {
		t.Error("the file has another policy than the one that was made")
	}

	other := tiny
	other.WarmRate *= 2
	reasoning := counted(0)
	reasoning.Reasoning = "noise"
	for i, c := range []struct {
		settings Settings
		run      Run
	}{{other, counted(0)}, {tiny, counted(1)}, {tiny, reasoning}} {
		agent, err := (&Starts{Settings: c.settings, Folder: folder}).For(t.Context(), c.run)
		if err != nil {
			t.Fatal(err)
		}
		if names := files(t, folder); len(names) != i+2 || made() != i+2 {
			t.Errorf("case %d: %d starts are made and %s kept, want %d", i, made(), names, i+2)
		}
		if slices.Equal(agent.Parameters, first.Parameters) {
			t.Errorf("case %d: the same start", i)
		}
	}
}

// A file that is no policy, and a folder that is none, give errors of one line
// that name them.
func TestStartsBadFile(t *testing.T) {
	made := addCounted(t)
	folder := t.TempDir()
	if _, err := (&Starts{Settings: tiny, Folder: folder}).For(t.Context(), counted(0)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, files(t, folder)[0])
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"empty": nil, "text": []byte("no\npolicy"), "cut off": whole[:len(whole)-1]} {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := (&Starts{Settings: tiny, Folder: folder}).For(t.Context(), counted(0))
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	_, err = (&Starts{Settings: tiny, Folder: path}).For(t.Context(), counted(0))
	if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a file in place of the folder: the error is %v", err)
	}
	if made() != 1 {
		t.Errorf("%d starts are made, want 1", made())
	}
}

// A start whose shape is not that of the vocabulary and the settings is refused.
func TestStartsShape(t *testing.T) {
	addCounted(t)
	s := &Starts{Settings: tiny, Folder: t.TempDir()}
	if _, err := s.For(t.Context(), counted(0)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Folder, files(t, s.Folder)[0])
	if err := policy.New(5, tiny.Hidden, 0).Save(path); err != nil {
		t.Fatal(err)
	}
	_, err := (&Starts{Settings: tiny, Folder: s.Folder}).For(t.Context(), counted(0))
	if want := path + ": the policy has 5 words and a width of 4, want 84 and 4; delete the file to make it again"; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

// A start that was not made because its context was cancelled is made later.
func TestStartsCancelled(t *testing.T) {
	addCounted(t)
	s := &Starts{Settings: tiny, Folder: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if agent, err := s.For(ctx, counted(0)); agent != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: a start %t, error %v", agent != nil, err)
	}
	if names := files(t, s.Folder); len(names) != 0 {
		t.Errorf("cancelled: %s is kept", names)
	}
	if agent, err := s.For(t.Context(), counted(0)); agent == nil || err != nil {
		t.Errorf("afterwards: a start %t, error %v", agent != nil, err)
	}
}

// Each setting, and the share of mistakes in each game, changes the fingerprint.
func TestFingerprint(t *testing.T) {
	seen := map[string]string{Default.Fingerprint(): "nothing"}
	check := func(changed string, s Settings) {
		print := s.Fingerprint()
		if before, ok := seen[print]; ok {
			t.Errorf("the fingerprint with a change of %s is that with a change of %s", changed, before)
		}
		seen[print] = changed
	}
	for i := range reflect.TypeFor[Settings]().NumField() {
		s := Default
		field := reflect.ValueOf(&s).Elem().Field(i)
		if field.CanInt() {
			field.SetInt(field.Int() + 1)
		} else {
			field.SetFloat(math.Nextafter(field.Float(), 10))
		}
		check(reflect.TypeFor[Settings]().Field(i).Name, s)
	}
	for name, before := range maps.Clone(noise) {
		noise[name] += 0.01
		check(name, Default)
		noise[name] = before
	}
}
