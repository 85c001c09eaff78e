package kernels

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/native/testlib"
	"pgregory.net/rapid"
)

// lengths returns lengths at and around all multiples of lanes, groups and blocks, and
// of the chunks that the GPU copies.
func lengths() []int {
	var n []int
	for i := range 300 {
		n = append(n, i+1)
	}
	for _, edge := range []int{1024, 2048} {
		for d := -17; d <= 17; d++ {
			if edge == 1024 || *long || d*d <= 1 || d*d >= 15*15 {
				n = append(n, edge+d)
			}
		}
	}
	n = append(n, 4095, 4096, 4097, 5000, 8191, 8192, 8195)
	if *long || *withGPUFlag == "all" { // TestParityLongRows has some that are longer
		n = append(n, 70001)
	}
	return n
}

// A reporter is a *testing.T or a *rapid.T, for check.
type reporter interface {
	Helper()
	Errorf(string, ...any)
}

// check runs the case on the implementations. It compares each with the reference, and
// bit for bit with the first.
func check(t reporter, impls []Implementation, k Kernel, s Spec) {
	t.Helper()
	c, err := k.New(s)
	if err != nil {
		t.Errorf("%s %+v: %v", k.Name, s, err)
		return
	}
	what := fmt.Sprintf("%s %v %v, %d x %d, seed %d", k.Name, s.Family, s.DType, s.Rows, s.Vocab, s.Seed)
	checkCase(t, k.On(impls), what, s, c)
}

func checkCase(t reporter, impls []Implementation, what string, s Spec, c *Case) {
	t.Helper()
	c.Reference()
	var first []uint64
	for _, impl := range impls {
		c.Overwrite()
		if err := c.Run(impl.New(1)); err != nil {
			t.Errorf("%s on %s: %v", what, impl.Name, err)
			return
		}
		if _, err := c.Check(); err != nil {
			t.Errorf("%s on %s: %v", what, impl.Name, err)
		}
		bits := c.Bits(nil)
		if first == nil {
			first = bits
			continue
		}
		countCase(impl, c, s, bits, first)
		if !slices.Equal(first, bits) {
			t.Errorf("%s on %s: not the bits of %s", what, impl.Name, impls[0].Name)
		}
	}
}

func spec(k Kernel, n int) Spec {
	if k.Rows {
		return Spec{Rows: 2, Vocab: n}
	}
	return Spec{Rows: n}
}

func TestParity(t *testing.T) {
	for _, k := range All() {
		for _, dtype := range k.DTypes {
			t.Run(k.Name+"/"+dtype.String(), func(t *testing.T) {
				t.Parallel()
				impls := withGPU(t)
				if have := k.On(impls); len(have) < len(impls) {
					t.Logf("%d of %d implementations have it", len(have), len(impls))
				}
				for _, f := range Families {
					for i, n := range lengths() {
						s := spec(k, n)
						s.DType, s.Family, s.Seed = dtype, f, uint64(i)
						if i%2 == 1 {
							s.memory = unaligned
						}
						if !some(n, f) {
							continue
						}
						if dtype == reweight.DTypeF16 && f == Offset {
							continue // near 10,000, the numbers of f16 are 8 apart
						}
						check(t, chosen(impls, s), k, s)
					}
				}
			})
		}
	}
}

func TestParityLongRows(t *testing.T) {
	if testing.Short() {
		t.Skip("long rows: not in -short")
	}
	for i, k := range All() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			impls := allWithGPU(t)
			for _, f := range Families {
				if *long || int(f) == i%len(Families) {
					s := spec(k, 151936)
					s.DType, s.Family = k.DTypes[0], f
					check(t, impls, k, s)
				}
			}
			if *long {
				s := spec(k, 262144)
				s.DType = k.DTypes[0]
				check(t, impls, k, s)
			}
		})
	}
}

