package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// An Audit is what the Python package reweight.audit has found in rollouts, before anything is
// concluded from it; its file audit.json has it as the value of "audit". [Audit.Report] says what
// it means.
//
// Parts are labels of tokens, the first of which has the best weight 1. Directions are weights of
// single tokens, such as those of a scheme. Both together are K rows and columns in S and T.
type Audit struct {
	Parts      []string       `json:"parts"`
	Directions []string       `json:"directions"`
	Layers     []string       `json:"layers"`
	LeftOut    int            `json:"left_out"` // prompts without signal
	Schemes    []AuditWeights `json:"schemes"`
	Prompts    []AuditPrompt  `json:"prompts"`
}

// AuditWeights are weights of the parts.
type AuditWeights struct {
	Name    string    `json:"name"`
	Weights []float64 `json:"weights"`
}

// An AuditPrompt has, for each layer, the estimates S and T [K, K] of a prompt: the inner products
// of the parts of the true gradient, and of one answer's gradient.
type AuditPrompt struct {
	Key     string        `json:"key"`
	Answers int           `json:"answers"`
	Tokens  []int64       `json:"tokens"` // of each part, of all answers
	S       [][][]float64 `json:"S"`
	T       [][][]float64 `json:"T"`
}

// An Interval is an estimate with its 95% interval over prompts, whose ends are infinite where it
// is not known.
type Interval struct{ Value, Low, High float64 }

// Known says whether the prompts bound the figure.
func (i Interval) Known() bool { return !math.IsInf(i.Low, 0) && !math.IsInf(i.High, 0) }

// An AuditPart has, of a part of the tokens, how many there are, its share of the signal and of the
// noise, and its best weight where the first part has 1.
type AuditPart struct {
	Name                string
	Tokens              int64
	Signal, Noise, Best Interval
}

// An AuditEfficiency says how much nearer to the true gradient a step with some weights is than one
// with equal weights: at the answers a prompt of the rollouts, and at 4, 16 and 64 times as many.
type AuditEfficiency struct {
	Name string
	Here Interval
	At   [3]float64
}

// AuditTimes are how many times as many answers AuditEfficiency.At is for.
var AuditTimes = [3]float64{4, 16, 64}

// An AuditReport is what an audit says. Answers is the harmonic mean of the answers of a prompt.
// Weights are the best of at least 0, the largest 1, and 1 for a part without tokens; Measured is
// their efficiency by cross-fitting. Signal is the share of the signal in the power of one answer's
// gradient. Verdict is "use", "keep" or "more", and Advice the same as a sentence.
type AuditReport struct {
	Prompts, LeftOut int
	Answers          float64
	Parts            []AuditPart
	Layers           []string
	ByLayer          [][]AuditPart // of each layer; nil if there is one
	Efficiencies     []AuditEfficiency
	Measured         AuditEfficiency
	Weights          []float64
	Signal           Interval
	Verdict, Advice  string
}

const (
	auditFewest = 10   // prompts below which there is no advice
	auditGain   = 1.05 // the efficiency over equal weights that is worth a change
)

// A moment is S and T of a prompt, with what follows from them at some number of answers.
type moment struct{ s, t *mat.Dense }

