package reweight

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tests here compare the kernels of each instruction set with their portable
// functions bit for bit, below the exported functions: on values, options, roles and
// ranges that rollouts never have, but that callers may pass.

// bitsOf are values at the edges of what the kernels do.
var bitsOf = []uint32{
	0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffbfffff, // zeros, infinities, NaN, signalling NaN
	1, 0x807fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000, // subnormal, smallest, largest, 1
	0x41a00000, 0x41a00001, 0x419fffff, 0xc1a00000, 0xc1a00001, 0xc19fffff, // 20
	0x42f00000, 0x42f00001, 0x42efffff, 0xc2fa0000, 0xc2fa0001, 0xc2f9ffff, // maxY, minY
}

// draws makes values of one kind for a whole case.
var draws = map[string]func(r *rand.Rand) float32{
	"normal": func(r *rand.Rand) float32 { return float32(3 * r.NormFloat64()) },
	"wide":   func(r *rand.Rand) float32 { return float32(100 * r.NormFloat64()) },
	"any":    func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) },
	"edges":  func(r *rand.Rand) float32 { return math.Float32frombits(bitsOf[r.IntN(len(bitsOf))]) },
	"zeros":  func(r *rand.Rand) float32 { return math.Float32frombits(bitsOf[r.IntN(2)]) },
	"seldom": func(r *rand.Rand) float32 {
		if r.IntN(50) == 0 {
			return math.Float32frombits(bitsOf[r.IntN(len(bitsOf))])
		}
		return float32(3 * r.NormFloat64())
	},
}

// A parity is an instruction set with what it is tested on.
type parity struct {
	*testing.T
	*rand.Rand
	isa  ISA
	draw func(r *rand.Rand) float32
}

// eachISA runs f for every instruction set but the portable one, and for every kind
// of value.
func eachISA(t *testing.T, f func(t parity)) {
	if len(available) == 1 {
		t.Skip("portable is the only instruction set")
	}
	for _, isa := range available[1:] {
		for name, draw := range draws {
			t.Run(isa.String()+"/"+name, func(t *testing.T) {
				f(parity{t, rand.New(rand.NewPCG(1, 2)), isa, draw})
			})
		}
	}
}

func (t parity) floats(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = t.draw(t.Rand)
	}
	return x
}

// n draws a length: any, or near the end of a group or a block.
func (t parity) n() int {
	if t.IntN(4) > 0 {
		return t.IntN(300)
	}
	return []int{128 * 16, 1024, 2048}[t.IntN(3)] + t.IntN(40) - 20
}

// roles are the roles of tokens half the time, and else any bytes.
func (t parity) roles(n int) []Role {
	role := make([]Role, n)
	bytes := t.IntN(2) == 0
	for i := range role {
		role[i] = Role(t.IntN(3))
		if bytes {
			role[i] = Role(t.Uint32())
		}
	}
	return role
}

// scramble leaves junk in the vector registers, where a kernel must not find
// what an earlier one put there for it.
func (t parity) scramble() {
	junk := t.floats(lanes)
	var sums surrogateSums
	t.isa.surrogate(slices.Clone(junk), junk, t.floats(lanes), junk, nil, make([]Role, lanes),
		&surrogateConsts{}, &sums)
	t.isa.maskedMoments(junk, make([]Role, lanes), Roles(RoleMasked), t.NormFloat64(), &momentSums{}) // no sum is 0
}

func (t parity) same(what string, got, want []float32) {
	t.Helper()
	if err := sameBits(got, want); err != nil {
		t.Fatalf("%s of %d: %v", what, len(want), err)
	}
}

func (t parity) same64(what string, got, want []float64) {
	t.Helper()
	for i, w := range want {
		if math.Float64bits(got[i]) != math.Float64bits(w) && (got[i] == got[i] || w == w) {
			t.Fatalf("%s: element %d of %d: %x and %x", what, i, len(want), got[i], w)
		}
	}
}

func (t parity) sameSum(what string, got, want *laneSum) {
	t.Helper()
	t.same64(what, got.total[:], want.total[:])
	t.same(what, got.group[:], want.group[:])
}

const rounds = 200

