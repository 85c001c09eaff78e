package kernels

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

var search = flag.Duration("search", 0, "how long TestSearchAccuracy looks for rows with large errors")

// A tiled row is made so that rounding errors add up instead of averaging out:
// elements at the same place of their groups and blocks are equal, so that all
// lanes make the same errors. The first and the last element stand apart: one
// far above the others, or a last one that moves the reference.
type tiled struct {
	vocab       int
	id          int         // of the log-probability and the gradient
	first, last float32     // last NaN: as the tile has it
	masked      bool        // the rest of the first block is -Inf: the others may lie above its reference
	tile        [64]float32 // element i of a block of 1,024 is tile[i/16]
}

func (r *tiled) at(i int) float32 {
	switch {
	case i == 0:
		return r.first
	case i == r.vocab-1 && r.last == r.last:
		return r.last
	case r.masked && i < 1024:
		return float32(math.Inf(-1))
	}
	return r.tile[i%1024/16]
}

// fill writes the row to x.
func (r *tiled) fill(x []float32) {
	for from := 0; from < len(x); from += 16 {
		v := r.tile[from%1024/16]
		if r.masked && from < 1024 {
			v = float32(math.Inf(-1))
		}
		for i := from; i < min(from+16, len(x)); i++ {
			x[i] = v
		}
	}
	x[0], x[len(x)-1] = r.at(0), r.at(len(x)-1)
}

// values calls f with each value and how many elements have it.
func (r *tiled) values(f func(x, n float64)) {
	var count [64]int // of each place of the tile
	for from := 0; from < r.vocab; from += 16 {
		if !r.masked || from >= 1024 {
			count[from%1024/16] += min(16, r.vocab-from)
		}
	}
	for _, i := range []int{0, r.vocab - 1}[:min(2, r.vocab)] { // which stand apart
		f(float64(r.at(i)), 1)
		if !r.masked || i >= 1024 {
			count[i%1024/16]--
		}
	}
	for j, v := range r.tile {
		if count[j] > 0 {
			f(float64(v), float64(count[j]))
		}
	}
}

// exact returns the log-sum-exp of x/tau, its entropy, and the log of the sum of squared
// probabilities.
func (r *tiled) exact(tau float64) (logSum, entropy, squares float64) {
	top := math.Inf(-1)
	r.values(func(x, _ float64) { top = max(top, x) })
	var S, T, Q, rest float64
	peaks := 0.0
	r.values(func(x, n float64) {
		d := (x - top) / tau
		if x == top {
			peaks += n
			return
		}
		if e := n * math.Exp(d); e > 0 {
			rest += e
			T += e * d
			Q += n * math.Exp(2*d)
		}
	})
	S = peaks + rest
	l, q := math.Log(S), math.Log(peaks+Q)
	if peaks == 1 {
		l, q = math.Log1p(rest), math.Log1p(Q)
	}
	return top/tau + l, l - T/S, q - 2*l
}

// The outputs that are searched.
const (
	searchLSE = iota
	searchEntropy
	searchLogprob
	searchSquares
	searchGradient
	searchOutputs
)

var searchNames = [...]string{"LSE", "Entropy", "Logprob", "LogSumSqProbs", "RowGradient"}

// A probe runs tiled rows.
type probe struct {
	ws     reweight.Workspace
	x, dst []float32
}