// Report computes what the prompts say: the same as Python's, from S and T alone. It is an error if
// shapes differ, if a number is not finite, or if there are fewer than two prompts.
func (a *Audit) Report() (*AuditReport, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	prompts := slices.SortedFunc(slices.Values(a.Prompts), func(x, y AuditPrompt) int {
		return cmp.Compare(x.Key, y.Key)
	})
	M, P, K := len(prompts), len(a.Parts), len(a.Parts)+len(a.Directions)
	r := &AuditReport{Prompts: M, LeftOut: a.LeftOut, Layers: a.Layers}
	inverse := 0.0
	tokens := make([]int64, P)
	for _, p := range prompts {
		inverse += 1 / float64(p.Answers)
		for i, n := range p.Tokens {
			tokens[i] += n
		}
	}
	r.Answers = float64(M) / inverse // noise falls with 1/n
	all := make([]moment, M)
	for m := range all {
		all[m] = moment{mat.NewDense(K, K, nil), mat.NewDense(K, K, nil)}
	}
	for l := range a.Layers {
		layer := make([]moment, M)
		power := 0.0
		for m, p := range prompts {
			layer[m] = moment{dense(p.S[l]), dense(p.T[l])}
			power += mat.Sum(layer[m].t.Slice(0, P, 0, P)) / float64(M)
		}
		if len(a.Layers) > 1 {
			r.ByLayer = append(r.ByLayer, a.parts(layer, tokens, r.Answers))
		}
		if power <= 0 {
			continue
		}
		for m := range all { // each layer to one power
			add(all[m].s, 1/power, layer[m].s)
			add(all[m].t, 1/power, layer[m].t)
		}
	}
	ones := make([]float64, K)
	for i := range P {
		ones[i] = 1
	}
	asked := a.Schemes
	for i, name := range a.Directions {
		w := make([]float64, K)
		w[P+i] = 1
		asked = append(asked[:len(asked):len(asked)], AuditWeights{name, w})
	}
	for _, one := range asked {
		w := make([]float64, K)
		copy(w, one.Weights)
		r.Efficiencies = append(r.Efficiencies, efficiency(one.Name, r.Answers, func(n float64) Interval {
			return overEqual(all, n, ones, func(int) []float64 { return w })
		}))
	}
	of := partsAlone(all, P)
	r.Parts = a.parts(all, tokens, r.Answers)
	ones = ones[:P]
	r.Measured = efficiency("measured", r.Answers, func(n float64) Interval { return crossFitted(of, n, ones) })
	c, m := make([]float64, P), mat.NewDense(P, P, nil)
	above, below := make([]float64, M), make([]float64, M)
	for i := range of {
		floats.Add(c, times(of[i].s, ones))
		m.Add(m, of[i].at(r.Answers))
		above[i], below[i] = mat.Sum(of[i].s), mat.Sum(of[i].t)
	}
	floats.Scale(1/float64(M), c)
	m.Scale(1/float64(M), m)
	r.Weights = positive(c, m)
	if most := floats.Max(r.Weights); most > 0 {
		floats.Scale(1/most, r.Weights)
	} else {
		r.Weights = slices.Clone(ones)
	}
	for i := range r.Weights {
		if !there(of, i) {
			r.Weights[i] = 1
		}
	}
	r.Signal = ratio(above, below)
	r.advise(a.Parts)
	return r, nil
}

func (a *Audit) check() error {
	bad := func(arg string, index int, format string, args ...any) error {
		return &reweight.InputError{Arg: arg, Index: index, Problem: fmt.Sprintf(format, args...)}
	}
	P, K := len(a.Parts), len(a.Parts)+len(a.Directions)
	if P == 0 || len(a.Layers) == 0 {
		return bad("Parts", -1, "are %d, of %d layers, want at least one of each", P, len(a.Layers))
	}
	for i, s := range a.Schemes {
		if len(s.Weights) != P {
			return bad("Schemes", i, "has %d weights, want %d, one for each part", len(s.Weights), P)
		}
	}
	if len(a.Prompts) < 2 {
		return bad("Prompts", -1, "are %d with different rewards, of %d, want at least 2", len(a.Prompts),
			len(a.Prompts)+a.LeftOut)
	}
	keys := map[string]bool{}
	for i, p := range a.Prompts {
		if keys[p.Key] {
			return bad("Prompts", i, "has the key %q, which another one has", p.Key)
		}
		keys[p.Key] = true
		if p.Answers < 1 || len(p.Tokens) != P {
			return bad("Prompts", i, "has %d answers and %d parts, want at least 1 answer and %d parts", p.Answers,
				len(p.Tokens), P)
		}
		for _, x := range [][][][]float64{p.S, p.T} {
			ok := len(x) == len(a.Layers)
			for _, layer := range x {
				ok = ok && len(layer) == K
				for _, row := range layer {
					ok = ok && len(row) == K && !slices.ContainsFunc(row, func(v float64) bool { return v-v != 0 })
				}
			}
			if !ok {
				return bad("Prompts", i, "has S or T that are not [%d, %d, %d] finite numbers", len(a.Layers), K, K)
			}
		}
	}
	return nil
}

