package gate

import (
	"io"
	"maps"
	"path/filepath"
	"testing"

	"github.com/seed621a2839/reweight/internal/cli"
)

// TestModuleAgainstBase runs benchgate -base -bench in a repository: on a change that is
// not committed, and on one that a commit accepts.
func TestModuleAgainstBase(t *testing.T) {
	dir, _ := twoModules(t)
	do, commit := newRepository(t, dir)
	t.Setenv("TMPDIR", t.TempDir())
	commit("README", "text")
	put(filepath.Join(dir, "this_test.go"), "package constants\n\nconst factor = 1.25\n")
	before := snapshot(dir)

	run := func(base string) (compared, error) {
		opt := compareOptions("", "", "Same|Bytes|Other")
		opt.Base, opt.Dir = base, filepath.Join(dir, "sub")
		opt.Packages = []string{"../..."}
		return runCompare(t, opt)
	}
	const slower = "BenchmarkBytes regression: 80 B/op, base 64, N pairs\nBenchmarkSame pass\nBenchmarkOther pass"
	c, err := run("HEAD")
	if got := withoutPairs(c); cli.ExitStatus("", err, io.Discard) != 1 || got != slower {
		t.Errorf("%v, %s\nwant\n%s", err, got, slower)
	}
	if after := snapshot(dir); !maps.Equal(before, after) {
		t.Errorf("the working copy was\n%v\nand is\n%v", before, after)
	}

	do("commit", "--quiet", "-a", "-m", "slow down\n\nBench-Accept: BenchmarkBytes it is safe now")
	c, err = run("HEAD~1")
	if got := withoutPairs(c); err != nil || got != slower {
		t.Errorf("%v, %s\nwant\n%s", err, got, slower)
	}
}
