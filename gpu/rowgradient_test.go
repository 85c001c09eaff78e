package gpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/raw"
)

// gradientCase is a call of RowGradient.
type gradientCase struct {
	*rowCase
	logprobs, entropy, grad []float32
	gradEntropy             []float32 // nil for zeros
	lse                     []float32 // nil to have it from the chosen element
	bonus                   float64
	inPlace                 bool
	dstPast, dstGap         int // of dst, if it is not in place
}

// newGradientCase draws gradients, and has the statistics that the logits have.
func (m *machine) newGradientCase(c *rowCase, bonus float64, r *rand.Rand) *gradientCase {
	m.Helper()
	n := c.logits.Rows()
	g := &gradientCase{rowCase: c, logprobs: make([]float32, n), entropy: make([]float32, n), grad: make([]float32, n),
		bonus: bonus}
	m.must(m.cpu.TokenStats(reweight.Stats{Entropy: g.entropy, Logprob: g.logprobs}, c.logits, c.ids,
		reweight.TokenStatsOptions{Temperature: c.tau}))
	for i := range g.grad {
		if g.grad[i] = float32(r.NormFloat64()); r.IntN(6) == 0 {
			g.grad[i] = 0
		}
	}
	if r.IntN(3) == 0 {
		g.gradEntropy = make([]float32, n)
		for i := range g.gradEntropy {
			if g.gradEntropy[i] = float32(r.NormFloat64()); r.IntN(4) == 0 {
				g.gradEntropy[i] = float32(bonus) // so that there may be nothing left
			}
		}
	}
	if r.IntN(3) == 0 {
		g.giveLSE(r)
	}
	return g
}

// giveLSE gives the logsumexp of each row, and the ids of some are those of other columns then.
func (g *gradientCase) giveLSE(r *rand.Rand) {
	g.ids, g.lse = slices.Clone(g.ids), nil
	for i, id := range g.ids {
		chosen := float64(at(g.logits, i*g.logits.Vocab+int(id)))
		g.lse = append(g.lse, float32(chosen/g.tau-float64(g.logprobs[i])))
		if r.IntN(4) == 0 {
			g.ids[i] = -1
		}
	}
}

// rowGradient compares the bits of RowGradient with those of the portable kernels.
func (m *machine) rowGradient(c *gradientCase) {
	m.Helper()
	d, n, v := c.logits.DType(), c.logits.Rows(), c.logits.Vocab
	opt := reweight.RowGradientOptions{Temperature: c.tau, EntropyBonus: c.bonus}
	want := newLogits(d, n, v)
	m.must(m.cpu.RowGradient(want, c.logits, c.ids,
		reweight.RowGradientInput{Logprobs: c.logprobs, Entropy: c.entropy, Grad: c.grad, GradEntropy: c.gradEntropy,
			LSE: c.lse}, opt))

	logits, rows, ids := c.place(m)
	dst, dstRows, gap := logits, rows, c.gap
	if !c.inPlace {
		gap = c.dstGap
		dst = m.place(bytes.Repeat([]byte{filling}, c.size(gap)), c.dstPast*d.Size())
		dstRows = c.rows(dst.Ptr, gap)
	}
	var entropy, gradEntropy gpu.Ptr
	if c.gradEntropy != nil {
		gradEntropy = m.place(raw.Bytes(c.gradEntropy), 12).Ptr
	}
	if c.bonus != 0 || c.gradEntropy != nil {
		entropy = m.place(raw.Bytes(c.entropy), 4).Ptr
	}
	of := gpu.RowGradientInput{Logprobs: m.place(raw.Bytes(c.logprobs), 4).Ptr, Entropy: entropy,
		Grad: m.place(raw.Bytes(c.grad), 8).Ptr, GradEntropy: gradEntropy}
	if c.lse != nil {
		of.LSE = m.place(raw.Bytes(c.lse), 4).Ptr
	}
	m.must(m.ws.RowGradient(dstRows, rows, ids, of, opt))
	if err := m.ws.Check(); err != nil {
		m.Fatalf("%v: %v", c, err)
	}
	if !c.inPlace && !bytes.Equal(m.read("logits", logits), logits.image[logits.at:logits.at+logits.n]) {
		m.Fatalf("%v: the logits have been written", c)
	}
	// Where nothing is to be written, dst is as it was.
	expect := bytes.Clone(dst.image[dst.at : dst.at+dst.n])
	for r, w := range c.wanted() {
		if w {
			row := raw.Logits(want)[r*v*d.Size() : (r+1)*v*d.Size()]
			copy(expect[c.begin(r, gap)*d.Size():], row)
		}
	}
	m.compare(c, m.read("dst", dst), expect, gap)
	m.free()
}

