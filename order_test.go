package reweight

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(3 * r.NormFloat64())
	}
	return x
}

func sameBits(a, b []float32) error {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && !(a[i] != a[i] && b[i] != b[i]) {
			return fmt.Errorf("element %d: %x and %x", i, a[i], b[i])
		}
	}
	return nil
}

// TestSummationOrder holds the documented order against a direct rendering of
// it: lanes, groups, blocks, tree.
func TestSummationOrder(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 127, 128, 129, 1023, 1024, 1025, 5000} {
		x := normal(n, uint64(n))
		var row [lanes]float64
		for j := range lanes {
			for b := 0; b < n; b += 1024 {
				var block float32
				for g := b; g < min(b+1024, n); g += 128 {
					var group float32
					for i := g + j; i < min(g+128, n); i += 16 {
						group += x[i]
					}
					block += group
				}
				row[j] += float64(block)
			}
		}
		got, want := make([]float64, 1), inPairs(row)
		spanSumsPortable(got, x, []int32{0, int32(n)})
		if got[0] != want {
			t.Errorf("%d elements: sum %x, want %x", n, got[0], want)
		}
	}
}

// inPairs adds lanes j and j+8, then j and j+4, j+2, j+1.
func inPairs(l [lanes]float64) float64 {
	for _, h := range []int{8, 4, 2, 1} {
		for j := range h {
			l[j] += l[j+h]
		}
	}
	return l[0]
}

// TestKLOrder holds the order of the KL's sum, which loss.go states, against a direct
// rendering of it: token t of the batch, masked ones counted, goes to lane t mod 16.
func TestKLOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 15, 16, 17, 129, 5000} {
		b := Batch{Role: make([]Role, n), SeqOffsets: []int64{0, int64(n / 2), int64(n)}, Logprobs: normal(n, 1),
			OldLogprobs: normal(n, 2),
			RefLogprobs: normal(n, 3), Advantages: normal(n, 4)}
		for i := range b.Role {
			b.Role[i] = Role(r.IntN(3))
		}
		var lane [lanes]float64
		responses := 0
		for j := range lanes {
			for i := j; i < n; i += lanes {
				if b.Role[i] != RoleMasked {
					x := float64(b.RefLogprobs[i]) - float64(b.Logprobs[i])
					lane[j] += min(k3(min(max(x, -20), 20)), 10)
					responses++
				}
			}
		}
		var ws Workspace
		res := must.Get(ws.Loss(make([]float32, n), nil, &b, DefaultLoss))
		if want := inPairs(lane) / float64(max(responses, 1)); res.KL != want {
			t.Errorf("%d tokens: KL %x, want %x", n, res.KL, want)
		}
	}
}

// TestBitsDoNotDependOn workers, nor on how rows are split into calls, nor on
// which outputs are asked for.
func TestBitsDoNotDependOn(t *testing.T) {
	const rows, vocab = 37, 3001
	x := normal(rows*vocab, 7)
	ids := make([]int32, rows)
	for r := range ids {
		ids[r] = int32(r * 80)
	}
	for _, tau := range []float64{1, 0.7} {
		opt := TokenStatsOptions{Temperature: tau}
		run := func(ws *Workspace, from, to int, dst Stats) {
			t.Helper()
			must.Do(ws.TokenStats(dst, Logits{Vocab: vocab, F32: x[from*vocab : to*vocab]}, ids[from:to], opt))
		}
		want := Stats{make([]float32, rows), make([]float32, rows), make([]float32, rows), make([]float32, rows)}
		run(&Workspace{Workers: 1}, 0, rows, want)
		got := Stats{make([]float32, rows), make([]float32, rows), make([]float32, rows), make([]float32, rows)}
		same := func(what string) {
			t.Helper()
			for _, p := range [][2][]float32{{got.LSE, want.LSE}, {got.Entropy, want.Entropy},
				{got.Logprob, want.Logprob}, {got.LogSumSqProbs, want.LogSumSqProbs}} {
				if err := sameBits(p[0], p[1]); err != nil {
					t.Errorf("tau %v, %s: %v", tau, what, err)
				}
				clear(p[0])
			}
		}
		for workers := 2; workers < 9; workers++ {
			run(&Workspace{Workers: workers}, 0, rows, got)
			same(fmt.Sprint(workers, " workers"))
		}
		for _, step := range []int{1, 2, 5, 36} {
			var ws Workspace
			for r := 0; r < rows; r += step {
				to := min(r+step, rows)
				run(&ws, r, to, Stats{got.LSE[r:to], got.Entropy[r:to], got.Logprob[r:to], got.LogSumSqProbs[r:to]})
			}
			same(fmt.Sprint("calls of ", step, " rows"))
		}
		var ws Workspace
		run(&ws, 0, rows, Stats{LSE: got.LSE})
		run(&ws, 0, rows, Stats{Entropy: got.Entropy})
		run(&ws, 0, rows, Stats{Logprob: got.Logprob})
		run(&ws, 0, rows, Stats{LogSumSqProbs: got.LogSumSqProbs})
		same("one output at a time")
	}
}

// TestCheckRoles puts every kind of byte at every place of arrays around the size
// that is checked at once.
func TestCheckRoles(t *testing.T) {
	for n := range 100 {
		role := make([]Role, n)
		for at := range n {
			for v := range 256 {
				for i := range role {
					role[i] = Role(i % 3)
				}
				role[at] = Role(v)
				err := checkRoles("role", role)
				if input, ok := err.(*InputError); (v > 2) != ok || ok && input.Index != at {
					t.Fatalf("%d roles, %d at %d: %v", n, v, at, err)
				}
			}
		}
	}
}

