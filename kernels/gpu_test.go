package kernels

import (
	"flag"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu/gpuslices"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// How the GPU takes part in the tests of the catalogue. Where there is none, an
// interpreter runs its kernels, a thousand times more slowly: by default it gets a
// choice of the cases that has every kernel, dtype, family and length from 1 to 130,
// and every second of the lengths to 300 and around blocks and chunks.
//
//	go test ./kernels -gpu all -timeout 3h -v     # every case, and prints how many
//	go test ./kernels -gpu none
var withGPUFlag = flag.String("gpu", "some", "how much of the tests the GPU, or the interpreter of its kernels, takes part in: none, some or all")

const gpuName = "gpu"

// device is the name of the GPU, or of the interpreter.
var device atomic.Value

// withGPU returns all implementations of this machine, the GPU last. Only one test at a
// time may run what it returns.
func withGPU(t testing.TB) []Implementation {
	impls := onCPU(t)
	if *withGPUFlag == "none" || !testgpu.Supported() {
		return impls
	}
	dev := testgpu.Device(t)
	device.Store(dev.Info().Name)
	var runners []Runner
	for _, p := range []gpuslices.Placement{gpuslices.Amid, gpuslices.AtEnd} {
		r := must.Get(gpuslices.NewPlaced(dev, p))
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		runners = append(runners, r)
	}
	next := 0
	return append(impls, Implementation{gpuName, func(int) Runner {
		next++
		return runners[next%len(runners)]
	}})
}

// fuzzWithGPU returns them for a fuzz target. While it fuzzes, the GPU takes part only if
// it is to run all cases: the interpreter, watched by the fuzzer, is far too slow.
func fuzzWithGPU(f *testing.F) []Implementation {
	if flag.Lookup("test.fuzz").Value.String() != "" {
		return allWithGPU(f)
	}
	return withGPU(f)
}

// allWithGPU returns them with the GPU only if it is to run all cases.
func allWithGPU(t testing.TB) []Implementation {
	if *withGPUFlag == "all" {
		return withGPU(t)
	}
	return onCPU(t)
}

// chosen returns the implementations for one of the cases of a long list: the GPU, if
// it is among them, takes one of several in turn, so that each length to 130 has a family,
// and every second of the others.
func chosen(impls []Implementation, s Spec) []Implementation {
	several, n := len(Families), max(s.Vocab, s.Rows)
	switch {
	case testing.Short():
		several *= 4
	case n > 130:
		several *= 2
	}
	last := len(impls) - 1
	if impls[last].Name == gpuName && *withGPUFlag != "all" && (n > 10000 || (n+int(s.Family))%several != 0) {
		return impls[:last]
	}
	return impls
}

// unaligned allocates arrays that end at a multiple of 16 bytes, so that they begin
// anywhere.
func unaligned(bytes int) []byte {
	words := make([]uint64, (bytes+15)/16*2) // the heap aligns what is larger than 8 bytes to 16
	all := raw.Bytes(words)
	return all[len(all)-bytes:]
}

// TestEveryHalf: every bfloat16 and half-precision number is read as what it is. Each
// is the id's logit of a row, and for bfloat16 an element of the gradient.
func TestEveryHalf(t *testing.T) {
	impls := withGPU(t)
	step, offset := 1, 0
	if *withGPUFlag != "all" && impls[len(impls)-1].Name == gpuName {
		step = 64
		offset = rand.IntN(step)
	}
	const vocab = 3
	rows := 65536 / step
	half := make([]uint16, rows*vocab)
	ids := make([]int32, rows)
	for r := range rows {
		v := uint16(r*step + offset)
		half[r*vocab+r%vocab] = v
		half[r*vocab+(r+1)%vocab] = v ^ 1
		half[r*vocab+(r+2)%vocab] = v & 0xff00
		ids[r] = int32(r % vocab)
	}
	bf16, f16 := make([]reweight.BF16, len(half)), make([]reweight.F16, len(half))
	for i, v := range half {
		bf16[i], f16[i] = reweight.BF16(v), reweight.F16(v)
	}
	s := Spec{Rows: rows, Vocab: vocab, DType: reweight.DTypeF16}
	l, wide := reweight.Logits{Vocab: vocab, F16: f16}, widened(f16, reweight.F16.Float32)
	checkCase(t, impls, "every f16", s, s.statsOf(l, nil, wide, ids, 1, "lep"))
	s.DType = reweight.DTypeBF16
	l, wide = reweight.Logits{Vocab: vocab, BF16: bf16}, widened(bf16, reweight.BF16.Float32)
	checkCase(t, impls, "every bf16", s, s.statsOf(l, nil, wide, ids, 1, "lep"))
	gradient := must.Get(s.gradientOf(l, nil, wide, ids, slices.Repeat([]float32{1.5}, rows), nil, 1, 0))
	checkCase(t, impls, "gradient of every bf16", s, gradient)
}

// logitsOf returns x as logits of the dtype.
func logitsOf(dtype reweight.DType, x []float32, vocab int) reweight.Logits {
	l := reweight.Logits{Vocab: vocab}
	for _, v := range x {
		switch dtype {
		case reweight.DTypeF32:
			l.F32 = append(l.F32, v)
		case reweight.DTypeBF16:
			l.BF16 = append(l.BF16, reweight.ToBF16(v))
		case reweight.DTypeF16:
			l.F16 = append(l.F16, ToF16(v))
		}
	}
	return l
}
