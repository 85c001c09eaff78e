package lengths

import "github.com/seed621a2839/reweight"

// Each function here is named for a method of *reweight.Workspace and takes the arguments
// of that method which have a length.

// TokenStats also wants an output.
func TokenStats(dst reweight.Stats, logits reweight.Logits, ids []int32) error {
	n := logits.Rows()
	if err := rows("logits", logits, n); err != nil {
		return err
	}
	if dst.LSE == nil && dst.Entropy == nil && dst.Logprob == nil {
		return bad("dst", "has no output: LSE, Entropy and Logprob are all nil")
	}
	for _, o := range [...]struct {
		arg string
		out []float32
	}{{"dst.LSE", dst.LSE}, {"dst.Entropy", dst.Entropy}, {"dst.Logprob", dst.Logprob}} {
		if o.out != nil {
			if err := one(o.arg, len(o.out), n, "row"); err != nil {
				return err
			}
		}
	}
	if dst.Logprob != nil {
		return one("ids", len(ids), n, "row")
	}
	return nil
}

// RowGradient also wants rows of the same length.
func RowGradient(dst, logits reweight.Logits, ids []int32, logprobs, entropy, grad, gradEntropy []float32, opt reweight.RowGradientOptions) error {
	n := logits.Rows()
	if err := rows("logits", logits, n); err != nil {
		return err
	}
	if err := rows("dst", dst, n); err != nil {
		return err
	}
	if dst.Vocab != logits.Vocab {
		return bad("dst", "has rows of %d logits, want %d like the logits", dst.Vocab, logits.Vocab)
	}
	if err := each(n, "row", length{"ids", len(ids)}, length{"logprobs", len(logprobs)}, length{"grad", len(grad)}); err != nil {
		return err
	}
	if gradEntropy != nil {
		if err := one("gradEntropy", len(gradEntropy), n, "row"); err != nil {
			return err
		}
	}
	if opt.EntropyBonus != 0 || gradEntropy != nil {
		return one("entropy", len(entropy), n, "row")
	}
	return nil
}

func MaskedMoments(x []float32, role []reweight.Role) error {
	return one("x", len(x), len(role), "token")
}

func ActFocusWeights(dst, signal []float32, role []reweight.Role) error {
	return each(len(role), "token", length{"dst", len(dst)}, length{"signal", len(signal)})
}

func SpanMeans(dst []float32, offsets []int32) error {
	return ranges("dst", len(dst), offsets)
}

func MinMax(lo, hi []float32, offsets []int32) error {
	if err := one("hi", len(hi), len(lo), "group"); err != nil {
		return err
	}
	return ranges("lo", len(lo), offsets)
}

func ExpScale(dst, x []float32) error {
	if len(x) == 0 {
		return bad("x", "is empty, want at least 1 element")
	}
	return one("dst", len(dst), len(x), "element of x")
}

func Multiply(dst, a, b []float32) error {
	return each(len(dst), "element of dst", length{"a", len(a)}, length{"b", len(b)})
}

func Surrogate(grad, logprobs, old, advantages, weights []float32, role []reweight.Role) error {
	err := each(len(role), "token", length{"grad", len(grad)}, length{"logprobs", len(logprobs)}, length{"old", len(old)}, length{"advantages", len(advantages)})
	if err != nil {
		return err
	}
	return weightsOf(weights, len(role))
}
