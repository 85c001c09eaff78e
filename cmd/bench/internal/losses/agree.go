package losses

import (
	"fmt"
	"math"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/reference"
)

// An exact is a batch in float64, on which package reference computes the steps.
type exact struct {
	*reweight.Batch
	role                           []reference.Role
	opt                            Options
	entropy, old, logprobs, signal []float64
}

// newExact returns a batch in float64. The library must accept the batch and the
// options. Signals, scopes and aggregations have the same names in the library and
// in the reference.
func newExact(b *reweight.Batch, opt Options) (*exact, error) {
	x := &exact{Batch: b, role: reference.Roles(b.Role), opt: opt, entropy: reference.Floats(b.Entropy), old: reference.Floats(b.OldLogprobs), logprobs: reference.Floats(b.Logprobs)}
	x.opt.AEM.Guard = min(opt.AEM.Guard, math.MaxFloat64) // the reference refuses infinity
	var err error
	x.signal, err = reference.ActFocusSignal(reference.Signal(opt.ActFocus.Signal.String()), reference.Floats(b.RefEnergy), reference.Floats(b.RefEntropy), x.old, reference.Floats(b.RefLogprobs))
	return x, err
}

// advantages returns those of GRPO, or if there are no rewards, those of the batch.
func (x *exact) advantages() ([]float64, error) {
	if x.Rewards == nil {
		given := reference.Floats(x.Advantages)
		for t, role := range x.Role {
			if role == reweight.RoleMasked {
				given[t] = 0
			}
		}
		return given, nil
	}
	grpo, err := reference.GRPO(reference.Floats(x.Rewards), x.GroupIDs, x.opt.GRPO.DivideByStd)
	if err != nil {
		return nil, err
	}
	return reference.TokenAdvantages(x.role, x.SeqOffsets, grpo)
}

// scale returns the advantages multiplied by the factors of AEM.
func (x *exact) scale(advantages []float64, guard float64) ([]float64, error) {
	_, _, factors, err := reference.AEM(x.role, x.SpanIDs, x.SeqOffsets, x.GroupIDs, x.entropy, x.opt.AEM.Lambda, guard, reference.Scope(x.opt.AEM.Scope.String()))
	if err != nil {
		return nil, err
	}
	return reference.ScaleAdvantages(advantages, factors)
}

// weights returns the token weights of ActFocus.
func (x *exact) weights() ([]float64, error) {
	opt := x.opt.ActFocus
	return reference.ActFocusWeights(x.role, x.signal, opt.Alpha, opt.Beta, opt.Eps)
}

// loss returns the loss for old log-probabilities that are lower by shift.
func (x *exact) loss(advantages, weights []float64, shift float64) (reference.LossResult, error) {
	old := make([]float64, len(x.old))
	for t, l := range x.old {
		old[t] = l - shift
	}
	opt := x.opt.Loss
	return reference.Loss(x.role, x.SeqOffsets, x.logprobs, old, advantages, weights, reference.LossOptions{
		ClipLow: opt.ClipLow, ClipHigh: opt.ClipHigh, DualClip: opt.DualClip,
		Aggregation: reference.Aggregation(opt.Aggregation.String()), NormLength: float64(opt.NormLength),
	})
}

// An agreement has the largest relative errors of the library's results, and the
// first result that is too far off, or nothing.
type agreement struct {
	advantages, scaled, weights, gradient, loss float64
	unguarded                                   bool // AEM was not compared: without a guard nothing bounds its error
	failure                                     string
}