func TestTwinsOnTokens(t *testing.T) {
	eachISA(t, func(t parity) {
		for range rounds {
			x := t.floats(t.n())
			y := t.floats(len(x))
			role := t.roles(len(x))
			want, got := make([]float32, len(x)), slices.Clone(x)

			Portable.multiply(want, x, y)
			t.scramble()
			t.isa.multiply(got, got, y)
			t.same("product", got, want)

			f := t.draw(t.Rand)
			want, got = slices.Clone(x), slices.Clone(x)
			Portable.scale(want, f)
			t.scramble()
			t.isa.scale(got, f)
			t.same("scaled", got, want)

			lo, k := t.draw(t.Rand), t.draw(t.Rand)
			var wantSum, gotSum laneSum
			got = slices.Clone(x)
			Portable.expScale(want, x, lo, k, &wantSum)
			t.scramble()
			t.isa.expScale(got, got, lo, k, &gotSum)
			t.same("exponentials", got, want)
			t.sameSum("sum of exponentials", &gotSum, &wantSum)

			roles, shift := RoleSet(t.Uint32()), float64(t.draw(t.Rand))
			wantMoments := momentSums{count: 3, sum: [lanes]float64{2: 7}}
			gotMoments := wantMoments
			Portable.maskedMoments(x, role, roles, shift, &wantMoments)
			t.scramble()
			t.isa.maskedMoments(x, role, roles, shift, &gotMoments)
			t.same64("sums", gotMoments.sum[:], wantMoments.sum[:])
			t.same64("squares", gotMoments.squares[:], wantMoments.squares[:])
			if gotMoments.count != wantMoments.count {
				t.Fatalf("count %d, want %d", gotMoments.count, wantMoments.count)
			}

			q := actFocusConsts{t.draw(t.Rand), t.draw(t.Rand), t.draw(t.Rand), t.draw(t.Rand), t.draw(t.Rand)}
			got = slices.Clone(x)
			Portable.actFocusWeights(want, x, role, &q)
			t.scramble()
			t.isa.actFocusWeights(got, got, role, &q)
			t.same("weights", got, want)
		}
	})
}

func TestTwinsOnSurrogate(t *testing.T) {
	inf := float32(math.Inf(1))
	eachISA(t, func(t parity) {
		for range rounds {
			logprobs := t.floats(t.n())
			old := t.floats(len(logprobs))
			near := []float32{0, 0.2, -0.2, 20, -20, 20.000002, -20.000002}
			for i := range old { // most ratios not far from 1, some at the clamp
				if t.IntN(10) > 0 {
					old[i] = logprobs[i] - near[t.IntN(len(near))]*float32(t.IntN(2)) -
						float32(t.IntN(2))*float32(0.1*t.NormFloat64())
				}
			}
			adv, weights := t.floats(len(old)), t.floats(len(old))
			if t.IntN(3) == 0 {
				weights = nil
			}
			q := []surrogateConsts{{0.8, 1.28, 3, 0.5}, {0.8, 1.2, inf, 1}, {0, math.MaxFloat32, inf, -2},
				{1, 1, 1.0000001, 1}}[t.IntN(4)]
			role := t.roles(len(old))
			want, got := make([]float32, len(old)), slices.Clone(adv)
			wantSums := surrogateSums{tokens: 5, clipped: 9}
			gotSums := wantSums
			Portable.surrogate(want, logprobs, old, adv, weights, role, &q, &wantSums)
			t.scramble()
			t.isa.surrogate(got, logprobs, old, got, weights, role, &q, &gotSums)
			t.same("gradient", got, want)
			t.sameSum("loss", &gotSums.loss, &wantSums.loss)
			t.sameSum("log-ratio", &gotSums.logRatio, &wantSums.logRatio)
			if gotSums.tokens != wantSums.tokens || gotSums.clipped != wantSums.clipped {
				t.Fatalf("%d tokens, %d clipped, want %d, %d", gotSums.tokens, gotSums.clipped, wantSums.tokens,
					wantSums.clipped)
			}
		}
	})
}

