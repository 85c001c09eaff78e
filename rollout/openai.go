package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// Responses of the chat and completions interfaces that OpenAI defined, with the fields
// that vLLM and SGLang add, and the lines of an OpenAI batch's output, which hold one each.

// An openAIResponse is one response, as far as it has been read.
type openAIResponse struct {
	added
	id               string
	asked            request
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
	index     int64 // among the choices, -1 if that is not said
	toolCalls bool  // the model called tools
	given     bool  // there are log-probabilities

	// Those of the chat interface take the place of the other tokens.
	reasoning, chat tokens
	chatField       string // content or refusal
}

// A request is what is known of the one that a response answers.
type request struct {
	prompts []prompt // of the completions interface, which can answer several in one response
	field   string   // that has them
	n       string   // choices for each prompt, or empty
	echo    bool     // choices begin with the prompt
}

// A prompt is a text or ids.
type prompt struct {
	text string
	ids  []int32
}

func (p prompt) equal(other prompt) bool {
	return p.text == other.text && slices.Equal(p.ids, other.ids)
}

func isOpenAIBatch(f fields) bool { return f.has("custom_id", "response") }

func isChat(f fields) bool {
	return f.has("choices.message") || f.has("choices.delta") || f.has("choices.logprobs.content") ||
		f.has("choices.logprobs.refusal") ||
		f.has("choices.logprobs.reasoning_content")
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
		if r.rewards != nil && c.rewards != nil {
			r.dropped = append(r.dropped, "choices.reward")
		}
		if r.group != "" && c.group != "" {
			r.dropped = append(r.dropped, "choices.group_id")
		}
	}
	if err := r.setPrompts(); err != nil {
		return nil, err
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
				c := &openAIChoice{index: -1}
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
		r.id, err = readID(s)
	case "prompt_token_ids":
		err = optionalInt32s(s, &r.promptIDs)
	case "prompt_text":
		r.promptText, err = readID(s)
	case "prompt", "n", "echo":
		return r.requestField(s, path, name)
	case "request":
		if s.Kind() != jsonscan.Object {
			drop(s, &r.dropped, path, name)
			return nil
		}
		path += "request."
		err = s.Object(func(name []byte) error { return r.requestField(s, path, name) })
	case "usage":
		path += "usage."
		err = ifGiven(s, func() error {
			return s.Object(func(name []byte) error { return r.usageField(s, path, name) })
		})
	case "error":
		return serverError(s)
	case "response", "body": // of a line of a batch's output
		inner := path + string(name) + "."
		if inner != "response." && inner != "response.body." {
			drop(s, &r.dropped, path, name)
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

// requestField reads a field of the request, which stands in the object of that path.
func (r *openAIResponse) requestField(s *jsonscan.Scanner, path string, name []byte) (err error) {
	switch string(name) {
	case "prompt":
		value := *s
		prompts, err := promptsOf(s)
		switch {
		case err != nil:
			return err
		case prompts == nil:
			drop(&value, &r.dropped, path, name)
		case r.asked.prompts != nil && !slices.EqualFunc(r.asked.prompts, prompts, prompt.equal):
			return s.Errorf("is not the other prompt of the line, want one of them")
		default:
			r.asked.prompts, r.asked.field = prompts, path+"prompt"
		}
		return nil
	case "body", "extra_body":
		if s.Kind() == jsonscan.Object {
			path += string(name) + "."
			return s.Object(func(name []byte) error { return r.requestField(s, path, name) })
		}
	case "n":
		if s.Kind() == jsonscan.Number {
			r.asked.n, err = s.CanonicalNumber()
			return err
		}
	case "echo":
		if s.Kind() == jsonscan.Bool {
			r.asked.echo, err = s.Bool()
			return err
		}
	}
	known, err := noteSampling(s, name, path, &r.dropped, &r.warnings)
	if !known {
		drop(s, &r.dropped, path, name)
	}
	return err
}

func (r *openAIResponse) usageField(s *jsonscan.Scanner, path string, name []byte) error {
	var dst *int64
	switch string(name) {
	case "prompt_tokens":
		dst = &r.promptTokens
	case "completion_tokens":
		dst = &r.completionTokens
	default:
		drop(s, &r.dropped, path, name)
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
	case "index":
		return optional(s, &c.index, (*jsonscan.Scanner).Int64)
	case "finish_reason":
		return c.readFinish(s, "choices.finish_reason.", &r.dropped)
	case "delta":
		s.Skip() // the error below comes first
		return s.Errorf("is a part of %v", errChunk)
	case "message":
		drop(s, &r.dropped, "choices.", name)
		return ifGiven(s, func() error {
			return s.Object(func(name []byte) error {
				if string(name) != "tool_calls" || s.Kind() != jsonscan.Array {
					return r.warnOfTokens(s)
				}
				return s.Array(func(int) error { c.toolCalls = true; return r.warnOfTokens(s) })
			})
		})
	}
	known, err := c.added.read(s, name)
	if !known && err == nil {
		drop(s, &r.dropped, "choices.", name)
		err = r.warnOfTokens(s)
	}
	return err
}

// warnOfTokens reads a value that no array takes, and warns if it has tokens: some servers
// repeat there those that are known.
func (r *openAIResponse) warnOfTokens(s *jsonscan.Scanner) error {
	has, err := hasTokens(s)
	if has {
		r.warnings = append(r.warnings, "Some responses have tokens with log-probabilities outside of choices[].logprobs, which are dropped: "+
			"if they are not repeated there, the responses lack tokens.")
	}
	return err
}

// hasTokens reads a value, and reports whether it has a list of tokens with log-probabilities.
func hasTokens(s *jsonscan.Scanner) (has bool, err error) {
	within := func() error {
		inner, err := hasTokens(s)
		has = has || inner
		return err
	}
	switch s.Kind() {
	case jsonscan.Object:
		err = s.Object(func([]byte) error { return within() })
	case jsonscan.Array:
		err = s.Array(func(int) error {
			if s.Kind() != jsonscan.Object {
				return within()
			}
			return s.Object(func(name []byte) error {
				has = has || string(name) == "logprob" && s.Kind() != jsonscan.Null
				return within()
			})
		})
	default:
		err = s.Skip()
	}
	return has, err
}

// promptsOf returns the prompts of a request to the completions interface, which are a text,
// ids, or a list of several of these. It returns nil for something else.
func promptsOf(s *jsonscan.Scanner) (prompts []prompt, err error) {
	idsOf := func(s *jsonscan.Scanner) ([]int32, bool) {
		raw, err := s.Raw()
		if err != nil {
			return nil, false
		}
		var list jsonscan.Scanner
		list.Reset(raw)
		ids, err := list.Int32s()
		return ids, err == nil && ids != nil
	}
	if s.Kind() == jsonscan.String {
		text, err := s.Text()
		return []prompt{{text: text}}, err
	}
	whole := *s
	if ids, ok := idsOf(&whole); ok {
		return []prompt{{ids: ids}}, s.Skip()
	}
	if s.Kind() != jsonscan.Array {
		return nil, s.Skip()
	}
	known := true
	err = s.Array(func(int) (err error) {
		var p prompt
		switch s.Kind() {
		case jsonscan.String:
			p.text, err = s.Text()
		case jsonscan.Array:
			ids, ok := idsOf(s)
			p.ids, known = ids, known && ok
		default:
			known = false
		}
		prompts = append(prompts, p)
		return err
	})
	if !known {
		prompts = nil
	}
	return prompts, err
}

// setPrompts sets the prompts of the choices to the prompts of the request, if these are known. A
// request of the completions interface can have several: the choices of the first come first.
func (r *openAIResponse) setPrompts() error {
	prompts, n := r.asked.prompts, len(r.choices)
	chat := slices.ContainsFunc(r.choices, (*openAIChoice).isChat)
	if chat && prompts != nil { // its prompt is made of messages
		r.dropped, prompts = append(r.dropped, r.asked.field), nil
	}
	k := len(prompts)
	if k == 0 {
		unknown := r.promptIDs == nil && r.promptText == "" && r.group == "" &&
			slices.ContainsFunc(r.choices, func(c *openAIChoice) bool {
				return c.prompt.ids == nil && c.group == "" && !c.hasEcho()
			})
		if n > 1 && !chat && unknown {
			r.warnings = append(r.warnings, "Some responses have several choices, and nothing says of which prompts they are: the choices of a response are taken for "+
				"a group. If requests had several prompts, keep the request beside the response, ask for return_token_ids, or add a group_id to each choice.")
		}
		return nil
	}
	if n%k != 0 || k > 1 && r.asked.n != "" && r.asked.n != strconv.Itoa(n/k) {
		return fmt.Errorf("there are %d choices for the %d prompts of the request, whose n is %s", n, k,
			cmp.Or(r.asked.n, "1"))
	}
	order := make([]int, n)
	if k > 1 {
		var err error
		if order, err = r.order(); err != nil {
			return err
		}
	}
	for i, c := range r.choices {
		p := prompts[order[i]/(n/k)]
		several := !p.equal(prompts[0])
		switch {
		case several && r.group != "":
			return fmt.Errorf("group_id is %s, but the request has several prompts: want a group_id in each choice, or none", printable.Text(r.group))
		case several && (r.promptIDs != nil || r.promptText != ""):
			return errors.New("prompt_token_ids, or prompt_text, is of one prompt, but the request has several: want prompt_token_ids in each choice")
		}
		given := c.prompt.ids
		if given == nil {
			given = r.promptIDs
		}
		if given != nil && p.ids != nil && !slices.Equal(given, p.ids) {
			return fmt.Errorf("%s: prompt_token_ids are not the ids of the request's prompt", c.path)
		}
		c.key = p.text
		if c.prompt.ids == nil {
			c.prompt.ids = p.ids
		}
	}
	return nil
}

// order returns the number of each choice by its index, if that is given, else by its place.
func (r *openAIResponse) order() ([]int, error) {
	order, seen := make([]int, len(r.choices)), make([]bool, len(r.choices))
	given := slices.ContainsFunc(r.choices, func(c *openAIChoice) bool { return c.index >= 0 })
	for i, c := range r.choices {
		if order[i] = i; !given {
			continue
		}
		if c.index < 0 || c.index >= int64(len(seen)) || seen[c.index] {
			return nil, fmt.Errorf("%s.index is %d, or missing, want each of 0 to %d once: it says of which prompt of the request the choice is", c.path, c.index, len(seen)-1)
		}
		order[i], seen[c.index] = int(c.index), true
	}
	return order, nil
}

// logprobsField reads a field of the log-probabilities of a choice.
func (r *openAIResponse) logprobsField(s *jsonscan.Scanner, c *openAIChoice, name []byte) error {
	array := func(element func() error) error {
		c.given = c.given || s.Kind() != jsonscan.Null
		return eachToken(s, element)
	}
	chat := func(t *tokens) func() error {
		path := "choices.logprobs." + string(name) + "."
		topPath := path + "top_logprobs."
		return func() error { return t.readChat(s, path, topPath, &r.dropped) }
	}
	switch field := string(name); field {
	case "content", "refusal": // of a chat
		if len(c.chat.names) > 0 && s.Kind() == jsonscan.Array {
			return s.Errorf("is there beside the other of content and refusal, want the tokens in one place")
		}
		if c.chatField == "" || s.Kind() == jsonscan.Array {
			c.chatField = field
		}
		return array(chat(&c.chat))
	case "reasoning_content": // of a chat, whose other tokens come behind it
		return array(chat(&c.reasoning))
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
	drop(s, &r.dropped, "choices.logprobs.", name)
	has, err := hasTokens(s)
	if has && err == nil {
		err = s.Errorf("has tokens, in a place that is not known: want all tokens in content, in their order")
	}
	return err
}

// readChat reads a token of a chat. path is where the list is, topPath where the lists in it are.
func (t *tokens) readChat(s *jsonscan.Scanner, path, topPath string, dropped *[]string) error {
	token, top, bytes := known{logprob: float32(math.NaN())}, []known(nil), []byte(nil)
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "token":
			token.name, err = s.String()
		case "logprob":
			token.logprob, err = s.FloatOrNull()
		case "bytes":
			bytes, err = readBytes(s)
		case "top_logprobs":
			err = ifGiven(s, func() error {
				return s.Array(func(int) error {
					candidate, err := chatCandidate(s, topPath, dropped)
					top = append(top, candidate)
					return err
				})
			})
		default:
			drop(s, dropped, path, name)
		}
		return err
	})
	// The bytes say more than the name where a token ends within a character.
	text := token.name
	if bytes != nil && tokenID(token.name) < 0 {
		text = string(bytes)
	}
	if err == nil && token.logprob != token.logprob {
		return s.Errorf("has no logprob, or null or NaN, want the log-probability of the sampled token")
	}
	t.names, t.texts = append(t.names, token.name), append(t.texts, text)
	t.logprobs, t.top = append(t.logprobs, token.logprob), append(t.top, top)
	return err
}

