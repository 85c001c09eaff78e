package kernels

import "math"

// Bounds that BOUNDS.md derives: how far a result may be from the exact one,
// for every row of logits, before it is rounded to the output's dtype. The steps that
// the comments name are those of that page. TestBounds compares those of LSE,
// Logprob, Entropy and LogSumSqProbs with the derivation; that of the gradient is derived by hand.

const (
	unit32    = 0x1p-24 // largest relative error of rounding to float32
	exp2Error = 1.57e-7 // largest relative error of 2^y (step 2)
	scaleGap  = 1.34e-8 // relative error of log2(e) in float32, which is too small (step 1)
	shiftGap  = 5.2e-9  // largest absolute error of y at a temperature, in nats (step 1)
	oneBlock  = 1024    // elements of a block; in a row of one block, none is above the reference element
)

// logSumBound bounds the error of Logprob at temperature tau; that of LSE is
// the bound at temperature 1.
func logSumBound(vocab int, tau float64) float64 {
	c := choose(vocab, tau, [4]coefficients{{0.25, 0.16}, {0.25, 0.19}, {1.1, 0.05}, {1.2, 0.085}})
	return (c.a+c.b*math.Log(float64(vocab)))*1e-6 + float64Bound(vocab)
}

// entropyBound bounds the error of Entropy.
func entropyBound(vocab int, tau float64) float64 {
	l := math.Log(float64(vocab))
	c := choose(vocab, tau, [4]coefficients{{0.5, 0.135}, {0.7, 0.145}, {12.6, 0.037}, {13.2, 0.051}})
	return (c.a+c.b*l*l)*1e-6 + float64Bound(vocab)
}

// squaresBound bounds the error of LogSumSqProbs.
func squaresBound(vocab int, tau float64) float64 {
	c := choose(vocab, tau, [4]coefficients{{0.95, 0.47}, {1, 0.56}, {4.25, 0.12}, {4.9, 0.21}})
	return (c.a+c.b*math.Log(float64(vocab)))*1e-6 + 3*float64Bound(vocab)
}

// coefficients are those of a bound, in units of 1e-6.
type coefficients struct{ a, b float64 }

// choose returns one of the coefficients: the first two are for a row of one block, at
// temperature 1 and at another, and the last two for a longer row.
func choose(vocab int, tau float64, of [4]coefficients) coefficients {
	i := 0
	if vocab > oneBlock {
		i = 2
	}
	if tau != 1 {
		i++
	}
	return of[i]
}

// float64Bound bounds what the arithmetic in float64 adds, that of package reference
// included (step 5): at most 1e-8 for a vocabulary of 151,936.
func float64Bound(vocab int) float64 { return 3e-10 + float64(vocab)*0x1p-44 }

// gradientBound bounds the error of RowGradient where the loss has the gradient
// g with respect to the row's log-probability (step 8).
func gradientBound(vocab int, tau, g, bonus float64) float64 {
	// The log-probability that RowGradient is given is that of TokenStats, above -64,
	// in float32. Its error shifts log p of every element. The distance from the id
	// to an element of probability p is at most |log p| + 64.
	gap := scaleGap
	if tau != 1 {
		gap = 0
	}
	return shiftedGradientBound(logSumBound(vocab, tau)+0x1p-19+64*gap, vocab, tau, g, bonus)
}

// shiftedGradientBound is the same where log p of every element is off by at most logprob.
func shiftedGradientBound(logprob float64, vocab int, tau, g, bonus float64) float64 {
	l := math.Log(float64(vocab))
	gap, rounding, shift := scaleGap, unit32, 0.0 // of y, as in step 1
	if tau != 1 {
		gap, rounding, shift = 0, 2*unit32+0x1p-28, shiftGap
	}
	y := gap + rounding // error for each nat of |log p|
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
	const second = 1.01 // products of errors, and values that are rounded once more to bfloat16
	return second*(math.Abs(g)*ofG+math.Abs(bonus)*ofBonus)/tau + 0x1p-133
}
