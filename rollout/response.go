package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// What the responses of all servers have in common.

// A known is a token whose log-probability a server gives.
type known struct {
	id      int32  // where the server gives ids of the most likely tokens
	name    string // as the server spells it, where it gives no ids of them
	logprob float32
}

// Tokens are tokens in a row. Arrays that the server does not give are nil.
type tokens struct {
	ids      []int32
	names    []string // as the server spells them
	texts    []string
	logprobs []float32 // NaN where the server has null
	top      [][]known // the most likely tokens at each, with or without the one that is there
}

// len returns the number of tokens that have ids or log-probabilities.
func (t *tokens) len() int { return max(len(t.ids), len(t.logprobs)) }

// maxResponse is the largest number of tokens in a response. It bounds what a hostile line
// takes, whose numbers are smaller than what they become in memory.
const maxResponse = 1 << 24

// eachToken calls read for each element of an array of tokens, unless that is null.
func eachToken(s *jsonscan.Scanner, read func() error) error {
	return ifGiven(s, func() error {
		return s.Array(func(i int) error {
			if i == maxResponse {
				return s.Errorf("is one token more than the %d that a response may have", maxResponse)
			}
			return read()
		})
	})
}

// A generation is what a server generated for a prompt.
type generation struct {
	path  string             // of it in the JSON value, for errors
	place func(i int) string // of logprobs[i], for errors

	prompt tokens // ids, texts and logprobs, as far as they are known
	key    string // a text that is equal for equal prompts, if nothing is known about them

	tokens
	mostOnly  bool   // top has the most likely tokens only: the one that is there is one of them if it is in top
	ambiguous bool   // top cannot have two tokens of the same name
	topField  string // the field of top

	finish  string // the reason why it ended, as far as the source says
	thought int    // the first tokens, of which the server says that they are reasoning
}

// record makes a record of the generation.
func (g *generation) record() (*record, error) {
	P, n := g.prompt.len(), len(g.logprobs)
	switch {
	case n == 0 && g.finish == "abort":
		return nil, fmt.Errorf("%s was aborted before its first token: remove it", g.path)
	case n == 0:
		return nil, fmt.Errorf("%s has no tokens with log-probabilities", g.path)
	}
	for i, logprob := range g.logprobs {
		if err := checkSampled(logprob); err != nil {
			return nil, fmt.Errorf("%s %w", g.place(i), err)
		}
	}
	r := &record{mask: append(make([]bool, P), slices.Repeat([]bool{true}, n)...), prompt: g.key,
		thought: P + g.thought}
	r.OldLogprobs = append(make([]float32, P), g.logprobs...)
	copy(r.OldLogprobs, g.prompt.logprobs)
	switch {
	case g.ids != nil && len(g.prompt.ids) == P:
		r.TokenIDs = slices.Concat(g.prompt.ids, g.ids)
	case len(g.prompt.ids) != 0:
		r.prompt, r.promptIDs = "", g.prompt.ids
	case g.prompt.texts != nil:
		r.prompt = strings.Join(g.prompt.texts, "\x00")
	}
	for t, id := range r.TokenIDs {
		if id < 0 {
			return nil, fmt.Errorf("%s has the token id %d at token %d, want at least 0", g.path, id, t)
		}
	}
	if g.texts != nil {
		r.texts = append(make([]string, P), g.texts...)
		copy(r.texts, g.prompt.texts)
	}
	if g.finish == "abort" {
		r.warnings = append(r.warnings, "The server aborted some of the responses before their end: the tokens up to there are taken.")
	}
	return r, g.setTop(r)
}

// checkSampled checks the log-probability of a sampled token.
func checkSampled(logprob float32) error {
	switch {
	case logprob != logprob:
		return errors.New("is null or NaN, want the log-probability of a sampled token")
	case logprob <= missingLogprob:
		return fmt.Errorf("is %v, which stands for a log-probability that the server does not have: the trajectory cannot be used", logprob)
	case !(logprob <= maxLogprob):
		return fmt.Errorf("is %v, want a log-probability, which is at most 0", logprob)
	}
	return nil
}

// isThere reports whether k is the token that is there. Different tokens can have the same
// name, but hardly with the same log-probability too.
func (t *tokens) isThere(k known, i int) bool {
	same := t.names != nil && k.name == t.names[i] || t.names == nil && k.id == t.ids[i]
	return same && math.Abs(float64(k.logprob)-float64(t.logprobs[i])) <= 1e-3
}

