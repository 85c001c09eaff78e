package reweight

import "math"

// Every kernel in plain Go: what runs on machines without assembly, and the
// readable version whose bits the assembly must equal.
//
// # The one summation order
//
// Element i of a row or span belongs to lane i mod 16. A row is summed as
//
//	group  128 elements: each lane adds its 8 values in order, float32, from 0
//	block  1,024 elements: each lane adds its 8 group sums in order, float32, from 0
//	row    each lane adds its block sums in order, float64
//	tree   lanes j and j+8 are added, then j and j+4, j+2, j+1, float64
//
// A row that does not fill its last 16 elements is padded with -Inf to a whole
// 16 (a span with nothing: absent lanes add 0). The float32 groups keep a
// partial sum near its addends: an element goes through at most 14 roundings,
// where one chain of 64 per block would have 63 (kernels/BOUNDS.md says what they
// come to). The squares of a row have the same order, but a group begins at squaresFrom
// and not at 0. Sums over tokens, whose terms may cancel, have the same lanes, groups and
// tree, but each group goes to float64 (laneSum); the masked moments, the KL of the
// loss, and the sums of schemes that are plain Go add in float64 at once. An element is a
// token of the batch, or of the trajectory, span or set that is summed.
//
// # Fused multiply-add
//
// fma32 rounds once, as the instructions do. A float32 product is exact in
// float64, so whether the compiler fuses x*y + z there makes no difference;
// products in float32 never meet a sum unrounded, because they are exact or
// converted first.

const (
	lanes       = 16
	groupSize   = 8 * lanes
	blockSize   = 8 * groupSize
	pieceSize   = 64 * blockSize // elements per assembly call: keeps goroutines preemptible
	magic       = 0x1.8p23       // y + magic rounds y to an integer, kept in the low bits
	minY        = -125           // a smaller 2^y does not change a sum, and would be subnormal
	maxY        = 120            // sums of groups of 2^y stay finite
	alarm       = 128            // on amd64, a block's lane sum above it may hide an element above 2^headroom
	headroom    = 8              // a block may exceed the reference by 2^8 before the sums are rescaled
	maxMagnY    = 1 << 20        // log2 units of the reference beyond which a row goes the slow way
	log2E32     = 0x1.715476p+0
	squaresFrom = 0x1p-100 // where a sum of squares begins: some CPUs are a hundred times slower on subnormal sums
	slowTauMin  = 0x1p-18
	slowTauMax  = 0x1p18
)

// 2^f for |f| <= 1/2: degree 5, exact at 0, relative error at most 1.57e-7 as
// evaluated in float32, over every float32 in range (TestExp2Everywhere).
const (
	exp2C1 = 0x1.62e42ap-1
	exp2C2 = 0x1.ebf9b4p-3
	exp2C3 = 0x1.c6b6c4p-5
	exp2C4 = 0x1.3ced52p-7
	exp2C5 = 0x1.5bf666p-10
)

// fma32 returns x*y + z, rounded once.
//
// The product is exact in float64 and the sum is rounded to 53 bits. Rounding
// that to 24 bits again is wrong only if the 53-bit sum is a midpoint of two
// float32 (its low 28 bits are 0, also where the result is subnormal) and the
// exact sum is not: then fma32Tie repairs it.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	s := p + float64(z)
	if math.Float64bits(s)<<36 == 0 {
		s = fma32Tie(p, float64(z), s)
	}
	return float32(s)
}

// fma32Tie returns s = p + z as it is if it is exact. If s was rounded, it moves s
// one step towards the exact sum, so that s is no longer halfway between two
// float32.
//
//go:noinline
func fma32Tie(p, z, s float64) float64 {
	t := s - p
	e := (p - (s - t)) + (z - t) // the rounding error of p + z, exact
	switch {
	case e > 0 && s > 0, e < 0 && s < 0:
		return math.Float64frombits(math.Float64bits(s) + 1)
	case e > 0 || e < 0:
		return math.Float64frombits(math.Float64bits(s) - 1)
	}
	return s // exact, infinite or NaN
}

