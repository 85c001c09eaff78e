package reweight

// What the external tests see of the float64 behind results, to compare it with that of
// other implementations. The rows are those of one call, on plain Go.

// RowSums returns what Workspace.TokenStats sums of a row.
func RowSums(row Logits, tau float64) (ref, logS, entropy float64) {
	q := sumRow(Portable, row, tau, true)
	return q.ref, q.logS, q.entropy
}

// GradientTerms returns what Workspace.RowGradient makes of a row with the chosen id, its
// log-probability l, the gradient g and the entropy h.
func GradientTerms(row Logits, id int32, l, h, g float32, opt RowGradientOptions) (own, lse2, scale float64) {
	j := rowJob{isa: Portable, tau: opt.Temperature}
	t := j.gradientTerms(row, row.at(int(id)), float64(l), float64(g), float64(h), opt.EntropyBonus)
	return t.own, t.lse2, t.scale
}