// compare compares what the library computed with float64: advantages and weights
// with those of the batch, and each loss and gradient with those that follow from
// the library's own advantages and weights.
func (x *exact) compare(k *Computed, advantages, weights []float64) (agreement, error) {
	const tight = 1e-5
	var a agreement
	a.elements("GRPO: advantages", &a.advantages, tight, k.Uniform, advantages)

	// Means of entropies in float32 have an error of up to off. AEM divides their
	// differences by their range, which is at least the guard, so its exponent has
	// an error of about off over the guard. A range that is almost the guard may also
	// be taken for a smaller or a larger one, so results are compared with those of
	// three guards, and the nearest counts.
	size := 0.0
	for t, r := range x.Role {
		if r != reweight.RoleMasked {
			size = max(size, math.Abs(x.entropy[t]))
		}
	}
	off, guard := 4e-7*size, x.opt.AEM.Guard
	var scaled [3][]float64
	for i, g := range [...]float64{guard, max(0, guard-2*off), guard + 2*off} {
		var err error
		if scaled[i], err = x.scale(advantages, g); err != nil {
			return a, err
		}
	}
	if a.unguarded = guard == 0; !a.unguarded {
		a.elements("AEM: advantages", &a.scaled, tight+4*x.opt.AEM.Lambda*off/guard, k.Scaled, scaled[:]...)
	}

	a.elements("ActFocus: weights", &a.weights, tight, k.Weights, weights)

	for i, step := range k.Steps {
		advantages, weights := reference.Floats(step.Advantages), reference.UniformWeights(x.role)
		if step.Weights != nil {
			weights = reference.Floats(step.Weights)
		}
		// Log-probabilities that differ by 20, where the ratio is clamped, are
		// rounded by 1e-6 in float32. A ratio at the bound of a clip may therefore
		// fall on either side of it, so results are compared with those of three
		// shifts of the log-probabilities, and the nearest counts.
		var losses [3]reference.LossResult
		for j, shift := range [...]float64{0, -2e-6, 2e-6} {
			var err error
			if losses[j], err = x.loss(advantages, weights, shift); err != nil {
				return a, err
			}
		}
		a.elements(names[i]+": gradient", &a.gradient, tight, step.Grad, losses[0].Gradient, losses[1].Gradient, losses[2].Gradient)

		// The error of the loss is relative to the sum of its terms' magnitudes. A term
		// is negative if its advantage is positive, so gains.Loss is the sum of the
		// negative terms, and subtracting it twice makes them positive.
		for t, A := range advantages {
			advantages[t] = max(0, A)
		}
		gains, err := x.loss(advantages, weights, 0)
		if err != nil {
			return a, err
		}
		want := losses[0].Loss
		e := relative(step.Loss, want, want-2*gains.Loss)
		a.loss = max(a.loss, e)
		if !(e <= 2e-6) {
			a.fail("%s: loss = %v, float64 has %v", names[i], step.Loss, want)
		}
	}
	return a, nil
}

// elements compares each element with the nearest of its wants.
func (a *agreement) elements(what string, largest *float64, tolerance float64, got []float32, wants ...[]float64) {
	for t, v := range got {
		g, e := float64(v), math.Inf(1)
		for _, want := range wants {
			e = min(e, relative(g, want[t], math.Abs(want[t])))
		}
		*largest = max(*largest, e)
		if e > tolerance {
			a.fail("%s[%d] = %v, float64 has %v", what, t, g, wants[0][t])
		}
	}
}

// relative returns the error divided by size, which may be 0. It is infinite if only
// one of got and want is NaN.
func relative(got, want, size float64) float64 {
	if got == want || got != got && want != want {
		return 0
	}
	if e := math.Abs(got-want) / (size + 1e-30); e == e {
		return e
	}
	return math.Inf(1)
}

// fail sets the failure, unless there is one already.
func (a *agreement) fail(format string, args ...any) {
	if a.failure == "" {
		a.failure = fmt.Sprintf(format, args...)
	}
}

func (a agreement) String() string {
	if a.failure != "" {
		return "The kernels are WRONG: " + a.failure
	}
	aem := fmt.Sprintf("those of AEM %.0e", a.scaled)
	if a.unguarded {
		aem = "those of AEM not compared with a guard of 0"
	}
	return fmt.Sprintf("The table is in float64. The kernels, in float32, agree with it. Largest relative errors:\n"+
		"advantages %.0e, %s; weights of ActFocus %.0e; gradients %.0e;\n"+
		"losses %.0e, relative to the sum of |terms|.",
		a.advantages, aem, a.weights, a.gradient, a.loss)
}
