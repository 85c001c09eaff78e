package rollout

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Responses of SGLang's own interface, /generate.

// An sglangResponse is one response, as far as it has been read. The tokens have texts if
// those were asked for (return_text_in_logprobs).
type sglangResponse struct {
	generation
	added
	promptIDs    []int32
	outputIDs    []int32
	input        []sampled // the last tokens of the prompt, or all
	promptTokens int64     // their number in the prompt, or 0
	given        bool      // there are log-probabilities
	top          [][]known
	dropped      []string
	warnings     []string
}

func isSGLang(f fields) bool { return f.has("meta_info") }

// parseSGLang reads a response and returns its record.
func parseSGLang(s *jsonscan.Scanner, line int) ([]*record, error) {
	r := &sglangResponse{generation: generation{path: "the response", mostOnly: true, topField: "meta_info.output_top_logprobs"}}
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
		return optionalInt32s(s, &r.promptIDs)
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
		return sglangTokens(s, &r.tokens, false)
	case "input_token_logprobs":
		return sglangTokens(s, &r.input, true)
	case "output_top_logprobs":
		var tokens []sampled
		return ifGiven(s, func() error {
			return s.Array(func(i int) error {
				if err := checkIndex(s, i); err != nil {
					return err
				}
				tokens = tokens[:0]
				err := sglangTokens(s, &tokens, false)
				top := make([]known, len(tokens))
				for i, token := range tokens {
					top[i] = token.known
				}
				r.top = append(r.top, top)
				return err
			})
		})
	case "prompt_tokens":
		return optional(s, &r.promptTokens, (*jsonscan.Scanner).Int64)
	case "finish_reason":
		return r.finishReason(s)
	}
	drop(s, &r.dropped, "meta_info."+string(name))
	return nil
}

// finishReason reads an object with a type, or in old versions a text.
func (r *sglangResponse) finishReason(s *jsonscan.Scanner) (err error) {
	switch s.Kind() {
	case jsonscan.Null:
		s.Skip() // no error: it is null
		return s.Errorf("is null, which is that of %v", errChunk)
	case jsonscan.Object:
		return s.Object(func(name []byte) (err error) {
			if string(name) == "type" {
				r.finish, err = textOrNumber(s)
			}
			return err
		})
	}
	r.finish, err = textOrNumber(s)
	return err
}

// sglangTokens reads an array of tokens, each [logprob, id, text] or [logprob, id], and
// appends them. Before the first token of a prompt there is nothing: it can be null.
func sglangTokens(s *jsonscan.Scanner, tokens *[]sampled, prompt bool) error {
	return ifGiven(s, func() error {
		return s.Array(func(i int) error {
			if err := checkIndex(s, i); err != nil {
				return err
			}
			*tokens = append(*tokens, sampled{known: known{id: -1, logprob: float32(math.NaN())}})
			token := &(*tokens)[i]
			if prompt && s.Kind() == jsonscan.Null {
				return s.Skip()
			}
			err := s.Array(func(i int) (err error) {
				switch i {
				case 0:
					token.logprob, err = optionalLogprob(s)
				case 1:
					token.id, err = s.Int32()
				case 2:
					token.text, err = textOrNumber(s)
				}
				return err
			})
			if err == nil && token.id < 0 && !prompt {
				return s.Errorf("has no token id that is at least 0, want [logprob, id, text]")
			}
			return err
		})
	})
}

// record makes a record of the response.
func (r *sglangResponse) record() (*record, error) {
	if !r.given {
		return nil, errors.New("meta_info.output_token_logprobs is missing: ask the server for it (return_logprob=true)")
	}
	if len(r.top) != 0 && len(r.top) != len(r.tokens) {
		return nil, fmt.Errorf("meta_info has %d output_token_logprobs, but %d output_top_logprobs", len(r.tokens), len(r.top))
	}
	r.ids = make([]int32, len(r.tokens))
	for i, token := range r.tokens {
		r.ids[i] = token.id
		r.texts = r.texts || token.text != ""
		if len(r.top) != 0 {
			r.tokens[i].top = r.top[i]
		}
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
		return fmt.Errorf("output_ids has %d tokens, but meta_info has %d output_token_logprobs", len(r.outputIDs), len(r.ids))
	}
	for i, id := range r.outputIDs {
		if id != r.ids[i] {
			return fmt.Errorf("output_ids[%d] is %d, but meta_info.output_token_logprobs[%d] is of token %d", i, id, i, r.ids[i])
		}
	}
	return nil
}

// setPrompt sets the prompt if all of its tokens are known. The server gives the
// log-probabilities of its last tokens only, unless it is asked for more
// (logprob_start_len=0).
func (r *sglangResponse) setPrompt() {
	whole := r.promptTokens == int64(len(r.input)) || r.promptTokens == 0 && len(r.input) > 0 && r.input[0].logprob != r.input[0].logprob
	if r.promptIDs != nil {
		whole = len(r.input) == len(r.promptIDs)
	}
	if whole && !slices.ContainsFunc(r.input, func(token sampled) bool { return token.id < 0 }) {
		ids := make([]int32, len(r.input))
		for i, token := range r.input {
			ids[i] = token.id
			r.prompt.logprobs = append(r.prompt.logprobs, promptLogprob(token.logprob))
			r.prompt.texts = append(r.prompt.texts, token.text)
		}
		if r.promptIDs == nil {
			r.promptIDs = ids
		}
	}
	r.prompt.n, r.prompt.ids = len(r.promptIDs), r.promptIDs
}
