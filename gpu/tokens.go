package gpu

import "unsafe"

// tokenKernels are the kernels on arrays of tokens.
var tokenKernels = []kernel{
	{name: "multiply", threads: passThreads},
	{name: "masked_moments", threads: chainThreads},
	{name: "actfocus_spread", threads: chainThreads},
	{name: "actfocus_weights", threads: passThreads},
	{name: "whiten_spread", threads: chainThreads},
	{name: "whiten", threads: passThreads},
	{name: "surrogate", threads: groupThreads},
	{name: "surrogate_total", threads: 32},
	{name: "loss_check", threads: groupThreads},
	{name: "loss_weights", threads: chainThreads},
	{name: "loss_tokens", threads: groupThreads},
	{name: "loss_segments", threads: segmentThreads},
	{name: "loss_total", threads: 256},
}

const (
	passThreads  = 256 // of the kernels that pass over arrays
	passPack     = 4   // tokens that a thread of theirs takes at a time: tokens.cuh
	chainThreads = 544 // of those with sums in float64: chains.cuh
)

// tokenState is what a workspace keeps for them: the parameters of their launches,
// and where their scratch memory is.
type tokenState struct {
	multiply multiplyParams
	moments  momentsParams
	spread   spreadParams
	weights  weightsParams
	whiten   whitenParams
	whitenBy whitenSpreadParams
	total    surrogateTotalParams
	loss     lossParams

	curve Ptr // of actfocus.cu
	scale Ptr // of whiten.cu
	surrogateScratch
	lossScratch
}

func (st *tokenState) place(l *layout, size Size) {
	st.curve = l.take(16)
	st.scale = l.take(16)
	st.surrogateScratch.place(l, size)
	st.lossScratch.place(l, size)
}

// passes returns how many CTAs give every thread of a pass over n tokens something to do.
func passes(n int) int { return perThread(n, passThreads*passPack) }

// multiplyParams are those of multiply.cu.
type multiplyParams struct {
	dst, a, b Ptr
	n         int64
}

// Multiply sets dst[i] = a[i] * b[i] for n elements: AEM's factors onto advantages. dst
// may be a or b. It is one launch.
func (ws *Workspace) Multiply(dst, a, b Ptr, n int) error {
	if err := checkLength("n", n); err != nil {
		return err
	}
	if err := checkArrays(n, array{"dst", dst, 4}, array{"a", a, 4}, array{"b", b, 4}); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	ws.tokens.multiply = multiplyParams{dst: dst, a: a, b: b, n: int64(n)}
	return launch(ws, "multiply", passes(n), &ws.tokens.multiply)
}

// sizeOf returns the size of a struct of that type.
func sizeOf[S any]() int {
	var s S
	return int(unsafe.Sizeof(s))
}
