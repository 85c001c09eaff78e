package gate

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestSettings: the file's lines, and that flags win.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, settingsName)
	put(file, "# all\nslower=1.1 cpu=4 # four\n\nEncode slower=1.3 metrics=none\nEncode/small metrics=B/op,widgets\nDB skip\nNet/slow skip\n")
	run := func(given ...string) *gate {
		g := &gate{Options: Options{Slower: 1.05, Metrics: []string{"B/op"}, CPU: 1, Skip: "flag",
			Given: func(name string) bool { return slices.Contains(given, name) }}}
		must.Do(g.readSettings(dir))
		return g
	}
	is := func(g *gate, name, want string) {
		t.Helper()
		if slower, metrics := g.limits(name); fmt.Sprint(slower, metrics) != want {
			t.Errorf("%s: %v %v, want %s", name, slower, metrics, want)
		}
	}
	g := run()
	is(g, "BenchmarkX", "1.1 [B/op]")
	is(g, "BenchmarkEncode/big", "1.3 []")
	is(g, "BenchmarkEncode/small", "1.3 [B/op widgets]")
	if g.CPU != 4 || g.Skip != "DB|Net/slow" {
		t.Errorf("%+v", g.Options)
	}
	g = run("slower", "metrics", "cpu", "skip")
	is(g, "BenchmarkEncode/small", "1.05 [B/op]")
	if g.CPU != 1 || g.Skip != "flag" {
		t.Errorf("%+v", g.Options)
	}
	for line, want := range map[string]string{
		"(":             "error parsing regexp",
		"X":             `"X" has no setting`,
		"slower=1":      `slower is "1", want a ratio above 1`,
		"X slower=fast": `slower is "fast"`,
		"cpu=0":         `cpu is "0", want 1 to 1024`,
		"X cpu=2":       "cpu is of all benchmarks",
		"skip":          "want PATTERN skip",
		"X skip=1":      "want PATTERN skip",
		"X quicker=2":   `"quicker=2" is no setting`,
	} {
		put(file, "\n"+line+"\n")
		if err := (&gate{}).readSettings(dir); err == nil || !strings.HasPrefix(err.Error(), ".benchgate:2: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	must.Do((&gate{}).readSettings(t.TempDir()))
}