// TestTwinsOnRowSums: the sums of rows whose elements are not far above the reference are those of the
// portable function; what is stops the row at its block, or shows in the sums, and a NaN shows there.
func TestTwinsOnRowSums(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, isa := range available[1:] {
		for _, dtype := range []DType{DTypeF32, DTypeBF16, DTypeF16} {
			for want := wantSum; want <= wantSquares; want++ {
				t.Run(fmt.Sprintf("%s/%s/%d", isa, dtype, want), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, 2))
					for i := range 4 * rounds {
						n := []int{1 + r.IntN(300), 900 + r.IntN(2500)}[r.IntN(2)]
						x := make([]float32, n)
						for j := range x {
							x[j] = float32(2 * r.NormFloat64())
							if r.IntN(20) == 0 { // masked, or far below
								x[j] = []float32{-inf, -60000, -87.5, -86}[r.IntN(4)]
							}
						}
						st := rowState{k: log2E32, alarm: alarm}
						if i%2 == 0 {
							st.k, st.kLo = splitScale(0.5 + r.Float64())
						}
						st.setReference(8)
						odd, from := float32(0), -1
						if i%3 == 0 {
							from = r.IntN(n)
							odd = []float32{nan, -nan, inf, 60000, 400, 200, 97}[r.IntN(7)]
							x[from] = odd
						}
						row := rowOf(x, dtype)
						wantSt, gotSt := st, st
						wantAt := rowBlocksPortable(row, 0, n, &wantSt, want)
						at := isa.rowBlocks(row, 0, n, &gotSt, want)
						S, T := tree(&gotSt.s), tree(&gotSt.t) // which sums the lanes in place
						if from >= 0 {
							if shown := S-S != 0 || T-T != 0; !shown && at != from/blockSize*blockSize {
								t.Fatalf("%v at %d of %d: nothing shows it, sums %v and %v", odd, from, n, S, T)
							}
							continue
						}
						wantS, wantT, Q, wantQ := tree(&wantSt.s), tree(&wantSt.t), 0.0, 0.0
						if want == wantSum { // AVX-512 may have added to what is not wanted
							T, wantT = 0, 0
						}
						if want == wantSquares {
							Q, wantQ = tree(&gotSt.q), tree(&wantSt.q)
						}
						if at != wantAt || S != wantS || T != wantT || Q != wantQ {
							t.Fatalf("%d elements: %d, %v, %v, %v, want %d, %v, %v, %v",
								n, at, S, T, Q, wantAt, wantS, wantT, wantQ)
						}
					}
				})
			}
		}
	}
}

// rowOf is a row of these elements.
func rowOf(x []float32, dtype DType) Logits {
	row := Logits{Vocab: len(x)}
	for _, v := range x {
		switch dtype {
		case DTypeF32:
			row.F32 = append(row.F32, v)
		case DTypeBF16:
			row.BF16 = append(row.BF16, ToBF16(v))
		case DTypeF16:
			row.F16 = append(row.F16, toF16(v))
		}
	}
	return row
}

// toF16 returns a float16 near v. The bits of the fraction that it has no place for are cut.
func toF16(v float32) F16 {
	bits := math.Float32bits(v)
	sign, rest := F16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case v != v:
		return 0x7e00
	case rest >= 0x47800000: // 65,536
		return sign | 0x7c00
	case rest < 0x38800000: // 2^-14: the smallest with a whole fraction
		return sign
	}
	return sign | F16((rest-0x38000000)>>13)
}