// exp2 returns 2^y for minY <= y <= 127, NaN for NaN. Beyond, the exponent
// wraps: callers discard that.
func exp2(y float32) float32 {
	m := float32(y + magic)
	f := y - float32(m-magic)
	p := fma32(exp2C5, f, exp2C4)
	p = fma32(p, f, exp2C3)
	p = fma32(p, f, exp2C2)
	p = fma32(p, f, exp2C1)
	p = fma32(p, f, 1)
	return p * math.Float32frombits(math.Float32bits(m)<<23+0x3f800000)
}

// atLeast returns max(lo, y), NaN for NaN y: the assembly's operand order.
func atLeast(lo, y float32) float32 {
	if y < lo {
		return lo
	}
	return y
}

// atMost returns min(hi, y), NaN for NaN y.
func atMost(hi, y float32) float32 {
	if y > hi {
		return hi
	}
	return y
}

// tree sums the lanes.
func tree(l *[lanes]float64) float64 {
	for h := lanes / 2; h > 0; h /= 2 {
		for j := range h {
			l[j] += l[j+h]
		}
	}
	return l[0]
}

// A laneSum is a sum over tokens: of the group that is not full yet, and of those
// that are. The assembly knows its layout.
type laneSum struct {
	total [lanes]float64
	group [lanes]float32
}

// add adds v, element i of its piece.
func (s *laneSum) add(i int, v float32) {
	s.group[i%lanes] += v
	if i%groupSize == groupSize-1 {
		s.flush()
	}
}

// addAll adds x, a piece that begins a group: what add does with each element.
func (s *laneSum) addAll(x []float32) {
	for ; len(x) >= groupSize; x = x[groupSize:] {
		g := (*[groupSize]float32)(x)
		for j := range lanes {
			v := g[j] + g[j+lanes] + g[j+2*lanes] + g[j+3*lanes] + g[j+4*lanes] + g[j+5*lanes] + g[j+6*lanes] +
				g[j+7*lanes]
			s.total[j] += float64(v)
		}
	}
	for i, v := range x {
		s.add(i, v)
	}
}

func (s *laneSum) flush() {
	for j, v := range s.group {
		s.total[j] += float64(v)
	}
	s.group = [lanes]float32{}
}

// sum returns the whole sum.
func (s *laneSum) sum() float64 {
	s.flush()
	return tree(&s.total)
}

// rowState is a row's running sums in log2 units, relative to the reference c:
// with y = x*k - c (plus x*kLo if that is not 0), s sums 2^y, t sums y*2^y and q sums
// (2^y)^2. The assembly knows its layout.
type rowState struct {
	k, kLo, c float32
	threshold float32 // in units of x: a block above it needs a new reference
	alarm     float32
	s, t, q   [lanes]float64
}

// A rowWant says which of the three sums a pass over a row makes.
type rowWant uint8

const (
	wantSum     rowWant = iota // s alone
	wantEntropy                // s and t
	wantSquares                // all three
)

// load16 fills x with elements i to i+16 of the row, -Inf from n on.
func load16(x *[lanes]float32, row Logits, i, n int) {
	m := min(n-i, lanes)
	switch {
	case row.F32 != nil:
		copy(x[:], row.F32[i:i+m])
	case row.BF16 != nil:
		for j, b := range row.BF16[i : i+m] {
			x[j] = b.Float32()
		}
	default:
		for j, h := range row.F16[i : i+m] {
			x[j] = h.Float32()
		}
	}
	for ; m < lanes; m++ {
		x[m] = float32(math.Inf(-1))
	}
}

// blockMaxPortable returns the largest of elements i to n, NaN if one is NaN.
func blockMaxPortable(row Logits, i, n int) float32 {
	var x [lanes]float32
	m := float32(math.Inf(-1))
	for ; i < n; i += lanes {
		load16(&x, row, i, n)
		for _, v := range x {
			if !(v <= m) {
				m = v
			}
			if v != v {
				return v
			}
		}
	}
	return m
}

