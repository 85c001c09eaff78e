package measure

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestStepsOnGPU measures training steps on a GPU, or on the interpreter.
func TestStepsOnGPU(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	q := Steps{Tokens: 16, Vocab: 17, Workers: 1, ISA: machine.CUDA, GPU: testgpu.Device(t)}
	for _, q.KL = range []bool{false, true} {
		q.PPO = !q.KL
		overheads := must.Get(Overheads(t.Context(), quick, q))
		var names []string
		for _, o := range overheads {
			names = append(names, o.Step)
			if o.ISA != machine.CUDA || o.KL != q.KL ||
				o.Advantages != map[bool]string{false: "grpo", true: "ppo"}[q.PPO] || o.Tokens != 16 || o.Vocab != 17 ||
				!(o.OverUniform.Median > 0) || !(o.UniformNs.Median > 0) || o.Verdict == "" || o.ExtraBytes < 4*16 ||
				o.PeakBytes != 0 {
				t.Errorf("%+v", o)
			}
		}
		if want := []string{"actfocus", "aem", "actfocus+aem"}; !slices.Equal(names, want) {
			t.Errorf("steps %v, want %v", names, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if overheads, err := Overheads(ctx, quick, q); !errors.Is(err, context.Canceled) || overheads != nil {
		t.Errorf("%+v, %v", overheads, err)
	}
}

// TestStepsOnGPUAreTheCPUs: each step gives the gradient of the same step on the CPU, bit
// by bit, as often as it is done.
func TestStepsOnGPUAreTheCPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("the interpreter takes long")
	}
	const tokens, vocab = 20, 17
	dev := testgpu.Device(t)
	want := newStepInput(tokens, vocab).withLogits()
	in := gpuSteps{deviceMemory: deviceMemory{dev: dev}}
	must.Do(in.upload(newStepInput(tokens, vocab)))
	got := make([]float32, tokens*vocab)
	for _, q := range []Steps{{}, {KL: true}, {PPO: true}, {PPO: true, KL: true}} {
		for _, st := range q.variants() {
			must.Do(want.start(st, reweight.Portable, 1)())
			do, ws, err := in.start(st)
			for range 2 {
				err = errors.Join(err, do(), ws.Check())
			}
			if err = errors.Join(err, gpu.Download(dev, got, in.gradient.Ptr, 0)); err != nil {
				t.Fatalf("%+v: %v", st, err)
			}
			zeros := 0
			for i, g := range got {
				if g == 0 {
					zeros++
				}
				if w := want.gradient.F32[i]; math.Float32bits(g) != math.Float32bits(w) {
					t.Fatalf("%+v: gradient[%d] = %v, want %v", st, i, g, w)
				}
			}
			if zeros == len(got) {
				t.Errorf("%+v: no gradient", st)
			}
		}
	}
	if err := in.close(); err != nil {
		t.Error(err)
	}
}

// TestStepsDoNotFit: memory that the device does not have is one error.
func TestStepsDoNotFit(t *testing.T) {
	q := Steps{Tokens: 1 << 12, Vocab: 1 << 20, Workers: 1, ISA: machine.CUDA, GPU: testgpu.Device(t)}
	if q.GPU.Info().Memory > 4*4<<32 {
		t.Skip("this device has the memory")
	}
	var full *fullError
	if _, err := Overheads(t.Context(), quick, q); !errors.As(err, &full) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}
