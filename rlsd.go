package reweight

import (
	"cmp"

	"github.com/seed621a2839/reweight/internal/problem"
)

// RLSDOptions are the options of [Workspace.RLSD]. The zero value is an error: nobody has set it.
type RLSDOptions struct {
	Lambda       float64 // how much of the factor is the teacher's, above 0 and at most 1
	Clip         float64 // the teacher's part is from 1 - Clip to 1 + Clip; in (0, 1]
	NegativeOnly bool    // where A > 0, the factor is 1
}

// DefaultRLSD holds the constants of ms-swift.
var DefaultRLSD = RLSDOptions{Lambda: 0.5, Clip: 0.2}

// RLSD sets factors[t] by what a teacher thinks of token t, that is, the same model with the
// answer in its prompt: above 1 where the teacher agrees with the sign of the advantage
// (self-distilled RLVR, arXiv 2604.03128):
//
//	w_t = e^(sgn(A_t) (TeacherLogprobs[t] - OldLogprobs[t]))
//	f_t = (1 - Lambda) + Lambda clamp(w_t, 1 - Clip, 1 + Clip)
//
// The factors are constants to the derivative of the loss, and at least 0. A trajectory whose
// TeacherLogprobs are NaN at every response token has no teacher: its factors are 1.
// Masked tokens get 1.
//
// factors, Role, OldLogprobs, Advantages and TeacherLogprobs have one element per token, and
// SeqOffsets must be set; factors may be any of those three float arrays. A wrong shape or
// option, or another value of a response token that is not finite, is an error, and factors
// is not written.
func (ws *Workspace) RLSD(factors []float32, b *Batch, opt RLSDOptions) error {
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(
		err,
		checkLens(b.Tokens(), "token", array{"factors", factors}, array{"TeacherLogprobs", b.TeacherLogprobs}),
		b.checkLayout(),
		checkSet("Lambda", opt.Lambda, "DefaultRLSD"), checkRange("Lambda", opt.Lambda, 0, 1),
		checkSet("Clip", opt.Clip, "DefaultRLSD"), checkRange("Clip", opt.Clip, 0, 1),
	); err != nil {
		return err
	}
	advantages, old := array{"Advantages", b.Advantages}, array{"OldLogprobs", b.OldLogprobs}
	if err := ws.checkResponses(isa, b.Role, advantages, old); err != nil {
		return err
	}
	for q := range b.Trajectories() {
		if b.taught(q) {
			from, to := b.SeqOffsets[q], b.SeqOffsets[q+1]
			if t := firstNotFinite(b.TeacherLogprobs[from:to], b.Role[from:to], Responses); t >= 0 {
				return badElement("TeacherLogprobs", int(from)+t, problem.AtResponse, b.TeacherLogprobs[from:to][t])
			}
		}
	}
	for q := range b.Trajectories() {
		taught := b.taught(q)
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			f, a := 1.0, b.Advantages[t]
			if taught && b.Role[t] != RoleMasked && a != 0 && !(opt.NegativeOnly && a > 0) {
				d := float64(b.TeacherLogprobs[t]) - float64(b.OldLogprobs[t])
				if a < 0 {
					d = -d
				}
				w := min(1+opt.Clip, max(1-opt.Clip, exp64(d)))
				f = (1 - opt.Lambda) + float64(opt.Lambda*w)
			}
			factors[t] = float32(f)
		}
	}
	return nil
}

// taught reports whether trajectory q has a teacher: TeacherLogprobs that is not NaN at a
// response token.
func (b *Batch) taught(q int) bool {
	for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
		if l := b.TeacherLogprobs[t]; b.Role[t] != RoleMasked && l == l {
			return true
		}
	}
	return false
}
