//go:build unix

package rollout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// A file that becomes shorter while its trajectories are read is an error.
func TestShorterSource(t *testing.T) {
	data := must.Get(os.ReadFile(exampleFiles[1]))
	dir := writeFiles(t, map[string][]byte{"a": data, "b": data})
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	shorten := func(path string, s *Source) {
		t.Helper()
		must.Do(os.Truncate(path, 0))
		needAddresses(t, &s.mapped[len(s.mapped)-1].data[0])
	}
	is := func(err error, path string) bool {
		return err != nil && strings.HasPrefix(err.Error(), path+": its memory cannot be used: ")
	}

	s := must.Get(Open(a))
	defer s.Close()
	first := must.Get(s.Next())
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

	s = must.Get(Open(b, exampleFiles[1]))
	defer s.Close()
	must.Get(s.Next())
	shorten(b, s)
	_, err := s.Batch()
	if _, again := s.Next(); !is(err, b) || again != err {
		t.Error(err, again)
	}
}
