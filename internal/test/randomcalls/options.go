package randomcalls

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// A method is one that has options, on a batch that has every array.
type method struct {
	name string
	like any // options that are right
	call func(c Caller, dst []float32, b *reweight.Batch, opt any) error
}

// with returns a method with options of the type that f takes.
func with[C Caller, O any](name string, like O, f func(c C, dst []float32, b *reweight.Batch, opt O) error) method {
	return method{name, like, func(c Caller, dst []float32, b *reweight.Batch, opt any) error {
		return f(c.(C), dst, b, opt.(O))
	}}
}

// The numbers that a kernel takes besides its options, as options.
type (
	shift     struct{ Shift float64 }
	meanSigma struct{ Mean, Sigma float64 }
	loRate    struct{ Lo, Rate float64 }
	scale     struct{ Scale float64 }
)

// fiveEach returns two rows of logits.
func fiveEach(x []float32) reweight.Logits { return reweight.Logits{Vocab: 5, F32: x[:10]} }

// methods returns the methods that the caller has.
func methods(c Caller) []method {
	all := []method{
		with("TokenStats", reweight.DefaultTokenStats,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.TokenStatsOptions) error {
				return c.TokenStats(reweight.Stats{LSE: dst[:2], Entropy: dst[2:4]}, fiveEach(b.Values), nil, opt)
			}),
		with("RowGradient", reweight.DefaultRowGradient,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.RowGradientOptions) error {
				of := reweight.RowGradientInput{Logprobs: b.Logprobs[:2], Entropy: b.Entropy[:2], Grad: b.Values[:2]}
				return c.RowGradient(fiveEach(dst), fiveEach(b.Values), []int32{0, 4}, of, opt)
			}),
		with("MaskedMoments", shift{1}, func(c Caller, _ []float32, b *reweight.Batch, x shift) error {
			_, err := c.MaskedMoments(b.Values, b.Role, reweight.Responses, x.Shift)
			return err
		}),
		with("ActFocusWeights", reweight.DefaultActFocus,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.ActFocusOptions) error {
				return c.ActFocusWeights(dst, b.RefEnergy, b.Role, 0, 1, opt)
			}),
		with("ActFocusWeights", meanSigma{0, 1},
			func(c Caller, dst []float32, b *reweight.Batch, x meanSigma) error {
				return c.ActFocusWeights(dst, b.RefEnergy, b.Role, x.Mean, x.Sigma, reweight.DefaultActFocus)
			}),
		with("ExpScale", loRate{0, 1}, func(c Caller, dst []float32, b *reweight.Batch, x loRate) error {
			return c.ExpScale(dst, b.Values, float32(x.Lo), x.Rate)
		}),
		with("Surrogate", reweight.DefaultLoss,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.LossOptions) error {
				_, err := c.Surrogate(dst, b.Logprobs, b.OldLogprobs, b.Advantages, nil, b.Role, 1, opt)
				return err
			}),
		with("Surrogate", scale{1}, func(c Caller, dst []float32, b *reweight.Batch, x scale) error {
			_, err := c.Surrogate(dst, b.Logprobs, b.OldLogprobs, b.Advantages, nil, b.Role, x.Scale,
				reweight.DefaultLoss)
			return err
		}),
		with("ActFocus", reweight.DefaultActFocus,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.ActFocusOptions) error {
				_, err := c.ActFocus(dst, b, opt)
				return err
			}),
		with("AEM", reweight.DefaultAEM, Caller.AEM),
		with("GRPO", reweight.DefaultGRPO, Caller.GRPO),
		with("GAE", reweight.DefaultGAE,
			func(c Caller, dst []float32, b *reweight.Batch, opt reweight.GAEOptions) error {
				return c.GAE(dst, nil, b.TokenRewards, b, opt)
			}),
	}
	if _, ok := c.(LossCaller); ok {
		all = append(all, with("KLRewards", reweight.DefaultKLRewards, LossCaller.KLRewards),
			with("ValueLoss", reweight.DefaultValueLoss,
				func(c LossCaller, dst []float32, b *reweight.Batch, opt reweight.ValueLossOptions) error {
					_, err := c.ValueLoss(dst, b, opt)
					return err
				}))
		for _, opt := range losses {
			scheme.SetField(&opt, "Beta", reflect.ValueOf(0.1)) // which has no default
			all = append(all, with("Loss", opt, loss))
		}
	} else {
		all = append(all, with("Loss", reweight.DefaultLoss, loss))
	}
	if _, ok := c.(SchemeCaller); ok {
		for _, e := range native.OfCatalogue() {
			all = append(all, method{e.Method, defaultOf(e),
				func(c Caller, dst []float32, b *reweight.Batch, opt any) error {
					if e.PerTrajectory {
						dst = dst[:b.Trajectories()]
					}
					return callScheme(c, e, dst, b, opt)
				}})
		}
	}
	return all
}