// TestTwinsOnRanges has every length from 0 to 40 at every place, and long ones. Half
// of the rounds have short ranges alone, or mostly ranges of 8.
func TestTwinsOnRanges(t *testing.T) {
	eachISA(t, func(t parity) {
		for i := range rounds {
			x := t.floats(3000)
			offsets := []int32{int32(t.IntN(40))}
			for at := int(offsets[0]); ; {
				length := t.IntN(41)
				switch seldom := t.IntN(20) == 0; {
				case i%4 == 1 && !seldom:
					length = 8
				case i%4 == 2:
					length = t.IntN(18)
				case seldom:
					length = t.IntN(2000)
				}
				if at += length; at > len(x) {
					break
				}
				offsets = append(offsets, int32(at))
			}
			n := len(offsets) - 1
			if n == 0 {
				continue
			}
			wantSums, gotSums := make([]float64, n), make([]float64, n)
			Portable.spanSums(wantSums, x, offsets)
			t.scramble()
			t.isa.spanSums(gotSums, x, offsets)
			t.same64("sums", gotSums, wantSums)

			wantLo, wantHi := make([]float32, n), make([]float32, n)
			gotLo, gotHi := make([]float32, n), make([]float32, n)
			Portable.minMax(wantLo, wantHi, x, offsets)
			t.scramble()
			t.isa.minMax(gotLo, gotHi, x, offsets)
			t.same("least", gotLo, wantLo)
			t.same("largest", gotHi, wantHi)
		}
	})
}

func TestTwinsOnRows(t *testing.T) {
	eachISA(t, func(t parity) {
		for i := range rounds {
			n := t.n() + 20 // not empty
			row := Logits{Vocab: n}
			want, got := row, row
			if i%2 == 0 {
				row.F32 = t.floats(n)
				want.F32, got.F32 = make([]float32, n), slices.Clone(row.F32)
			} else {
				for _, v := range t.floats(n) {
					row.BF16 = append(row.BF16, BF16(math.Float32bits(v)>>16))
				}
				want.BF16, got.BF16 = make([]BF16, n), slices.Clone(row.BF16)
			}
			// A reference unlike the row's own takes 2^y past maxY.
			q := gradConsts{k: log2E32, c: float32(30 * t.NormFloat64()), a: t.draw(t.Rand), b: t.draw(t.Rand)}
			if t.IntN(2) == 0 {
				q.k, q.kLo = splitScale(0.7)
			}
			Portable.rowGradient(want, row, &q)
			t.scramble()
			t.isa.rowGradient(got, got, &q)
			t.same("gradient", got.F32, want.F32)
			if !slices.EqualFunc(got.BF16, want.BF16, func(a, b BF16) bool {
				return a == b || a&0x7fff > 0x7f80 && b&0x7fff > 0x7f80
			}) {
				t.Fatalf("gradient of %d bfloat16 differs", n)
			}

			at := t.IntN(n)
			t.scramble()
			if got, want := t.isa.blockMax(row, at, n), Portable.blockMax(row, at, n); got != want &&
				(got == got || want == want) {
				t.Fatalf("largest of elements %d to %d is %v, want %v", at, n, got, want)
			}
		}
	})
}

// TestVZEROUPPER: every function for amd64 clears the upper halves of its registers before it returns. What calls it
// has the right results without that, but code with SSE, which Go's is, is several times as slow afterwards.
func TestVZEROUPPER(t *testing.T) {
	files, err := filepath.Glob("kernels*_amd64.s")
	if err != nil || len(files) != 4 {
		t.Fatalf("files %v, error %v; want 4", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before := ""
		for i, line := range strings.Split(string(text), "\n") {
			line, _, _ = strings.Cut(line, "//")
			switch line = strings.TrimSpace(line); {
			case line == "":
				continue
			case line == "RET" && before != "VZEROUPPER":
				t.Errorf("%s:%d: RET without a VZEROUPPER before it", file, i+1)
			}
			before = line
		}
	}
}

// What the external tests see of the float64 behind results, to compare it with the float64 of
// other implementations. The rows are of one call, on plain Go.

// RowSums returns what Workspace.TokenStats sums of a row.
func RowSums(row Logits, tau float64) [4]float64 {
	q := sumRow(Portable, row, tau, wantSquares)
	return [4]float64{q.ref, q.logS, q.entropy, q.squares}
}

// GradientTerms returns what Workspace.RowGradient makes of a row with the chosen id, its
// log-probability l, the gradient g and the entropy h.
func GradientTerms(row Logits, id int32, l, h, g float32, opt RowGradientOptions) (own, lse2, scale float64) {
	j := rowJob{isa: Portable, tau: opt.Temperature}
	t := j.gradientTerms(row, int(id), float64(l), math.NaN(), float64(g), float64(h), opt.EntropyBonus)
	return t.own, t.lse2, t.scale
}
