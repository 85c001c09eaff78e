// Kernels uses every function of package reweight that is in assembly, so that Go's linker
// keeps them all: package library takes them from there. It is for nothing else.
package main

import "github.com/seed621a2839/reweight"

func main() {
	println(
		(*reweight.Workspace).TokenStats, (*reweight.Workspace).RowGradient, (*reweight.Workspace).MaskedMoments,
		(*reweight.Workspace).ActFocusWeights, (*reweight.Workspace).SpanMeans, (*reweight.Workspace).MinMax,
		(*reweight.Workspace).ExpScale, (*reweight.Workspace).Multiply, (*reweight.Workspace).Surrogate,
		reweight.Policy(reweight.PPO{}),
	)
}
