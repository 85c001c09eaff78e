package reference

import (
	"math"
	"slices"
)

// LogSumExp returns log sum_v exp(x_v) of a row of raw logits x [V], in nats: minus the
// energy of ActFocus (arXiv:2605.14558). It is -Inf if all logits are, +Inf if any is, and
// NaN if any is NaN.
func LogSumExp(x []float64) float64 {
	m, _, rest := shifted(x)
	if math.IsInf(m, 0) {
		return m
	}
	return m + math.Log1p(rest)
}

// Entropy returns H = log sum_v exp(z_v) - sum_v p_v z_v with z = x/tau and
// p = softmax(z), for a row of raw logits x [V]: 0 <= H <= log V. Logits of
// -Inf add nothing. It is NaN if all logits are -Inf or any is +Inf or NaN.
// (verl: entropy_from_logits, here on shifted logits so that it does not
// cancel.)
func Entropy(x []float64, tau float64) float64 {
	_, d, rest := shifted(tempered(x, tau))
	sum := 0.0
	for _, v := range d {
		if p := math.Exp(v) / (1 + rest); p != 0 { // 0 * -Inf is NaN
			sum += p * v
		}
	}
	return math.Log1p(rest) - sum
}

// Logprob returns l = z_id - log sum_v exp(z_v) with z = x/tau, for a row of
// raw logits x [V]: l <= 0. It is -Inf if the logit of id is, and NaN if all
// logits are -Inf or any is +Inf or NaN. (verl: logprobs_from_logits.)
func Logprob(x []float64, id int32, tau float64) float64 {
	_, d, rest := shifted(tempered(x, tau))
	return d[id] - math.Log1p(rest)
}

// LogSumSqProbs returns log sum_v p_v^2 with p = softmax(x/tau), for a row of raw
// logits x [V]: between -log V and 0. Logits of -Inf add nothing. It is NaN if all
// logits are -Inf or any is +Inf or NaN. (TRL: log_sum_sq_probs.)
func LogSumSqProbs(x []float64, tau float64) float64 {
	_, d, rest := shifted(tempered(x, tau))
	for v := range d {
		d[v] *= 2
	}
	_, _, squares := shifted(d)
	return math.Log1p(squares) - 2*math.Log1p(rest)
}

// TokenStats returns LogSumExp, Entropy, Logprob and LogSumSqProbs of every row of
// logits [T, V] and its chosen id; ids is [T]. The log-sum-exp is always that of the
// raw logits; the others are those of logits/tau.
func TokenStats(logits []float64, vocab int, ids []int32, tau float64) (lse, entropy, logprob, logSumSq []float64) {
	fit(len(logits), vocab*len(ids), "id and element of its row")
	for t, id := range ids {
		row := logits[t*vocab : (t+1)*vocab]
		lse = append(lse, LogSumExp(row))
		entropy = append(entropy, Entropy(row, tau))
		logprob = append(logprob, Logprob(row, id, tau))
		logSumSq = append(logSumSq, LogSumSqProbs(row, tau))
	}
	return lse, entropy, logprob, logSumSq
}

// RowGradient returns dL/dx [V] with respect to the raw logits x [V] of
//
//	L = g * l - bonus * H
//
// where l and H are the log-probability of id and the entropy of z = x/tau,
// and g = dL/dl is the gradient that the policy loss gives:
//
//	dL/dx_v = (g ([v = id] - p_v) + bonus * p_v (log p_v + H)) / tau
//
// Logits of -Inf have p = 0 and add nothing. If all are -Inf, or any is +Inf
// or NaN, the whole row is NaN.
func RowGradient(x []float64, id int32, tau, g, bonus float64) []float64 {
	H := Entropy(x, tau)
	_, d, rest := shifted(tempered(x, tau))
	grad := make([]float64, len(x))
	for v := range grad {
		logp := d[v] - math.Log1p(rest)
		p := math.Exp(logp)
		chosen := 0.0
		if v == int(id) {
			chosen = 1
		}
		dldz := chosen - p
		dHdz := 0.0
		if p != 0 { // 0 * -Inf is NaN
			dHdz = -p * (logp + H)
		}
		grad[v] = (g*dldz - bonus*dHdz) / tau
	}
	return grad
}

// tempered returns z = (x - m)/tau with m the largest element, if that is finite: so
// no quotient overflows. Entropies, log-probabilities and gradients do not depend
// on m.
func tempered(x []float64, tau float64) []float64 {
	m := slices.Max(x) // NaN if one is NaN
	if math.IsInf(m, 0) {
		m = 0
	}
	z := make([]float64, len(x))
	for v := range x {
		z[v] = (x[v] - m) / tau
	}
	return z
}

// shifted returns the maximum m of z, d = z - m, and rest = sum_v exp(d_v)
// without the term of the maximum, which is 1: log(1 + rest) is then right to
// the last digit even for a row with nearly all its mass at one id. Unless m is
// finite, d and rest are NaN.
func shifted(z []float64) (m float64, d []float64, rest float64) {
	m = slices.Max(z) // NaN if any is
	d = make([]float64, len(z))
	if math.IsNaN(m) || math.IsInf(m, 0) {
		for v := range d {
			d[v] = math.NaN()
		}
		return m, d, math.NaN()
	}
	peak := slices.Index(z, m)
	for v := range z {
		d[v] = z[v] - m
		if v != peak {
			rest += math.Exp(d[v])
		}
	}
	return m, d, rest
}
