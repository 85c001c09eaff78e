package reweight

import (
	"cmp"
	"math"
	"slices"
)

// WeightMass returns the action tokens' share of the sum of weights, 0 if the
// sum is 0; weights nil stands for 1 at each response token. weights and role
// have the same length, and roles are 0 to 2; anything else is an error.
func WeightMass(weights []float32, role []Role) (float64, error) {
	if err := cmp.Or(checkOptional("weights", weights, len(role), "token"), checkRoles("role", role)); err != nil {
		return 0, err
	}
	var sum [RoleAction + 1]float64
	for t, r := range role {
		w := 1.0
		if weights != nil {
			w = float64(weights[t])
		}
		sum[r] += w
	}
	if all := sum[RoleReasoning] + sum[RoleAction]; all != 0 {
		return sum[RoleAction] / all, nil
	}
	return 0, nil
}

// A Correlation is a Spearman rank correlation and its two-sided p-value. Both
// are NaN where they are not defined: fewer than three pairs for P, or ranks
// that are all equal.
type Correlation struct{ Rho, P float64 }

// RoleCorrelations are of all response tokens, of reasoning and of action tokens.
type RoleCorrelations struct{ All, Reasoning, Action Correlation }

// BottleneckResult holds the correlations of [Bottleneck]. Episodes that go better often
// last longer and see other states, which can move the paper's form, the embedded one, even
// where all groups have the same prompt. FirstTurn is of the energies of the first span of
// each trajectory alone. GivenTurns is the partial correlation of the ranks given those of
// the mean number of spans in the group's trajectories, whose P has one degree of freedom
// less: it takes most of that away, not all. It is the paper's where all have the same number, and NaN where that number orders
// the groups as the variance or the energy does. Both are NaN without SpanIDs.
type BottleneckResult struct {
	RoleCorrelations
	FirstTurn, GivenTurns RoleCorrelations
}

// Bottleneck correlates, across the groups of the batch, the variance of the
// rewards with the mean reference energy of all response tokens, of reasoning
// tokens and of action tokens, pooled over the group (ActFocus, arXiv
// 2605.14558, the action bottleneck). Groups without such a token are left out.
// Role, RefEnergy and SpanIDs, which may be missing, have one element per token,
// Rewards and GroupIDs one per trajectory; anything else, or an energy of a
// response token that is not finite, is an error. It is for looking at a batch,
// not for each step: alone of all it allocates.
func Bottleneck(b *Batch) (BottleneckResult, error) {
	var res BottleneckResult
	T := b.Tokens()
	if err := cmp.Or(b.checkLayout(), checkLen("RefEnergy", len(b.RefEnergy), T, "token")); err != nil {
		return res, err
	}
	if b.SpanIDs != nil {
		if err := checkLen("SpanIDs", len(b.SpanIDs), T, "token"); err != nil {
			return res, err
		}
		if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
			return res, err
		}
	}
	if err := b.checkRewards(); err != nil {
		return res, err
	}
	if t := firstNotFinite(b.RefEnergy, b.Role, Responses); t >= 0 {
		return res, notFiniteResponse("RefEnergy", b.RefEnergy, b.Role)
	}
	var ws Workspace
	groups, err := ws.compared(b, ScopeGroup)
	if err != nil {
		return res, err
	}
	// Of the groups that have such tokens: of all spans, and of the first of each trajectory, by
	// role, where RoleMasked stands for all response tokens.
	type columns struct{ energy, variance, turns []float64 }
	var all [2][RoleAction + 1]columns
	seen := make([]bool, numberOfSpans(b.SpanIDs))
	for group := range groups.each {
		var tokens [2][RoleAction + 1]struct{ energy, n float64 }
		var rewards []float64
		turns := 0.0
		for _, q := range group {
			rewards = append(rewards, float64(b.Rewards[q]))
			first := int32(-1)
			for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
				role, forms := b.Role[t], 1
				if role == RoleMasked {
					continue
				}
				if b.SpanIDs != nil {
					id := b.SpanIDs[t]
					if first < 0 {
						first = id
					}
					if id == first {
						forms = 2
					}
					if !seen[id] {
						seen[id] = true
						turns++
					}
				}
				for form := range forms {
					for _, r := range [...]Role{role, RoleMasked} {
						tokens[form][r].energy += float64(b.RefEnergy[t])
						tokens[form][r].n++
					}
				}
			}
		}
		variance := rewardVariance(rewards)
		for form := range tokens {
			for r, sum := range tokens[form] {
				if c := &all[form][r]; sum.n > 0 {
					c.energy = append(c.energy, sum.energy/sum.n)
					c.variance = append(c.variance, variance)
					c.turns = append(c.turns, turns/float64(len(group)))
				}
			}
		}
	}
	correlate := func(form int, by func(c *columns) Correlation) RoleCorrelations {
		c := &all[form]
		return RoleCorrelations{All: by(&c[RoleMasked]), Reasoning: by(&c[RoleReasoning]), Action: by(&c[RoleAction])}
	}
	plain := func(c *columns) Correlation { return spearman(c.energy, c.variance) }
	res.RoleCorrelations, res.FirstTurn = correlate(0, plain), correlate(1, plain)
	res.GivenTurns = correlate(0, func(c *columns) Correlation {
		if b.SpanIDs == nil {
			return Correlation{math.NaN(), math.NaN()}
		}
		return partial(c.energy, c.variance, c.turns)
	})
	return res, nil
}