// measure returns how far an output is off, beyond the half unit of its rounding,
// and the share of the bound that this is. Both are below 0 for a result that is
// nearer than the half unit.
func (p *probe) measure(r *tiled, tau float64, output int) (off, share float64) {
	if cap(p.x) < r.vocab {
		p.x, p.dst = make([]float32, r.vocab), make([]float32, r.vocab)
	}
	p.x, p.dst = p.x[:r.vocab], p.dst[:r.vocab]
	r.fill(p.x)
	logits := reweight.Logits{Vocab: r.vocab, F32: p.x}
	ids := [1]int32{int32(r.id)}
	var out [1]float32
	var stats reweight.Stats
	if to := []*[]float32{&stats.LSE, &stats.Entropy, &stats.Logprob, &stats.LogSumSqProbs}; output < searchGradient {
		*to[output] = out[:]
	} else {
		stats.Logprob = out[:]
	}
	p.ws.Workers = 1
	must.Do(p.ws.TokenStats(stats, logits, ids[:], reweight.TokenStatsOptions{Temperature: tau}))
	logSum, entropy, squares := r.exact(tau)
	beyond := func(got float32, want float64) float64 {
		if float64(got) == want { // also -Inf
			return 0
		}
		return math.Abs(float64(got)-want) - math.Abs(want)*0x1p-24
	}
	if output < searchGradient {
		want := []float64{logSum, entropy, min(0, float64(r.at(r.id))/tau-logSum), squares}
		ofLogSum := logSumBound(r.vocab, tau)
		bound := []float64{ofLogSum, entropyBound(r.vocab, tau), ofLogSum, squaresBound(r.vocab, tau)}
		off = beyond(out[0], want[output])
		return off, off / bound[output]
	}
	g := [1]float32{1}
	of := reweight.RowGradientInput{Logprobs: out[:], Grad: g[:]}
	dst := reweight.Logits{Vocab: r.vocab, F32: p.dst}
	must.Do(p.ws.RowGradient(dst, logits, ids[:], of, reweight.RowGradientOptions{Temperature: tau}))
	off = math.Inf(-1)
	for i, v := range p.dst {
		if i != r.id && i > 0 && i < r.vocab-1 && (i%16 != 1 || i >= 2048) {
			continue // as an element that is tried
		}
		l := float64(p.x[i])/tau - logSum
		want := -math.Exp(l) / tau
		if i == r.id {
			want = -math.Expm1(l) / tau
		}
		off = max(off, beyond(v, want)*tau)
	}
	return off, off / (gradientBound(r.vocab, tau, 1, 0) * tau)
}

// random sets the row to a start of the search.
func (r *tiled) random(rng *rand.Rand) {
	nan, lnV := float32(math.NaN()), math.Log(float64(r.vocab))
	r.first, r.last, r.masked = 0, nan, false
	r.id = []int{0, r.vocab - 1, rng.IntN(r.vocab)}[rng.IntN(3)]
	base := -lnV + 3*rng.Float64()
	switch kind := rng.IntN(6); {
	case kind == 1: // equal ones
		r.first = float32(base)
	case kind == 2 && r.vocab > oneBlock: // above the reference
		r.masked, base = true, 5.5
	case kind == 3 && r.vocab > oneBlock: // and a move
		r.masked, base, r.last = true, 5.5, float32(5.6+rng.Float64()*lnV)
	case kind == 4: // far apart
		r.first, base = float32(55+9*rng.Float64()), 0
		r.id = r.vocab - 1
	}
	for j := range r.tile {
		r.tile[j] = float32(base)
		switch rng.IntN(4) {
		case 0:
			r.tile[j] = float32(base - 17*rng.Float64()) // lost in a sum of larger ones
		case 1:
			r.tile[j] = float32(base + rng.Float64())
		}
	}
	if rng.IntN(2) == 0 {
		for j := range r.tile {
			r.tile[j] = float32(base)
		}
	}
}

// change changes the row a little.
func (r *tiled) change(rng *rand.Rand) {
	nudge := func(v float32) float32 {
		switch rng.IntN(3) {
		case 0: // the last places
			return math.Float32frombits(math.Float32bits(v) + uint32(rng.IntN(9)-4)<<rng.IntN(20))
		case 1:
			return v + float32(rng.NormFloat64()*math.Exp2(-float64(rng.IntN(20))))
		}
		return r.tile[rng.IntN(64)]
	}
	switch rng.IntN(10) {
	case 0:
		r.first = nudge(r.first)
	case 1:
		if r.last == r.last {
			r.last = nudge(r.last)
		}
	case 2: // all
		d := float32(rng.NormFloat64() * math.Exp2(-float64(rng.IntN(20))))
		for j := range r.tile {
			r.tile[j] += d
		}
	case 3: // places of every group, or groups of every block
		j, v := rng.IntN(8), nudge(r.tile[rng.IntN(64)])
		for i := range 8 {
			if rng.IntN(2) == 0 {
				r.tile[8*i+j] = v
			} else {
				r.tile[8*j+i] = v
			}
		}
	case 4: // the row's log-sum-exp to 0, where float32 is fine
		if l, _, _ := r.exact(1); math.Abs(l) < 30 && rng.IntN(4) == 0 {
			r.first -= float32(l)
			r.last -= float32(l)
			for j := range r.tile {
				r.tile[j] -= float32(l)
			}
		}
	case 5:
		r.tile[rng.IntN(64)] = float32(math.Inf(-1))
	default:
		j := rng.IntN(64)
		r.tile[j] = nudge(r.tile[j])
	}
	for j, v := range r.tile {
		if v != v || v > 80 {
			r.tile[j] = 0
		} else if v < -80 {
			r.tile[j] = float32(math.Inf(-1))
		}
	}
	if !(math.Abs(float64(r.first)) < 80) {
		r.first = 0
	}
	if r.last < -80 || r.last > 80 {
		r.last = 0
	}
}