// chatCandidate reads one of the most likely tokens of a chat, of which lists have that path.
func chatCandidate(s *jsonscan.Scanner, path string, dropped *[]string) (known, error) {
	candidate := known{logprob: missingLogprob}
	err := s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "token":
			candidate.name, err = s.String()
		case "logprob":
			candidate.logprob, err = s.FloatOrNull()
		default:
			drop(s, dropped, path, name)
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
	case c.isChat() && n+len(c.logprobs) != 0:
		return nil, fmt.Errorf("%s.logprobs has tokens, and %s too, want all tokens in one place", c.path,
			cmp.Or(c.chatField, "reasoning_content"))
	case c.isChat():
		c.joinChat()
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
	if c.key = cmp.Or(c.key, r.promptText); c.key == "" && len(r.choices) > 1 {
		c.key = "response " + r.id
	}
	return c.generation.record()
}

// hasEcho reports whether the tokens begin with a prompt, whose first has no log-probability.
func (c *openAIChoice) hasEcho() bool { return len(c.logprobs) != 0 && c.logprobs[0] != c.logprobs[0] }

func (c *openAIChoice) isChat() bool { return len(c.reasoning.names)+len(c.chat.names) != 0 }

// joinChat makes the tokens of the choice from the tokens of a chat.
func (c *openAIChoice) joinChat() {
	c.thought = len(c.reasoning.names)
	c.names = slices.Concat(c.reasoning.names, c.chat.names)
	c.texts = slices.Concat(c.reasoning.texts, c.chat.texts)
	c.logprobs = slices.Concat(c.reasoning.logprobs, c.chat.logprobs)
	c.top = slices.Concat(c.reasoning.top, c.chat.top)
	field := c.chatField
	if len(c.chat.names) == 0 {
		field = "reasoning_content"
	}
	c.topField = "choices.logprobs." + field + ".top_logprobs"
	c.place = func(i int) string {
		field := "reasoning_content"
		if i >= c.thought {
			i, field = i-c.thought, c.chatField
		}
		return fmt.Sprintf("%s.logprobs.%s[%d].logprob", c.path, field, i)
	}
}

// echoed returns how many tokens a choice repeats of its prompt.
func (r *openAIResponse) echoed(c *openAIChoice) (int, error) {
	n := len(c.logprobs)
	switch {
	case n == 0:
		return 0, nil
	case r.asked.echo && !c.hasEcho() && c.ids == nil:
		return 0, fmt.Errorf("%s.logprobs: the request has echo, but the first token has a log-probability, which the first token of a prompt never has: "+
			"ask for return_token_ids, or without echo", c.path)
	case !c.hasEcho() && (c.ids == nil || c.prompt.ids == nil || n != len(c.prompt.ids)+len(c.ids)):
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
		return fmt.Errorf("%s has %d prompt_token_ids and %d token_ids, but logprobs of %d tokens", c.path,
			len(c.prompt.ids), len(c.ids), prompt+n)
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
				return fmt.Errorf("%s.token_ids[%d] is %d, but logprobs has the token %d there", c.path, i,
					c.ids[i], id)
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
		for _, t := range []*tokens{&c.reasoning, &c.chat, &c.tokens} {
			for i, name := range t.names[:min(len(t.names), len(t.logprobs))] {
				h.Write(binary.LittleEndian.AppendUint32([]byte(name), math.Float32bits(t.logprobs[i])))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
