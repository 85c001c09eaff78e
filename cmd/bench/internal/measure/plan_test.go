package measure

import (
	"testing"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/kernels"
)

// TestShapes: without -rows, logits are streamed and tokens are not.
func TestShapes(t *testing.T) {
	for _, s := range Shapes(kernels.All(), cli.Sizes{Vocabs: []int{1000, 2000}, Workers: []int{1, 2}}) {
		if !s.Kernel.Rows {
			if s.Rows != TokenCount || s.Vocab != 0 || s.CheckSize() != s.Rows || len(s.Workers) != 1 {
				t.Errorf("%v: %+v", s, s)
			}
			continue
		}
		if s.Rows != RowsToStream(s.DType, s.Vocab) || s.CheckSize() != s.Vocab || len(s.Workers) != 2 {
			t.Errorf("%v: %+v", s, s)
		}
	}
}
