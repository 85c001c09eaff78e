package reweight

import (
	"fmt"
	"math"
)

// The kernels one by one, for callers who compose their own step: each checks
// its arguments and runs the implementation that ws.Path names, arrays of tokens
// in pieces that keep goroutines preemptible.

// Moments are the sums of MaskedMoments over n tokens.
type Moments struct {
	N            int
	Sum, Squares float64 // of x - shift and (x - shift)^2
}

// MaskedMoments sums x - shift and its square over the tokens whose role is in
// roles, a bit set: 1<<RoleAction, say. x and role have the same length, and
// shift is finite; anything else is an error. The values of other tokens do not
// matter.
func (ws *Workspace) MaskedMoments(x []float32, role []uint8, roles uint8, shift float64) (Moments, error) {
	path, err := ws.Path.resolve()
	if err != nil {
		return Moments{}, err
	}
	if err := need("x", len(x), len(role)); err != nil {
		return Moments{}, err
	}
	if err := checkRoles(role); err != nil {
		return Moments{}, err
	}
	if shift-shift != 0 {
		return Moments{}, fmt.Errorf("reweight: shift = %v, want a finite number", shift)
	}
	return ws.moments(path, x, role, roles, shift), nil
}

func (ws *Workspace) moments(path ISA, x []float32, role []uint8, roles uint8, shift float64) Moments {
	ws.moment = momentSums{}
	for i := 0; i < len(x); i += pieceSize {
		end := min(i+pieceSize, len(x))
		path.maskedMoments(x[i:end], role[i:end], roles, shift, &ws.moment)
	}
	return Moments{int(ws.moment.count), tree(&ws.moment.sum), tree(&ws.moment.squares)}
}

// ActFocusWeights sets dst[t] by the role of token t: opt.Alpha for reasoning,
// 1 + opt.Beta * sigmoid((signal[t] - mean) / sigma) for action and 0 for
// masked tokens (arXiv 2605.14558). ActFocus does this with the mean and sigma
// of the batch. dst, signal and role have the same length; dst may be signal.
// sigma is at least 0; 0 makes every sigmoid 1/2. A wrong length, mean, sigma
// or option is an error, and dst is not written.
func (ws *Workspace) ActFocusWeights(dst, signal []float32, role []uint8, mean, sigma float64, opt ActFocusOptions) error {
	path, err := ws.Path.resolve()
	if err != nil {
		return err
	}
	if err := need("dst", len(dst), len(role)); err != nil {
		return err
	}
	if err := need("signal", len(signal), len(role)); err != nil {
		return err
	}
	if err := checkRoles(role); err != nil {
		return err
	}
	if err := opt.check(); err != nil {
		return err
	}
	if !(math.Abs(mean) <= math.MaxFloat32) || !(sigma >= 0 && sigma <= math.MaxFloat32) {
		return fmt.Errorf("reweight: mean = %v and sigma = %v, want finite numbers and sigma at least 0", mean, sigma)
	}
	q := actFocusConsts{muHi: float32(mean), alpha: float32(opt.Alpha), beta: float32(opt.Beta)}
	q.muLo = float32(mean - float64(q.muHi))
	if sigma > 0 {
		q.k = float32(max(-math.MaxFloat32, -log2E/sigma))
	}
	for i := 0; i < len(dst); i += pieceSize {
		end := min(i+pieceSize, len(dst))
		path.actFocusWeights(dst[i:end], signal[i:end], role[i:end], &q)
	}
	return nil
}

// SpanMeans sets dst[s] to the mean of x over span s, elements offsets[s] to
// offsets[s+1], NaN for an empty one. offsets has one element more than dst, is
// not decreasing, and stays within x; otherwise that is an error, and dst is
// not written. dst does not overlap x.
func (ws *Workspace) SpanMeans(dst, x []float32, offsets []int32) error {
	path, err := ws.Path.resolve()
	if err != nil {
		return err
	}
	if err := checkRanges("dst", len(dst), len(x), offsets); err != nil {
		return err
	}
	ws.spanSums = grow(ws.spanSums, len(dst))
	path.spanSums(ws.spanSums, x, offsets)
	for s := range dst {
		dst[s] = float32(ws.spanSums[s] / float64(offsets[s+1]-offsets[s]))
	}
	return nil
}

// MinMax sets lo[g] and hi[g] to the extremes of group g, elements offsets[g]
// to offsets[g+1] of x: both NaN if one is NaN, +Inf and -Inf for an empty
// group. offsets has one element more than lo and hi, is not decreasing, and
// stays within x; otherwise that is an error, and nothing is written. lo, hi and
// x do not overlap.
func (ws *Workspace) MinMax(lo, hi, x []float32, offsets []int32) error {
	path, err := ws.Path.resolve()
	if err != nil {
		return err
	}
	if len(lo) != len(hi) {
		return fmt.Errorf("reweight: len(hi) = %d, want len(lo) = %d", len(hi), len(lo))
	}
	if err := checkRanges("lo", len(lo), len(x), offsets); err != nil {
		return err
	}
	path.minMax(lo, hi, x, offsets)
	return nil
}

