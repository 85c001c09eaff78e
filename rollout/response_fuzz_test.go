package rollout

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// responseSeeds are responses of all servers, with many fields and two tokens each.
var responseSeeds = []struct {
	parse parser
	text  string
}{
	{parseSGLang, `{"text": "ab", "output_ids": [3, 4], "prompt_token_ids": [1, 2], "meta_info": {"id": "x", "finish_reason": {"type": "stop", "matched": 4},
		"prompt_tokens": 2, "completion_tokens": 2, "input_token_logprobs": [[null, 1, "p"], [-2, 2, "q"]], "output_token_logprobs": [[-0.5, 3, "a"], [-1, 4, null]],
		"output_top_logprobs": [[[-0.5, 3, "a"], [-3, 5, "c"]], [[-0.6, 6, "d"], [-9999.0, 5, "c"]]]}, "reward": 1, "group_id": 7, "trajectory_id": "t"}`},
	{parseOpenAI, `{"id": "c-1", "object": "chat.completion", "model": "m", "service_tier": null, "choices": [{"index": 0, "message": {"content": "ab", "tool_calls": []},
		"logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": null}, {"token": "c", "logprob": -3}]},
		{"token": "token_id:4", "logprob": -1, "bytes": [255], "top_logprobs": [{"token": "d", "logprob": -0.6}, {"token": "c", "logprob": -9999.0}]}], "refusal": null},
		"finish_reason": "stop", "token_ids": [3, 4]}, {"index": 1, "message": {"refusal": "ab"}, "logprobs": {"content": null, "refusal": [{"token": "x", "logprob": 0}]},
		"token_ids": [9]}], "usage": {"prompt_tokens": 2, "completion_tokens": 3}, "prompt_token_ids": [1, 2], "prompt_logprobs": [null, {"2": {"logprob": -1}}], "rewards": [1, 0.5]}`},
	{parseOpenAI, `{"id": "c-1", "object": "text_completion", "choices": [{"index": 0, "text": "pab", "logprobs": {"text_offset": [0, 1, 2], "tokens": ["token_id:1", "token_id:3", "token_id:4"],
		"token_logprobs": [null, -0.5, -1], "top_logprobs": [null, {"token_id:3": -0.5, "token_id:5": -3}, {"token_id:6": -0.6, "token_id:5": -9999.0}]}, "finish_reason": "length",
		"token_ids": [3, 4], "prompt_token_ids": [1]}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}, "top_p": 0.9, "logprobs_mode": "processed_logprobs"}`},
	{parseOpenAI, `{"id": "b", "custom_id": "1", "response": {"status_code": 200, "body": {"choices": [{"text": "pab", "logprobs": {"tokens": ["p", "a", "b"],
		"token_logprobs": [null, -0.5, -1], "top_logprobs": [null, {"a": -0.5, "c": -3}, {"b": -1}]}, "reward": 2}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}},
		"error": null, "request": {"temperature": 0.7, "sampling_params": {"min_p": 0.1, "top_k": 40}}, "group_id": "g"}`},
}

// checkParsed checks what a parser of responses returns, whatever it was given.
func checkParsed(t *testing.T, records []*record, err error) {
	t.Helper()
	if err != nil {
		text := err.Error()
		if text == "" || printable.Line(text) != text || strings.ContainsFunc(text, unicode.IsControl) ||
			len(text) > 1000 {
			t.Fatalf("error %q", text)
		}
		return
	}
	if len(records) == 0 {
		t.Fatal("no record and no error")
	}
	for _, opt := range []Options{{Vocab: 100}, {SurprisalEntropy: true, ActionTags: [][2]string{{"a", "b"}}}} {
		for _, r := range records {
			r := *r
			T := len(r.mask)
			if len(r.OldLogprobs) != T || len(r.TokenIDs) != 0 && len(r.TokenIDs) != T || len(r.texts) != 0 &&
				len(r.texts) != T || len(r.top) != 0 && len(r.top) != T || len(r.Rewards) > 1 {
				t.Fatalf("arrays of %d, %d, %d, %d, %d and %d elements", T, len(r.OldLogprobs), len(r.TokenIDs),
					len(r.texts), len(r.top), len(r.Rewards))
			}
			if !slices.Contains(r.mask, true) {
				t.Fatal("no response tokens")
			}
			c := newCompleter(opt, false, nil)
			if err := c.complete(&r); err != nil {
				checkParsed(t, nil, err)
				continue
			}
			for i, h := range r.Entropy {
				if r.Role[i] != reweight.RoleMasked && !(h >= 0 && h < 1e4) {
					t.Fatalf("entropy[%d] is %v", i, h)
				}
			}
		}
	}
}