// setTop sets r.top if the server gives more than the sampled tokens.
func (g *generation) setTop(r *record) error {
	size := 0
	for _, top := range g.top {
		size += len(top) + 1
	}
	if size == len(g.top) {
		return nil
	}
	all := make([]candidate, 0, size)
	top := make([][]candidate, len(r.mask))
	most, leftOut := 0, false
	for i, logprob := range g.logprobs {
		first, listed := len(all), false
		for _, k := range g.top[i] {
			switch {
			case k.logprob <= missingLogprob:
				leftOut = true
				continue
			case !(k.logprob <= maxLogprob):
				return fmt.Errorf("%s: one of the most likely tokens has %v, want a log-probability, which is at most 0", g.place(i), k.logprob)
			}
			sampled := !listed && g.isThere(k, i)
			listed = listed || sampled
			all = append(all, candidate{logprob: min(k.logprob, 0), extra: sampled && !g.mostOnly})
		}
		if !listed {
			all = append(all, candidate{logprob: min(logprob, 0), extra: true})
		}
		c := all[first:len(all):len(all)]
		top[len(r.mask)-len(g.logprobs)+i] = c
		most = max(most, likely(c))
	}
	if leftOut {
		r.warnings = append(r.warnings, "Some of the most likely tokens have log-probabilities of -9999 or less, which stand for missing ones, and are left out. "+
			"They come from processed log-probabilities: the model's own are finite.")
	}
	if most == 0 {
		return nil
	}
	if g.ambiguous {
		// Of two tokens with one name the server keeps one: where there are fewer than
		// elsewhere, there may be another that is as likely as any.
		for _, c := range top {
			if likely(c) < most {
				for i := range c {
					c[i].extra = true
				}
			}
		}
	}
	r.top, r.topField = top, g.topField
	return nil
}

// Added are the fields that people may add to a line.
type added struct {
	rewards           []float32
	group, trajectory string
}

// read reads the field of that name, if it is one of them.
func (a *added) read(s *jsonscan.Scanner, name []byte) (known bool, err error) {
	switch string(name) {
	case "reward", "rewards":
		if a.rewards != nil && s.Kind() != jsonscan.Null {
			s.Skip() // the error below comes first
			return true, s.Errorf("is there beside the other of reward and rewards, want one of them")
		}
		switch s.Kind() {
		case jsonscan.Null:
		case jsonscan.Array:
			a.rewards, err = s.Floats()
		default:
			var reward float32
			reward, err = s.Float()
			a.rewards = []float32{reward}
		}
	case "group_id":
		a.group, err = readID(s)
	case "trajectory_id":
		a.trajectory, err = readID(s)
	default:
		return false, nil
	}
	return true, err
}

// readOther reads a field that no response has: one that people add, one of the request that
// says how tokens were sampled, or else one that is dropped. path is where the object is.
func (a *added) readOther(s *jsonscan.Scanner, name []byte, path string, dropped, warnings *[]string) error {
	known, err := a.read(s, name)
	if !known && err == nil {
		known, err = noteSampling(s, name, path, dropped, warnings)
	}
	if !known {
		drop(s, dropped, path, name)
	}
	return err
}

// give sets what a says about the generations of one line, and about their records.
func (a *added) give(records []*record) error {
	if a.trajectory != "" && len(records) > 1 {
		return fmt.Errorf("trajectory_id is %s, but there are %d responses, and a turn of a trajectory has one", printable.Text(a.trajectory), len(records))
	}
	if a.rewards != nil && len(a.rewards) != len(records) {
		return fmt.Errorf("there are %d rewards for %d responses, want one for each", len(a.rewards), len(records))
	}
	for i, r := range records {
		if a.trajectory != "" {
			r.trajectory = a.trajectory
		}
		if a.group != "" {
			r.group = a.group
		}
		if a.rewards != nil {
			r.Rewards = a.rewards[i : i+1 : i+1]
		}
	}
	return nil
}

// textOrNumber reads a text, or a number as it is spelt, or null as an empty text.
func textOrNumber(s *jsonscan.Scanner) (string, error) {
	switch s.Kind() {
	case jsonscan.Null:
		return "", s.Skip()
	case jsonscan.Number:
		raw, err := s.Raw()
		return string(raw), err
	}
	return s.String()
}

// readID reads an id, which is compared with others: a text, or a number, whose spelling does
// not count, or null as an empty text.
func readID(s *jsonscan.Scanner) (string, error) {
	switch s.Kind() {
	case jsonscan.Null:
		return "", s.Skip()
	case jsonscan.String:
		return s.Text()
	case jsonscan.Number:
		return s.CanonicalNumber()
	}
	return "", s.Wrong("a text or a number")
}

// drop notes a field that no array takes, once, unless its value is null. path is that of the
// object.
func drop(s *jsonscan.Scanner, dropped *[]string, path string, name []byte) {
	if s.Kind() == jsonscan.Null || len(*dropped) >= maxNotes {
		return
	}
	for _, field := range *dropped { // without an allocation for a field of every token
		if n := len(path); len(field) == n+len(name) && field[:n] == path && field[n:] == string(name) {
			return
		}
	}
	*dropped = append(*dropped, path+string(name))
}

// ifGiven calls read unless the value is null.
func ifGiven(s *jsonscan.Scanner, read func() error) error {
	if s.Kind() == jsonscan.Null {
		return s.Skip()
	}
	return read()
}

