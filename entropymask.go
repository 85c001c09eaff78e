package reweight

import (
	"cmp"
	"math"
)

// EntropyMaskOptions are the options of [Workspace.EntropyMask]. The zero value is an error.
type EntropyMaskOptions struct {
	Rho float64 // share of response tokens to keep, in (0, 1]
}

// DefaultEntropyMask keeps the fifth with the highest entropies, as the paper does.
var DefaultEntropyMask = EntropyMaskOptions{Rho: 0.2}

// EntropyMask sets mask to 1 at the response tokens with the highest entropies, to 0
// elsewhere (arXiv 2506.01939). Of the n response tokens of the batch,
//
//	K = min(n, max(1, floor(Rho n + 0.9999)))    threshold = the K-th largest entropy
//	mask_t = 1 where Entropy[t] >= threshold
//
// All tokens at the threshold are kept, so that their order does not matter. The mask is
// meant for the weights of Loss: it leaves numerator and denominator of its means. As a
// factor of the advantage it leaves only the numerator.
//
// In Go, the threshold is returned, in nats. It is 0 without response tokens.
//
// mask, Role and Entropy have one element per token; mask may be Entropy. A wrong
// shape, a Rho out of range, or an entropy of a response token that is not finite, is
// an error, and mask is not written.
func (ws *Workspace) EntropyMask(mask []float32, b *Batch, opt EntropyMaskOptions) (threshold float64, err error) {
	defer ws.release(ws.taken)
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(
		err,
		checkLen("mask", len(mask), b.Tokens(), "token"),
		checkRoles("Role", b.Role),
		checkShare("Rho", opt.Rho),
	); err != nil {
		return 0, err
	}
	if err := ws.checkResponses(isa, b.Role, array{"Entropy", b.Entropy}); err != nil {
		return 0, err
	}
	n := responses(b.Role)
	if n == 0 {
		clear(mask)
		return 0, nil
	}
	k := min(n, max(1, int(float64(opt.Rho*float64(n))+0.9999)))
	tau := ws.largest(b.Entropy, b.Role, k)
	for t, r := range b.Role {
		m := float32(0)
		if r != RoleMasked && b.Entropy[t] >= tau {
			m = 1
		}
		mask[t] = m
	}
	return float64(tau), nil
}

// largest returns the k-th largest of the finite x of response tokens, of which there
// are at least k. It finds the bits of its key from the top, 11, 11 and 10, in one
// pass over x each.
func (ws *Workspace) largest(x []float32, role []Role, k int) float32 {
	count := take[int](ws, 1<<11) // of the keys that share the bits found so far, by their next
	found, key := 0, uint32(0)    // so many upper bits, and these
	for _, bits := range [...]int{11, 11, 10} {
		clear(count)
		rest := 32 - found - bits
		for t, r := range role {
			if r != RoleMasked {
				if v := orderedBits(x[t]) >> rest; v>>bits == key {
					count[v&(1<<bits-1)]++
				}
			}
		}
		at := 1<<bits - 1
		for ; count[at] < k; at-- {
			k -= count[at]
		}
		found, key = found+bits, key<<bits|uint32(at)
	}
	if key>>31 != 0 {
		return math.Float32frombits(key &^ (1 << 31))
	}
	return math.Float32frombits(^key)
}

// orderedBits returns a key that is ordered as the numbers are.
func orderedBits(x float32) uint32 {
	b := math.Float32bits(x)
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}
