package kernels

import "math"

// What docs/accuracy.md derives: for every row of logits, how far a result may
// be from the exact one before it is rounded to the output's type. The steps
// that the comments name are the ones of that page. TestBounds holds the
// formulas against the derivation.

const (
	unit32    = 0x1p-24 // a float32 result is rounded by this share of it, at most
	exp2Error = 1.57e-7 // relative error of 2^y (step 2)
	scaleGap  = 1.34e-8 // log2(e) in float32 is less than log2(e) by this share (step 1)
	shiftGap  = 5.2e-9  // absolute error of y at a temperature, in nats (step 1)
	oneBlock  = 1024    // a row of one block has no element above its reference
)

// logSumBound bounds the error of Logprob at temperature tau; that of LSE is
// the bound at temperature 1.
func logSumBound(vocab int, tau float64) float64 {
	l := math.Log(float64(vocab))
	var e float64
	switch {
	case vocab <= oneBlock && tau == 1:
		e = 0.25 + 0.16*l
	case vocab <= oneBlock:
		e = 0.25 + 0.19*l
	case tau == 1:
		e = 1.1 + 0.05*l
	default:
		e = 1.2 + 0.085*l
	}
	return e*1e-6 + float64Bound(vocab)
}

// entropyBound bounds the error of Entropy.
func entropyBound(vocab int, tau float64) float64 {
	l := math.Log(float64(vocab))
	var e float64
	switch {
	case vocab <= oneBlock && tau == 1:
		e = 0.5 + 0.135*l*l
	case vocab <= oneBlock:
		e = 0.7 + 0.145*l*l
	case tau == 1:
		e = 12.6 + 0.037*l*l
	default:
		e = 13.2 + 0.051*l*l
	}
	return e*1e-6 + float64Bound(vocab)
}

// float64Bound is what the arithmetic in float64 adds, the reference's included
// (step 5): nothing to speak of in a vocabulary of today.
func float64Bound(vocab int) float64 { return 3e-10 + float64(vocab)*0x1p-44 }

// gradientBound bounds the error of RowGradient where the loss has the gradient
// g with respect to the row's log-probability (step 8).
func gradientBound(vocab int, tau, g, bonus float64) float64 {
	l := math.Log(float64(vocab))
	gap, rounding, shift := scaleGap, unit32, 0.0 // of y, as in step 1
	if tau != 1 {
		gap, rounding, shift = 0, 2*unit32+0x1p-28, shiftGap
	}
	// The log-probability that comes in is that of TokenStats, above -64, in
	// float32: what it is off by shifts log p of every element, and the step from
	// the id to an element of probability p is |log p| + 64 at most.
	logprob := logSumBound(vocab, tau) + 0x1p-19 + 64*gap
	y := gap + rounding // for each nat of |log p|
	const (
		pLogP  = 0.368 // largest p |log p|
		pLog2P = 0.542 // largest p log^2 p
	)
	pH := l/4 + 0.43 // largest p |log p + H|
	ofG := logprob + pLogP*y + 0.05*rounding + shift + exp2Error + 3*unit32
	ofBonus := pH*(logprob+0.05*rounding+shift+exp2Error+2*unit32) + // of p, in p (log p + H)
		(pLog2P+pLogP*l)*y +
		logprob + pLogP*y + 0.05*rounding + shift + // of log p
		entropyBound(vocab, tau) + (2*pH+0.5)*unit32 // of H, and the roundings of H, a and b
	const second = 1.01 // errors of errors, and of what is rounded again to bfloat16
	return second*(math.Abs(g)*ofG+math.Abs(bonus)*ofBonus)/tau + 0x1p-133
}
