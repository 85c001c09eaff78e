package policy

// A loopSet has the loops that take the time of a run. Those of all sets give the same bits, where
// every NaN counts as the same; the portable set says what they are.
type loopSet struct {
	multiplyRow  func(c, a, b []float32, inner, step int)
	cell         func(next, candidate, gates, input, previous []float32)
	backwardCell func(g *cellGradient)
}

var portable = loopSet{multiplyRow, cell, backwardCell}

// loops is the set in use.
var loops = portable