// rowBlocksPortable adds the blocks from element i on to st and returns the
// element where it stopped: n, or the start of the first block with an element
// above st.threshold, which it leaves out. The assembly of amd64 looks at sums
// instead of elements: it stops at a block with a lane sum of 2^y above st.alarm,
// which may be a false alarm, and the caller looks closer. Of the sums it makes those
// that are wanted; each group of st.q begins at squaresFrom.
func rowBlocksPortable(row Logits, i, n int, st *rowState, want rowWant) int {
	for ; i < n; i += blockSize {
		var s, t, q, x [lanes]float32
		end := min(i+blockSize, n)
		for g := i; g < end; g += groupSize {
			var gs, gt, gq [lanes]float32
			for j := range gq {
				gq[j] = squaresFrom
			}
			for e := g; e < min(g+groupSize, end); e += lanes {
				load16(&x, row, e, end)
				for j, v := range x {
					if v > st.threshold {
						return i
					}
					y := fma32(v, st.k, -st.c)
					if st.kLo != 0 {
						y = fma32(v, st.kLo, y)
					}
					y = atLeast(minY, y)
					p := exp2(y)
					gs[j] += p
					if want >= wantEntropy {
						gt[j] = fma32(y, p, gt[j])
					}
					if want == wantSquares {
						gq[j] = fma32(p, p, gq[j])
					}
				}
			}
			for j := range s {
				s[j] += gs[j]
				t[j] += gt[j]
				q[j] += gq[j]
			}
		}
		for j := range s {
			st.s[j] += float64(s[j])
			st.t[j] += float64(t[j])
			st.q[j] += float64(q[j])
		}
	}
	return n
}

// gradConsts are a row's constants for its gradient: an element becomes
// 2^y * (y*a + b) with y = x*k - c (plus x*kLo), and 0 where y < minY. The
// assembly knows its layout.
type gradConsts struct {
	k, kLo, c, a, b float32
}

// rowGradientPortable fills dst with the gradient of the row, except for the
// chosen id's own term. dst may be the row.
func rowGradientPortable(dst, row Logits, q *gradConsts) {
	var x [lanes]float32
	n := row.size()
	for i := 0; i < n; i += lanes {
		load16(&x, row, i, n)
		for j := range x {
			y := fma32(x[j], q.k, -q.c)
			if q.kLo != 0 {
				y = fma32(x[j], q.kLo, y)
			}
			if y < minY {
				x[j] = 0
				continue
			}
			x[j] = exp2(atMost(maxY, y)) * fma32(y, q.a, q.b)
		}
		m := min(n-i, lanes)
		if dst.F32 != nil {
			copy(dst.F32[i:], x[:m])
			continue
		}
		for j, v := range x[:m] {
			dst.BF16[i+j] = ToBF16(v)
		}
	}
}

// momentSums are the lanes of the masked moments. The assembly knows its layout.
type momentSums struct {
	sum, squares [lanes]float64
	count        int64
}

// maskedMomentsPortable adds x - shift and its square for the tokens whose role
// is in roles, a bit set: bit r stands for role r.
func maskedMomentsPortable(x []float32, role []Role, roles RoleSet, shift float64, m *momentSums) {
	for i, r := range role {
		if roles>>r&1 == 0 {
			continue
		}
		d := float64(x[i]) - shift
		m.sum[i%lanes] += d
		m.squares[i%lanes] += float64(d * d)
		m.count++
	}
}

// actFocusConsts are a batch's constants for its weights:
// d = (E - muHi) - muLo, w = 1 + beta / (1 + 2^(d*k)). The assembly knows its layout.
type actFocusConsts struct {
	muHi, muLo, k, alpha, beta float32
}

func actFocusWeightsPortable(dst, signal []float32, role []Role, q *actFocusConsts) {
	for i, r := range role {
		switch r {
		case RoleAction:
			d := (signal[i] - q.muHi) - q.muLo
			y := atMost(maxY, atLeast(minY, float32(d*q.k)))
			dst[i] = 1 + q.beta/(1+exp2(y))
		case RoleReasoning:
			dst[i] = q.alpha
		default:
			dst[i] = 0
		}
	}
}