// optional sets dst to what read returns, unless the value is null.
func optional[T any](s *jsonscan.Scanner, dst *T, read func(*jsonscan.Scanner) (T, error)) error {
	return ifGiven(s, func() (err error) {
		*dst, err = read(s)
		return err
	})
}

// optionalInt32s reads an array of integers or null. An empty array is not nil.
func optionalInt32s(s *jsonscan.Scanner, dst *[]int32) error {
	return ifGiven(s, func() error {
		list, err := s.Int32s()
		*dst = append([]int32{}, list...)
		return err
	})
}

// readBytes reads the bytes of a token, nil for null.
func readBytes(s *jsonscan.Scanner) ([]byte, error) {
	if s.Kind() == jsonscan.Null {
		return nil, s.Skip()
	}
	list, err := s.Int32s()
	if err != nil {
		return nil, err
	}
	bytes := make([]byte, len(list))
	for i, b := range list {
		if bytes[i] = byte(b); int32(bytes[i]) != b {
			return nil, &jsonscan.Error{Path: fmt.Sprintf("[%d]", i), Byte: s.Offset() - 1,
				Problem: fmt.Sprintf("is %d, want a byte: 0 to 255", b)}
		}
	}
	return bytes, nil
}

// promptLogprob returns what an array has for a token of the prompt. Nothing depends on
// its log-probability.
func promptLogprob(logprob float32) float32 {
	if logprob > missingLogprob && logprob <= maxLogprob {
		return logprob
	}
	return 0
}

// serverError reads the error that stands in the place of a response.
func serverError(s *jsonscan.Scanner) error {
	message := ""
	var err error
	switch s.Kind() {
	case jsonscan.Null:
		return s.Skip()
	case jsonscan.Object:
		err = s.Object(func(name []byte) (err error) {
			if string(name) == "message" && s.Kind() == jsonscan.String {
				message, err = s.String()
			}
			return err
		})
	default:
		message, err = textOrNumber(s)
	}
	if err != nil {
		return err
	}
	const most = 200
	if len(message) > most {
		message = strings.ToValidUTF8(message[:most], "") + "..."
	}
	return fmt.Errorf("the request failed: %s: remove the line", printable.Text(message))
}

// readFinish reads the reason why a generation ended: a text, or an object of that path with
// a type. It is null as long as the generation goes on.
func (g *generation) readFinish(s *jsonscan.Scanner, path string, dropped *[]string) (err error) {
	switch s.Kind() {
	case jsonscan.Null:
		s.Skip() // no error: it is null
		return s.Errorf(`is null, so that the response has not ended: dump whole responses (stream=false), or write "stop" there if this one is whole`)
	case jsonscan.Object:
		return s.Object(func(name []byte) (err error) {
			if string(name) == "type" {
				g.finish, err = textOrNumber(s)
			} else {
				drop(s, dropped, path, name)
			}
			return err
		})
	}
	g.finish, err = textOrNumber(s)
	return err
}

var errChunk = errors.New("a chunk of a streamed response: dump whole responses (stream=false)")

// isEventStream reports whether a server wrote the text as a stream of events.
func isEventStream(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	return bytes.HasPrefix(head, []byte("data:")) || bytes.HasPrefix(head, []byte("event:"))
}

// noteSampling reads a field that says how tokens were sampled, if it is one, and warns
// where log-probabilities may then not be the model's at temperature 1. Lines that
// hold the request too have such fields. path is where the object is.
func noteSampling(s *jsonscan.Scanner, name []byte, path string, dropped, warnings *[]string) (is bool, err error) {
	const truncated = " in some requests: tokens were sampled from a part of the distribution, and log-probabilities may be of the whole."
	number := func(normal func(f float32) bool, text string) (bool, error) {
		return true, ifGiven(s, func() error {
			f, err := s.Float()
			if err == nil && !normal(f) {
				*warnings = append(*warnings, text)
			}
			return err
		})
	}
	switch string(name) {
	case "logprobs_mode":
		mode, err := textOrNumber(s)
		if mode != "" && mode != "raw_logprobs" {
			*warnings = append(*warnings, "The logprobs_mode of some requests is not raw_logprobs: the log-probabilities are not the model's own.")
		}
		return true, err
	case "top_p":
		return number(func(p float32) bool { return p == 1 }, "The top_p is not 1"+truncated)
	case "top_k":
		return number(func(k float32) bool { return k <= 0 }, "The top_k is above 0"+truncated)
	case "min_p":
		return number(func(p float32) bool { return p == 0 }, "The min_p is not 0"+truncated)
	case "temperature":
		return number(func(t float32) bool { return t == 1 }, "The temperature is not 1 in some requests, and responses do not say whether log-probabilities are before or after it.")
	case "request", "sampling_params":
		if s.Kind() != jsonscan.Object {
			return false, nil
		}
		path += string(name) + "."
		return true, s.Object(func(name []byte) error {
			known, err := noteSampling(s, name, path, dropped, warnings)
			if !known {
				drop(s, dropped, path, name)
			}
			return err
		})
	}
	return false, nil
}