// climb changes the row until end or for that many steps, and keeps a change
// after which the error is no smaller a share of the bound.
func (p *probe) climb(r *tiled, tau float64, output, steps int, end time.Time, rng *rand.Rand) (off, share float64) {
	off, share = p.measure(r, tau, output)
	for step := 0; step < steps && (step%64 != 0 || time.Now().Before(end)); step++ {
		next := *r
		for range 1 + rng.IntN(3) {
			next.change(rng)
		}
		if o, s := p.measure(&next, tau, output); s >= share {
			*r, off, share = next, o, s
		}
	}
	return off, share
}

// TestSearchAccuracy looks for rows with large errors by hill climbing, from
// starts that are bad already:
//
//	go test ./kernels -run TestSearchAccuracy -search 10m -v -timeout 0
//
// Without -search it takes a second. No row may be outside the bound.
func TestSearchAccuracy(t *testing.T) {
	sizes, total := []int{128, 1024, 8192, 151936}, *search
	if total == 0 {
		sizes, total = []int{100, 1024, 3000}, time.Second
	}
	type config struct {
		output, vocab int
		tau           float64
	}
	var configs []config
	for output := range searchOutputs {
		for _, tau := range []float64{1, 0.7} {
			for _, v := range sizes {
				if output != searchLSE || tau == 1 {
					configs = append(configs, config{output, v, tau})
				}
			}
		}
	}
	var p probe
	rng := rand.New(rand.NewPCG(uint64(total), 1))
	for _, c := range configs {
		var worst tiled
		worstOff, worstShare := 0.0, math.Inf(-1)
		end := time.Now().Add(total / time.Duration(len(configs)))
		climbs := 0
		for ; climbs == 0 || time.Now().Before(end); climbs++ {
			r := worst
			if climbs%8 < 4 { // the worst of some starts; else, go on with what is worst
				most := math.Inf(-1)
				for range 50 {
					start := tiled{vocab: c.vocab}
					start.random(rng)
					if _, share := p.measure(&start, c.tau, c.output); share > most {
						r, most = start, share
					}
				}
			}
			off, share := p.climb(&r, c.tau, c.output, 10000, end, rng)
			if share > worstShare {
				worst, worstOff, worstShare = r, off, share
			}
			if share > 1 {
				t.Fatalf("%s at %v: off by %.4g, %.2f of the bound: %+v", searchNames[c.output], c.tau, off, share, r)
			}
		}
		t.Logf("%-13s temperature %-3v %6d elements: off by %.3g, %2.0f%% of the bound, after %d climbs",
			searchNames[c.output], c.tau, c.vocab, worstOff, 100*worstShare, climbs)
	}
}

// TestAccuracyQuantiles prints how far rows of the families are off:
//
//	go test ./kernels -run TestAccuracyQuantiles -search 1s -v
//
// Without -search it takes two rows of each.
func TestAccuracyQuantiles(t *testing.T) {
	rows := 2
	if *search > 0 {
		rows = 2000
	}
	for _, name := range []string{"token_stats_squares", "token_stats_temperature", "token_stats_squares_temp",
		"row_gradient", "row_gradient_temperature"} {
		k := must.Get(Find(name))
		for _, f := range Families {
			if f == Special {
				continue
			}
			var off, share [4][]float64 // of each output, a row's largest
			var names [4]string
			for seed := range rows {
				c := must.Get(k.New(Spec{Rows: 1, Vocab: 4096, DType: reweight.DTypeF32, Family: f,
					Seed: uint64(seed)}))
				c.Reference()
				must.Do(c.Run(&reweight.Workspace{Workers: 1}))
				if _, err := c.Check(); err != nil {
					t.Fatal(err)
				}
				for o := range c.outputs {
					most, mostShare := c.outputs[o].largest()
					off[o], share[o], names[o] = append(off[o], most), append(share[o], mostShare), c.outputs[o].name
				}
			}
			for o := range off {
				if n := len(off[o]); n > 0 {
					slices.Sort(off[o])
					slices.Sort(share[o])
					t.Logf("%-31s %-8s %-16s off by %.2g (half of the rows), %.2g (99%%), %.2g (all); beyond the rounding %.1f, %.1f and %.1f%% of the bound", name, f, names[o],
						off[o][n/2], off[o][n*99/100], off[o][n-1], 100*share[o][n/2], 100*share[o][n*99/100],
						100*share[o][n-1])
				}
			}
		}
	}
}
