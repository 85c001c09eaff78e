package rollout

import (
	"errors"
	"iter"
	"slices"
	"sort"

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
// action strictly between the tags, and reasoning elsewhere, or with the tags if opt says so.
// Tags do not reach over the end of a span. If opt has the tags both as ids and as texts, the
// ids are looked for where r has token ids. It returns how many spans have an opening tag that
// was passed over.
func markActions(r *record, opt *Options) (ambiguous int, err error) {
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
			found, passed := actions(r.TokenIDs[begin:end], opt.ActionOpen, opt.ActionClose, false)
			for _, a := range found {
				if opt.TagsAsActions {
					a.begin, a.end = a.open, a.close
				}
				mark(begin+a.begin, begin+a.end)
			}
			ambiguous += min(passed, 1)
		}
	case opt.hasTexts() && len(r.texts) != 0:
		var text []byte
		var ends []int // of the tokens, in the text
		for begin, end := range r.spans() {
			begin = min(max(begin, r.thought), end)
			text, ends = text[:0], ends[:0]
			for _, s := range r.texts[begin:end] {
				text = append(text, s...)
				ends = append(ends, len(text))
			}
			stop := len(text)
			if last := lastText(r.texts[begin:end]); isMark(last) {
				stop -= len(last)
			}
			found, passed := textActions(text, opt.ActionTags, stop)
			for _, a := range found {
				first, after := tokenAfter(ends, a.begin), tokenAt(ends, a.end)
				if opt.TagsAsActions {
					first = tokenAt(ends, a.open)
					if a.close > a.end {
						after = tokenAfter(ends, a.close)
					}
				}
				mark(begin+first, begin+after)
			}
			ambiguous += min(passed, 1)
		}
	case len(r.TokenIDs) == 0 && len(r.texts) == 0:
		return 0, errors.New("token_ids is missing, and so are the texts of tokens: the tags of actions cannot be looked for")
	case opt.hasIDs():
		return 0, errors.New("token_ids is missing, in which the tags of actions are looked for: give the tags' texts")
	default:
		return 0, errors.New("the texts of the tokens are missing, in which the tags of actions are looked for: give them by -vocab-file, or the tags' token ids")
	}
	r.Role = role
	return ambiguous, nil
}

// lastText returns the last of the texts that is not empty, or an empty one.
func lastText(texts []string) string {
	for _, s := range slices.Backward(texts) {
		if s != "" {
			return s
		}
	}
	return ""
}

// tokenAfter returns the token after the one that holds the byte before at, where ends are those of the tokens.
func tokenAfter(ends []int, at int) int {
	return sort.SearchInts(ends, at) + 1
}

// tokenAt returns the token that holds the byte at, and at the end of the text the number of tokens.
func tokenAt(ends []int, at int) int {
	return sort.SearchInts(ends, at+1)
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
