//go:build unix

package rollout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that becomes shorter while its trajectories are read is an error.
func TestShorterSource(t *testing.T) {
	data, err := os.ReadFile(exampleFiles[1])
	if err != nil {
		t.Fatal(err)
	}
	dir := writeFiles(t, map[string][]byte{"a": data, "b": data})
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	shorten := func(path string, s *Source) {
		t.Helper()
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		needAddresses(t, &s.mapped[len(s.mapped)-1].data[0])
	}
	is := func(err error, path string) bool {
		return err != nil && strings.HasPrefix(err.Error(), path+": its memory cannot be used: ")
	}

	s, err := Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	shorten(a, s)
	read := func() error {
		sink += float32(first.Role[0]) + sum(first.Entropy)
		return nil
	}
	if err := s.Guard(read); !is(err, a) {
		t.Error(err)
	}
	if _, err := s.Next(); !is(err, a) {
		t.Error(err)
	}

	s, err = Open(b, exampleFiles[1])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	shorten(b, s)
	_, err = s.Batch()
	if _, again := s.Next(); !is(err, b) || again != err {
		t.Error(err, again)
	}
}
