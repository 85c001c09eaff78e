package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// RowGradientOptions are the options of [Workspace.RowGradient]. The zero value is an error.
type RowGradientOptions struct {
	Temperature  float64 // tau of the policy: 1e-30 to 1e30
	EntropyBonus float64 // in the loss L - EntropyBonus * sum_t H_t; finite, 0 for none
}

// DefaultRowGradient is temperature 1 and no entropy bonus.
var DefaultRowGradient = RowGradientOptions{Temperature: 1}

// RowGradientInput has what the gradient is made of besides the logits, one element per row
// in each.
type RowGradientInput struct {
	Logprobs    []float32 // l: what TokenStats returns for the same logits and temperature
	Entropy     []float32 // H, also from TokenStats; not read if EntropyBonus is 0 and GradEntropy is nil
	Grad        []float32 // g = dL/dl, as Loss returns it
	GradEntropy []float32 // dL/dH, where the loss depends on H besides EntropyBonus; nil for zeros
	LSE         []float32 // logsumexp of z; nil: it is computed from the chosen logit and Logprobs
}

// RowGradient writes the gradient of the loss with respect to each logit. With z = x / tau,
// p = softmax(z), y the row's id, l its log-probability, H the row's entropy,
// g = dL/dl and c = EntropyBonus - dL/dH:
//
//	dst_v = (g ([v = y] - p_v) + c p_v (log p_v + H)) / tau
//
// dst has the shape and the format of logits, float32 or bfloat16 (rounded to
// nearest even), and is logits itself or does not overlap it. ids has one element per row.
// Wrong shapes, an id outside [0, Vocab) or a bad option is an error, and nothing is
// written.
//
// If g and c are 0, the row is not read and its gradient is 0. The gradient of a logit of
// -Inf is exactly 0, or g / tau if it is the chosen logit, which is the formula at p_y = 0.
// A row whose log-probability is NaN has NaN everywhere.
//
// Give LSE if the logits have been computed a second time, or if they are only some columns
// of the rows. Without LSE, an error in the last bit of the chosen logit changes every element
// of its row. With LSE, p_v is exp(z_v - LSE), the chosen logit is not read, and an id of -1
// says that the chosen logit is in a column that is not here. Logprobs and Entropy are always
// of the whole row. TokenStats returns this LSE if its Temperature is 1. A row whose LSE is
// not finite has NaN everywhere.
//
// Before it is rounded to dst's format, an element is at most
// (5e-6 |g| + 4.2e-5 |c|) / Temperature from the exact one, for every row
// of a Vocab of at most 160,000. [kernels/BOUNDS.md] derives this, and has the formula
// for any Vocab. If LSE is given, add its rounding: 6e-8 |LSE| of each element but the
// chosen one, and 6e-8 |LSE| of c p_v.
//
// [kernels/BOUNDS.md]: https://github.com/seed621a2839/reweight/blob/main/kernels/BOUNDS.md
func (ws *Workspace) RowGradient(dst, logits Logits, ids []int32, of RowGradientInput, opt RowGradientOptions) error {
	isa, err := ws.ISA.resolve()
	rows := logits.Rows()
	if err = cmp.Or(err, logits.check("logits", rows), dst.check("dst", rows)); err != nil {
		return err
	}
	if dst.Vocab != logits.Vocab {
		return badInput("dst", problem.OtherVocab, dst.Vocab, logits.Vocab)
	}
	if len(logits.F16) > 0 {
		return badInput("logits", problem.Float16)
	}
	if len(dst.F16) > 0 || (dst.F32 == nil) != (logits.F32 == nil) {
		return badInput("dst", problem.OtherDType, dst.DType(), logits.DType())
	}
	lowest := 0
	if of.LSE != nil {
		lowest = -1
	}
	if err := cmp.Or(
		checkFinite64("EntropyBonus", opt.EntropyBonus),
		checkLen("ids", len(ids), rows, "row"),
		checkLens(rows, "row", array{"Logprobs", of.Logprobs}, array{"Grad", of.Grad}),
		checkOptional("LSE", of.LSE, rows, "row"),
		checkIDs("ids", ids, lowest, logits.Vocab),
		checkOptional("GradEntropy", of.GradEntropy, rows, "row"),
	); err != nil {
		return err
	}
	if opt.EntropyBonus != 0 || of.GradEntropy != nil {
		if err := checkLen("Entropy", len(of.Entropy), rows, "row"); err != nil {
			return err
		}
	}
	if err := checkTemperature("Temperature", opt.Temperature); err != nil {
		return err
	}
	// Calls gradientRow for each row, from as many goroutines as there are workers.
	ws.runRows(rowJob{isa: isa, rows: rows, logits: logits, ids: ids, tau: opt.Temperature,
		dst: dst, of: of, bonus: opt.EntropyBonus})
	return nil
}