// What is kept of a hostile line is not much more than its text.
func TestResponsesMemory(t *testing.T) {
	for _, c := range []struct{ begin, each, end string }{
		{`{"meta_info": {"output_token_logprobs": [`, `[0,0],`, `0]}}`},
		{`{"meta_info": {"input_token_logprobs": [`, `null,`, `0]}}`},
		{`{"meta_info": {"output_top_logprobs": [[`, `0,`, `0]]}}`},
		{`{"meta_info": {"output_top_logprobs": [`, `[],`, `0]}}`},
		{`{"choices": [`, `{"logprobs":{"tokens":[]}},`, `0]}`},
		{`{"choices": [{"logprobs": {"content": [`, `{"logprob":0},`, `0]}}]}`},
		{`{"choices": [{"logprobs": {"content": [{"top_logprobs": [`, `{},`, `0]}]}}]}`},
		{`{"choices": [{"logprobs": {"tokens": [`, `"",`, `0]}}]}`},
		{`{"choices": [{"logprobs": {"token_logprobs": [`, `0,`, `""]}}]}`},
		{`{"choices": [{"logprobs": {"top_logprobs": [`, `{},`, `0]}}]}`},
		{`{"rewards": [`, `0,`, `{}]}`},
	} {
		text := c.begin + strings.Repeat(c.each, 1<<15) + c.end
		for _, parse := range []parser{parseSGLang, parseOpenAI} {
			n := allocated(func() {
				if _, err := parseText(text, parse); err == nil {
					t.Errorf("%s%s...: no error", c.begin, c.each)
				}
			})
			if limit := uint64(100 * len(text)); n > limit {
				t.Errorf("%s%s...: %d bytes made %d bytes of allocations", c.begin, c.each, len(text), n)
			}
		}
	}
}

func FuzzResponses(f *testing.F) {
	for _, seed := range responseSeeds {
		f.Add([]byte(seed.text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []parser{parseSGLang, parseOpenAI} {
			records, err := parseText(string(text), parse)
			checkParsed(t, records, err)
		}
	})
}

// replacements are what FuzzChangedResponses puts in the place of a value.
var replacements = strings.Fields(`null true 0 1 -1 3.5 -0.5 -9999.0 1e-9 0.1 -1e30 1e400 1099511627776 "" "a" "token_id:3" "token_id:-1" "NaN"
	"Infinity" "-Infinity" "\n\u202e" "\ud800" {} [] [null] [-1,3] [[-1,3,"a"]] {"token":"a","logprob":-1} {"a":-1} {"type":"abort"} {"message":"no\nway"}`)

// FuzzChangedResponses replaces values of good responses by others. Each change is of two
// bytes: which value, and by what.
func FuzzChangedResponses(f *testing.F) {
	for i := range responseSeeds {
		f.Add(uint8(i), []byte{0, 0})
		f.Add(uint8(i), []byte{9, 7, 20, 3, 31, 0})
	}
	f.Fuzz(func(t *testing.T, seed uint8, changes []byte) {
		s := responseSeeds[int(seed)%len(responseSeeds)]
		var v any
		must.Do(json.Unmarshal([]byte(s.text), &v))
		for change := range slices.Chunk(changes, 2) {
			if len(change) == 2 {
				left := int(change[0])
				v = replaceValue(v, &left, json.RawMessage(replacements[int(change[1])%len(replacements)]))
			}
		}
		text := must.Get(json.Marshal(v))
		records, err := parseText(string(text), s.parse)
		checkParsed(t, records, err)
	})
}

// replaceValue returns v with one of the values in it replaced: that before which there
// are left others. Objects are walked in the order of their names.
func replaceValue(v any, left *int, by any) any {
	if *left == 0 {
		*left--
		return by
	}
	*left--
	switch v := v.(type) {
	case list:
		for i := range v {
			if *left >= 0 {
				v[i] = replaceValue(v[i], left, by)
			}
		}
	case dict:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if *left >= 0 {
				v[name] = replaceValue(v[name], left, by)
			}
		}
	}
	return v
}