// parts computes shares and best weights of the parts, from the moments of all prompts.
func (a *Audit) parts(all []moment, tokens []int64, answers float64) []AuditPart {
	M, P := len(all), len(a.Parts)
	ones := slices.Repeat([]float64{1}, P)
	c, noise := columnsOf(P, M), columnsOf(P, M)
	sum, total := make([]float64, M), make([]float64, M)
	mean := mat.NewDense(P, P, nil)
	of := partsAlone(all, P)
	for m, one := range of {
		add(mean, 1/float64(M), one.at(answers))
		for r, x := range times(one.s, ones) {
			c[r][m] = x
			noise[r][m] = one.t.At(r, r) - one.s.At(r, r)
			sum[m] += x
			total[m] += noise[r][m]
		}
	}
	inverse := pinv(mean)
	middle := make([]float64, P)
	for r := range middle {
		middle[r] = stat.Mean(c[r], nil)
	}
	best := times(inverse, middle)
	influence := columnsOf(P, M) // of each prompt on the best weights
	for m, one := range of {
		left := times(one.at(answers), best)
		for r := range left {
			left[r] = c[r][m] - left[r]
		}
		for r, x := range times(inverse.T(), left) {
			influence[r][m] = x
		}
	}
	parts := make([]AuditPart, P)
	for r, name := range a.Parts {
		parts[r] = AuditPart{name, tokens[r], ratio(c[r], sum), ratio(noise[r], total), Interval{1, 1, 1}}
		if r > 0 && there(of, r) {
			parts[r].Best = fieller(best[r], best[0], influence[r], influence[0])
		} else if r > 0 {
			parts[r].Best = unknown
		}
	}
	return parts
}

// there says whether a part has tokens.
func there(of []moment, part int) bool {
	return slices.ContainsFunc(of, func(one moment) bool { return one.t.At(part, part) != 0 })
}

// partsAlone returns the moments without the directions.
func partsAlone(all []moment, P int) []moment {
	of := make([]moment, len(all))
	for m, one := range all {
		of[m] = moment{mat.DenseCopyOf(one.s.Slice(0, P, 0, P)), mat.DenseCopyOf(one.t.Slice(0, P, 0, P))}
	}
	return of
}

// at is S + (T - S)/n: the power of a step of n answers.
func (m moment) at(n float64) *mat.Dense {
	var x mat.Dense
	x.Sub(m.t, m.s)
	x.Scale(1/n, &x)
	x.Add(m.s, &x)
	return &x
}

func efficiency(name string, answers float64, at func(n float64) Interval) AuditEfficiency {
	e := AuditEfficiency{Name: name, Here: at(answers)}
	for i, k := range AuditTimes {
		e.At[i] = at(answers * k).Value
	}
	return e
}

