package reweight

// A Workspace holds the scratch memory and the worker settings that calls
// reuse, so that in steady state no call allocates. The zero value is ready: the
// best instruction set and one worker per CPU. Results depend on neither. A
// Workspace serves one call at a time, and must not be copied after its first.
type Workspace struct {
	Workers int // goroutines that share the rows of logits; 0 means GOMAXPROCS
	ISA     ISA // which implementation of the kernels; Auto is the best

	rows    rowScratch
	kernels kernelScratch
	groups  groupIndex
	spans   spanScratch

	actFocus actFocusScratch
	aem      aemScratch
	grpo     grpoScratch
	loss     lossScratch
	drift    driftScratch

	empg        empgScratch
	shaping     shapingScratch
	entropyMask entropyMaskScratch
	gigpo       gigpoScratch
	filter      filterScratch
	reinforce   reinforceScratch
	correction  correctionScratch
}

// grow returns s with length n, its contents unspecified.
func grow[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
