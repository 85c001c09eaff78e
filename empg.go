package reweight

import (
	"cmp"

	"github.com/seed621a2839/reweight/internal/problem"
)

// EMPGOptions are the options of [Workspace.EMPG]. K, KFuture and Zeta that are all 0 are an error:
// nobody has set them. Some of them may be 0.
type EMPGOptions struct {
	K       float64 // k: how fast the scale of a span's advantage falls with its entropy, 0 to 80; 0: it is 1
	KFuture float64 // k': how fast the bonus falls with the next span's entropy, 0 to 80; 0: not at all
	Zeta    float64 // of the bonus, at least 0; 0: there is none
}

// DefaultEMPG holds the paper's K and KFuture. Zeta is from ARLArena, whose code has EMPG
// too; the page of the paper's authors has 0.1.
var DefaultEMPG = EMPGOptions{K: 1, KFuture: 1, Zeta: 0.05}

// check says which option is out of range.
func (opt *EMPGOptions) check() error {
	if err := cmp.Or(checkRange("K", opt.K, 0, 80), checkRange("KFuture", opt.KFuture, 0, 80),
		checkNotNegative("Zeta", opt.Zeta)); err != nil {
		return err
	}
	if opt.K == 0 && opt.KFuture == 0 && opt.Zeta == 0 {
		return badInput("K", problem.Zeros, "KFuture and Zeta", "DefaultEMPG")
	}
	return nil
}

// empgEps is added to both denominators.
const empgEps = 1e-8

// An empgSpan is the means of a span's entropy and advantage, and what its tokens'
// advantages become: scale times theirs, plus bonus.
type empgSpan struct {
	entropy, advantage float64
	scale, bonus       float64
}

// EMPG sets advantages from Advantages and the entropies of spans (arXiv 2509.09265).
// With Hbar_s the mean of Entropy over the response tokens of span s, and minimum,
// maximum and means over the N spans of the batch:
//
//	x_s = (Hbar_s - min) / (max - min + 1e-8)
//	g_s = exp(-K x_s) / (mean exp(-K x) + 1e-8)    f_s = exp(-KFuture x_s)
//	M_t = Advantages[t] g_s(t) + Zeta f_next(s)
//	A_t = M_t - mean_s mean_{t in s} M_t
//
// where next(s) is the next span of the same trajectory; the last one has no bonus.
// Where all Hbar are equal, x is 0. The means are in float64, because the width that x
// is divided by may be small. One span alone gives advantages of 0, to rounding.
// Masked tokens get 0. Advantages is usually what GRPO makes; where it varies within
// a span, the span's mean counts in the last line.
//
// advantages, Role, SpanIDs, Advantages and Entropy (in nats) have one element per
// token, at most 2^31 - 1, and SeqOffsets must be set. advantages may be Advantages or
// Entropy. A span needs at least one response token. Wrong shapes, spans or options, or
// an entropy or an advantage of a response token that is not finite, is an error, and
// advantages is not written.
func (ws *Workspace) EMPG(advantages []float32, b *Batch, opt EMPGOptions) error {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, opt.check(), checkLen("advantages", len(advantages), b.Tokens(), "token")); err != nil {
		return err
	}
	count, err := ws.countSpans(b)
	if err != nil {
		return err
	}
	if err := ws.checkResponses(isa, b.Role, array{"Advantages", b.Advantages},
		array{"Entropy", b.Entropy}); err != nil {
		return err
	}
	spans := take[empgSpan](ws, len(count))
	values, start, err := ws.gather("Advantages", b.Advantages, b, count, inf)
	if err != nil {
		return err
	}
	for i := range spans {
		spans[i].advantage = mean64(values[start[i]:start[i+1]])
	}
	if values, _, err = ws.gather("Entropy", b.Entropy, b, count, inf); err != nil {
		return err
	}
	lo, hi := inf, -inf
	for i := range spans {
		h := mean64(values[start[i]:start[i+1]])
		spans[i].entropy = h
		lo, hi = min(lo, h), max(hi, h)
	}
	width := hi - lo + empgEps
	var lane [lanes]float64 // span s in lane s mod 16
	for i := range spans {
		s := &spans[i]
		x := (s.entropy - lo) / width
		s.scale = exp64(float64(-opt.K * x))
		s.bonus = float64(opt.Zeta * exp64(float64(-opt.KFuture*x))) // so far for the span before it
		lane[i%lanes] += s.scale
	}
	n := float64(len(spans))
	mean := tree(&lane)/n + empgEps
	first := ws.firstSpans(b)
	for q := range b.Trajectories() {
		bonus := 0.0 // of the span after the one at hand
		for i := first[q+1] - 1; i >= first[q]; i-- {
			spans[i].bonus, bonus = bonus, spans[i].bonus
		}
	}
	clear(lane[:])
	for i := range spans {
		s := &spans[i]
		s.scale /= mean
		lane[i%lanes] += float64(s.advantage*s.scale) + s.bonus
	}
	centre := tree(&lane) / n
	for i := range spans {
		spans[i].bonus -= centre
	}
	for t, r := range b.Role {
		a := 0.0
		if r != RoleMasked {
			s := &spans[b.SpanIDs[t]]
			a = float64(float64(b.Advantages[t])*s.scale) + s.bonus
		}
		advantages[t] = float32(a)
	}
	return nil
}

// mean64 returns the mean in float64: value i in lane i mod 16.
func mean64(values []float32) float64 {
	var lane [lanes]float64
	for i, v := range values {
		lane[i%lanes] += float64(v)
	}
	return tree(&lane) / float64(len(values))
}
