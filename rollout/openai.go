package rollout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Responses of the chat and completions interfaces that OpenAI defined, with the fields
// that vLLM and SGLang add, and the lines of an OpenAI batch's output, which hold one each.

// An openAIResponse is one response, as far as it has been read.
type openAIResponse struct {
	added
	id               string
	promptIDs        []int32
	promptText       string
	promptTokens     int64
	completionTokens int64 // and after reading, those that no choice has if each begins with the prompt
	choices          []*openAIChoice
	dropped          []string
	warnings         []string
}

// An openAIChoice is one of the generations of a response. Choices of the completions
// interface can begin with the prompt (echo).
type openAIChoice struct {
	generation
	added
	toolCalls bool   // the model called tools
	given     bool   // there are log-probabilities
	chat      tokens // of the chat interface, and take the place of the others
}

func isOpenAIBatch(f fields) bool { return f.has("custom_id", "response") }

func isChat(f fields) bool {
	return f.has("choices.message") || f.has("choices.delta") || f.has("choices.logprobs.content") || f.has("choices.logprobs.refusal")
}

func isCompletions(f fields) bool { return f.has("choices") || f.has("error.message") }

// parseOpenAI reads a response and returns a record for each of its choices.
func parseOpenAI(s *jsonscan.Scanner, line int) ([]*record, error) {
	r := new(openAIResponse)
	if err := s.Object(func(name []byte) error { return r.field(s, "", name) }); err != nil {
		return nil, err
	}
	if len(r.choices) == 0 {
		return nil, errors.New("choices is missing or empty, want the choices of a response")
	}
	if r.id == "" && len(r.choices) > 1 {
		r.id = r.digest()
	}
	for _, c := range r.choices {
		r.completionTokens -= int64(len(c.names)) - r.promptTokens
	}
	records := make([]*record, len(r.choices))
	for i, c := range r.choices {
		rec, err := r.record(c)
		if err != nil {
			return nil, err
		}
		if err := c.give([]*record{rec}); err != nil {
			return nil, inContext(c.path, err)
		}
		rec.line = line
		records[i] = rec
	}
	records[0].dropped = r.dropped
	records[0].warnings = append(records[0].warnings, r.warnings...)
	return records, r.give(records)
}

// field reads a field of a response, or of an object that holds one: path is that of the
// object with a dot behind it, or empty.
func (r *openAIResponse) field(s *jsonscan.Scanner, path string, name []byte) (err error) {
	switch string(name) {
	case "choices":
		return ifGiven(s, func() error {
			return s.Array(func(i int) error {
				c := new(openAIChoice)
				c.path = fmt.Sprintf("%schoices[%d]", path, i)
				c.place = func(i int) string { return fmt.Sprintf("%s.logprobs.token_logprobs[%d]", c.path, i) }
				r.choices = append(r.choices, c)
				if err := s.Object(func(name []byte) error { return r.choiceField(s, c, name) }); err != nil {
					return err
				}
				return c.checkGiven(s)
			})
		})
	case "object":
		object, err := textOrNumber(s)
		if err == nil && object == "chat.completion.chunk" {
			return s.Errorf("is chat.completion.chunk, which is %v", errChunk)
		}
		return err
	case "id":
		r.id, err = textOrNumber(s)
	case "prompt_token_ids":
		err = optionalInt32s(s, &r.promptIDs)
	case "prompt_text":
		r.promptText, err = textOrNumber(s)
	case "usage":
		err = ifGiven(s, func() error { return s.Object(func(name []byte) error { return r.usageField(s, name) }) })
	case "error":
		return serverError(s)
	case "response", "body": // of a line of a batch's output
		inner := path + string(name) + "."
		if inner != "response." && inner != "response.body." {
			drop(s, &r.dropped, path+string(name))
			return nil
		}
		err = ifGiven(s, func() error {
			return s.Object(func(name []byte) error { return r.field(s, inner, name) })
		})
	default:
		return r.added.readOther(s, name, path, &r.dropped, &r.warnings)
	}
	return err
}

func (r *openAIResponse) usageField(s *jsonscan.Scanner, name []byte) error {
	var dst *int64
	switch string(name) {
	case "prompt_tokens":
		dst = &r.promptTokens
	case "completion_tokens":
		dst = &r.completionTokens
	default:
		return nil
	}
	return optional(s, dst, (*jsonscan.Scanner).Int64)
}