// compare reports the first element of which the bits differ.
func (m *machine) compare(c *gradientCase, got, want []byte, gap int) {
	m.Helper()
	numbers := func(b []byte) reweight.Logits {
		l := newLogits(c.logits.DType(), 1, len(b)/c.logits.DType().Size())
		copy(raw.Logits(l), b)
		return l
	}
	g, w := numbers(got), numbers(want)
	for i := range g.Vocab {
		if a, b := at(g, i), at(w, i); !same(a, b) {
			row := 0
			for row+1 < c.logits.Rows() && c.begin(row+1, gap) <= i {
				row++
			}
			m.Fatalf("%v, bonus %v, in place %v: row %d, element %d, id %d, log-probability %v, g %v: %v (%08x), want %v (%08x)", c, c.bonus, c.inPlace,
				row, i-c.begin(row, gap), c.ids[row], c.logprobs[row], c.grad[row], a, math.Float32bits(a), b,
				math.Float32bits(b))
		}
	}
}

var bonuses = []float64{0, 0, 0.01, 1, -0.5}

// placeAnyhow draws where dst is.
func (c *gradientCase) placeAnyhow(r *rand.Rand) *gradientCase {
	c.inPlace = r.IntN(2) == 0
	if c.dstPast, c.dstGap = c.past, c.gap; r.IntN(2) == 0 { // else aligned like the logits
		c.dstPast, c.dstGap = r.IntN(20), r.IntN(20)
	}
	return c
}

// TestRowGradientInputs: log-probabilities and gradients that the row does not have.
func TestRowGradientInputs(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(14, 14))
	nan := float32(math.NaN())
	for d := range reweight.DTypeBF16 + 1 {
		for _, tau := range []float64{1, 0.6, 0x1p20, 1e-7} {
			for _, bonus := range []float64{0, 0.3} {
				var c gradientCase
				f := families[0]
				if tau == 0.6 { // so wide that powers above MAX_Y come up where the log-probability is wrong
					f = families[1]
				}
				l := f.rows(d, 96, 300, r)
				c.rowCase = &rowCase{logits: l, ids: someIDs(l, r), tau: tau, within: "inputs"}
				for _, p := range []float32{0, -1e-9, -0.4, -0.5, math.Nextafter32(-0.5, 0), -63,
					math.Nextafter32(-64, 0), -64, math.Nextafter32(-64, -inf), -500, -1e30, -inf, nan, 1, 1e30, inf} {
					for _, g := range []float32{0, 1, -1.5, inf, nan, 1e-40} {
						c.logprobs = append(c.logprobs, p)
						c.entropy = append(c.entropy, float32(r.Float64()*5))
						c.grad = append(c.grad, g)
					}
				}
				c.entropy[5], c.entropy[6] = nan, inf
				c.bonus = bonus
				m.rowGradient(c.placeAnyhow(r))
				c.giveLSE(r)
				c.lse[7], c.lse[8], c.lse[9], c.lse[10], c.lse[11] = nan, inf, -inf, 3e6, -3e6
				m.rowGradient(c.placeAnyhow(r))
			}
		}
	}
}

