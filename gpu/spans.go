package gpu

// spanKernels are the kernels on spans, scopes and trajectories.
var spanKernels = []kernel{}

// spanState is what a workspace keeps for them.
type spanState struct{}

func (*spanState) place(*layout, Size) {}