func (r *openAIResponse) choiceField(s *jsonscan.Scanner, c *openAIChoice, name []byte) (err error) {
	switch string(name) {
	case "logprobs":
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) error { return r.logprobsField(s, c, name) })
		})
	case "token_ids":
		return optionalInt32s(s, &c.ids)
	case "prompt_token_ids":
		return optionalInt32s(s, &c.prompt.ids)
	case "finish_reason":
		return c.readFinish(s)
	case "delta":
		s.Skip() // the error below comes first
		return s.Errorf("is a part of %v", errChunk)
	case "message":
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) error {
				if string(name) != "tool_calls" || s.Kind() != jsonscan.Array {
					return nil
				}
				return s.Array(func(int) error { c.toolCalls = true; return nil })
			})
		})
	}
	known, err := c.added.read(s, name)
	if !known && len(r.choices) == 1 { // the others have the same
		drop(s, &r.dropped, "choices."+string(name))
	}
	return err
}

// logprobsField reads a field of the log-probabilities of a choice.
func (r *openAIResponse) logprobsField(s *jsonscan.Scanner, c *openAIChoice, name []byte) error {
	array := func(element func() error) error {
		c.given = c.given || s.Kind() != jsonscan.Null
		return eachToken(s, element)
	}
	switch field := string(name); field {
	case "content", "refusal": // of a chat
		if len(c.chat.names) > 0 && s.Kind() == jsonscan.Array {
			return s.Errorf("is there beside the other of content and refusal, want the tokens in one place")
		}
		c.place = func(i int) string { return fmt.Sprintf("%s.logprobs.%s[%d].logprob", c.path, field, i) }
		c.topField = "choices.logprobs." + field + ".top_logprobs"
		return array(func() error { return c.chat.readChat(s) })
	case "tokens": // of the completions interface, and those below
		return array(func() error {
			name, err := s.String()
			c.names = append(c.names, name)
			return err
		})
	case "token_logprobs":
		return array(func() error {
			logprob, err := s.FloatOrNull()
			c.logprobs = append(c.logprobs, logprob)
			return err
		})
	case "top_logprobs":
		c.topField = "choices.logprobs.top_logprobs"
		return array(func() error {
			var top []known
			err := ifGiven(s, func() error {
				return s.Object(func(name []byte) error {
					logprob, err := s.FloatOrNull()
					top = append(top, known{name: string(name), logprob: logprob})
					return err
				})
			})
			c.top = append(c.top, top)
			return err
		})
	}
	if len(r.choices) == 1 {
		drop(s, &r.dropped, "choices.logprobs."+string(name))
	}
	return nil
}

// readChat reads a token of a chat.
func (t *tokens) readChat(s *jsonscan.Scanner) error {
	token, top, bytes := known{logprob: float32(math.NaN())}, []known(nil), []int32(nil)
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "token":
			token.name, err = s.String()
		case "logprob":
			token.logprob, err = s.FloatOrNull()
		case "bytes":
			err = optionalInt32s(s, &bytes)
		case "top_logprobs":
			err = ifGiven(s, func() error {
				return s.Array(func(int) error {
					candidate, err := chatCandidate(s)
					top = append(top, candidate)
					return err
				})
			})
		}
		return err
	})
	// The bytes say more than the name where a token ends within a character.
	text := token.name
	if bytes != nil && tokenID(token.name) < 0 {
		spelt := make([]byte, len(bytes))
		for i, b := range bytes {
			if spelt[i] = byte(b); int32(spelt[i]) != b {
				return s.Errorf("has %d at byte %d of the token, want 0 to 255", b, i)
			}
		}
		text = string(spelt)
	}
	if err == nil && token.logprob != token.logprob {
		return s.Errorf("has no logprob, or null or NaN, want that of the sampled token")
	}
	t.names, t.texts = append(t.names, token.name), append(t.texts, text)
	t.logprobs, t.top = append(t.logprobs, token.logprob), append(t.top, top)
	return err
}

// chatCandidate reads one of the most likely tokens of a chat.
func chatCandidate(s *jsonscan.Scanner) (known, error) {
	candidate := known{logprob: missingLogprob}
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "token":
			candidate.name, err = s.String()
		case "logprob":
			candidate.logprob, err = s.FloatOrNull()
		}
		return err
	})
	return candidate, err
}

// tokenID returns the id in a name like "token_id:7", or -1.
func tokenID(name string) int32 {
	digits, ok := strings.CutPrefix(name, "token_id:")
	if !ok {
		return -1
	}
	id, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || id < 0 {
		return -1
	}
	return int32(id)
}

// checkGiven checks that a choice has log-probabilities.
func (c *openAIChoice) checkGiven(s *jsonscan.Scanner) error {
	switch {
	case c.given:
		return nil
	case c.toolCalls:
		return s.Errorf("has tool_calls and no logprobs, which some servers leave out then: let it generate without a tool parser")
	}
	return s.Errorf("has no logprobs: ask the server for them (logprobs=true for a chat, logprobs=20 for completions)")
}