// spanSumsPortable sets sums[s] to the sum of x over span s, tokens
// offsets[s] to offsets[s+1], in the order of a row.
func spanSumsPortable(sums []float64, x []float32, offsets []int32) {
	for s := range sums {
		var l [lanes]float64
		span := x[offsets[s]:offsets[s+1]]
		for i := 0; i < len(span); i += blockSize {
			var b [lanes]float32
			block := span[i:min(i+blockSize, len(span))]
			for g := 0; g < len(block); g += groupSize {
				var gs [lanes]float32
				for j, v := range block[g:min(g+groupSize, len(block))] {
					gs[j%lanes] += v
				}
				for j, v := range gs {
					b[j] += v
				}
			}
			for j, v := range b {
				l[j] += float64(v)
			}
		}
		sums[s] = tree(&l)
	}
}

// minMaxPortable sets lo[g] and hi[g] to the extremes of group g, elements
// offsets[g] to offsets[g+1] of x: both NaN if one is NaN, +Inf and -Inf for an
// empty group, and +0 for -0.
func minMaxPortable(lo, hi, x []float32, offsets []int32) {
	for g := range lo {
		mn, mx := float32(math.Inf(1)), float32(math.Inf(-1))
		for _, v := range x[offsets[g]:offsets[g+1]] {
			if v != v {
				mn, mx = v, v
				break
			}
			if v < mn {
				mn = v
			}
			if v > mx {
				mx = v
			}
		}
		lo[g], hi[g] = mn+0, mx+0
	}
}

// expScalePortable sets dst[i] = 2^((x[i] - lo) * k) and adds it to sum. dst may
// be x.
func expScalePortable(dst, x []float32, lo, k float32, sum *laneSum) {
	for i, v := range x {
		d := v - lo
		e := exp2(atMost(maxY, atLeast(minY, float32(d*k))))
		dst[i] = e
		sum.add(i, e)
	}
}

// scalePortable multiplies dst by f.
func scalePortable(dst []float32, f float32) {
	for i := range dst {
		dst[i] *= f
	}
}

// multiplyPortable sets dst[i] = a[i] * b[i]. dst may be a or b.
func multiplyPortable(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// surrogateConsts are the clipped surrogate's constants. The assembly knows its layout.
type surrogateConsts struct {
	lo, hi float32 // the ratio's clip range
	dual   float32 // +Inf: off
	scale  float32 // of the gradient
}

// surrogateSums are its sums over response tokens. The assembly knows its layout.
type surrogateSums struct {
	loss     laneSum // w * l
	logRatio laneSum
	tokens   int64
	clipped  int64
}

// surrogatePortable adds the weighted clipped surrogate of each response token
// to sums and sets grad to its derivative by the new log-probability, times
// scale; 0 for masked tokens, whose other inputs do not matter. weights nil
// stands for ones. grad may be any of the float inputs.
func surrogatePortable(grad, logprobs, old, adv, weights []float32, role []Role, q *surrogateConsts,
	sums *surrogateSums) {
	for i, r := range role {
		var wl, dc, g float32 // what a masked token adds
		if r != RoleMasked {
			w := float32(1)
			if weights != nil {
				w = weights[i]
			}
			d := logprobs[i] - old[i]
			dc = atMost(20, atLeast(-20, d))
			rho := exp2(float32(dc * log2E32))
			neg := -adv[i]
			l1 := float32(neg * rho)
			l2 := float32(neg * atMost(q.hi, atLeast(q.lo, rho)))
			l := l1
			g = l1
			if l2 > l1 {
				l, g = l2, 0
				sums.clipped++
			}
			if l3 := float32(neg * q.dual); neg > 0 && l > l3 {
				l, g = l3, 0
			}
			if d < -20 || d > 20 {
				g = 0
			}
			wl = float32(w * l)
			g = float32(w*g) * q.scale
			sums.tokens++
		}
		grad[i] = g
		sums.loss.add(i, wl)
		sums.logRatio.add(i, dc)
	}
}
