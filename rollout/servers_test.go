package rollout

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// writeLines writes the values as a JSON Lines file and returns its name.
func writeLines(t *testing.T, name string, values ...any) string {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, v := range values {
		must.Do(encoder.Encode(v))
	}
	name = filepath.Join(t.TempDir(), name)
	must.Do(os.WriteFile(name, text.Bytes(), 0o666))
	return name
}

// Whole trajectories, a line for each turn, whose prompts repeat the turns before. What is
// read is the rollouts themselves, but for the tokens after the last response.
func TestTrajectoriesOfServers(t *testing.T) {
	l, turns := openLake(t)
	actionOpen, actionClose := int32(slices.Index(l.names, "<answer>")), int32(slices.Index(l.names, "</answer>"))
	byID := Options{ActionOpen: []int32{actionOpen}, ActionClose: []int32{actionClose}, Vocab: len(l.names)}
	byText := Options{ActionTags: [][2]string{{"<answer>", "</answer>"}}, Vocab: len(l.names)}
	turns = turns[:80]
	firsts := firstTurns(turns)
	one := func(choice dict) dict { return dict{"choices": list{choice}} }
	for _, c := range []struct {
		format string
		opt    Options
		turns  []turn
		value  func(u turn) dict
		prompt bool // the tokens before a response are there
	}{
		{"SGLang responses", byID, turns, func(u turn) dict { return l.sglang(u, 20, true) }, true},
		{"SGLang responses", byText, turns, func(u turn) dict { return l.sglang(u, 20, false) }, false},
		{"chat responses", byText, turns, func(u turn) dict { return one(l.chatChoice(u, 20, l.text, false)) }, false},
		{"chat responses", byID, turns, func(u turn) dict { return one(l.chatChoice(u, 20, l.text, true)) }, false},
		{"chat responses", byID, turns, func(u turn) dict { return one(l.chatChoice(u, 20, l.idName, false)) }, false},
		{"chat responses", byID, turns, func(u turn) dict {
			return dict{"prompt_token_ids": l.TokenIDs[u.first:u.begin],
				"choices": list{l.chatChoice(u, 20, l.text, true)}}
		}, true},
		{"OpenAI batch output", byText, turns, func(u turn) dict {
			return dict{"custom_id": "a", "response": dict{"body": one(l.chatChoice(u, 20, l.text, false))},
				"error": nil}
		}, false},
		{"completions responses", byText, turns, func(u turn) dict { return one(l.completionChoice(u, 20, l.text, false)) }, false},
		{"completions responses", byID, turns, func(u turn) dict { return one(l.completionChoice(u, 20, l.idName, false)) }, false},
		{"completions responses", byText, firsts, func(u turn) dict { // no ids that could repeat those of a turn before
			r := one(l.completionChoice(u, 20, l.text, true))
			r["usage"] = dict{"prompt_tokens": u.begin - u.first, "completion_tokens": u.end - u.begin}
			return r
		}, true},
		{"completions responses", byID, turns, func(u turn) dict {
			choice := l.completionChoice(u, 20, l.text, true)
			choice["prompt_token_ids"], choice["token_ids"] = l.TokenIDs[u.first:u.begin], l.TokenIDs[u.begin:u.end]
			return one(choice)
		}, true},
		{"completions responses", byID, turns, func(u turn) dict {
			choice := l.completionChoice(u, 20, l.idName, true)
			choice["token_ids"] = l.TokenIDs[u.begin:u.end]
			return one(choice)
		}, true},
	} {
		var values []any
		for _, u := range c.turns {
			v := c.value(u)
			l.checkTop(t, c.format, v, u)
			v["trajectory_id"] = u.trajectory
			v["group_id"] = l.GroupIDs[u.trajectory]
			v["reward"] = l.Rewards[u.trajectory]
			values = append(values, v)
		}
		dump := writeLines(t, "dump.jsonl", values...)
		s := must.Get(c.opt.Open(dump))
		defer s.Close()
		read := 0
		for rest := c.turns; len(rest) > 0; read++ {
			n := 1
			for n < len(rest) && rest[n].trajectory == rest[0].trajectory {
				n++
			}
			got, err := s.Next()
			if err != nil {
				t.Fatalf("%s: %v", c.format, err)
			}
			l.checkTrajectory(t, c.format, got, rest[:n], c.prompt)
			if got.Line != len(c.turns)-len(rest)+1 {
				t.Fatalf("%s: trajectory %d is in line %d", c.format, read, got.Line)
			}
			rest = rest[n:]
		}
		if _, err := s.Next(); err != io.EOF {
			t.Fatalf("%s: %v after the last trajectory", c.format, err)
		}
		report := s.Report()
		if !slices.Equal(report.Formats, []string{c.format}) || report.Trajectories != read ||
			len(report.Warnings) != 0 {
			t.Errorf("%s: report %+v", c.format, report)
		}
		i := slices.IndexFunc(report.Arrays, func(o Origin) bool { return o.Name == "entropy" })
		if o := report.Arrays[i]; o.Kind != Estimated || o.From != "top 20 log-probabilities" ||
			!(o.Width > 0.04 && o.Width < 0.06) {
			t.Errorf("%s: origin %+v", c.format, o)
		}
	}
}