// overEqual is the efficiency of weights, which may differ from prompt to prompt, over equal ones.
func overEqual(all []moment, n float64, ones []float64, of func(prompt int) []float64) Interval {
	M := len(all)
	above, square, equal, equalSquare := make([]float64, M), make([]float64, M), make([]float64, M), make([]float64, M)
	for i, one := range all {
		w, m, c := of(i), one.at(n), times(one.s, ones)
		above[i], equal[i] = floats.Dot(c, w), floats.Dot(c, ones)
		square[i], equalSquare[i] = floats.Dot(times(m, w), w), floats.Dot(times(m, ones), ones)
	}
	a, e, q, r := stat.Mean(above, nil), stat.Mean(equal, nil), stat.Mean(square, nil), stat.Mean(equalSquare, nil)
	if !(q > 0 && r > 0) {
		return unknown
	}
	rq, rr := math.Sqrt(q), math.Sqrt(r)
	u, v := make([]float64, M), make([]float64, M)
	for i := range u {
		u[i] = float64(above[i]*rr) + a*equalSquare[i]/(2*rr)
		v[i] = float64(equal[i]*rq) + e*square[i]/(2*rq)
	}
	return fieller(a*rr, e*rq, u, v)
}

// crossFitted is the efficiency of the best weights of at least 0, each prompt judged by those that
// all others have.
func crossFitted(all []moment, n float64, ones []float64) Interval {
	M, P := len(all), len(ones)
	c, m, middle := make([]float64, P), mat.NewDense(P, P, nil), mat.NewDense(P, P, nil)
	for _, one := range all {
		floats.Add(c, times(one.s, ones))
		m.Add(m, one.at(n))
	}
	middle.Scale(1/float64(M), m)
	weights := make([][]float64, M)
	for i, one := range all {
		others, theirs := slices.Clone(c), mat.DenseCopyOf(m)
		floats.Sub(others, times(one.s, ones))
		theirs.Sub(theirs, one.at(n))
		floats.Scale(1/float64(M-1), others)
		theirs.Scale(1/float64(M-1), theirs)
		w := positive(others, theirs)
		size := floats.Dot(times(middle, w), w)
		if !(size > 0) {
			return unknown
		}
		floats.Scale(1/math.Sqrt(size), w)
		weights[i] = w
	}
	return overEqual(all, n, ones, func(i int) []float64 { return weights[i] })
}

// positive returns the best weights that are at least 0: those of the parts whose own are, one part
// less at a time.
func positive(c []float64, m *mat.Dense) []float64 {
	kept := make([]int, len(c))
	for i := range kept {
		kept[i] = i
	}
	for len(kept) > 0 {
		part, right := mat.NewDense(len(kept), len(kept), nil), make([]float64, len(kept))
		for i, r := range kept {
			right[i] = c[r]
			for j, s := range kept {
				part.Set(i, j, m.At(r, s))
			}
		}
		found := times(pinv(part), right)
		least := floats.Min(found)
		if least >= 0 {
			w := make([]float64, len(c))
			for i, r := range kept {
				w[r] = found[i]
			}
			return w
		}
		var rest []int
		for i, r := range kept {
			if found[i] > least {
				rest = append(rest, r)
			}
		}
		kept = rest
	}
	return slices.Repeat([]float64{1}, len(c))
}

var unknown = Interval{math.NaN(), math.Inf(-1), math.Inf(1)}

// ratio is the ratio of the means of two figures of each prompt.
func ratio(above, below []float64) Interval {
	return fieller(stat.Mean(above, nil), stat.Mean(below, nil), above, below)
}

// fieller returns the ratio of two estimates and all that it may be: the x at which above - x below
// is within its error of 0. u and v have the influence of each prompt on the two, in means.
func fieller(above, below float64, u, v []float64) Interval {
	if below == 0 {
		return unknown
	}
	M := float64(len(u))
	factor := math.Pow(student(len(u)-1), 2) / (M * (M - 1))
	meanU, meanV := stat.Mean(u, nil), stat.Mean(v, nil)
	var uu, uv, vv float64
	for i := range u {
		x, y := u[i]-meanU, v[i]-meanV
		uu += float64(x * x)
		uv += float64(x * y)
		vv += float64(y * y)
	}
	a := float64(below*below) - float64(factor*vv)
	b := float64(above*below) - float64(factor*uv)
	c := float64(above*above) - float64(factor*uu)
	if a <= 0 {
		return Interval{above / below, math.Inf(-1), math.Inf(1)}
	}
	wide := math.Sqrt(max(float64(b*b)-float64(a*c), 0))
	return Interval{above / below, (b - wide) / a, (b + wide) / a}
}