// farLogprob is the log-probability from which on down float32 is too coarse to
// give back the logsumexp: the row is summed again.
const farLogprob = -64

// gradientRow writes the gradient of row r.
func (j *rowJob) gradientRow(r int) {
	dst, x := j.dst.row(r), j.logits.row(r)
	g, bonus := float64(j.of.Grad[r]), j.bonus
	if j.of.GradEntropy != nil {
		bonus -= float64(j.of.GradEntropy[r])
	}
	if g == 0 && bonus == 0 {
		clear(dst.F32)
		clear(dst.BF16)
		return
	}
	id, l, lse := int(j.ids[r]), float64(j.of.Logprobs[r]), math.NaN()
	if j.of.LSE != nil {
		lse = float64(j.of.LSE[r])
	}
	if l != l || j.of.LSE != nil && lse-lse != 0 {
		dst.fill(float32(math.NaN()))
		return
	}
	h := 0.0
	if bonus != 0 {
		h = float64(j.of.Entropy[r])
	}
	t := j.gradientTerms(x, id, l, lse, g, h, bonus)
	if t.scale == 0 {
		j.gradientRowSlow(dst, x, lse, g, h, bonus)
	} else {
		j.isa.rowGradient(dst, x, &t.others)
	}
	if id >= 0 {
		dst.set(id, float32(t.own/j.tau))
	}
}

// gradientTerms are what a row's gradient is made of.
type gradientTerms struct {
	own    float64 // tau times the chosen id's
	lse2   float64 // the row's logsumexp in log2 units: log2 p_v = x_v K - lse2
	scale  float64 // of the other ids; 0 if the row is too large for log2 units in float32
	others gradConsts
}

// gradientTerms returns what the gradient of the row x is made of. l is the log-probability of
// its id, lse its logsumexp or NaN if that is not given, h its entropy, and bonus the c of
// RowGradient.
func (j *rowJob) gradientTerms(x Logits, id int, l, lse, g, h, bonus float64) (t gradientTerms) {
	q := &t.others
	q.k = log2E32
	if j.tau != 1 {
		q.k, q.kLo = splitScale(j.tau)
	}
	k := float64(q.k) + float64(q.kLo)
	switch {
	case lse == lse: // as a logit of that value with the log-probability 0 would give it
		t.lse2 = float64(float64(lse*j.tau) * k)
	case l > farLogprob:
		t.lse2 = float64(float64(x.at(id))*k) - float64(l*log2E)
	default:
		s := sumRow(j.isa, x, j.tau, wantSum)
		l = s.logprob(x.at(id), j.tau)
		t.lse2 = float64(s.ref*k) + float64(s.logS*log2E)
	}
	py := exp64(l)
	t.own = g * (1 - py)
	if l > -0.5 { // 1 - p_y without cancellation
		t.own = -float64(g * (k3(l) + l))
	}
	if py > 0 {
		t.own += float64(bonus * float64(py*(l+h)))
	}
	if q.c = float32(t.lse2); !(q.c > -maxMagnY && q.c < maxMagnY) || j.tau < slowTauMin || j.tau > slowTauMax {
		return t
	}
	rest := float64(q.c) - t.lse2
	t.scale = exp64(rest*math.Ln2) / j.tau
	q.a = float32(float64(bonus*t.scale) * math.Ln2)
	q.b = float32(t.scale * (float64(bonus*(h+float64(rest*math.Ln2))) - g))
	return t
}

// gradientRowSlow does rows too large for log2 units in float32.
func (j *rowJob) gradientRowSlow(dst, x Logits, lse, g, h, bonus float64) {
	s := rowSums{logS: lse}
	if lse != lse {
		s = sumRowSlow(x, j.tau)
	}
	for v := range x.Vocab {
		l := (float64(x.at(v))-s.ref)/j.tau - s.logS
		d := 0.0
		if p := exp64(l); p > 0 {
			d = p * (float64(bonus*(l+h)) - g) / j.tau
		}
		dst.set(v, float32(d))
	}
}
