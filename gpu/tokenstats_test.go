package gpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// tokenStats compares the bits of TokenStats with those of the portable kernels. outputs
// names those that are wanted: l, e, p, and q for LogSumSqProbs.
func (m *machine) tokenStats(c *rowCase, outputs string) {
	m.Helper()
	n := c.logits.Rows()
	want := reweight.Stats{LSE: make([]float32, n), Entropy: make([]float32, n), Logprob: make([]float32, n),
		LogSumSqProbs: make([]float32, n)}
	m.must(m.cpu.TokenStats(want, c.logits, c.ids, reweight.TokenStatsOptions{Temperature: c.tau}))

	logits, rows, ids := c.place(m)
	var dst gpu.Stats
	var out [4]*placed
	for i, o := range []struct {
		letter string
		ptr    *gpu.Ptr
	}{{"l", &dst.LSE}, {"e", &dst.Entropy}, {"p", &dst.Logprob}, {"q", &dst.LogSumSqProbs}} {
		if strings.Contains(outputs, o.letter) {
			out[i] = m.output(n)
			*o.ptr = out[i].Ptr
		}
	}
	if !strings.Contains(outputs, "p") {
		ids = gpu.IDs{}
	}
	m.must(m.ws.TokenStats(dst, rows, ids, reweight.TokenStatsOptions{Temperature: c.tau}))
	if err := m.ws.Check(); err != nil {
		m.Fatalf("%v: %v", c, err)
	}
	if !bytes.Equal(m.read("logits", logits), logits.image[logits.at:logits.at+logits.n]) {
		m.Errorf("%v: the logits have been written", c)
	}
	wanted := c.wanted()
	for i, w := range [][]float32{want.LSE, want.Entropy, want.Logprob, want.LogSumSqProbs} {
		if out[i] == nil {
			continue
		}
		for r, got := range floatsOf(m.read("an output", out[i])) {
			if !wanted[r] {
				w[r] = untouched
			}
			if !same(got, w[r]) {
				m.Errorf("%v: row %d, id %d: %s is %v (%08x), want %v (%08x)", c, r, c.ids[r],
					[...]string{"LSE", "entropy", "log-probability", "log-sum of squares"}[i], got,
					math.Float32bits(got), w[r], math.Float32bits(w[r]))
			}
		}
	}
	m.free()
	if m.Failed() {
		m.FailNow()
	}
}

// TestTokenStatsJumps: one element above the others, by any power of 2, in any block and
// chunk; and one below.
func TestTokenStatsJumps(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(5, 5))
	for d := range reweight.DTypeF16 + 1 {
		v := 3*8192/d.Size() + 500
		places := []int{0, 127, 1023, 1024, 2047, 2048, 3000, 4095, 4096, 5000, 6143, 6144, 8191, v - 1}
		for _, by := range []float64{7.5, 8.5, 60, 129, 200, 260, -124.5, -126, -129, -200, -260} {
			var x []float32
			for _, p := range places {
				row := make([]float32, v)
				for i := range row {
					row[i] = float32(r.Float64())
				}
				row[min(p, v-1)] = float32(by / log2E)
				x = append(x, row...)
			}
			if d != reweight.DTypeBF16 && by != 129 && by != -129 && by != 8.5 {
				x = x[:3*v]
			}
			l := logitsOf(d, v, x)
			m.tokenStats(&rowCase{logits: l, ids: someIDs(l, r), tau: 1, within: fmt.Sprint("one element by ", by)},
				"lepq")
		}
	}
}

// TestTokenStatsTurns: more rows than warps, so that each takes several, and the copies
// of a row's first chunk overlap with the last of the row before.
func TestTokenStatsTurns(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(6, 6))
	for d := range reweight.DTypeF16 + 1 {
		chunk := 8192 / d.Size()
		for _, v := range []int{5, chunk - 3, chunk + 1, 2 * chunk, 2*chunk + 700} {
			for _, outputs := range []string{"lep", []string{"l", "ep", "p", "lepq", "q"}[r.IntN(5)]} {
				f := families[r.IntN(len(families))]
				m.tokenStats(anyCase(f.rows(d, m.many(), v, r), f.name, r), outputs)
			}
		}
	}
}

// TestTokenStatsTeams: rows of several rounds for a team, which takes what is a row alone.
func TestTokenStatsTeams(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(17, 17))
	for d := range reweight.DTypeF16 + 1 {
		for _, f := range families {
			m.tokenStats(anyCase(f.rows(d, 1, teamVocab(d, r), r), f.name, r), []string{"lep", "lepq"}[r.IntN(2)])
		}
	}
}

