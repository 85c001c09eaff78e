package reweight_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// gpuRow is a row on an interpreter of the GPU's kernels.
type gpuRow struct {
	*testing.T
	dev   *gpu.Device
	ws    *gpu.Workspace
	taken []gpu.Ptr
}

func (g *gpuRow) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// upload puts an array on the device.
func upload[E any](g *gpuRow, x []E) gpu.Ptr {
	g.Helper()
	p, err := g.dev.Alloc(8 * len(x))
	g.must(err)
	g.must(gpu.Upload(g.dev, p, x, 0))
	g.taken = append(g.taken, p)
	return p
}

// TestGPUFloat64: the float64 behind the GPU's token statistics and row gradients has the
// bits that it has here. Rounding to float32 and to bfloat16 hides most differences in it.
func TestGPUFloat64(t *testing.T) {
	dev, write := testgpu.Exact(t, 1)
	ws := must.Get(dev.NewWorkspace(0, gpu.Size{}))
	g := &gpuRow{T: t, dev: dev, ws: ws}
	r := rand.New(rand.NewPCG(1, 2))
	far, slow, rows := 0, 0, 400
	if testing.Short() { // the race detector and emulators, which take a minute or two for all
		rows = 60
	}
	for i := range rows {
		n := 1 + r.IntN(1500)
		if i%20 == 0 {
			n = 2000 + r.IntN(5000)
		}
		x := make([]reweight.BF16, n)
		wide := make([]float32, n)
		size, step := []float64{1, 3, 30, 1e6}[r.IntN(4)], 10*r.NormFloat64()
		for j := range x {
			wide[j] = float32(size*r.NormFloat64() + step*float64(j/1024))
			if i%7 == 0 && r.IntN(4) == 0 {
				wide[j] = float32(math.Inf(-1))
			}
			if i%11 == 0 { // one id, and its element is exact in log2 units: the others are all of the entropy
				wide[j] = []float32{-87, float32(math.Inf(-1))}[i/11%2] // -87 is -125.5 in log2 units
				if j == n/2 {
					wide[j] = 0
				}
			}
			x[j] = reweight.ToBF16(wide[j])
		}
		row := reweight.Logits{Vocab: n, F32: wide}
		there := gpu.Rows{Rows: 1, Vocab: n}
		if i%2 == 0 {
			row = reweight.Logits{Vocab: n, BF16: x}
			there.DType, there.Ptr = reweight.DTypeBF16, upload(g, x)
		} else {
			there.Ptr = upload(g, wide)
		}
		tau := []float64{1, 1, 1, 0.6, 0.7, 1.3, 1.4426950408889634, math.E, 0.01, 1e-7, 0x1p-18, 0x1p18, 0x1.8p18,
			0x1p20}[r.IntN(14)]
		id := int32(r.IntN(n))
		out := upload(g, make([]float32, 4))
		ids := gpu.IDs{Ptr: upload(g, []int32{id})}

		exact := upload(g, make([]float64, 4))
		write(exact)
		g.must(ws.TokenStats(gpu.Stats{Entropy: out, Logprob: out + 4, LogSumSqProbs: out + 8}, there, ids,
			reweight.TokenStatsOptions{Temperature: tau}))
		var got, want [4]float64
		g.must(gpu.Download(dev, got[:], exact, 0))
		want = reweight.RowSums(row, tau)
		g.compare(n, tau, got[:], want[:], "reference", "logarithm of the sum", "entropy",
			"logarithm of the sum of squares")

		var stats [2]float32
		g.must(gpu.Download(dev, stats[:], out, 0))
		h, l := stats[0], stats[1]
		if i%13 == 0 { // the log-probability at which 1 - p_y is computed in another way
			l = []float32{-0.5, math.Nextafter32(-0.5, 0)}[i/13%2]
			g.must(gpu.Upload(dev, out+4, []float32{l}, 0))
		}
		if l < -64 {
			far++
		}
		opt := reweight.RowGradientOptions{Temperature: tau, EntropyBonus: []float64{0, 0.3}[r.IntN(2)]}
		if opt.EntropyBonus == 0 {
			h = 0
		}
		gradient := []float32{float32(r.NormFloat64())}
		dst := there
		dst.Ptr = upload(g, make([]float32, n))
		g.must(ws.RowGradient(dst, there, ids,
			gpu.RowGradientInput{Logprobs: out + 4, Entropy: out, Grad: upload(g, gradient)}, opt))
		g.must(ws.Check())
		if l == l {
			g.must(gpu.Download(dev, got[:3], exact, 0))
			want[0], want[1], want[2] = reweight.GradientTerms(row, id, l, h, gradient[0], opt)
			g.compare(n, tau, got[:3], want[:3], "own term", "logsumexp", "scale")
			if want[2] == 0 {
				slow++
			}
		}
		for _, p := range g.taken {
			g.must(dev.Free(p))
		}
		g.taken = g.taken[:0]
		if t.Failed() {
			return
		}
	}
	if want := rows / 40; far < want || slow < want {
		t.Errorf("%d rows with a far log-probability, %d too large for float32: want %d of each", far, slow, want)
	}
	g.must(ws.Close())
	g.must(dev.Close())
}

// compare wants numbers to be equal; either zero, and every NaN, counts as one.
func (g *gpuRow) compare(n int, tau float64, got, want []float64, names ...string) {
	g.Helper()
	for i, w := range want {
		if got[i] != w && (got[i] == got[i] || w == w) {
			g.Errorf("a row of %d at temperature %v: %s is %x, want %x", n, tau, names[i], got[i], w)
		}
	}
}
