package rollout

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/seed621a2839/reweight"
)

// deriveRoles sets the roles of r, if the source does not give them or opt has tags: a
// response token is an action strictly between the tags, and a reasoning token elsewhere.
// Tags do not reach over the end of a span. If opt has the tags both as ids and as texts,
// the ids are looked for where r has token ids.
func deriveRoles(r *record, opt *Options) error {
	n := r.tokens()
	ids, texts := opt.hasIDs(), opt.hasTexts()
	switch {
	case len(r.Role) != 0 && !ids && !texts:
		return nil
	case n == 0:
		return errors.New("role is missing, and so is a mask of the response tokens")
	}
	role := make([]reweight.Role, n)
	for t := range role {
		if r.response(t) {
			role[t] = reweight.RoleReasoning
		}
	}
	mark := func(begin, end int) {
		for t := begin; t < end; t++ {
			role[t] = reweight.RoleAction
		}
	}
	switch {
	case !ids && !texts:
	case ids && len(r.TokenIDs) != 0:
		if err := r.checkLen("token_ids", len(r.TokenIDs)); err != nil {
			return err
		}
		for begin, end := range r.spans() {
			for b, e := range actions(r.TokenIDs[begin:end], opt.ActionOpen, opt.ActionClose) {
				mark(begin+b, begin+e)
			}
		}
	case texts && len(r.texts) != 0:
		if err := r.checkLen("the texts of tokens", len(r.texts)); err != nil {
			return err
		}
		open, closing := []byte(opt.ActionTags[0]), []byte(opt.ActionTags[1])
		var text []byte
		for begin, end := range r.spans() {
			text = text[:0]
			for _, s := range r.texts[begin:end] {
				text = append(text, s...)
			}
			t, at := begin, 0 // a token, and where its text begins
			for b, e := range actions(text, open, closing) {
				for ; at < b; t++ { // tokens that hold bytes before the action or of its open tag
					at += len(r.texts[t])
				}
				first := t
				for ; t < end && at+len(r.texts[t]) <= e; t++ {
					at += len(r.texts[t])
				}
				mark(first, t)
			}
		}
	case len(r.TokenIDs) == 0 && len(r.texts) == 0:
		return errors.New("token_ids is missing, and so are the texts of tokens: the tags of actions cannot be looked for")
	case ids:
		return errors.New("token_ids is missing, in which the tags of actions are looked for: give the tags' texts")
	default:
		return errors.New("the texts of the tokens are missing, in which the tags of actions are looked for: give the tags' token ids")
	}
	r.Role = role
	return nil
}

// checkLen wants one element for each token.
func (r *record) checkLen(what string, n int) error {
	if n != r.tokens() {
		return fmt.Errorf("%s has %d elements and the mask has %d, want as many", what, n, r.tokens())
	}
	return nil
}

// actions returns where the actions of a span begin and end. An action begins after an
// open tag, anew after each further one, and ends before the next close tag. Of tags
// that begin at the same place the close tag counts, so that both may be the same.
func actions[E comparable](span, open, closing []E) iter.Seq2[int, int] {
	hasTag := func(at int, tag []E) bool {
		return len(span)-at >= len(tag) && slices.Equal(span[at:at+len(tag)], tag)
	}
	return func(yield func(begin, end int) bool) {
		begin := -1 // of the action, if an open tag came
		for at := 0; at < len(span); {
			switch {
			case begin >= 0 && hasTag(at, closing):
				if !yield(begin, at) {
					return
				}
				begin = -1
				at += len(closing)
			case hasTag(at, open):
				at += len(open)
				begin = at
			default:
				at++
			}
		}
	}
}

// deriveSpans sets the spans of r, if the source does not give them: the runs of
// response tokens, numbered from 0. They follow from the roles, or before those are set,
// from the mask.
func deriveSpans(r *record) {
	if len(r.SpanIDs) != 0 || r.tokens() == 0 {
		return
	}
	span := slices.Repeat([]int32{-1}, r.tokens())
	id := int32(0)
	for begin, end := range r.spans() {
		for t := begin; t < end; t++ {
			span[t] = id
		}
		id++
	}
	r.SpanIDs = span
}

// spans returns where the spans of r begin and end: the runs of response tokens, and
// where the source says which span a token is of, the parts of a run that are one span.
func (r *record) spans() iter.Seq2[int, int] {
	n := r.tokens()
	return func(yield func(begin, end int) bool) {
		for begin := 0; begin < n; {
			end := begin + 1
			if !r.response(begin) {
				begin = end
				continue
			}
			for end < n && r.response(end) && (end >= len(r.SpanIDs) || r.SpanIDs[end] == r.SpanIDs[begin]) {
				end++
			}
			if !yield(begin, end) {
				return
			}
			begin = end
		}
	}
}

// tokens returns for how many tokens it is known whether they are of a response.
func (r *record) tokens() int {
	if len(r.Role) != 0 {
		return len(r.Role)
	}
	return len(r.mask)
}

// response reports whether token t is one of a response.
func (r *record) response(t int) bool {
	if len(r.Role) != 0 {
		return r.Role[t] != reweight.RoleMasked
	}
	return r.mask[t]
}
