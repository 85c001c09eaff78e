//go:build cgo && linux

package testlib_test

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
	"github.com/seed621a2839/reweight/native/testlib"
	"github.com/seed621a2839/reweight/rollout"
)

// whole returns the batch with zeros for every array that it lacks, which the library has other
// words for.
func whole(b *reweight.Batch) *reweight.Batch {
	all, spans := *b, int(slices.Max(b.SpanIDs))+1
	for _, v := range reflect.ValueOf(&all).Elem().Fields() {
		if x, ok := v.Interface().([]float32); ok && len(x) == 0 {
			v.Set(reflect.ValueOf(make([]float32, b.Tokens())))
		}
	}
	all.Anchors, all.SpanRewards = make([]int32, spans), make([]float32, spans)
	all.RewardParts = make([]float32, 2*b.Trajectories())
	return &all
}

// TestRollouts compares all methods on real rollouts, on every instruction set of the library.
func TestRollouts(t *testing.T) {
	l := testlib.Open(t)
	for _, name := range []string{"frozenlake-small", "large/frozenlake"} {
		if testing.Short() && name == "large/frozenlake" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			file := must.Get(rollout.Parse(must.Get(os.ReadFile("../../testdata/" + name + ".safetensors"))))
			randomcalls.CheckOptions(t, whole(must.Get(file.Batch())), false, callers(l)...)
		})
	}
}

// TestScratch: with less scratch memory than reweight_scratch_size says, a call is an
// error before it writes, or does not need so much.
func TestScratch(t *testing.T) {
	const T, S = 60, 5
	b := &reweight.Batch{SeqOffsets: []int64{0}}
	for s := range S {
		b.SeqOffsets = append(b.SeqOffsets, int64((s+1)*T/S))
		b.GroupIDs = append(b.GroupIDs, int32(s/2))
		b.Rewards = append(b.Rewards, float32(s%3))
	}
	x, weights := make([]float32, T), make([]float32, T)
	for t := range T {
		b.Role = append(b.Role, reweight.Role(1+t%2))
		b.SpanIDs = append(b.SpanIDs, int32(t/6))
		x[t] = float32(t*t%17) / 4
		weights[t] = 1e30 * float32(t+1) // large ones are divided in scratch memory
	}
	b.Entropy, b.OldLogprobs, b.RefLogprobs, b.Logprobs, b.Advantages = x, x, x, x, x
	surprisal, logRatio := reweight.DefaultActFocus, reweight.DefaultActFocus
	surprisal.Signal, logRatio.Signal = reweight.SignalSurprisal, reweight.SignalLogRatio
	l := testlib.Open(t)
	for name, call := range map[string]func(c randomcalls.Caller, out []float32) error{
		"ActFocus, surprisal": func(c randomcalls.Caller, out []float32) error { _, err := c.ActFocus(out, b, surprisal); return err },
		"ActFocus, log-ratio": func(c randomcalls.Caller, out []float32) error { _, err := c.ActFocus(out, b, logRatio); return err },
		"AEM":                 func(c randomcalls.Caller, out []float32) error { return c.AEM(out, b, reweight.DefaultAEM) },
		"GRPO":                func(c randomcalls.Caller, out []float32) error { return c.GRPO(out, b, reweight.DefaultGRPO) },
		"Loss": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Loss(out, weights, b, reweight.DefaultLoss)
			return err
		},
		"Loss, spans": func(c randomcalls.Caller, out []float32) error {
			opt := reweight.LossOptions{Policy: reweight.GSPO{ClipLow: 3e-4, ClipHigh: 4e-4,
				Sequence: reweight.SequenceSpan}}
			_, err := c.Loss(out, nil, b, opt)
			return err
		},
		"Loss, tokens that are chosen": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Loss(out, nil, b, reweight.DefaultKLCov)
			return err
		},
		"Surrogate, tokens that are chosen": func(c randomcalls.Caller, out []float32) error {
			_, err := c.Surrogate(out, x, x, x, nil, b.Role, 1, reweight.DefaultKLCov)
			return err
		},
		"Loss, KL": func(c randomcalls.Caller, out []float32) error {
			opt, b := reweight.DefaultLoss, *b
			opt.KLCoef = 0.1
			copy(out, x)
			b.Logprobs = out // which has to be kept
			_, err := c.Loss(out, weights, &b, opt)
			if err != nil && slices.Equal(out, x) {
				clear(out) // it was not written
			}
			return err
		},
	} {
		want := make([]float32, T)
		must.Do(call(plain(), want))
		for _, r := range each(l, 1) {
			errors := 0
			for _, lack := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 40, 100, 240, 300, 1000, 1 << 40} {
				r.Lack(lack)
				out := make([]float32, T)
				err := call(r, out)
				input, _ := err.(*reweight.InputError)
				switch {
				case err == nil:
					if d := randomcalls.Differ(randomcalls.Outcome{out}, randomcalls.Outcome{want}); d != nil {
						t.Errorf("%s, %v, %d bytes less: %v", name, r.ISA(), lack, d)
					}
				case input == nil || input.Arg != "scratch" && input.Arg != "scratch_size" ||
					input.Index != -1 || lack == 0:
					t.Errorf("%s, %v, %d bytes less: %v", name, r.ISA(), lack, err)
				case slices.Max(out) != 0 || slices.Min(out) != 0:
					t.Errorf("%s, %v, %d bytes less: an output is written", name, r.ISA(), lack)
				default:
					errors++
				}
			}
			if errors == 0 {
				t.Errorf("%s, %v: needs no scratch memory", name, r.ISA())
			}
		}
	}
}