// rewardVariance returns the variance of the rewards of a group, from differences, smallest
// first: groups with equal variance must tie to the bit, and means would round.
func rewardVariance(rewards []float64) float64 {
	slices.Sort(rewards)
	sum, n := 0.0, float64(len(rewards))
	for j, r := range rewards {
		for _, q := range rewards[:j] {
			sum += float64((r - q) * (r - q))
		}
	}
	return sum / (n * n)
}

// Spearman returns the rank correlation of x and y, Pearson's of their ranks, of which ties
// share the average. P is that of t = rho sqrt((n-2) / (1-rho^2)) in Student's t
// distribution with n-2 degrees of freedom. Where an element is NaN, both are NaN. Other
// lengths than the same are an error. It allocates.
func Spearman(x, y []float64) (Correlation, error) {
	if err := checkLen("y", len(y), len(x), "element of x"); err != nil {
		return Correlation{}, err
	}
	if slices.ContainsFunc(x, math.IsNaN) || slices.ContainsFunc(y, math.IsNaN) {
		return Correlation{math.NaN(), math.NaN()}, nil
	}
	return spearman(x, y), nil
}

func spearman(x, y []float64) Correlation { return tested(pearson(ranks(x), ranks(y)), len(x)-2) }

// partial returns the rank correlation of x and y given z.
func partial(x, y, z []float64) Correlation {
	rx, ry, rz := ranks(x), ranks(y), ranks(z)
	xy, xz, yz := pearson(rx, ry), pearson(rx, rz), pearson(ry, rz)
	if xz != xz || yz != yz { // z is constant, or xy is NaN too
		return tested(xy, len(x)-2)
	}
	rho := (xy - float64(xz*yz)) / math.Sqrt((1-xz)*(1+xz)*(1-yz)*(1+yz))
	return tested(max(-1, min(1, rho)), len(x)-3)
}

// pearson returns the correlation of ranks, NaN if either side is equal throughout.
func pearson(rx, ry []float64) float64 {
	mean := (float64(len(rx)) + 1) / 2
	var xy, xx, yy float64
	for i := range rx {
		dx, dy := rx[i]-mean, ry[i]-mean
		xy += float64(dx * dy)
		xx += float64(dx * dx)
		yy += float64(dy * dy)
	}
	return xy / math.Sqrt(xx*yy)
}

