package rollout

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Responses of SGLang's own interface, /generate.

// An sglangResponse is one response, as far as it has been read. The tokens have texts if
// those were asked for (return_text_in_logprobs).
type sglangResponse struct {
	generation
	added
	outputIDs    []int32
	input        tokens // the last ones of the prompt, or all
	promptTokens int64  // their number in the prompt, or 0
	given        bool   // there are log-probabilities
	dropped      []string
	warnings     []string
}

func isSGLang(f fields) bool { return f.has("meta_info") }

// parseSGLang reads a response and returns its record.
func parseSGLang(s *jsonscan.Scanner, line int) ([]*record, error) {
	r := &sglangResponse{generation: generation{path: "the response", mostOnly: true,
		topField: "meta_info.output_top_logprobs"}}
	r.place = func(i int) string { return fmt.Sprintf("meta_info.output_token_logprobs[%d][0]", i) }
	if err := s.Object(func(name []byte) error { return r.field(s, name) }); err != nil {
		return nil, err
	}
	rec, err := r.record()
	if err != nil {
		return nil, err
	}
	rec.line = line
	rec.dropped = r.dropped
	rec.warnings = append(rec.warnings, r.warnings...)
	records := []*record{rec}
	return records, r.give(records)
}

func (r *sglangResponse) field(s *jsonscan.Scanner, name []byte) error {
	switch string(name) {
	case "meta_info":
		return s.Object(func(name []byte) error { return r.metaField(s, name) })
	case "output_ids":
		return optionalInt32s(s, &r.outputIDs)
	case "prompt_token_ids":
		return optionalInt32s(s, &r.prompt.ids)
	case "error":
		return serverError(s)
	}
	return r.added.readOther(s, name, "", &r.dropped, &r.warnings)
}

// metaField reads a field of meta_info.
func (r *sglangResponse) metaField(s *jsonscan.Scanner, name []byte) error {
	switch string(name) {
	case "output_token_logprobs":
		r.given = s.Kind() != jsonscan.Null
		return r.readTokens(s, "meta_info.output_token_logprobs[", 3, r.tokens.add)
	case "input_token_logprobs":
		return r.readTokens(s, inputField+"[", 3, r.input.add)
	case "output_top_logprobs":
		return eachToken(s, func() error {
			var top []known
			err := r.readTokens(s, "meta_info.output_top_logprobs[", 2, func(token known, _ string) {
				top = append(top, token)
			})
			r.top = append(r.top, top)
			return err
		})
	case "prompt_tokens":
		return optional(s, &r.promptTokens, (*jsonscan.Scanner).Int64)
	case "finish_reason":
		return r.readFinish(s, "meta_info.finish_reason.", &r.dropped)
	}
	drop(s, &r.dropped, "meta_info.", name)
	return nil
}

// add appends a token that has an id.
func (t *tokens) add(token known, text string) {
	t.ids, t.texts, t.logprobs = append(t.ids, token.id), append(t.texts, text), append(t.logprobs, token.logprob)
}

// inputField has the tokens of the prompt, which can be null: before the first there is nothing.
const inputField = "meta_info.input_token_logprobs"

// readTokens reads an array of tokens, each [logprob, id, text] or [logprob, id], and calls
// add with each. Of these elements add takes the first taken, and those behind them have the
// path.
func (r *sglangResponse) readTokens(s *jsonscan.Scanner, path string, taken int,
	add func(token known, text string)) error {
	prompt := strings.HasPrefix(path, inputField)
	return eachToken(s, func() error {
		token, text := known{id: -1, logprob: float32(math.NaN())}, ""
		err := ifGiven(s, func() error {
			return s.Array(func(i int) (err error) {
				if i >= taken {
					var number [20]byte
					drop(s, &r.dropped, path, append(strconv.AppendInt(number[:0], int64(i), 10), ']'))
					return nil
				}
				switch i {
				case 0:
					token.logprob, err = s.FloatOrNull()
				case 1:
					token.id, err = s.Int32()
				case 2:
					text, err = textOrNumber(s)
				}
				return err
			})
		})
		if err == nil && token.id < 0 && !prompt {
			return s.Errorf("has no token id that is at least 0, want [logprob, id, text]")
		}
		add(token, text)
		return err
	})
}

// record makes a record of the response.
func (r *sglangResponse) record() (*record, error) {
	if !r.given {
		return nil, errors.New("meta_info.output_token_logprobs is missing: ask the server for it (return_logprob=true)")
	}
	if len(r.top) != 0 && len(r.top) != len(r.ids) {
		return nil, fmt.Errorf("meta_info has %d output_token_logprobs, but %d output_top_logprobs", len(r.ids),
			len(r.top))
	}
	if !slices.ContainsFunc(r.texts, func(text string) bool { return text != "" }) {
		r.texts = nil
	}
	if err := r.checkOutput(); err != nil {
		return nil, err
	}
	r.setPrompt()
	return r.generation.record()
}

// checkOutput compares output_ids, if they are there, with the ids beside the
// log-probabilities. The latter can go on with the token that ended the response.
func (r *sglangResponse) checkOutput() error {
	if len(r.outputIDs) > len(r.ids) {
		return fmt.Errorf("output_ids has %d tokens, but meta_info has %d output_token_logprobs", len(r.outputIDs),
			len(r.ids))
	}
	for i, id := range r.outputIDs {
		if id != r.ids[i] {
			return fmt.Errorf("output_ids[%d] is %d, but meta_info.output_token_logprobs[%d] is of token %d", i, id,
				i, r.ids[i])
		}
	}
	return nil
}

// setPrompt sets the prompt if all of its tokens are known. The server gives the
// log-probabilities of its last tokens only, unless it is asked for more
// (logprob_start_len=0).
func (r *sglangResponse) setPrompt() {
	n := len(r.input.ids)
	whole := r.promptTokens == int64(n) || r.promptTokens == 0 && n > 0 && r.input.logprobs[0] != r.input.logprobs[0]
	if r.prompt.ids != nil {
		whole = n == len(r.prompt.ids)
	}
	if whole && (n == 0 || slices.Min(r.input.ids) >= 0) {
		for _, logprob := range r.input.logprobs {
			r.prompt.logprobs = append(r.prompt.logprobs, promptLogprob(logprob))
		}
		r.prompt.texts = r.input.texts
		if r.prompt.ids == nil {
			r.prompt.ids = r.input.ids
		}
	} else if n > 0 {
		r.dropped = append(r.dropped, inputField)
	}
}