// TestParityRandom draws kernels, sizes, dtypes and families.
func TestParityRandom(t *testing.T) {
	impls := withGPU(t)
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(All()).Draw(t, "kernel")
		s := spec(k, rapid.IntRange(1, 5000).Draw(t, "n"))
		s.DType = rapid.SampledFrom(k.DTypes).Draw(t, "dtype")
		s.Family = rapid.SampledFrom(Families).Draw(t, "family")
		s.Seed = rapid.Uint64().Draw(t, "seed")
		check(t, impls, k, s)
	})
}

// idle is an implementation that does nothing: its kernels are not called.
type idle struct{ Runner }

// withIdle returns the kernel with workloads that an idle implementation can run.
func withIdle(k Kernel) Kernel {
	k.OnlyGo = false
	build := k.build
	k.build = func(s Spec) (*Case, error) {
		c, err := build(s)
		if err != nil {
			return nil, err
		}
		run := c.Run
		c.Run = func(impl Runner) error {
			if _, ok := impl.(idle); ok {
				return nil
			}
			return run(impl)
		}
		return c, nil
	}
	return k
}

// complaints counts errors.
type complaints int

func (*complaints) Helper()                 {}
func (c *complaints) Errorf(string, ...any) { *c++ }

// TestIdleFails: an implementation that leaves the outputs as they are does not
// pass with what another one wrote.
func TestIdleFails(t *testing.T) {
	impls := append(Implementations(), Implementation{"idle", func(int) Runner { return idle{} }})
	defer delete(tallies.of, "idle")
	for _, k := range All() {
		for _, dtype := range k.DTypes {
			var c complaints
			s := spec(k, 100)
			s.DType = dtype
			if check(&c, impls, withIdle(k), s); c == 0 {
				t.Errorf("%s %v: an implementation that does nothing passes", k.Name, dtype)
			}
		}
	}
}

// TestCheckFails: Case.Check, on which all these tests depend, notices a wrong
// result.
func TestCheckFails(t *testing.T) {
	for _, k := range All() {
		s := spec(k, 100)
		s.DType = k.DTypes[0]
		c := must.Get(k.New(s))
		c.Reference()
		must.Do(c.Run(&reweight.Workspace{}))
		for o, out := range c.outputs {
			wrong := []int{0}
			if out.terms != nil { // each is another figure
				wrong = []int{0, 1, 2, len(out.terms) - 1}
			}
			for _, i := range wrong {
				old := out.want[i]
				out.want[i] = old*1.001 + 0.01
				if _, err := c.Check(); err == nil {
					t.Errorf("%s: a wrong %s [%d] passes", k.Name, c.outputs[o].name, i)
				}
				out.want[i] = old
			}
		}
	}
}

// TestInput: the main input is all the memory of the logits or tokens, and the
// results depend on it.
func TestInput(t *testing.T) {
	for _, k := range All() {
		for _, dtype := range k.DTypes {
			s := spec(k, 100)
			s.DType = dtype
			c := must.Get(k.New(s))
			var bits [2][]uint64
			for i := range bits {
				must.Do(c.Run(&reweight.Workspace{}))
				bits[i] = c.Bits(nil)
				clear(c.Input)
			}
			if slices.Equal(bits[0], bits[1]) || int64(len(c.Input)) != int64(c.Elements)*int64(dtype.Size()) {
				t.Errorf("%s %s: not the results of these %d bytes", k.Name, dtype, len(c.Input))
			}
		}
	}
}

// TestNoAllocations: no kernel allocates memory, except in the first call of a
// runner, which may allocate its scratch.
func TestNoAllocations(t *testing.T) {
	if testlib.Sanitized {
		t.Skip("with -asan, Go allocates what it otherwise has on the stack")
	}
	for _, k := range All() {
		for _, dtype := range k.DTypes {
			s := spec(k, 2500)
			s.DType = dtype
			c, err := k.New(s)
			if err != nil {
				t.Fatal(err)
			}
			// The GPU is left out: the interpreter allocates. That calls of package gpu and of
			// its runner do not is shown by TestNothingWaits of gpu and TestSteady of
			// gpu/gpuslices.
			for _, impl := range k.On(onCPU(t)) {
				run := impl.New(1)
				allocs := testing.AllocsPerRun(20, func() { err = c.Run(run) })
				if err != nil || allocs != 0 {
					t.Errorf("%s %v %s: %v allocations, error %v", k.Name, dtype, impl.Name, allocs, err)
				}
			}
		}
	}
}

