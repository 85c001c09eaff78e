package rollout

import (
	"errors"
	"iter"
	"slices"

	"github.com/seed621a2839/reweight"
)

// takeMask sets the roles of r, if the source does not give them, to the roles of its mask, as
// if no token were an action.
func (r *record) takeMask() {
	if len(r.Role) != 0 {
		return
	}
	r.Role = make([]reweight.Role, len(r.mask))
	for t, response := range r.mask {
		if response {
			r.Role[t] = reweight.RoleReasoning
		}
	}
}

// markActions sets the roles of the response tokens by the tags that opt has: one is an
// action strictly between the tags, and reasoning elsewhere. Tags do not reach over the end
// of a span. If opt has the tags both as ids and as texts, the ids are looked for where r
// has token ids.
func markActions(r *record, opt *Options) error {
	role := make([]reweight.Role, len(r.Role))
	for t := range role {
		role[t] = min(r.Role[t], reweight.RoleReasoning)
	}
	mark := func(begin, end int) {
		for t := begin; t < end; t++ {
			role[t] = reweight.RoleAction
		}
	}
	switch {
	case opt.hasIDs() && len(r.TokenIDs) != 0:
		for begin, end := range r.spans() {
			begin = min(max(begin, r.thought), end)
			for b, e := range actions(r.TokenIDs[begin:end], opt.ActionOpen, opt.ActionClose) {
				mark(begin+b, begin+e)
			}
		}
	case opt.hasTexts() && len(r.texts) != 0:
		open, closing := []byte(opt.ActionTags[0]), []byte(opt.ActionTags[1])
		var text []byte
		for begin, end := range r.spans() {
			begin = min(max(begin, r.thought), end)
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
	case opt.hasIDs():
		return errors.New("token_ids is missing, in which the tags of actions are looked for: give the tags' texts")
	default:
		return errors.New("the texts of the tokens are missing, in which the tags of actions are looked for: give the tags' token ids")
	}
	r.Role = role
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

// deriveSpans sets the spans of r to the runs of response tokens, numbered from 0.
func deriveSpans(r *record) {
	r.SpanIDs = make([]int32, len(r.Role))
	spans := int32(0)
	for t, role := range r.Role {
		if !isResponse(role) {
			r.SpanIDs[t] = -1
			continue
		}
		if t == 0 || !isResponse(r.Role[t-1]) {
			spans++
		}
		r.SpanIDs[t] = spans - 1
	}
}

// spans returns where the spans of r begin and end. What a masked token divides is two.
func (r *record) spans() iter.Seq2[int, int] {
	return func(yield func(begin, end int) bool) {
		for begin, end := 0, 0; begin < len(r.Role); begin = end {
			response, id := isResponse(r.Role[begin]), r.SpanIDs[begin]
			for end = begin + 1; end < len(r.Role) && isResponse(r.Role[end]) == response && r.SpanIDs[end] == id; {
				end++
			}
			if response && !yield(begin, end) {
				return
			}
		}
	}
}
