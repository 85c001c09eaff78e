package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestTrailers: the commits after the base say what is accepted, those of a merge too.
func TestTrailers(t *testing.T) {
	canStart(t)
	dir := t.TempDir()
	do, commit := newRepository(t, dir)
	message := func(text string) { t.Helper(); do("commit", "--quiet", "--allow-empty", "-m", text) }
	commit("x", "x")
	message("old\n\nBench-Accept: BenchmarkOld it was before the base")
	do("tag", "base")
	accepted := func() (list []string, err error) {
		t.Helper()
		r := must.Get(openRepository(t.Context(), dir, "base", false))
		all, err := r.accepted(t.Context())
		for _, a := range all {
			if len(a.commit) < 7 {
				t.Errorf("%+v has no commit", a)
			}
			list = append(list, fmt.Sprint(a.pkg, " ", a.name, " to ", a.most, " because ", a.reason))
		}
		return list, err
	}
	for _, c := range []struct{ text, want string }{
		{"none\n\nNothing here is Bench-Accept: BenchmarkText it is no trailer.\n\nSigned-off-by: n", ""},
		{"one\n\nBench-Accept: BenchmarkOne it checks more\nSigned-off-by: n", " BenchmarkOne to +Inf because it checks more"},
		{"two\n\nbench-accept:   BenchmarkTwo/sub   it is   better\nBench-Accept: ./a/ BenchmarkX up to 1.3 exact now", " BenchmarkTwo/sub to +Inf because it is better|a BenchmarkX to 1.3 because exact now"},
		{"folded\n\nBench-Accept: BenchmarkLong the reason is so long\n that it is folded", " BenchmarkLong to +Inf because the reason is so long that it is folded"},
		{"hostile\n\nBench-Accept: \x1b[2J::error:: x\x1b[1m because", "\x1b[2J::error:: x\x1b[1m to +Inf because because"},
	} {
		message(c.text)
		got, err := accepted()
		if want := strings.FieldsFunc(c.want, func(r rune) bool { return r == '|' }); err != nil ||
			!slices.Equal(got[:min(len(want), len(got))], want) {
			t.Errorf("%q: %q, %v, want %q first", c.text, got, err, want)
		}
	}
	// Of a merge, those of the other branch count too, unless the base has them.
	before, _ := accepted()
	do("checkout", "--quiet", "-b", "side", "base")
	message("side\n\nBench-Accept: BenchmarkSide it is a merge")
	do("checkout", "--quiet", "main")
	do("merge", "--quiet", "--no-ff", "-m", "merge\n\nBench-Accept: BenchmarkMerge itself", "side")
	after, err := accepted()
	if err != nil || len(after) != len(before)+2 ||
		!slices.Contains(after, " BenchmarkSide to +Inf because it is a merge") ||
		!slices.Contains(after, " BenchmarkMerge to +Inf because itself") ||
		slices.ContainsFunc(after, func(a string) bool { return strings.Contains(a, "Old") }) {
		t.Errorf("after a merge: %q, %v", after, err)
	}
	message("no reason\n\nBench-Accept: BenchmarkBare")
	if _, err := accepted(); err == nil ||
		!strings.HasSuffix(err.Error(), "Bench-Accept: BenchmarkBare has no reason") {
		t.Errorf("without a reason: %v", err)
	}
}