// student is the quantile of a 95% interval of Student's t, within 0.2% from 4 degrees of freedom
// on: the series that Python has, so that both say the same.
func student(freedom int) float64 {
	switch freedom {
	case 1:
		return 12.706
	case 2:
		return 4.303
	case 3:
		return 3.182
	}
	const z = 1.959963984540054
	v := float64(freedom)
	z3, z5, z7 := math.Pow(z, 3), math.Pow(z, 5), math.Pow(z, 7)
	return z + (z3+z)/4/v + (5*z5+16*z3+3*z)/96/(v*v) + (3*z7+19*z5+17*z3-15*z)/384/(v*v*v)
}

// advise sets verdict and advice: weights are used where the measured ones, judged on other prompts
// than they were fitted on, are at least 1.05 times as good as equal ones and the interval is above
// 1; equal ones are kept where the interval is below 1.05; and else, or with fewer than 10 prompts,
// more are needed.
func (r *AuditReport) advise(parts []string) {
	e := r.Measured.Here
	if r.Prompts >= auditFewest && e.Known() {
		if e.Low > 1 && e.Value >= auditGain {
			listed := make([]string, len(parts))
			for i, name := range parts {
				listed[i] = fmt.Sprintf("%s %.2f", name, r.Weights[i])
			}
			r.Verdict = "use"
			r.Advice = fmt.Sprintf("Use these weights: %s. A step is %s times as good as with equal weights, at %.0f answers a prompt.",
				strings.Join(listed, ", "), e, r.Answers)
			return
		}
		if e.High < auditGain {
			r.Verdict = "keep"
			r.Advice = fmt.Sprintf("Keep equal weights: those that fit best are %s times as good, and less than %v does not matter.",
				e, auditGain)
			return
		}
	}
	prompts := float64(r.Prompts)
	more := 4 * max(prompts, auditFewest)
	if e.Known() { // until the interval is above 1, or below what is worth a change
		away := auditGain - e.Value
		if e.Value >= auditGain {
			away = e.Value - 1
		}
		away = max(away, 0.01)
		more = max(auditFewest, math.Ceil(prompts*math.Pow((e.High-e.Low)/2/away, 2)), prompts+1)
	}
	r.Verdict = "more"
	r.Advice = fmt.Sprintf("Not enough prompts for advice: %d have different rewards, and about %.0f would be needed.", r.Prompts, more)
}

// String is the estimate with its interval, or "not known".
func (i Interval) String() string {
	if !i.Known() {
		return "not known"
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Value, i.Low, i.High)
}

// pinv is the pseudo-inverse, without singular values below 1e-15 of the largest.
func pinv(m *mat.Dense) *mat.Dense {
	n, _ := m.Dims()
	var svd mat.SVD
	found := mat.NewDense(n, n, nil)
	if !svd.Factorize(m, mat.SVDFull) {
		return found
	}
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	values := svd.Values(nil)
	for k, value := range values {
		if value > 1e-15*values[0] {
			found.RankOne(found, 1/value, v.ColView(k), u.ColView(k))
		}
	}
	return found
}

func times(m mat.Matrix, x []float64) []float64 {
	var y mat.VecDense
	y.MulVec(m, mat.NewVecDense(len(x), x))
	return y.RawVector().Data
}

func add(dst *mat.Dense, scale float64, m *mat.Dense) {
	var x mat.Dense
	x.Scale(scale, m)
	dst.Add(dst, &x)
}

func dense(rows [][]float64) *mat.Dense {
	return mat.NewDense(len(rows), len(rows), slices.Concat(rows...))
}

func columnsOf(n, length int) [][]float64 {
	all := make([][]float64, n)
	for i := range all {
		all[i] = make([]float64, length)
	}
	return all
}