// checkTop checks that the most likely tokens of a response bound the entropy at each token.
func (l lake) checkTop(t *testing.T, what string, response dict, u turn) {
	t.Helper()
	parse := parseOpenAI
	if what == "SGLang responses" {
		parse = parseSGLang
	}
	top := parseValue(t, response, parse)[0].top
	for token := u.begin; token < u.end; token++ {
		lower, upper, err := entropyBounds(top[len(top)-u.end+token], len(l.names))
		if h := float64(l.Entropy[token]); err != nil || !(lower-2e-5 <= h && h <= upper+2e-5) {
			t.Fatalf("%s: entropy %v of token %d, bounds %v and %v, %v", what, h, token, lower, upper, err)
		}
	}
}

// tokensOf returns the tokens of the turns of a trajectory, with those before each response
// or without.
func tokensOf(turns []turn, prompt bool) []int {
	var tokens []int
	first := turns[0].first
	for _, u := range turns {
		if !prompt {
			first = u.begin
		}
		for token := first; token < u.end; token++ {
			tokens = append(tokens, token)
		}
		first = u.end
	}
	return tokens
}

func (l lake) checkTrajectory(t *testing.T, what string, got *Trajectory, turns []turn, prompt bool) {
	t.Helper()
	tokens := tokensOf(turns, prompt)
	if got.Tokens() != len(tokens) {
		t.Fatalf("%s: %d tokens, want %d", what, got.Tokens(), len(tokens))
	}
	for i, token := range tokens {
		if got.Role[i] != l.Role[token] {
			t.Fatalf("%s: role[%d] = %d, want %d", what, i, got.Role[i], l.Role[token])
		}
		span := l.SpanIDs[token]
		if span >= 0 {
			span -= l.SpanIDs[turns[0].begin]
		}
		if got.SpanIDs[i] != span {
			t.Fatalf("%s: span_ids[%d] = %d, want %d", what, i, got.SpanIDs[i], span)
		}
		if got.TokenIDs != nil && got.TokenIDs[i] != l.TokenIDs[token] {
			t.Fatalf("%s: token_ids[%d] = %d, want %d", what, i, got.TokenIDs[i], l.TokenIDs[token])
		}
		if l.Role[token] == reweight.RoleMasked {
			continue
		}
		if got.Texts != nil && got.Texts[i] != l.names[l.TokenIDs[token]] {
			t.Fatalf("%s: text %d is %q", what, i, got.Texts[i])
		}
		if math.Float32bits(got.OldLogprobs[i]) != math.Float32bits(l.OldLogprobs[token]) {
			t.Fatalf("%s: old_logprobs[%d] = %v, want %v", what, i, got.OldLogprobs[i], l.OldLogprobs[token])
		}
		if d := math.Abs(float64(got.Entropy[i] - l.Entropy[token])); d > 1.5 {
			t.Fatalf("%s: entropy[%d] = %v, want %v", what, i, got.Entropy[i], l.Entropy[token])
		}
	}
	if s := turns[0].trajectory; got.Rewards[0] != l.Rewards[s] || got.GroupIDs[0] != l.GroupIDs[s] {
		t.Fatalf("%s: reward %v and group %d", what, got.Rewards[0], got.GroupIDs[0])
	}
}

func TestServersOpen(t *testing.T) {
	good := `{"choices": [{` + twoOfChat + `}]}`
	for _, c := range []struct {
		text string
		want string // of the error, behind the file's name
	}{
		{"[" + good + ",\n" + good + "]", ""},
		{`[{"meta_info": {` + twoOfSGLang + `}}, {"meta_info": {` + twoOfSGLang + `}}]`, ""},
		{"data: " + good + "\n\ndata: [DONE]\n", ": a stream of events: dump whole responses (stream=false)"},
		{good + "\n" + `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -9999.0}]}}]}`, ":2: choices[0].logprobs.content[0].logprob is -9999, which stands for"},
		{good + "\n" + `{"object": "chat.completion.chunk", "choices": [{"delta": {}}]}`, ":2: object is chat.completion.chunk, which is a chunk of a streamed response"},
		{`{"error": {"message": "No."}}`, ":1: the request failed: No.: remove the line"},
		{`{"text": "a", "meta_info": {"id": "b"}}`, ":1: meta_info.output_token_logprobs is missing"},
		{`{"choices": [{"text": "a"}]}`, ":1: choices[0] has no logprobs"},
	} {
		name := filepath.Join(t.TempDir(), "dump.json")
		must.Do(os.WriteFile(name, []byte(c.text), 0o666))
		s, err := Open(name)
		n := 0
		for err == nil {
			if _, err = s.Next(); err == nil {
				n++
			}
		}
		s.Close()
		switch {
		case c.want == "" && (err != io.EOF || n != 2):
			t.Errorf("%s: %d trajectories, error %v", c.text, n, err)
		case c.want != "" && !strings.HasPrefix(err.Error(), name+c.want):
			t.Errorf("%s: error %v, want %s", c.text, err, c.want)
		}
	}
}