// record makes a record of a choice.
func (r *openAIResponse) record(c *openAIChoice) (*record, error) {
	if c.prompt.ids == nil {
		c.prompt.ids = r.promptIDs
	}
	prompt := 0
	switch n := len(c.names); {
	case len(c.chat.names) != 0:
		c.chat.ids = c.ids
		c.tokens = c.chat
	case len(c.logprobs) != n:
		return nil, fmt.Errorf("%s.logprobs has %d tokens, but %d token_logprobs", c.path, n, len(c.logprobs))
	case len(c.top) != 0 && len(c.top) != n:
		return nil, fmt.Errorf("%s.logprobs has %d tokens, but %d top_logprobs", c.path, n, len(c.top))
	default:
		c.texts, c.ambiguous = c.names, true // unless the names turn out to be ids
		var err error
		if prompt, err = r.echoed(c); err != nil {
			return nil, err
		}
	}
	if err := c.setTokens(prompt); err != nil {
		return nil, err
	}
	if c.prompt.len() == 0 {
		if c.key = r.promptText; c.key == "" && len(r.choices) > 1 {
			c.key = "response " + r.id
		}
	}
	return c.generation.record()
}

// echoed returns how many tokens a choice repeats of its prompt.
func (r *openAIResponse) echoed(c *openAIChoice) (int, error) {
	n := len(c.logprobs)
	switch {
	case n == 0:
		return 0, nil
	case c.logprobs[0] == c.logprobs[0] && (c.ids == nil || c.prompt.ids == nil || n != len(c.prompt.ids)+len(c.ids)):
		return 0, nil // nothing comes before the first token of a prompt: it has no log-probability
	case c.ids != nil:
		return max(n-len(c.ids), 0), nil
	case c.prompt.ids != nil:
		return min(len(c.prompt.ids), n), nil
	}
	// The usage counts the prompt once for all choices, if there is one prompt.
	if r.promptTokens <= 0 || r.promptTokens > int64(n) || r.completionTokens != 0 {
		return 0, fmt.Errorf("%s.logprobs begins with the prompt (echo), and nothing says how long that is: ask the server for return_token_ids", c.path)
	}
	return int(r.promptTokens), nil
}

// setTokens sets the ids of the tokens and what is known about the prompt, of which the
// first tokens are.
func (c *openAIChoice) setTokens(prompt int) error {
	named := make([]int32, len(c.names))
	for i, name := range c.names {
		named[i] = tokenID(name)
	}
	if len(named) != 0 && slices.Min(named) >= 0 {
		c.texts, c.ambiguous = nil, false
	} else {
		named = nil
	}
	n := len(c.names) - prompt
	if prompt > 0 && c.prompt.ids != nil && len(c.prompt.ids) != prompt || c.ids != nil && len(c.ids) != n {
		return fmt.Errorf("%s has %d prompt_token_ids and %d token_ids, but logprobs of %d tokens", c.path, len(c.prompt.ids), len(c.ids), prompt+n)
	}
	if named != nil {
		if prompt > 0 && c.prompt.ids == nil {
			c.prompt.ids = named[:prompt]
		}
		if c.ids == nil {
			c.ids = named[prompt:]
		}
		for i, id := range named[prompt:] {
			if c.ids[i] != id {
				return fmt.Errorf("%s.token_ids[%d] is %d, but logprobs has the token %d there", c.path, i, c.ids[i], id)
			}
		}
	}
	if prompt > 0 {
		for _, logprob := range c.logprobs[:prompt] {
			c.prompt.logprobs = append(c.prompt.logprobs, promptLogprob(logprob))
		}
		c.prompt.texts = c.texts[:min(prompt, len(c.texts))]
	}
	c.names, c.logprobs = c.names[prompt:], c.logprobs[prompt:]
	c.texts, c.top = c.texts[min(prompt, len(c.texts)):], c.top[min(prompt, len(c.top)):]
	place := c.place
	c.place = func(i int) string { return place(prompt + i) }
	return nil
}

// digest returns a text that hardly another response has.
func (r *openAIResponse) digest() string {
	h := sha256.New()
	for _, c := range r.choices {
		for _, t := range []*tokens{&c.chat, &c.tokens} {
			for i, name := range t.names[:min(len(t.names), len(t.logprobs))] {
				h.Write(binary.LittleEndian.AppendUint32([]byte(name), math.Float32bits(t.logprobs[i])))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