// TestSpecialEverywhere puts NaN and +Inf at every position of rows, of lengths that
// are whole chunks and that are not. Each position is a row of one call. The interpreter of the
// GPU's kernels has those at a step.
func TestSpecialEverywhere(t *testing.T) {
	elements := 20_000 // that the GPU has in a call
	switch {
	case *withGPUFlag == "all":
		elements = 5_000_000
	case testing.Short():
		elements = 2_000
	}
	for _, impl := range withGPU(t) {
		for _, n := range []int{1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 128, 130, 257, 1024, 1100, 2100, 4097} {
			step, dtypes := 1, anyFloat[:1]
			if impl.Name == gpuName {
				step, dtypes = max(1, n*n/elements), anyFloat
			} else if n > 4096 {
				continue
			}
			turns := len(specials)
			if n > 130 && !*long { // a position has one of them, and each lane has all
				turns = 1
			}
			// All elements are 1; all are -Inf; or the elements of the first block are -Inf, so
			// that the kernels skip it, and the others are 1.
			for _, masked := range []int{0, n, 1024} {
				for turn := range turns {
					x, special := specialRows(n, masked, turn, step)
					for _, dtype := range dtypes {
						if at, err := statsAre(impl, logitsOf(dtype, x, n), special); err != nil {
							t.Fatalf("%s: %v, %d elements, %d of -Inf, %v at %d: %v", impl.Name, dtype, n, masked,
								special[at], at*step, err)
						}
					}
				}
			}
		}
	}
}

// A NaN of any payload must give NaN: with low bits, signalling, and quiet.
var specials = []float32{
	float32(math.NaN()), math.Float32frombits(0x7fc00001), math.Float32frombits(0xff800001),
	math.Float32frombits(0x7fc00000), float32(math.Inf(1)),
}

// specialRows returns rows of n elements, each with one that is special at another position, and
// those.
func specialRows(n, masked, turn, step int) (x, special []float32) {
	for at := 0; at < n; at += step {
		row := slices.Repeat([]float32{1}, n)
		for i := range min(masked, n) {
			row[i] = float32(math.Inf(-1))
		}
		row[at] = specials[(at+turn)%len(specials)]
		x, special = append(x, row...), append(special, row[at])
	}
	return x, special
}

// statsAre runs rows with all outputs, and on the CPU with each alone, and with some, and returns a
// row and an error if a result is not the one of the special element: the LSE of +Inf is that, and
// all else NaN.
func statsAre(impl Implementation, l reweight.Logits, special []float32) (row int, err error) {
	rows := len(special)
	ids := make([]int32, rows)
	for r := range ids {
		ids[r] = int32((l.Vocab/2 + 7*r) % l.Vocab)
	}
	run := impl.New(1)
	sets := []int{15, 1, 2, 4, 8, 5, 7} // of outputs, bit by bit
	if impl.Name == gpuName {
		sets = sets[:1]
	}
	for _, outputs := range sets {
		got := slices.Repeat([]float32{-77}, 4*rows)
		var dst reweight.Stats
		for o, to := range []*[]float32{&dst.LSE, &dst.Entropy, &dst.Logprob, &dst.LogSumSqProbs} {
			if outputs>>o&1 != 0 {
				*to = got[o*rows : (o+1)*rows]
			}
		}
		if err := run.TokenStats(dst, l, ids, reweight.DefaultTokenStats); err != nil {
			return 0, err
		}
		count(impl, tally{1, rows, rows * l.Vocab, rows * bits.OnesCount(uint(outputs)), 0})
		for i, g := range got {
			o, want := i/rows, float32(math.NaN())
			if o == 0 {
				want = special[i%rows]
			}
			if outputs>>o&1 != 0 && g != want && !(g != g && want != want) {
				return i % rows, fmt.Errorf("output %d = %v, want %v", o, g, want)
			}
		}
	}
	return 0, nil
}

