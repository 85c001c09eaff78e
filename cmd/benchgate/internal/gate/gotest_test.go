package gate

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/test/must"
)

var long = flag.Bool("long", false, "run tests that take long and the module proxy")

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

// unlike are those of their benchmarks that the gate may time otherwise than go test, and why.
var unlike = map[string]string{
	"golang-lru BenchmarkLRU_Rand":      cacheFills,
	"golang-lru Benchmark2Q_Freq":       cacheFills,
	"golang-lru BenchmarkLRU_Freq":      cacheFills,
	"decimal BenchmarkDecimal_PowInt32": garbage,
}

const (
	cacheFills = "its cache of 8,192 entries fills at 100,000 calls, whose set-up is so long that other programs hide the difference"
	garbage    = "it allocates: go test's runs pay for collections of garbage, and a block for few; on a busy machine a call takes from 480 to 1,250 ns"
)

// TestLikeGoTest: what the gate times is what go test times, within a factor of 1.25 of the
// median of -count 5. What is outside is run again at other moments, and the quietest of
// three rounds counts. If the five times still differ by more than that factor among
// themselves, or the gate's pairs do, the medians tell of other programs, and the nearest
// values count.
//
//	go test ./cmd/benchgate/internal/gate -run TestLikeGoTest -long -timeout 2h -v
func TestLikeGoTest(t *testing.T) {
	if !*long {
		t.Skip("it takes a quarter of an hour and the module proxy: -long")
	}
	exe := buildGate(t, inDir(t, ".", "git", "rev-parse", "--show-toplevel"))
	for _, m := range alike {
		name := filepath.Base(strings.TrimSuffix(m.path, "/v2"))
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, m.path)
			// The test looks at what is timed, not at the verdict.
			r := runGate(t, exe, dir, "-base", "HEAD", "-bench", m.bench, "-budget", "5m", "-slower", "2", ".")
			plain := filepath.Join(t.TempDir(), "plain.test")
			inDir(t, dir, "go", "test", "-c", "-o", plain, ".")
			said := map[string][]float64{}
			outside := func(q reported) (ratio float64, out bool) {
				ns := said[q.Benchmark]
				if len(ns) == 0 || len(q.Pairs) == 0 {
					return 0, true
				}
				spread := func(x []float64) (least, most float64) {
					if slices.Sort(x); x[len(x)-1] > 1.25*x[0] {
						return x[0], x[len(x)-1]
					}
					return x[len(x)/2], x[len(x)/2]
				}
				var pairs []float64
				for _, p := range q.Pairs {
					pairs = append(pairs, p.Base)
				}
				least, most := spread(ns)
				own, ownMost := spread(pairs)
				return q.Base_ns / ns[len(ns)/2], own >= 1.25*most || ownMost <= 0.8*least
			}
			for round := range 3 {
				for _, q := range r.Results {
					ratio, out := outside(q)
					if out || round < 2 && (ratio <= 0.8 || ratio >= 1.25) {
						ns := goTest(t, dir, plain, q.Benchmark)
						if old := said[q.Benchmark]; len(old) == 0 || len(ns) > 0 && ns[len(ns)/2] < old[len(old)/2] {
							said[q.Benchmark] = ns
						}
					}
				}
			}
			near, noisy, least, most := 0, 0, math.Inf(1), 0.0
			for _, q := range r.Results {
				ratio, out := outside(q)
				why := unlike[name+" "+q.Benchmark]
				if !out && (ratio <= 0.8 || ratio >= 1.25) {
					noisy++
					t.Logf("  %-40s %.4g ns, %.2f of the median of %.4g", q.Benchmark, q.Base_ns, ratio,
						said[q.Benchmark])
					continue
				}
				if !out {
					near++
					least, most = min(least, ratio), max(most, ratio)
					continue
				}
				t.Logf("  %-40s %.4g ns, %.2f of go test's median of %.4g; %s", q.Benchmark, q.Base_ns, ratio,
					said[q.Benchmark], why)
				if why == "" {
					t.Fail()
				}
			}
			t.Logf("%s: %d of %d within a factor of 1.25 of the median (%.2f to %.2f), %d more by the nearest values; %.0f s", m.path, near, len(r.Results), least, most, noisy, r.seconds)
			for _, note := range r.Notes {
				t.Log("  ", note)
			}
		})
	}
}

// copyOf makes a git repository of a module, in the version of testdata/modules/go.mod.
func copyOf(t *testing.T, path string) (dir string) {
	var module struct{ Dir string }
	must.Do(json.Unmarshal([]byte(inDir(t, filepath.Join("testdata", "modules"), "go", "mod", "download", "-json",
		path)), &module))
	dir = filepath.Join(t.TempDir(), "module")
	must.Do(os.CopyFS(dir, os.DirFS(module.Dir)))
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		inDir(t, dir, "go", "mod", "init", path)
	}
	inDir(t, dir, "git", "init", "--quiet")
	inDir(t, dir, "git", "add", "--all", "--force")
	inDir(t, dir, "git", "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "--quiet",
		"--no-verify", "--no-gpg-sign", "-m", "all")
	return dir
}

// goTest returns the ns/op of five runs of a benchmark, sorted. On a busy machine these are
// times of others too, so they count as much as the process had a CPU.
func goTest(t *testing.T, dir, exe, benchmark string) (all []float64) {
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$", "-test.bench="+exactly(benchmark), "-test.cpu=1",
		"-test.benchtime=0.1s", "-test.count=5")
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