func tested(rho float64, df int) Correlation {
	c := Correlation{Rho: rho, P: math.NaN()}
	if df >= 1 && rho == rho {
		c.P = studentTail(rho, float64(df))
	}
	return c
}

// ranks returns the rank of each element, from 1 on; equal ones share the mean of theirs.
func ranks(x []float64) []float64 {
	sorted, r := slices.Sorted(slices.Values(x)), make([]float64, len(x))
	for i, v := range x {
		below, _ := slices.BinarySearch(sorted, v)
		notAbove, _ := slices.BinarySearchFunc(sorted, v, func(e, v float64) int {
			if e > v {
				return 1
			}
			return -1
		})
		r[i] = float64(below+notAbove+1) / 2
	}
	return r
}

// studentTail returns the two-sided p-value of a correlation rho with df
// degrees of freedom: P(|t| > |rho| sqrt(df / (1-rho^2))) for Student's t, which
// is the regularised incomplete beta function I_x(df/2, 1/2) at x = 1 - rho^2.
func studentTail(rho, df float64) float64 {
	x, a := (1-rho)*(1+rho), df/2
	if x > (a+1)/(a+2.5) { // where the fraction converges slowly, that of the rest does not
		return 1 - incompleteBeta(float64(rho*rho), 0.5, a)
	}
	return incompleteBeta(x, a, 0.5)
}

// incompleteBeta returns I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8),
// from its start by Lentz's method.
func incompleteBeta(x, a, b float64) float64 {
	if x <= 0 { // rho is 0, 1 or -1
		return 0
	}
	whole, _ := math.Lgamma(a + b)
	part, _ := math.Lgamma(a)
	other, _ := math.Lgamma(b)
	front := exp64(float64(a*log64(x))+float64(b*log64(1-x))+whole-part-other) / a
	f, c, d := 1.0, 1.0, 0.0
	for i := 1.0; i < 1000 && math.Abs(float64(c*d)-1) > 1e-15; i++ {
		m := math.Floor(i / 2)
		n := float64(m*(b-m)) * x / float64((a+i-1)*(a+i))
		if math.Mod(i, 2) == 1 {
			n = -float64((a+m)*(a+b+m)) * x / float64((a+i-1)*(a+i))
		}
		d = 1 / (1 + float64(n*d))
		c = 1 + n/c
		f *= float64(c * d)
	}
	return front / f
}

// EntropyDrift returns the mean over spans of A_s (S_s - H_s), the first-order
// change of the policy's entropy (AEM, arXiv 2605.00425): S_s is the surprisal
// -sum l_old of the span's response tokens, H_s the sum of their entropies and
// A_s the mean of their advantages, nats. It is 0 without spans. Role, SpanIDs,
// OldLogprobs, Entropy and Advantages have one element per token, and SeqOffsets
// must be set; anything else is an error.
func (ws *Workspace) EntropyDrift(b *Batch) (float64, error) {
	defer ws.release(ws.taken)
	T := b.Tokens()
	if err := checkLens(T, "token",
		array{"OldLogprobs", b.OldLogprobs}, array{"Entropy", b.Entropy}, array{"Advantages", b.Advantages},
	); err != nil {
		return 0, err
	}
	count, err := ws.countSpans(b)
	if err != nil {
		return 0, err
	}
	drift := take[spanDrift](ws, len(count))
	clear(drift)
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != RoleMasked {
			d := &drift[s]
			d.advantage += float64(b.Advantages[t])
			d.excess -= float64(b.OldLogprobs[t]) + float64(b.Entropy[t])
		}
	}
	sum := 0.0
	for s, d := range drift {
		sum += float64(d.advantage / float64(count[s]) * d.excess)
	}
	return sum / float64(max(len(count), 1)), nil
}

// spanDrift is a span's sum of advantages, and its surprisal less its entropy.
type spanDrift struct{ advantage, excess float64 }
