package gpu

import (
	"cmp"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/shape"
)

// passes returns how many CTAs give every thread of a pass over n tokens something to do.
func passes(n int) int { return perThread(n, shape.PassThreads*shape.PassPack) }

// multiplyParams are those of multiply.cu.
type multiplyParams struct {
	dst, a, b Ptr
	n         int64
}

// Multiply sets dst[i] = a[i] * b[i] for n elements: AEM's factors onto advantages. dst
// may be a or b. It is one launch.
func (ws *Workspace) Multiply(dst, a, b Ptr, n int) error {
	err := cmp.Or(checkLength("n", n), checkArrays(n, array{"dst", dst, 4}, array{"a", a, 4}, array{"b", b, 4}))
	if err != nil || n == 0 {
		return err
	}
	ws.params.multiply = multiplyParams{dst: dst, a: a, b: b, n: int64(n)}
	return launch(ws, &ws.params.multiply, step{"multiply", passes(n)})
}

// sizeOf returns the size of a struct of that type.
func sizeOf[S any]() int {
	var s S
	return int(unsafe.Sizeof(s))
}