// FuzzTokenStats takes any bytes as a row of any dtype and compares every
// implementation with the reference.
func FuzzTokenStats(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 64}, uint8(0), uint16(1), 1.0)
	f.Add([]byte{0, 0, 192, 127, 0, 0, 128, 255}, uint8(0), uint16(0), 0.5)
	f.Add([]byte{128, 63, 128, 127, 128, 255}, uint8(1), uint16(2), 1.0)
	f.Add([]byte{255, 255, 127, 127, 255, 255, 127, 255}, uint8(0), uint16(0), 1.0)
	impls := fuzzWithGPU(f)
	f.Fuzz(func(t *testing.T, data []byte, dtype uint8, id uint16, tau float64) {
		if !(tau >= 0.1 && tau <= 10) {
			tau = 1
		}
		size := []int{4, 2, 2}[dtype%3]
		n := len(data) / size
		if n == 0 {
			return
		}
		l := reweight.Logits{Vocab: n}
		x := make([]float64, n)
		for i := range n {
			switch dtype % 3 {
			case 0:
				l.F32 = append(l.F32, math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
				x[i] = float64(l.F32[i])
			case 1:
				l.BF16 = append(l.BF16, reweight.BF16(binary.LittleEndian.Uint16(data[2*i:])))
				x[i] = float64(l.BF16[i].Float32())
			case 2:
				l.F16 = append(l.F16, reweight.F16(binary.LittleEndian.Uint16(data[2*i:])))
				x[i] = float64(l.F16[i].Float32())
			}
		}
		spec := Spec{Rows: 1, Vocab: n, DType: l.DType()}
		c := spec.statsOf(l, nil, func() []float64 { return x }, []int32{int32(int(id) % n)}, tau, "lepq")
		checkCase(t, impls, fmt.Sprintf("%d elements at %v", n, tau), spec, c)
	})
}

// FuzzTokens draws workloads of all kernels of the catalogue.
func FuzzTokens(f *testing.F) {
	for i := range All() {
		f.Add(uint8(i), uint16(100+i), uint8(i), uint64(i))
	}
	impls := fuzzWithGPU(f)
	f.Fuzz(func(t *testing.T, kernel uint8, n uint16, family uint8, seed uint64) {
		k := All()[int(kernel)%len(All())]
		s := spec(k, 1+int(n)%6000)
		s.DType, s.Family, s.Seed = k.DTypes[int(seed%uint64(len(k.DTypes)))], Families[int(family)%len(Families)], seed
		if s.DType == reweight.DTypeF16 && s.Family == Offset {
			s.Family = Random
		}
		check(t, impls, k, s)
	})
}

// TestRowsRepeat: rows after those that are drawn repeat them in turn, and are
// right.
func TestRowsRepeat(t *testing.T) {
	const vocab = drawn/2 - 1 // so that three rows are drawn
	for _, dtype := range anyFloat {
		c := must.Get(tokenStats(1, "l")(Spec{Rows: 5, Vocab: vocab, DType: dtype}))
		row := func(i int) []byte {
			size := vocab * dtype.Size()
			return c.Input[i*size : (i+1)*size]
		}
		if !bytes.Equal(row(3), row(0)) || !bytes.Equal(row(4), row(1)) || bytes.Equal(row(2), row(0)) ||
			bytes.Equal(row(1), row(0)) {
			t.Errorf("%v: not three rows that are repeated", dtype)
		}
	}
}
