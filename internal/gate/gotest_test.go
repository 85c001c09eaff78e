package gate

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var long = flag.Bool("long", false, "run tests that take an hour and the module proxy")

// alike are modules of other people, of the versions in testdata/modules/go.mod, and which of
// their benchmarks are compared with go test.
var alike = []struct{ path, bench string }{
	{"github.com/cespare/xxhash/v2", "."},
	{"github.com/gobwas/glob", "Match"},
	{"github.com/google/btree", "G$"},
	{"github.com/google/uuid", "."},
	{"github.com/hashicorp/golang-lru/v2", "."},
	{"github.com/mattn/go-runewidth", "String"},
	{"github.com/oklog/ulid/v2", "."},
	{"github.com/rivo/uniseg", "."},
	{"github.com/shopspring/decimal", "."},
	{"github.com/spaolacci/murmur3", "."},
}

// TestLikeGoTest: what the gate times is what go test times. It logs each benchmark whose
// times differ by more than a quarter.
//
//	go test ./internal/gate -run TestLikeGoTest -long -timeout 2h -v
func TestLikeGoTest(t *testing.T) {
	if !*long {
		t.Skip("it takes an hour and the module proxy: -long")
	}
	exe := buildGate(t, inDir(t, ".", "git", "rev-parse", "--show-toplevel"))
	for _, m := range alike {
		t.Run(filepath.Base(strings.TrimSuffix(m.path, "/v2")), func(t *testing.T) {
			var module struct{ Dir string }
			if err := json.Unmarshal([]byte(inDir(t, filepath.Join("testdata", "modules"), "go", "mod", "download", "-json", m.path)), &module); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "module")
			must(t, os.CopyFS(dir, os.DirFS(module.Dir)))
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
				inDir(t, dir, "go", "mod", "init", m.path)
			}
			inDir(t, dir, "git", "init", "--quiet")
			inDir(t, dir, "git", "add", "--all", "--force")
			inDir(t, dir, "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet", "--no-verify", "--no-gpg-sign", "-m", "all")
			r := runGate(t, exe, dir, "-base", "HEAD", "-bench", m.bench, ".", "-budget", "1m")
			plain := filepath.Join(t.TempDir(), "plain.test")
			inDir(t, dir, "go", "test", "-c", "-o", plain, ".")
			said := map[string][]float64{}
			for _, q := range r.results {
				said[q.Benchmark] = goTest(t, dir, plain, q.Benchmark)
			}
			near, all := 0, 0
			for _, q := range r.results {
				ns := said[q.Benchmark]
				if len(ns) == 0 || q.Base_ns == 0 {
					continue
				}
				ratio := q.Base_ns / ns[len(ns)/2]
				all++
				if ratio > 0.8 && ratio < 1.25 {
					near++
				} else {
					t.Logf("  %-40s %s, %.2f of go test's median %.4g ns (%.4g to %.4g)", q.Benchmark, fmt.Sprintf("%.4g ns", q.Base_ns), ratio, ns[len(ns)/2], ns[0], ns[len(ns)-1])
				}
			}
			t.Logf("%s: %d of %d within a factor of 1.25; status %d, %.0f s", m.path, near, all, r.status, r.seconds)
			for _, note := range r.notes {
				t.Log("  ", note)
			}
		})
	}
}

// goTest returns the ns/op of five runs of a benchmark, sorted. On a busy machine these are
// times of others too, so they count as much as the process had a CPU.
func goTest(t *testing.T, dir, exe, benchmark string) (all []float64) {
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$", "-test.bench="+exactly(benchmark), "-test.cpu=1", "-test.benchtime=0.1s", "-test.count=5")
	cmd.Dir = dir
	begin := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Log(benchmark, err)
		return nil
	}
	busy := min(1, float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())/float64(time.Since(begin)))
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == benchmark {
			if ns, err := strconv.ParseFloat(f[2], 64); err == nil {
				all = append(all, ns*busy)
			}
		}
	}
	slices.Sort(all)
	return all
}