// TestTokenStatsBadIDs: an id that is not in the vocabulary makes the log-probability
// NaN and nothing else, and Check names row and id.
func TestTokenStatsBadIDs(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(8, 8))
	l := families[0].rows(reweight.DTypeBF16, 30, 50, r)
	want := reweight.Stats{LSE: make([]float32, 30), Entropy: make([]float32, 30), Logprob: make([]float32, 30)}
	ids := someIDs(l, r)
	m.must(m.cpu.TokenStats(want, l, ids, reweight.DefaultTokenStats))
	for _, bad := range []int64{-1, 50, math.MaxInt32, math.MinInt32, 1 << 32, 1<<32 + 7, math.MinInt64} {
		for _, wide := range []bool{false, true} {
			if !wide && bad != int64(int32(bad)) {
				continue
			}
			some := append([]int32(nil), ids...)
			c := &rowCase{logits: l, ids: some, tau: 1, wide: wide}
			_, rows, where := c.place(m)
			if wide {
				m.must(gpu.Upload(m.dev, where.Ptr+8*17, []int64{bad}, 0))
			} else {
				m.must(gpu.Upload(m.dev, where.Ptr+4*17, []int32{int32(bad)}, 0))
			}
			lse, entropy, logprob := m.output(30), m.output(30), m.output(30)
			m.must(m.ws.TokenStats(gpu.Stats{LSE: lse.Ptr, Entropy: entropy.Ptr, Logprob: logprob.Ptr}, rows, where,
				reweight.DefaultTokenStats))
			var wrong *reweight.InputError
			if err := m.ws.Check(); !errors.As(err, &wrong) ||
				wrong.Error() != fmt.Sprintf("reweight: ids[17] is %d, want 0 to 49, for rows of 50 logits", bad) {
				t.Errorf("id %d, %v: %v", bad, wide, err)
			}
			if err := m.ws.Check(); err != nil {
				t.Errorf("id %d: again: %v", bad, err)
			}
			for i, w := range [][]float32{want.LSE, want.Entropy, want.Logprob} {
				for row, got := range floatsOf(m.read("output", []*placed{lse, entropy, logprob}[i])) {
					if expect := w[row]; i == 2 && row == 17 {
						if got == got {
							t.Errorf("id %d: a log-probability of %v, want NaN", bad, got)
						}
					} else if !same(got, expect) {
						t.Errorf("id %d: row %d: %v, want %v", bad, row, got, expect)
					}
				}
			}
			m.free()
		}
	}
}

// TestTokenStatsBadIndex: rows that are not there are passed over, and Check names one.
func TestTokenStatsBadIndex(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(9, 9))
	l := families[0].rows(reweight.DTypeF32, 40, 50, r)
	want := reweight.Stats{LSE: make([]float32, 40)}
	m.must(m.cpu.TokenStats(want, l, nil, reweight.DefaultTokenStats))
	for _, bad := range []int64{-1, 40, math.MaxInt64, math.MinInt64} {
		index := make([]int64, 40)
		for i := range index {
			index[i] = int64(i)
		}
		index[0], index[20], index[39] = bad, bad, bad
		c := &rowCase{logits: l, tau: 1}
		_, rows, _ := c.place(m)
		rows.Index = &gpu.Index{Ptr: m.place(raw.Bytes(index), 0).Ptr, N: len(index)}
		lse := m.output(40)
		m.must(m.ws.TokenStats(gpu.Stats{LSE: lse.Ptr}, rows, gpu.IDs{}, reweight.DefaultTokenStats))
		var wrong *reweight.InputError
		if err := m.ws.Check(); !errors.As(err, &wrong) || wrong.Arg != "logits.Index" || wrong.Index%39 != 0 &&
			wrong.Index != 20 ||
			wrong.Problem != fmt.Sprintf("is %d, want 0 to 39, for 40 rows of logits", bad) {
			t.Errorf("row %d: %v", bad, err)
		}
		for row, got := range floatsOf(m.read("LSE", lse)) {
			w := want.LSE[row]
			if row == 0 || row == 20 || row == 39 {
				w = untouched
			}
			if !same(got, w) {
				t.Errorf("row %d: LSE is %v, want %v", row, got, w)
			}
		}
		m.free()
	}
}
