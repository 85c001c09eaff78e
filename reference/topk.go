package reference

import "math"

// EntropyBounds returns bounds of the entropy, in nats, of a distribution over vocab
// tokens of which only some log-probabilities are known: those of the most likely tokens,
// logprobs [k], in any order. The token with index extra may be less likely than tokens
// that are not known (servers add the sampled token to the most likely ones); with -1
// there is no such token.
//
// With H = -sum p log p of the k known tokens, m = 1 - sum p the mass of the other n =
// vocab - k tokens, and c the smallest known p except that of extra, no other token has
// more than c:
//
//	lower = H - floor(m/c) c log c - r log r   with r = m - floor(m/c) c
//	upper = H - m log(m/n)
//
// The entropy is least when as few tokens as possible have all of m, and greatest when
// the n tokens share it equally. Without a c, one token may have all of m. Rounded
// log-probabilities can leave more mass than n tokens of c hold, or less than none: c is
// m/n then, and m is 0. With n = 0, m is 0. Logprobs of -Inf add nothing to H.
func EntropyBounds(logprobs []float64, extra, vocab int) (lower, upper float64) {
	p, plogp := make([]float64, len(logprobs)), make([]float64, len(logprobs))
	c := math.Inf(1)
	for i, l := range logprobs {
		p[i] = math.Exp(l)
		plogp[i] = xlogx(p[i])
		if i != extra {
			c = min(c, p[i])
		}
	}
	known := sum(p)
	H := -sum(plogp)
	n := float64(vocab - len(logprobs))
	m := max(0, 1-known)
	if m == 0 || n == 0 {
		return H, H
	}
	c = max(c, m/n)
	lower, r := H, m
	if full := math.Floor(m / c); full > 0 { // 0 if c is infinite
		lower -= full * xlogx(c)
		r = max(0, m-full*c)
	}
	return lower - xlogx(r), H - m*math.Log(m/n)
}

// xlogx returns x log x, which is 0 for 0.
func xlogx(x float64) float64 {
	if x == 0 {
		return 0
	}
	return x * math.Log(x)
}
