package randomcalls

import (
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

const log2e = 0x1.715476p+0 // the unit of the reference of a row is 1/log2e nats

// MostRows is the most that a trial has.
const MostRows = 40

// row draws a row of logits of the kinds that take the ways through the kernel: one
// that is summed at once, references that move, elements far below, rows in float64.
func (d *Draws) row(n int) []float32 {
	x := make([]float32, n)
	inf := float32(math.Inf(1))
	level, slope := float32(0), float32(d.NormFloat64()/100)
	kind := d.IntN(14)
	huge := float32(int(1) << (20 + d.IntN(8)))
	for i := range x {
		switch kind {
		case 0, 1:
			x[i] = normal(d.Rand)
		case 2: // the reference moves at blocks
			if i%1024 == 0 {
				level += float32(math.Abs(6 * d.NormFloat64()))
			}
			x[i] = level + normal(d.Rand)
		case 3: // and anywhere
			if d.IntN(300) == 0 {
				level += float32(20 * d.NormFloat64())
			}
			x[i] = level + normal(d.Rand)
		case 4:
			x[i] = slope*float32(i) + normal(d.Rand)
		case 5: // whole blocks of -Inf
			if x[i] = normal(d.Rand); i < n/2 || i/1024%3 == 1 {
				x[i] = -inf
			}
		case 6:
			x[i] = 30 * normal(d.Rand)
		case 7: // around the largest reference of float32
			x[i] = 1e6 * normal(d.Rand)
		case 8: // far below the reference
			if x[i] = normal(d.Rand) - 80; d.IntN(3) == 0 {
				x[i] = -1e9
			}
		case 9:
			if x[i] = -inf; d.IntN(100) == 0 {
				x[i] = normal(d.Rand)
			}
		case 10:
			x[i] = math.Float32frombits(d.Uint32N(1<<23)) * float32(1-2*d.IntN(2)) // subnormal
		case 11: // beyond it, and close together
			x[i] = huge * (1 + 0x1p-23*float32(d.IntN(100)))
		case 12: // the largest entropy
			x[i] = level
		case 13:
			x[i] = d.value(d.Rand)
		}
	}
	for range d.IntN(4) { // some at and beside the limits that the first block sets
		largest := -inf
		for _, v := range x[:min(n, 1024)] {
			largest = max(largest, v)
		}
		v := largest + one[float32](d, 8/log2e, -124/log2e, -125/log2e, 128/log2e, 129/log2e, 250/log2e)
		x[d.IntN(n)] = one(d, v, math.Nextafter32(v, inf), math.Nextafter32(v, -inf))
	}
	if d.IntN(8) == 0 {
		x[d.IntN(n)] = one(d, inf, -inf, float32(math.NaN()))
	}
	return x
}

// logits draws rows of any format, and an id for each. Where the temperature is far from
// 1, the logits often are as far apart as makes a difference there.
func (d *Draws) logits(formats int, temperature float64) (l reweight.Logits, ids []int32) {
	scale := float32(1)
	if t := temperature; (t > 100 || t < 0.01) && d.IntN(3) > 0 {
		scale = float32(t)
	}
	vocab := 1 + d.IntN(300)
	switch d.IntN(4) {
	case 0:
		vocab = one(d, 1024, 2048, 4096, 8192) + d.IntN(40) - 20
	case 1:
		vocab = 1 + d.IntN(5000)
	case 2: // the last group of a row has no elements, or few
		vocab = 128*d.IntN(10) + 1 + d.IntN(3)
	}
	l.Vocab = vocab
	rows := 1 + d.IntN(3)
	if vocab <= 300 && d.IntN(4) == 0 {
		rows = 1 + d.IntN(MostRows) // several for each warp of a launch
	}
	format := d.Format(formats)
	switch format {
	case 0:
		l.F32 = array[float32](d, rows*vocab)
	case 1:
		l.BF16 = array[reweight.BF16](d, rows*vocab)
	case 2:
		l.F16 = array[reweight.F16](d, rows*vocab)
	}
	unlikely := d.IntN(3) == 0 // ids of the smallest logits
	for r := range rows {
		id, least := d.IntN(vocab), float32(math.Inf(1))
		for i, v := range d.row(vocab) {
			v *= scale
			if unlikely && v < least && v > -math.MaxFloat32 {
				id, least = i, v
			}
			switch at := r*vocab + i; format {
			case 0:
				l.F32[at] = v
			case 1:
				l.BF16[at] = reweight.ToBF16(v)
			case 2:
				l.F16[at] = kernels.ToF16(v)
			}
		}
		ids = append(ids, int32(id))
	}
	if d.err() {
		ids[d.IntN(rows)] = int32(one(d, -1, -1, -2, vocab, vocab, vocab+1, math.MaxInt32, math.MinInt32))
	}
	return l, ids
}

// Format says which of so many formats a trial on rows has: they take turns, so that each
// kernel has as many rounds.
func (d *Draws) Format(formats int) int { return int(d.seed/4) % formats }

// Tempered says whether it has another temperature than 1, which takes turns for each of
// the formats.
func (d *Draws) Tempered() bool { return d.seed/2%2 == 1 }

// Squares says whether TokenStats has LogSumSqProbs, which takes turns for each format.
func (d *Draws) Squares() bool { return d.seed/12%2 == 1 }

func (d *Draws) temperature() float64 {
	if !d.Tempered() {
		return 1
	}
	return one(d, 0.7, 0.7, 1.3, 0.1, 30, 1e-5, 0x1p-18, 0x1p-19, 0x1p18, 0x1p19, 1e-17)
}

// trialsOnRows are those of the kernels on rows of logits.
var trialsOnRows = []Trial{
	{"TokenStats", func(d *Draws, c Caller) Outcome {
		opt := reweight.TokenStatsOptions{Temperature: d.temperature()}
		logits, ids := d.logits(3, opt.Temperature)
		var dst reweight.Stats
		outputs := 1 + d.IntN(7)
		if d.Squares() {
			outputs = 8 + d.IntN(8)
		}
		for i, o := range []*[]float32{&dst.LSE, &dst.Entropy, &dst.Logprob, &dst.LogSumSqProbs} {
			if outputs>>i&1 != 0 {
				*o = d.output(len(ids))
			}
		}
		if dst.Logprob == nil && d.IntN(2) == 0 {
			ids = nil // not read then
		}
		if v := d.view(logits.Rows()); d.IntN(2) == 0 {
			return Outcome{v.tokenStats(c, dst, logits, ids, opt), dst}
		}
		return Outcome{c.TokenStats(dst, logits, ids, opt), dst}
	}},
	{"RowGradient", func(d *Draws, c Caller) Outcome {
		opt := reweight.RowGradientOptions{Temperature: d.temperature(), EntropyBonus: one(d, 0, 0, 0.01, -3)}
		logits, ids := d.logits(2, opt.Temperature)
		rows := len(ids)
		// Log-probabilities and entropies of the row, most often.
		logprobs, entropy, lse := d.output(rows), d.output(rows), d.output(rows)
		var ws reweight.Workspace
		if ws.TokenStats(reweight.Stats{Logprob: logprobs, Entropy: entropy, LSE: lse}, logits, ids,
			reweight.TokenStatsOptions{Temperature: opt.Temperature}) != nil || d.IntN(6) == 0 {
			for r := range rows {
				logprobs[r], entropy[r] = d.value(d.Rand), d.value(d.Rand)
			}
		}
		grad := d.output(rows)
		for r := range grad {
			grad[r] = one(d, float32(d.NormFloat64()), float32(d.NormFloat64()), 0, d.value(d.Rand))
		}
		var gradEntropy []float32
		if d.IntN(2) == 0 {
			gradEntropy = d.output(rows)
			for r := range gradEntropy {
				gradEntropy[r] = one(d, float32(d.NormFloat64()), 0, float32(opt.EntropyBonus), d.value(d.Rand))
			}
		}
		if opt.EntropyBonus == 0 && gradEntropy == nil && d.IntN(2) == 0 {
			entropy = nil // not read then
		}
		dst := logits
		if d.IntN(2) == 0 {
			dst.F32, dst.BF16 = nil, nil
			if logits.F32 != nil {
				dst.F32 = d.output(len(logits.F32))
			} else {
				dst.BF16 = array[reweight.BF16](d, len(logits.BF16))
			}
		}
		of := reweight.RowGradientInput{Logprobs: logprobs, Entropy: entropy, Grad: grad, GradEntropy: gradEntropy}
		if d.IntN(3) == 0 {
			of.LSE = lse
			for r := range rows {
				lse[r] = one(d, lse[r], lse[r]/float32(opt.Temperature), d.value(d.Rand))
				if d.IntN(4) == 0 {
					ids[r] = -1 - int32(d.IntN(30)/29) // of another column, or of none
				}
			}
		}
		if v := d.view(rows); d.IntN(2) == 0 {
			return Outcome{v.rowGradient(c, dst, logits, ids, of, opt), dst}
		}
		return Outcome{c.RowGradient(dst, logits, ids, of, opt), dst}
	}},
}
