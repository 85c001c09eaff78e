package gpu

// tokenKernels are the kernels on arrays of tokens.
var tokenKernels = []kernel{
	{name: "multiply", threads: 256},
}

// tokenState is what a workspace keeps for them.
type tokenState struct {
	multiply multiplyParams
}

func (*tokenState) place(*layout, Size) {}

// multiplyParams are those of multiply.cu.
type multiplyParams struct {
	dst, a, b Ptr
	n         int64
}

// Multiply sets dst[i] = a[i] * b[i] for n elements: AEM's factors onto advantages. dst
// may be a or b.
func (ws *Workspace) Multiply(dst, a, b Ptr, n int) error {
	if n < 0 {
		return badInput("n", "is %d, want at least 0", n)
	}
	for _, p := range [...]struct {
		arg string
		ptr Ptr
	}{{"dst", dst}, {"a", a}, {"b", b}} {
		if err := checkPtr(p.arg, p.ptr, 4); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	ws.tokens.multiply = multiplyParams{dst: dst, a: a, b: b, n: int64(n)}
	return launch(ws, "multiply", perThread(n, 256), &ws.tokens.multiply)
}
