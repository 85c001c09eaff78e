package kernels

import "github.com/seed621a2839/reweight"

// A Runner runs the kernels on slices in this process's memory. Its methods take
// the arguments of those of *reweight.Workspace, give the same bits and return the
// same errors, but for the policies of Surrogate: a GPU has PPO alone. Only one call at a time may use a Runner.
type Runner interface {
	TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32, opt reweight.TokenStatsOptions) error
	RowGradient(dst, logits reweight.Logits, ids []int32, of reweight.RowGradientInput,
		opt reweight.RowGradientOptions) error

	MaskedMoments(x []float32, role []reweight.Role, roles reweight.RoleSet, shift float64) (reweight.Moments, error)
	ActFocusWeights(dst, signal []float32, role []reweight.Role, mean, sigma float64,
		opt reweight.ActFocusOptions) error
	SpanMeans(dst, x []float32, offsets []int32) error
	MinMax(lo, hi, x []float32, offsets []int32) error
	ExpScale(dst, x []float32, lo float32, rate float64) error
	Multiply(dst, a, b []float32) error
	Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role, scale float64,
		opt reweight.LossOptions) (reweight.SurrogateSums, error)
}

// An Implementation is one of the ways in which this machine can run the
// kernels: an instruction set of its CPU, a C library, a GPU.
type Implementation struct {
	Name string // "avx2"

	// New returns a runner. It may use that many goroutines for rows of logits, if it
	// uses goroutines at all. Tests call New for every case, so it must be cheap.
	New func(workers int) Runner
}

// Implementations lists those that this machine has. The first is plain Go. Tests
// run them all: the results of each must be within tolerance of package reference,
// and have the bits of the first.
func Implementations() []Implementation {
	var all []Implementation
	for _, isa := range reweight.AvailableISAs() {
		all = append(all, Implementation{
			Name: isa.String(),
			New:  func(workers int) Runner { return &reweight.Workspace{ISA: isa, Workers: workers} },
		})
	}
	return all
}
