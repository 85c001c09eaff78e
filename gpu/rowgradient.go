package gpu

import (
	"cmp"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/internal/shape"
)

// rowGradientParams are RowGradient of row_gradient.cuh.
type rowGradientParams struct {
	exact                   Ptr // 0, or where a test wants the float64 behind the results
	dst                     Ptr
	dstStride, dstGap       int64 // bytes
	logprobs, entropy, grad Ptr
	gradEntropy             Ptr // 0 for zeros
	lse                     Ptr // 0 to have it from the chosen element
	bonus                   float64
	rows                    rowsParams
}

// RowGradientInput has the arrays of reweight.RowGradientInput, each of float32 with one element
// for each row in memory; 0 stands for nil.
type RowGradientInput struct{ Logprobs, Entropy, Grad, GradEntropy, LSE Ptr }

// RowGradient writes the gradient of the loss with respect to each logit, as
// reweight.Workspace.RowGradient does. dst has the DType, which is float32 or bfloat16,
// the Rows and the Vocab of logits. It is logits itself, with the same strides, or none of
// its rows overlaps one of logits. Its Index and its Sequence are not used: those of
// logits say which rows are read and written.
//
// A wrong shape, address or option is an error, and nothing is queued. An id that is not
// in the vocabulary, nor -1 where LSE is given, gives its row a gradient of NaN, an element of the index that is not
// a row is passed over, and Check returns either.
func (ws *Workspace) RowGradient(dst, logits Rows, ids IDs, of RowGradientInput,
	opt reweight.RowGradientOptions) error {
	dst.Index, dst.Sequence = logits.Index, logits.Sequence
	if err := cmp.Or(logits.checkShape("logits"), dst.checkShape("dst")); err != nil {
		return err
	}
	switch {
	case dst.Rows != logits.Rows:
		return badInput("dst", problem.OtherRows, dst.Rows, dst.Vocab, logits.Rows)
	case dst.Vocab != logits.Vocab:
		return badInput("dst", problem.OtherVocab, dst.Vocab, logits.Vocab)
	case logits.DType == reweight.DTypeF16:
		return badInput("logits", problem.Float16)
	case dst.DType != logits.DType:
		return badInput("dst", problem.OtherDType, dst.DType, logits.DType)
	case dst.Ptr == logits.Ptr && dst.stride() != logits.stride():
		return badInput("dst.Stride", problem.StrideInDst, dst.stride(), logits.stride())
	case dst.Ptr == logits.Ptr && dst.gap() != logits.gap():
		return badInput("dst.SequenceStride", problem.StrideInDst, dst.SequenceStride, logits.SequenceStride)
	case opt.EntropyBonus-opt.EntropyBonus != 0:
		return badInput("EntropyBonus", problem.Finite, opt.EntropyBonus)
	}
	if err := checkTemperature(opt.Temperature); err != nil || logits.wanted() == 0 {
		return err
	}
	err := cmp.Or(
		logits.checkPtrs("logits"),
		dst.checkPtrs("dst"),
		checkIDs(ids, &logits),
		checkPtr("Logprobs", of.Logprobs, 4),
		checkPtr("Grad", of.Grad, 4),
		checkAligned("GradEntropy", of.GradEntropy, 4),
		checkAligned("LSE", of.LSE, 4),
	)
	if err == nil && (opt.EntropyBonus != 0 || of.GradEntropy != 0) {
		err = checkPtr("Entropy", of.Entropy, 4)
	}
	if err != nil {
		return err
	}
	p := &ws.params.gradient
	*p = rowGradientParams{
		dst:         dst.Ptr,
		dstStride:   int64(dst.stride()) * int64(dst.DType.Size()),
		dstGap:      int64(dst.gap()) * int64(dst.DType.Size()),
		logprobs:    of.Logprobs,
		entropy:     of.Entropy,
		grad:        of.Grad,
		gradEntropy: of.GradEntropy,
		lse:         of.LSE,
		bonus:       opt.EntropyBonus,
		rows:        ws.rowsParams(&logits, ids, opt.Temperature),
	}
	return launch(ws, p, step{at(opt.Temperature, shape.Gradient[logits.DType]), logits.wanted()})
}