// ExpScale sets dst[i] = exp(-rate (x[i] - lo)) and divides by the mean of
// these: AEM's map of a scope's span entropies (arXiv 2605.00425), with lo the
// smallest and rate = lambda / (max - min). The exponent is kept between -86 and
// 83. dst and x have the same length, at least 1; dst may be x. A wrong length or
// a rate that is negative or not finite is an error, and dst is not written.
func (ws *Workspace) ExpScale(dst, x []float32, lo float32, rate float64) error {
	path, err := ws.Path.resolve()
	if err != nil {
		return err
	}
	if len(x) == 0 || len(dst) != len(x) {
		return fmt.Errorf("reweight: len(dst) = %d and len(x) = %d, want the same and at least 1", len(dst), len(x))
	}
	if !(rate >= 0 && rate <= math.MaxFloat32) || !finite(lo) {
		return fmt.Errorf("reweight: rate = %v and lo = %v, want finite numbers and rate at least 0", rate, lo)
	}
	k := float32(max(-math.MaxFloat32, -rate*log2E))
	ws.exps = laneSum{}
	for i := 0; i < len(x); i += pieceSize {
		end := min(i+pieceSize, len(x))
		path.expScale(dst[i:end], x[i:end], lo, k, &ws.exps)
	}
	f := float32(float64(len(x)) / ws.exps.sum())
	for i := 0; i < len(x); i += pieceSize {
		path.scale(dst[i:min(i+pieceSize, len(x))], f)
	}
	return nil
}

// Multiply sets dst[i] = a[i] * b[i]: AEM's factors onto advantages. The
// lengths are equal, or that is an error; dst may be a or b.
func (ws *Workspace) Multiply(dst, a, b []float32) error {
	path, err := ws.Path.resolve()
	if err != nil {
		return err
	}
	if len(a) != len(dst) || len(b) != len(dst) {
		return fmt.Errorf("reweight: len(a) = %d and len(b) = %d, want %d like dst", len(a), len(b), len(dst))
	}
	for i := 0; i < len(dst); i += pieceSize {
		end := min(i+pieceSize, len(dst))
		path.multiply(dst[i:end], a[i:end], b[i:end])
	}
	return nil
}

// SurrogateSums are what Surrogate sums over response tokens.
type SurrogateSums struct {
	Tokens   int
	Clipped  int     // those whose clipped term is the larger
	Loss     float64 // of weight times clipped surrogate
	LogRatio float64 // of the clamped log-ratio, nats
}

// Surrogate computes the weighted clipped surrogate of each response token as
// Loss defines it, its sums, and grad[t] = scale * dl_t/dlogprobs[t] * weight;
// the aggregation of opt is not used. weights nil stands for ones. All arrays
// have one element per token; grad may be any of the float inputs. A wrong
// length or option is an error, and grad is not written.
func (ws *Workspace) Surrogate(grad, logprobs, old, advantages, weights []float32, role []uint8, scale float64, opt LossOptions) (SurrogateSums, error) {
	path, err := ws.Path.resolve()
	if err != nil {
		return SurrogateSums{}, err
	}
	for _, a := range [...]struct {
		name string
		n    int
	}{{"grad", len(grad)}, {"logprobs", len(logprobs)}, {"old", len(old)}, {"advantages", len(advantages)}} {
		if err := need(a.name, a.n, len(role)); err != nil {
			return SurrogateSums{}, err
		}
	}
	if weights != nil {
		if err := need("weights", len(weights), len(role)); err != nil {
			return SurrogateSums{}, err
		}
	}
	if err := checkRoles(role); err != nil {
		return SurrogateSums{}, err
	}
	if err := opt.check(); err != nil {
		return SurrogateSums{}, err
	}
	if !(math.Abs(scale) <= math.MaxFloat32) {
		return SurrogateSums{}, fmt.Errorf("reweight: scale = %v, want a finite number", scale)
	}
	return ws.surrogate(path, grad, logprobs, old, advantages, weights, role, scale, &opt), nil
}

func (ws *Workspace) surrogate(path ISA, grad, logprobs, old, advantages, weights []float32, role []uint8, scale float64, opt *LossOptions) SurrogateSums {
	q := surrogateConsts{lo: float32(1 - opt.ClipLow), hi: float32(1 + opt.ClipHigh), dual: float32(opt.DualClip), scale: float32(scale)}
	if opt.DualClip == 0 {
		q.dual = float32(math.Inf(1))
	}
	ws.sums = surrogateSums{}
	for i := 0; i < len(role); i += pieceSize {
		end := min(i+pieceSize, len(role))
		w := weights
		if w != nil {
			w = w[i:end]
		}
		path.surrogate(grad[i:end], logprobs[i:end], old[i:end], advantages[i:end], w, role[i:end], &q, &ws.sums)
	}
	return SurrogateSums{int(ws.sums.tokens), int(ws.sums.clipped), ws.sums.loss.sum(), ws.sums.logRatio.sum()}
}

// checkRanges wants offsets to cut n ranges out of size elements.
func checkRanges(name string, n, size int, offsets []int32) error {
	if len(offsets) != n+1 {
		return fmt.Errorf("reweight: len(offsets) = %d, want len(%s) + 1 = %d", len(offsets), name, n+1)
	}
	if offsets[0] < 0 {
		return fmt.Errorf("reweight: offsets[0] = %d, want at least 0", offsets[0])
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] < offsets[i-1] {
			return fmt.Errorf("reweight: offsets[%d] = %d is below offsets[%d] = %d", i, offsets[i], i-1, offsets[i-1])
		}
	}
	if last := offsets[n]; int(last) > size {
		return fmt.Errorf("reweight: offsets[%d] = %d, want at most len(x) = %d", n, last, size)
	}
	return nil
}