// TestPieceOfRanges: a piece is bounded, unless it is a single range, and no
// shorter than it need be.
func TestPieceOfRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		offsets := []int32{int32(r.IntN(5))}
		size := []int{1, 50, pieceSize / 3, 2 * pieceSize}[r.IntN(4)]
		for range 1 + r.IntN(300) {
			offsets = append(offsets, offsets[len(offsets)-1]+int32(r.IntN(size)))
		}
		for first := range len(offsets) - 1 {
			end := pieceOfRanges(offsets, first)
			elements := func(end int) int { return int(offsets[end] - offsets[first]) }
			if end <= first || end > first+1 && elements(end) > pieceSize {
				t.Fatalf("from %d to %d: %d elements", first, end, elements(end))
			}
			if end < len(offsets)-1 && elements(end+1) <= pieceSize {
				t.Fatalf("from %d to %d: %d elements, and %d would fit", first, end, elements(end), elements(end+1))
			}
		}
	}
}

// TestSchemeOrders holds the orders of the sums of REINFORCE++, GTPO and EMPG, which their
// code states, against direct renderings of them.
func TestSchemeOrders(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{40, 129, 5000} {
		values, role, first := make([]float64, n), make([]Role, n), n/3
		x := make([]float32, n)
		var lane, squares [lanes]float64
		responses := 0
		for i := range n { // of many sizes, so that sums round
			x[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(60)))
			values[i], role[i] = float64(x[i]), Role(r.IntN(3))
			if role[i] != RoleMasked {
				lane[i%lanes] += values[i]
				responses++
			}
		}
		mean := tree(&lane) / float64(responses)
		for i, v := range values {
			if d := v - mean; role[i] != RoleMasked {
				squares[i%lanes] += float64(d * d)
			}
		}
		if m, s := spread64(values, role, responses); m != mean || s != tree(&squares) {
			t.Errorf("%d tokens: REINFORCE++ has the mean %x, want %x, or another sum of squares", n, m, mean)
		}

		lane = [lanes]float64{}
		for i, v := range values {
			lane[i%lanes] += v
		}
		if got, want := mean64(x), tree(&lane)/float64(n); got != want {
			t.Errorf("%d tokens: the mean of EMPG's span is %x, want %x", n, got, want)
		}

		sc := shaping{values: slices.Clone(values), start: []int{0, first, n}}
		sc.normalize([]int{0, 1})
		mean64 := func(of func(u float64) float64) float64 {
			var lane [lanes]float64
			for i, v := range values {
				j := i // of its trajectory
				if i >= first {
					j -= first
				}
				lane[j%lanes] += of(v - values[0])
			}
			return tree(&lane) / float64(n)
		}
		mean = mean64(func(u float64) float64 { return u })
		scale := 1 / math.Sqrt(mean64(func(u float64) float64 { return float64((u - mean) * (u - mean)) })+shapingEps)
		for i, got := range sc.values {
			if want := (values[i] - values[0] - mean) * scale; got != want {
				t.Fatalf("%d tokens: value %d of GTPO is %x, want %x", n, i, got, want)
			}
		}
	}
}

// TestScratch: scratch memory is nobody else's until the call that took it returns,
// whether the arena has grown already or not, and calls within calls too.
func TestScratch(t *testing.T) {
	var ws Workspace
	inner := func(n int) {
		defer ws.release(ws.taken)
		for i := range take[float64](&ws, n) {
			take[float64](&ws, n)[i] = -1
		}
	}
	for round, n := range []int{0, 1, 7, 100, 100, 9, 1000} {
		func() {
			defer ws.release(ws.taken)
			a, b := take[int32](&ws, n), take[shapingPosition](&ws, n)
			for i := range n {
				a[i], b[i] = int32(i), shapingPosition{1, 2, float64(i)}
			}
			inner(n)
			c := take[uint8](&ws, n)
			for i := range n {
				c[i] = 255
			}
			inner(2 * n)
			for i := range n {
				if want := (shapingPosition{1, 2, float64(i)}); a[i] != int32(i) || b[i] != want || c[i] != 255 {
					t.Fatalf("round %d, element %d: %v, %v, %v", round, i, a[i], b[i], c[i])
				}
			}
		}()
		if ws.taken != 0 {
			t.Fatalf("round %d: %d words are still taken", round, ws.taken)
		}
	}
}

// TestNoAllocations: in steady state no worker allocates. Package kernels has the same test of every
// kernel, package scheme of every scheme.
func TestNoAllocations(t *testing.T) {
	const rows, vocab = 64, 500
	ids, grad := make([]int32, rows), make([]float32, rows)
	logits := Logits{Vocab: vocab, F32: normal(rows*vocab, 8)}
	bf := Logits{Vocab: vocab, BF16: make([]BF16, rows*vocab)}
	stats := Stats{make([]float32, rows), make([]float32, rows), make([]float32, rows), make([]float32, rows)}
	ws := Workspace{Workers: 4}
	for name, f := range map[string]func() error{
		"TokenStats":      func() error { return ws.TokenStats(stats, logits, ids, DefaultTokenStats) },
		"TokenStats bf16": func() error { return ws.TokenStats(stats, bf, ids, DefaultTokenStats) },
		"RowGradient": func() error {
			return ws.RowGradient(bf, bf, ids, RowGradientInput{Logprobs: stats.Logprob, Entropy: stats.Entropy,
				Grad: grad}, RowGradientOptions{Temperature: 1, EntropyBonus: 0.1})
		},
	} {
		var err error
		allocs := testing.AllocsPerRun(50, func() { err = f() })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if allocs != 0 && !raceEnabled {
			t.Errorf("%s allocates %v times per call, want 0", name, allocs)
		}
	}
}
