package randomcalls

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight"
)

// CheckErrors makes wrong calls of every kind. On each caller they must have the error
// that plain Go has, and write nothing.
func CheckErrors(t *testing.T, callers ...Caller) {
	t.Helper()
	type L = reweight.Logits
	type S = reweight.Stats
	nan := float32(math.NaN())
	const untouched = 777
	var outputs [][]float32 // of all calls
	row := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = untouched
		}
		outputs = append(outputs, x)
		return x
	}
	f := make([]float32, 12)
	ids := []int32{0, 1}
	roles, wrongRoles := []reweight.Role{0, 1, 2, 2}, []reweight.Role{0, 1, 2, 3}
	batch := func(change func(b *reweight.Batch)) *reweight.Batch {
		b := &reweight.Batch{Role: roles, SeqOffsets: []int64{0, 2, 4}, GroupIDs: []int32{0, 0}, Rewards: []float32{0, 1},
			SpanIDs: []int32{-1, 0, 1, 1}, RefEnergy: f[:4], RefEntropy: f[:4], Entropy: f[:4], OldLogprobs: f[:4], Logprobs: f[:4], Advantages: f[:4], Values: f[:4]}
		change(b)
		return b
	}
	stats := func(dst S, l L, ids []int32, tau float64) func(Caller) error {
		return func(c Caller) error {
			return c.TokenStats(dst, l, ids, reweight.TokenStatsOptions{Temperature: tau})
		}
	}
	withLSE := func(ids []int32, lse []float32) func(Caller) error {
		return func(c Caller) error {
			of := reweight.RowGradientInput{Logprobs: f[:2], Grad: f[:2], LSE: lse}
			return c.RowGradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, of, reweight.DefaultRowGradient)
		}
	}
	gradient := func(dst, l L, ids []int32, lp, h, g, gh []float32, opt reweight.RowGradientOptions) func(Caller) error {
		return func(c Caller) error {
			return c.RowGradient(dst, l, ids, reweight.RowGradientInput{Logprobs: lp, Entropy: h, Grad: g, GradEntropy: gh}, opt)
		}
	}
	actFocus := func(opt reweight.ActFocusOptions, weights int, change func(b *reweight.Batch)) func(Caller) error {
		return func(c Caller) error {
			_, err := c.ActFocus(row(weights), batch(change), opt)
			return err
		}
	}
	aem := func(opt reweight.AEMOptions, factors int, change func(b *reweight.Batch)) func(Caller) error {
		return func(c Caller) error { return c.AEM(row(factors), batch(change), opt) }
	}
	loss := func(opt reweight.LossOptions, weights []float32, change func(b *reweight.Batch)) func(Caller) error {
		return func(c Caller) error {
			_, err := c.Loss(row(4), weights, batch(change), opt)
			return err
		}
	}
	grpo := func(opt reweight.GRPOOptions, change func(b *reweight.Batch)) func(Caller) error {
		return func(c Caller) error { return c.GRPO(row(4), batch(change), opt) }
	}
	gae := func(opt reweight.GAEOptions, returns []float32, change func(b *reweight.Batch)) func(Caller) error {
		return func(c Caller) error { return c.GAE(row(4), returns, f[:4], batch(change), opt) }
	}
	keep := func(*reweight.Batch) {}
	byTrajectory := reweight.DefaultLoss
	byTrajectory.Aggregation = reweight.SeqMeanTokenSum
	logRatio := reweight.DefaultActFocus
	logRatio.Signal = reweight.SignalLogRatio
	surprisal, refEntropy := logRatio, logRatio
	surprisal.Signal, refEntropy.Signal = reweight.SignalSurprisal, reweight.SignalRefEntropy

	for i, call := range []func(c Caller) error{
		stats(S{Logprob: row(2)}, L{Vocab: 6, F32: f}, []int32{0, 6}, 1),
		stats(S{LSE: row(2)}, L{F32: f}, ids, 1),
		stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, 0),
		stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, math.NaN()),
		stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, math.Inf(1)),
		stats(S{LSE: row(2)}, L{Vocab: 6, F32: f}, ids, -0.5),
		stats(S{Logprob: row(2)}, L{Vocab: 6, F32: f}, []int32{-1, 0}, 1),
		gradient(L{Vocab: 2, F32: row(8)}, L{Vocab: 6, F32: f}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 2, F32: f[:4]}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], f[:2], f[:2], nil, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: math.NaN()}),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, BF16: make([]reweight.BF16, 8)}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F16: make([]reweight.F16, 8)}, L{Vocab: 4, F16: make([]reweight.F16, 8)}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F16: make([]reweight.F16, 8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, BF16: make([]reweight.BF16, 8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], nil, f[:2], nil, reweight.RowGradientOptions{Temperature: -1}),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, ids, f[:2], f[:2], f[:2], nil, reweight.RowGradientOptions{Temperature: 1, EntropyBonus: math.Inf(-1)}),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, []int32{0, 4}, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		gradient(L{Vocab: 4, F32: row(8)}, L{Vocab: 4, F32: f[:8]}, []int32{0, -1}, f[:2], nil, f[:2], nil, reweight.DefaultRowGradient),
		withLSE([]int32{-1, -2}, f[:2]),
		withLSE([]int32{4, -1}, f[:2]),

		func(c Caller) error { _, err := c.MaskedMoments(f[:4], roles, 1, math.Inf(1)); return err },
		func(c Caller) error { _, err := c.MaskedMoments(f[:4], wrongRoles, 1, 0); return err },
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 1e39, 1, reweight.DefaultActFocus)
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 0, -1, reweight.DefaultActFocus)
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], wrongRoles, 0, 1, reweight.DefaultActFocus)
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, math.NaN(), 1, reweight.DefaultActFocus)
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 0, math.Inf(1), reweight.DefaultActFocus)
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 0, 1, reweight.ActFocusOptions{Alpha: 1.5})
		},
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 0, 1, reweight.ActFocusOptions{Signal: 255})
		},
		func(c Caller) error { return c.SpanMeans(row(2), f, []int32{0, 3, 13}) },
		func(c Caller) error { return c.SpanMeans(row(1), f, []int32{3, 2}) },
		func(c Caller) error { return c.SpanMeans(row(1), f, []int32{-3, 2}) },
		func(c Caller) error { return c.MinMax(row(2), row(2), f, []int32{0, 3, 2}) },
		func(c Caller) error { return c.MinMax(row(2), row(2), f, []int32{-1, 3, 4}) },
		func(c Caller) error { return c.MinMax(row(2), row(2), f, []int32{0, 3, math.MaxInt32}) },
		func(c Caller) error { return c.ExpScale(row(4), f[:4], 0, -1) },
		func(c Caller) error { return c.ExpScale(row(4), f[:4], nan, 1) },
		func(c Caller) error { return c.ExpScale(row(4), f[:4], float32(math.Inf(-1)), 1) },
		func(c Caller) error { return c.ExpScale(row(4), f[:4], 0, math.NaN()) },
		func(c Caller) error { return c.ExpScale(row(4), f[:4], 0, 1e39) },
		func(c Caller) error {
			_, err := c.Surrogate(row(4), f[:4], f[:4], f[:4], nil, roles, math.Inf(1), reweight.DefaultLoss)
			return err
		},
		func(c Caller) error {
			_, err := c.Surrogate(row(4), f[:4], f[:4], f[:4], nil, roles, math.NaN(), reweight.DefaultLoss)
			return err
		},
		func(c Caller) error {
			_, err := c.Surrogate(row(4), f[:4], f[:4], f[:4], nil, wrongRoles, 1, reweight.DefaultLoss)
			return err
		},
		func(c Caller) error {
			_, err := c.Surrogate(row(4), f[:4], f[:4], f[:4], nil, roles, 1, reweight.LossOptions{ClipLow: 1.5})
			return err
		},
		func(c Caller) error { return c.Whiten(row(2), f[:2], []reweight.Role{0, 1}) },
		func(c Caller) error { return c.Whiten(row(2), f[:2], []reweight.Role{0, 0}) },
		func(c Caller) error { return c.Whiten(row(4), f[:4], wrongRoles) },
		func(c Caller) error {
			return c.Whiten(row(4), []float32{0, nan, 1, 2}, []reweight.Role{1, 1, 1, 1})
		},

		actFocus(logRatio, 4, func(b *reweight.Batch) { b.RefLogprobs = []float32{0, 0, nan, 0} }),
		actFocus(logRatio, 4, func(b *reweight.Batch) {
			b.OldLogprobs, b.RefLogprobs = []float32{0, 0, 0, nan}, []float32{0, 0, nan, 0}
		}),
		actFocus(reweight.DefaultActFocus, 4, func(b *reweight.Batch) { b.RefEnergy = []float32{nan, nan, 1, float32(math.Inf(-1))} }),
		actFocus(refEntropy, 4, func(b *reweight.Batch) { b.RefEntropy = []float32{0, 0, nan, 0} }),
		actFocus(surprisal, 4, func(b *reweight.Batch) { b.OldLogprobs = []float32{0, 0, float32(math.Inf(1)), nan} }),
		actFocus(reweight.DefaultActFocus, 4, func(b *reweight.Batch) { b.Role = wrongRoles }),
		actFocus(reweight.ActFocusOptions{Beta: -1}, 4, keep),
		actFocus(reweight.ActFocusOptions{Beta: math.Inf(1)}, 4, keep),
		actFocus(logRatio, 4, func(b *reweight.Batch) {
			b.OldLogprobs, b.RefLogprobs = []float32{0, 0, 0, 3e38}, []float32{0, 0, 0, -3e38}
		}),
		actFocus(reweight.ActFocusOptions{Alpha: 2}, 4, keep),
		actFocus(reweight.ActFocusOptions{Eps: math.NaN()}, 4, keep),
		actFocus(reweight.ActFocusOptions{Signal: 4}, 4, keep),
		aem(reweight.AEMOptions{Lambda: 81}, 4, keep),
		aem(reweight.AEMOptions{Guard: -1}, 4, keep),
		aem(reweight.AEMOptions{Scope: 3}, 4, keep),
		aem(reweight.AEMOptions{Lambda: math.NaN()}, 4, keep),
		aem(reweight.AEMOptions{Guard: math.NaN()}, 4, keep),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 5, 1} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.SpanIDs = []int32{-2, 0, 1, 1} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.Entropy = []float32{nan, 0, 1, nan} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.Entropy = []float32{0, 2e30, 1, 2} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.Role = wrongRoles }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 5, 3} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.SpanIDs = []int32{-1, 0, 0, 1} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.SpanIDs = []int32{-1, -1, 0, 0} }),
		aem(reweight.DefaultAEM, 4, func(b *reweight.Batch) { b.Role = []reweight.Role{0, 0, 1, 2} }),
		loss(reweight.DefaultLoss, []float32{0, nan, 1, 2}, keep),
		loss(reweight.LossOptions{DualClip: 0.5}, nil, keep),
		loss(reweight.LossOptions{DualClip: 1e39}, nil, keep),
		loss(reweight.LossOptions{DualClip: math.NaN()}, nil, keep),
		loss(reweight.LossOptions{ClipLow: -0.5}, nil, keep),
		loss(reweight.LossOptions{ClipHigh: math.NaN()}, nil, keep),
		loss(reweight.DefaultLoss, nil, func(b *reweight.Batch) { b.Role = wrongRoles }),
		loss(reweight.LossOptions{NormLength: -1}, nil, keep),
		loss(reweight.LossOptions{Aggregation: 9}, nil, keep),
		loss(byTrajectory, nil, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 5, 3} }),
		loss(byTrajectory, nil, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 2, 3} }),
		grpo(reweight.GRPOOptions{Eps: -1}, keep),
		grpo(reweight.GRPOOptions{Eps: math.NaN()}, keep),
		grpo(reweight.DefaultGRPO, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 2, 9} }),
		grpo(reweight.DefaultGRPO, func(b *reweight.Batch) { b.SeqOffsets = []int64{1, 2, 4} }),
		grpo(reweight.DefaultGRPO, func(b *reweight.Batch) { b.Rewards = []float32{0, nan} }),
		grpo(reweight.DefaultGRPO, func(b *reweight.Batch) { b.Role = []reweight.Role{7, 1, 2, 2} }),
		gae(reweight.GAEOptions{Gamma: 2}, nil, keep),
		gae(reweight.GAEOptions{Gamma: math.NaN()}, nil, keep),
		gae(reweight.GAEOptions{Lambda: -1}, nil, keep),

		// Options that nobody has set.
		actFocus(reweight.ActFocusOptions{Eps: 1e-8}, 4, keep),
		func(c Caller) error {
			return c.ActFocusWeights(row(4), f[:4], roles, 0, 1, reweight.ActFocusOptions{})
		},
		aem(reweight.AEMOptions{Scope: reweight.ScopeBatch}, 4, keep),
		gae(reweight.GAEOptions{}, nil, keep),
		loss(reweight.LossOptions{}, nil, keep),
		loss(reweight.LossOptions{DualClip: 3, Aggregation: reweight.SeqMeanTokenSum}, nil, keep),
		func(c Caller) error {
			_, err := c.Surrogate(row(4), f[:4], f[:4], f[:4], nil, roles, 1, reweight.LossOptions{})
			return err
		},
		gae(reweight.DefaultGAE, nil, func(b *reweight.Batch) { b.Role = wrongRoles }),
		gae(reweight.DefaultGAE, nil, func(b *reweight.Batch) { b.SeqOffsets = []int64{0, 4, 2} }),
	} {
		cpu := reweight.Workspace{ISA: reweight.Portable}
		want := call(&cpu)
		if want == nil {
			t.Errorf("call %d is no error", i)
			continue
		}
		for _, c := range callers {
			got := call(c)
			if err := Differ(Outcome{got}, Outcome{want}); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			for _, out := range outputs {
				for j := range out {
					if out[j] != untouched {
						t.Errorf("%v: an output is written", got)
						out[j] = untouched
					}
				}
			}
		}
	}
}