// TestRowGradientTeams: rows for a team, some of which it has to sum again.
func TestRowGradientTeams(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(18, 18))
	for d := range reweight.DTypeBF16 + 1 {
		for i, f := range families {
			c := m.newGradientCase(anyCase(f.rows(d, 1, teamVocab(d, r), r), f.name, r),
				bonuses[r.IntN(len(bonuses))], r)
			if i%2 == 0 {
				c.logprobs[0] = -70
			}
			m.rowGradient(c.placeAnyhow(r))
		}
	}
}

// TestRowGradientTurns: more rows than warps, so that each takes several.
func TestRowGradientTurns(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(19, 19))
	for d := range reweight.DTypeBF16 + 1 {
		for _, v := range []int{5, 1024, 1500, 8192/d.Size() + 1} {
			f := families[r.IntN(len(families))]
			c := anyCase(f.rows(d, m.many(), v, r), f.name, r)
			m.rowGradient(m.newGradientCase(c, bonuses[r.IntN(len(bonuses))], r).placeAnyhow(r))
		}
	}
}

// TestRowGradientBad: an id that is not in the vocabulary makes its row NaN and no other,
// a row that is not there is passed over, and Check names them.
func TestRowGradientBad(t *testing.T) {
	m := newMachine(t)
	r := rand.New(rand.NewPCG(16, 16))
	l := families[0].rows(reweight.DTypeF32, 30, 50, r)
	c := m.newGradientCase(&rowCase{logits: l, ids: someIDs(l, r), tau: 1}, 0, r)
	c.ids = someIDs(l, r) // none is -1
	want := newLogits(reweight.DTypeF32, 30, 50)
	m.must(m.cpu.RowGradient(want, l, c.ids, reweight.RowGradientInput{Logprobs: c.logprobs, Grad: c.grad},
		reweight.DefaultRowGradient))
	ids := append([]int32(nil), c.ids...)
	for _, bad := range []int32{-1, 50, -100, math.MaxInt32} {
		c.ids = append([]int32(nil), ids...)
		c.ids[17] = bad
		c.grad[17] = []float32{0, 1}[bad&1] // even if the gradient is 0
		_, rows, where := c.place(m)
		logprobs, grad := m.place(raw.Bytes(c.logprobs), 0), m.place(raw.Bytes(c.grad), 0)
		of, lowest := gpu.RowGradientInput{Logprobs: logprobs.Ptr, Grad: grad.Ptr}, 0
		if bad == -100 { // with the logsumexp the id may be that of another column
			lse := make([]float32, 30)
			m.must(m.cpu.TokenStats(reweight.Stats{LSE: lse}, l, nil, reweight.DefaultTokenStats))
			of.LSE, lowest = m.place(raw.Bytes(lse), 0).Ptr, -1
		}
		m.must(m.ws.RowGradient(rows, rows, where, of, reweight.DefaultRowGradient))
		var wrong *reweight.InputError
		if err := m.ws.Check(); !errors.As(err, &wrong) ||
			wrong.Error() != fmt.Sprintf("reweight: ids[17] is %d, want %d to 49, for rows of 50 logits", bad, lowest) {
			t.Errorf("id %d: %v", bad, err)
		}
		for i, got := range floatsOf(m.read("dst", m.placed[0])) {
			w := want.F32[i]
			if i/50 == 17 && got == got || i/50 != 17 && lowest == 0 && !same(got, w) {
				t.Fatalf("id %d: row %d, element %d: %v, want %v", bad, i/50, i%50, got, w)
			}
		}
		m.free()
	}
	c.ids = ids
	_, rows, where := c.place(m)
	rows.Index = &gpu.Index{Ptr: m.place(raw.Bytes([]int64{30, -1}), 0).Ptr, N: 2}
	m.must(m.ws.RowGradient(rows, rows, where, gpu.RowGradientInput{Logprobs: m.output(30).Ptr, Grad: m.output(30).Ptr},
		reweight.DefaultRowGradient))
	if err := m.ws.Check(); err == nil {
		t.Error("no error for rows that are not there")
	}
	if !bytes.Equal(m.read("dst", m.placed[0]), raw.Bytes(l.F32)) {
		t.Error("rows were written though none of those that are wanted is there")
	}
	m.free()
}