func loss(c Caller, dst []float32, b *reweight.Batch, opt reweight.LossOptions) error {
	weights := b.Values
	if opt.Policy.Traits().Unweighted {
		weights = nil
	}
	_, err := c.Loss(dst, weights, b, opt)
	return err
}

// edges are numbers at the edges of what an option may be, and beyond them.
var edgesOfOptions = func() []float64 {
	x := []float64{-0.5, 2, 3, 80.5, 255, 4096, 20480, 20481, 1e39, -1e39, math.NaN(), math.Inf(1), math.Inf(-1)}
	for _, v := range []float64{0, 1e-30, 1, 80, 1e30, math.MaxFloat32} {
		for _, v := range []float64{v, math.Nextafter(v, math.Inf(-1)), math.Nextafter(v, math.Inf(1))} {
			x = append(x, v, -v)
		}
	}
	return x
}()

// variants returns these options, their zero value, and these with each value of what has names;
// with edges also with each number at an edge. Options with a policy have their zero value with
// the zero value of that policy. A method without options, nil, has one variant.
func variants(like any, edges bool) []any {
	if like == nil {
		return []any{nil}
	}
	with := func(name string, x any) any {
		v := reflect.New(reflect.TypeOf(like))
		v.Elem().Set(reflect.ValueOf(like))
		scheme.SetField(v.Interface(), name, reflect.ValueOf(x))
		return v.Elem().Interface()
	}
	zero := reflect.Zero(reflect.TypeOf(like)).Interface()
	all := []any{like}
	if l, ok := like.(reweight.LossOptions); ok {
		zero = reweight.LossOptions{Policy: reflect.Zero(reflect.TypeOf(l.Policy)).Interface().(reweight.Policy)}
	}
	all = append(all, zero)
	for name, f := range scheme.Fields(like) {
		set := func(x any) { all = append(all, with(name, reflect.ValueOf(x).Convert(f.Type()).Interface())) }
		switch {
		case f.Kind() == reflect.Bool:
			set(!f.Bool())
		case f.Kind() == reflect.Uint8 && name != "Divergence": // C has a policy for each
			for _, n := range []uint8{0, 1, 2, 3, 4, 5, 6, 7, 255} {
				set(n)
			}
		}
		for _, x := range edgesOfOptions {
			whole := max(-1, min(x, 1e6))
			switch {
			case !edges:
			case f.Kind() == reflect.Float64:
				set(x)
			case f.Kind() == reflect.Int, f.Kind() == reflect.Uint64:
				set(int64(whole))
			case f.Kind() == reflect.Slice:
				set([]float64{1, x})
			}
		}
	}
	return all
}

// CheckOptions calls each method of the callers on the batch, with options of every name that there
// is; with edges also with numbers at the edges of what they may be. On each caller a call must
// have the error that plain Go has, or none, and the same results; where there is an error nothing
// is written. What a GPU takes is left to the trials: it has calls that are errors alone.
func CheckOptions(t *testing.T, b *reweight.Batch, edges bool, callers ...Caller) {
	t.Helper()
	_, onCPU := callers[0].(LossCaller)
	output := func() []float32 { return slices.Repeat([]float32{777}, b.Tokens()) }
	for _, m := range methods(callers[0]) {
		all, wrong := variants(m.like, edges), 0
		for _, opt := range all {
			want := output()
			wantErr := m.call(&reweight.Workspace{ISA: reweight.Portable}, want, b, opt)
			if wantErr != nil {
				wrong++
			}
			l, ofLoss := opt.(reweight.LossOptions)
			if !onCPU && (wantErr == nil || ofLoss && (!l.Policy.Traits().AnyValues || l.KLCoef != 0)) {
				continue
			}
			for _, c := range callers {
				got := output()
				err := m.call(c, got, b, opt)
				if diff := Differ(Outcome{err, got}, Outcome{wantErr, want}); diff != nil {
					t.Errorf("%s with %#v: %v", m.name, opt, diff)
				}
			}
		}
		if wrong == 0 && len(all) > 10 { // numbers, and not only yes and no
			t.Errorf("%s with %T: none is wrong", m.name, m.like)
		}
	}
}
