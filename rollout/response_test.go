package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/reference"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// A lake is the FrozenLake rollouts with logits.
type lake struct {
	*reweight.Batch
	names []string // of the tokens of the vocabulary
}

// A turn is a response, and all that comes before it in its trajectory.
type turn struct{ trajectory, first, begin, end int }

func openLake(t *testing.T) (l lake, turns []turn) {
	t.Helper()
	f := must.Get(OpenFile("../testdata/large/frozenlake.safetensors"))
	t.Cleanup(func() { f.Close() })
	l.Batch = must.Get(f.Batch())
	must.Do(json.Unmarshal([]byte(f.metadata["vocab"]), &l.names))
	l.Role = slices.Clone(l.Role)
	for _, token := range rejectedTurns["../testdata/large/frozenlake.safetensors"] {
		l.Role[token] = reweight.RoleAction
	}
	for s := range l.Trajectories() {
		first, end := int(l.SeqOffsets[s]), int(l.SeqOffsets[s+1])
		for begin := first; begin < end; begin++ {
			if l.SpanIDs[begin] < 0 {
				continue
			}
			stop := begin
			for stop < end && l.SpanIDs[stop] == l.SpanIDs[begin] {
				stop++
			}
			turns = append(turns, turn{s, first, begin, stop})
			begin = stop - 1
		}
	}
	return l, turns
}

// firstTurns returns the first turn of each trajectory.
func firstTurns(turns []turn) []turn {
	return slices.CompactFunc(slices.Clone(turns), func(u, next turn) bool { return u.trajectory == next.trajectory })
}

// most returns the ids of the k most likely tokens at a position, and their
// log-probabilities: the one of the sampled token is in the file.
func (l lake) most(token, k int) (ids []int32, logprobs []float32) {
	row := make([]float64, len(l.names))
	order := make([]int32, len(row))
	for i, x := range l.OldLogits.BF16[token*len(row) : (token+1)*len(row)] {
		row[i] = float64(x.Float32())
		order[i] = int32(i)
	}
	lse := reference.LogSumExp(row)
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(row[b], row[a]), cmp.Compare(a, b))
	})
	for _, id := range order[:k] {
		ids = append(ids, id)
		logprob := float32(row[id] - lse)
		if id == l.TokenIDs[token] {
			logprob = l.OldLogprobs[token]
		}
		logprobs = append(logprobs, logprob)
	}
	return ids, logprobs
}

type (
	dict = map[string]any
	list = []any
)

// sglang returns the response to a turn, with all of the prompt if input.
func (l lake) sglang(t turn, k int, input bool) dict {
	var out, top, in list
	for token := t.begin; token < t.end; token++ {
		id := l.TokenIDs[token]
		out = append(out, list{l.OldLogprobs[token], id, l.names[id]})
		var one list
		ids, logprobs := l.most(token, k)
		for i, id := range ids {
			one = append(one, list{logprobs[i], id, l.names[id]})
		}
		top = append(top, one)
	}
	meta := dict{"output_token_logprobs": out, "output_top_logprobs": top}
	if input {
		in = append(in, list{nil, l.TokenIDs[t.first], nil})
		for token := t.first + 1; token < t.begin; token++ {
			in = append(in, list{-0.5, l.TokenIDs[token], nil})
		}
		meta["input_token_logprobs"] = in
		meta["prompt_tokens"] = len(in)
	}
	return dict{"meta_info": meta}
}

// A naming says how a server spells tokens.
type naming func(id int32) string

func (l lake) text(id int32) string { return l.names[id] }
func (l lake) idName(id int32) string {
	return fmt.Sprintf("token_id:%d", id)
}

// chatChoice returns a choice of a chat. As in vLLM, the k most likely tokens include the
// sampled one, which comes first.
func (l lake) chatChoice(t turn, k int, name naming, ids bool) dict {
	var content list
	for token := t.begin; token < t.end; token++ {
		sampled := l.TokenIDs[token]
		top := list{dict{"token": name(sampled), "logprob": l.OldLogprobs[token]}}
		most, logprobs := l.most(token, k)
		for i, id := range most {
			if id != sampled && len(top) < k {
				top = append(top, dict{"token": name(id), "logprob": logprobs[i]})
			}
		}
		content = append(content, dict{"token": name(sampled), "logprob": l.OldLogprobs[token], "top_logprobs": top})
	}
	choice := dict{"logprobs": dict{"content": content}}
	if ids {
		choice["token_ids"] = l.TokenIDs[t.begin:t.end]
	}
	return choice
}

// completionChoice returns a choice of the completions interface: of k or k+1 tokens at
// each position, and with the prompt first if echo.
func (l lake) completionChoice(t turn, k int, name naming, echo bool) dict {
	var tokens, logprobs, top, offsets list
	first := t.begin
	if echo {
		first = t.first
	}
	for token := first; token < t.end; token++ {
		sampled := l.TokenIDs[token]
		tokens = append(tokens, name(sampled))
		offsets = append(offsets, 0)
		if token < t.begin {
			if token == t.first {
				logprobs, top = append(logprobs, nil), append(top, nil)
			} else {
				logprobs, top = append(logprobs, -0.25), append(top, dict{name(sampled): -0.25})
			}
			continue
		}
		logprobs = append(logprobs, l.OldLogprobs[token])
		one := dict{name(sampled): l.OldLogprobs[token]}
		most, values := l.most(token, k)
		for i, id := range most {
			one[name(id)] = values[i]
		}
		top = append(top, one)
	}
	return dict{"logprobs": dict{"tokens": tokens, "token_logprobs": logprobs, "top_logprobs": top,
		"text_offset": offsets}}
}

func parseText(text string, parse parser) ([]*record, error) {
	var s jsonscan.Scanner
	s.Reset([]byte(text))
	return parse(&s, 7)
}

func parseValue(t *testing.T, v any, parse parser) []*record {
	t.Helper()
	text := must.Get(json.Marshal(v))
	records, err := parseText(string(text), parse)
	if err != nil {
		t.Fatalf("%v in %.300s", err, text)
	}
	return records
}

// The choices of a response are a group, and each has its reward.
func TestChoices(t *testing.T) {
	l, turns := openLake(t)
	first := firstTurns(turns)
	keys := make(map[string]int32)
	for group := range slices.Chunk(first[:64], 16) {
		id := l.GroupIDs[group[0].trajectory]
		for _, kind := range []string{"chat", "completions", "id", "prompt"} {
			var choices, rewards list
			for _, u := range group {
				choice := l.chatChoice(u, 5, l.text, true)
				if kind == "completions" {
					choice = l.completionChoice(u, 5, l.text, false)
					choice["token_ids"] = l.TokenIDs[u.begin:u.end]
				}
				choices = append(choices, choice)
				rewards = append(rewards, l.Rewards[u.trajectory])
			}
			response := dict{"choices": choices, "rewards": rewards}
			switch kind {
			case "id":
				response["id"] = fmt.Sprint("response ", id)
			case "prompt":
				response["prompt_token_ids"] = l.TokenIDs[group[0].first:group[0].begin]
			}
			records := parseValue(t, response, parseOpenAI)
			if len(records) != len(group) {
				t.Fatalf("%d records of %d choices", len(records), len(group))
			}
			records[0].takeMask()
			key := promptKey(records[0])
			if before, ok := keys[kind+key]; ok || key == "" {
				t.Fatalf("group %d has key %q, which group %d has too", id, key, before)
			}
			keys[kind+key] = id
			for i, r := range records {
				u := group[i]
				r.takeMask()
				logprobs, rewards := r.OldLogprobs[len(r.mask)-(u.end-u.begin):], l.Rewards[u.trajectory:u.trajectory+1]
				if promptKey(r) != key || !slices.Equal(logprobs, l.OldLogprobs[u.begin:u.end]) ||
					!slices.Equal(r.Rewards, rewards) {
					t.Fatalf("choice %d of group %d: %+v", i, id, r)
				}
			}
		}
	}
}

// twoOfSGLang, twoOfChat and twoOfText are the smallest responses of two tokens.
const (
	twoOfSGLang = `"output_token_logprobs": [[-0.5, 3, null], [-1, 4, null]]`
	twoOfText   = `"logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.5, -1]}`
	twoOfChat   = `"logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]}`
)

func TestResponsesRefuse(t *testing.T) {
	for _, c := range []struct {
		parse parser
		text  string
		want  string
	}{
		{parseSGLang, `{"text": "a", "meta_info": {}}`, "meta_info.output_token_logprobs is missing: ask the server for it (return_logprob=true)"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": []}}`, "the response has no tokens with log-probabilities"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [], "finish_reason": {"type": "abort", "message": "x"}}}`, "the response was aborted before its first token: remove it"},
		{parseSGLang, `{"meta_info": {"finish_reason": null, ` + twoOfSGLang + `}}`, "meta_info.finish_reason is null, so that the response has not ended: dump whole responses (stream=false), or write \"stop\" there if this one is whole"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[-9999.0, 3, null]]}}`, "meta_info.output_token_logprobs[0][0] is -9999, which stands for a log-probability that the server does not have: the trajectory cannot be used"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[-1, 3, null], [-Infinity, 3, null]]}}`, "meta_info.output_token_logprobs[1][0] is -Inf, which stands for a log-probability that the server does not have: the trajectory cannot be used"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[0.1, 3, null]]}}`, "meta_info.output_token_logprobs[0][0] is 0.1, want a log-probability, which is at most 0"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[NaN, 3, null]]}}`, "meta_info.output_token_logprobs[0][0] is null or NaN, want the log-probability of a sampled token"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[null, 3, null]]}}`, "meta_info.output_token_logprobs[0][0] is null or NaN, want the log-probability of a sampled token"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[-1, 3.5, null]]}}`, "meta_info.output_token_logprobs[0][1] is 3.5, want an integer"},
		{parseSGLang, `{"meta_info": {"output_token_logprobs": [[-1]]}}`, "meta_info.output_token_logprobs[0] has no token id that is at least 0, want [logprob, id, text]"},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `, "output_top_logprobs": [null]}}`, "meta_info has 2 output_token_logprobs, but 1 output_top_logprobs"},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `, "output_top_logprobs": [[[2, 9, null]], null]}}`, "meta_info.output_token_logprobs[0][0]: one of the most likely tokens has 2, want a log-probability, which is at most 0"},
		{parseSGLang, `{"output_ids": [3, 5], "meta_info": {` + twoOfSGLang + `}}`, "output_ids[1] is 5, but meta_info.output_token_logprobs[1] is of token 4"},
		{parseSGLang, `{"output_ids": [3, 4, 5], "meta_info": {` + twoOfSGLang + `}}`, "output_ids has 3 tokens, but meta_info has 2 output_token_logprobs"},
		{parseSGLang, `{"error": {"message": "too\nlong"}}`, `the request failed: "too\nlong": remove the line`},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `}, "rewards": [1, 2]}`, "there are 2 rewards for 1 responses, want one for each"},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `}, "reward": "high"}`, `reward is "high", want a number`},

		{parseOpenAI, `{"object": "chat.completion.chunk", "choices": []}`, "object is chat.completion.chunk, which is a chunk of a streamed response: dump whole responses (stream=false)"},
		{parseOpenAI, `{"choices": [{"delta": {}}]}`, "choices[0].delta is a part of a chunk of a streamed response: dump whole responses (stream=false)"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "finish_reason": null}]}`, "choices[0].finish_reason is null, so that the response has not ended: dump whole responses (stream=false), or write \"stop\" there if this one is whole"},
		{parseOpenAI, `{"choices": []}`, "choices is missing or empty, want the choices of a response"},
		{parseOpenAI, `{"choices": [{"message": {}, "logprobs": null}]}`, "choices[0] has no logprobs: ask the server for them (logprobs=true for a chat, logprobs=20 for completions)"},
		{parseOpenAI, `{"choices": [{"message": {"tool_calls": [{}]}, "logprobs": null}]}`, "choices[0] has tool_calls and no logprobs, which some servers leave out then: let it generate without a tool parser"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": []}}]}`, "choices[0] has no tokens with log-probabilities"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": []}, "finish_reason": "abort"}]}`, "choices[0] was aborted before its first token: remove it"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a"}]}}]}`, "choices[0].logprobs.content[0] has no logprob, or null or NaN, want the log-probability of the sampled token"},
		{parseOpenAI, `{"choices": [{"logprobs": {"refusal": [{"token": "a", "logprob": -9999}]}}]}`, "choices[0].logprobs.refusal[0].logprob is -9999, which stands for"},
		{parseOpenAI, `{"choices": [{"logprobs": {"refusal": [{"token": "a", "logprob": -1}], "content": []}}]}`, "choices[0].logprobs.content is there beside the other of content and refusal"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1, "bytes": [300]}]}}]}`, "choices[0].logprobs.content[0].bytes[0] is 300, want a byte: 0 to 255"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "token_ids": [1]}]}`, "choices[0] has 0 prompt_token_ids and 1 token_ids, but logprobs of 2 tokens"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "token_ids": [1, -2]}]}`, "choices[0] has the token id -2 at token 1, want at least 0"},
		{parseOpenAI, `{"choices": [{"token_ids": [1], "logprobs": {"content": [{"token": "token_id:2", "logprob": -1}]}}]}`, "choices[0].token_ids[0] is 1, but logprobs has the token 2 there"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1, -2]}}]}`, "choices[0].logprobs has 1 tokens, but 2 token_logprobs"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{}, {}]}}]}`, "choices[0].logprobs has 1 tokens, but 2 top_logprobs"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [null, -2]}}]}`, "choices[0].logprobs begins with the prompt (echo), and nothing says how long that is: ask the server for return_token_ids"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [null, -9999]}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}`, "choices[0].logprobs.token_logprobs[1] is -9999, which stands for"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [null, -1]}, "token_ids": [1], "prompt_token_ids": [1, 2]}]}`, "choices[0] has 2 prompt_token_ids and 1 token_ids, but logprobs of 2 tokens"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}, {` + twoOfChat + `}], "reward": 1}`, "there are 1 rewards for 2 responses, want one for each"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}, {` + twoOfChat + `}], "trajectory_id": "a"}`, "trajectory_id is a, but there are 2 responses, and a turn of a trajectory has one"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "reward": [1, 2]}]}`, "choices[0]: there are 2 rewards for 1 responses, want one for each"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "reward": 1, "rewards": [2]}]}`, "choices[0].rewards is there beside the other of reward and rewards, want one of them"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1}], "thinking": [{"token": "a", "logprob": -1}]}}]}`, "choices[0].logprobs.thinking has tokens, in a place that is not known: want all tokens in content, in their order"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tool_calls": [{"f": [[{"token": "a", "logprob": 0}]]}], "content": [{"token": "a", "logprob": -1}]}}]}`, "choices[0].logprobs.tool_calls has tokens"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1}], "tokens": ["a"], "token_logprobs": [-1]}}]}`, "choices[0].logprobs has tokens, and content too, want all tokens in one place"},
		{parseOpenAI, `{"choices": [{"logprobs": {"reasoning_content": [{"token": "a", "logprob": -1}], "tokens": ["a"]}}]}`, "choices[0].logprobs has tokens, and reasoning_content too"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": 1}], "reasoning_content": [{"token": "b", "logprob": -1}]}}]}`, "choices[0].logprobs.content[0].logprob is 1, want"},
		{parseOpenAI, `{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": -1}], "reasoning_content": [{"token": "b", "logprob": 1}]}}]}`, "choices[0].logprobs.reasoning_content[0].logprob is 1, want"},
		{parseOpenAI, `{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-1]}}], "request": {"echo": true}}`, "choices[0].logprobs: the request has echo, but the first token has a log-probability"},
		{parseOpenAI, `{"error": {"message": "The model does not exist.", "code": 404}}`, "the request failed: The model does not exist.: remove the line"},
		{parseOpenAI, `{"custom_id": "a", "response": null, "error": {"code": "expired", "message": "Late."}}`, "the request failed: Late.: remove the line"},
		{parseOpenAI, `{"custom_id": "a", "response": {"status_code": 400, "body": {"error": {"message": "Bad."}}}, "error": null}`, "the request failed: Bad.: remove the line"},
		{parseOpenAI, `{"error": "` + strings.Repeat("x", 300) + `"}`, "the request failed: " + strings.Repeat("x", 200) + "...: remove the line"},
	} {
		_, err := parseText(c.text, c.parse)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s:\nerror %v\nwant  %s", c.text, err, c.want)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%s: the error has several lines: %q", c.text, err)
		}
	}
}

func TestResponsesWarn(t *testing.T) {
	for _, c := range []struct {
		parse parser
		text  string
		want  string // the beginning of the only warning, or empty
	}{
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `}}`, ""},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `, "finish_reason": {"type": "abort"}}}`, "The server aborted some of the responses"},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `}, "sampling_params": {"temperature": 0.7, "top_p": 1}}`, "The temperature is not 1 in some requests"},
		{parseSGLang, `{"meta_info": {` + twoOfSGLang + `, "output_top_logprobs": [[[-1, 9, null], [-9999.0, 8, null]], null]}}`, "Some of the most likely tokens have log-probabilities of -9999"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "top_p": 0.9}`, "The top_p is not 1 in some requests"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "request": {"top_p": null, "top_k": 40, "min_p": 0}}`, "The top_k is above 0 in some requests"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "min_p": 0.1}`, "The min_p is not 0 in some requests"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "logprobs_mode": "processed_logprobs"}`, "The logprobs_mode of some requests is not raw_logprobs"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "logprobs_mode": "raw_logprobs", "temperature": 1, "top_k": -1}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}], "request": {"body": {"top_p": 0.5}}}`, "The top_p is not 1 in some requests"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `}, {` + twoOfChat + `}]}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "raw_output": {"completion_logprobs": {"content": [{"token": "a", "logprob": -1}]}}}]}`, "Some responses have tokens with log-probabilities outside"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "message": {"tool_calls": [{"logprobs": [{"token": "a", "logprob": -1}]}]}}]}`, "Some responses have tokens with log-probabilities outside"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "message": {"thinking": [[{"token": "a", "logprob": -1}]]}}]}`, "Some responses have tokens with log-probabilities outside"},
		{parseOpenAI, `{"choices": [{` + twoOfChat + `, "message": {"logprob": -1, "x": [{"token": "a", "logprob": null}]}, "prompt_logprobs": [null, {"2": {"logprob": -1}}]}]}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfText + `}, {` + twoOfText + `}]}`, "Some responses have several choices, and nothing says of which prompts they are"},
		{parseOpenAI, `{"choices": [{` + twoOfText + `}]}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfText + `}, {` + twoOfText + `}], "group_id": 1}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfText + `, "group_id": 1}, {` + twoOfText + `, "group_id": 2}]}`, ""},
		{parseOpenAI, `{"choices": [{` + twoOfText + `}, {` + twoOfText + `}], "prompt": "a"}`, ""},
	} {
		records, err := parseText(c.text, c.parse)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got := records[0].warnings
		if c.want == "" && len(got) != 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: warnings %q, want %q", c.text, got, c.want)
		}
	}
}

// What no array takes is listed, once for all choices.
func TestDroppedFieldsOfResponses(t *testing.T) {
	for i, want := range [][]string{
		{"meta_info.completion_tokens", "meta_info.finish_reason.matched", "meta_info.id", "meta_info.output_top_logprobs[2]", "text"},
		{"choices.message", "model", "prompt_logprobs"},
		{"choices.logprobs.text_offset", "choices.text"},
		{"choices.text", "custom_id", "response.status_code"},
	} {
		seed := responseSeeds[i]
		records, err := parseText(seed.text, seed.parse)
		if err != nil {
			t.Errorf("%s: %v", seed.text, err)
			continue
		}
		var got []string
		for _, r := range records {
			got = append(got, r.dropped...)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: dropped %q, want %q", seed.text, got, want)
		}
	}
}

// The sampled token is one of the most likely tokens if both the token and its
// log-probability are.
func TestIsThere(t *testing.T) {
	named := tokens{names: []string{"a"}, ids: []int32{3}, logprobs: []float32{-1}}
	numbered := tokens{ids: []int32{3}, logprobs: []float32{-1}}
	for _, c := range []struct {
		t    tokens
		k    known
		want bool
	}{
		{named, known{name: "a", logprob: -1.0005}, true}, {named, known{name: "a", logprob: -2}, false}, {named, known{name: "b", logprob: -1}, false},
		{numbered, known{id: 3, logprob: -1}, true}, {numbered, known{id: 3, logprob: -2}, false}, {numbered, known{id: 4, logprob: -1}, false},
	} {
		if got := c.t.isThere(c.k, 0); got != c.want {
			t.Errorf("%+v in %+v: %v", c.k, c.t, got)
		}
	}
}

// Two tokens of the same text have one place in an object. Where candidates are fewer than
// elsewhere, none of those given limits what the lost one has. Ids as names are not lost.
func TestLostCandidates(t *testing.T) {
	for _, c := range []struct {
		prefix string
		extra  []bool
	}{{"t", []bool{true, true}}, {"token_id:", []bool{true, false}}} {
		text := strings.ReplaceAll(`{"choices": [{"logprobs": {"tokens": ["@1", "@1"], "token_logprobs": [-1, -3],
			"top_logprobs": [{"@1": -1, "@2": -2, "@3": -3}, {"@1": -3, "@2": -2}]}}]}`, "@", c.prefix)
		records := must.Get(parseText(text, parseOpenAI))
		top := records[0].top
		var extra []bool
		for _, one := range top[1] {
			extra = append(extra, one.extra)
		}
		if !slices.Equal(extra, c.extra) || len(top[0]) != 3 || likely(top[0]) != 3 {
			t.Errorf("%s: candidates %+v", text, top)
		}
	}
}

// The tokens of reasoning_content come before the others, and none of them is an action.
func TestReasoningContent(t *testing.T) {
	token := func(text string, logprob float64) dict {
		return dict{"token": text, "logprob": logprob, "top_logprobs": list{dict{"token": "x", "logprob": -2}}}
	}
	think := list{token("<a>", -1), token("up", -2), token("</a>", -3)}
	say := list{token("<a>", -4), token("down", -5), token("</a>", -6)}
	opt := Options{ActionTags: [][2]string{{"<a>", "</a>"}}}
	ids := Options{ActionOpen: []int32{1}, ActionClose: []int32{3}}
	for _, c := range []struct {
		logprobs dict
		opt      Options
		logprob  []float32
		role     []reweight.Role
	}{
		{dict{"content": say, "reasoning_content": think}, opt, []float32{-1, -2, -3, -4, -5, -6}, []reweight.Role{1, 1, 1, 1, 2, 1}},
		{dict{"content": say, "reasoning_content": think}, ids, []float32{-1, -2, -3, -4, -5, -6}, []reweight.Role{1, 1, 1, 1, 2, 1}},
		{dict{"refusal": say, "content": nil, "reasoning_content": think}, opt, []float32{-1, -2, -3, -4, -5, -6}, []reweight.Role{1, 1, 1, 1, 2, 1}},
		{dict{"content": say, "reasoning_content": nil}, opt, []float32{-4, -5, -6}, []reweight.Role{1, 2, 1}},
		{dict{"content": say, "reasoning_content": list{}}, opt, []float32{-4, -5, -6}, []reweight.Role{1, 2, 1}},
		{dict{"content": nil, "reasoning_content": think}, opt, []float32{-1, -2, -3}, []reweight.Role{1, 1, 1}},
		{dict{"reasoning_content": think}, opt, []float32{-1, -2, -3}, []reweight.Role{1, 1, 1}},
		{dict{"content": slices.Concat(think, say)}, opt, []float32{-1, -2, -3, -4, -5, -6}, []reweight.Role{1, 2, 1, 1, 2, 1}},
	} {
		n := len(c.logprob)
		choice := dict{"logprobs": c.logprobs, "token_ids": []int{1, 2, 3, 1, 2, 3}[:n]}
		one := dict{"choices": list{choice, choice}, "prompt_token_ids": list{7, 8}}
		for _, r := range parseValue(t, one, parseOpenAI) {
			r.takeMask()
			deriveSpans(r)
			must.Get(markActions(r, &c.opt))
			if !slices.Equal(r.OldLogprobs[2:], c.logprob) || !slices.Equal(r.Role[2:], c.role) || len(r.top) != n+2 ||
				len(r.texts) != n+2 || len(r.TokenIDs) != n+2 {
				t.Errorf("%v: log-probabilities %v, roles %v, want %v, %v", c.logprobs, r.OldLogprobs, r.Role,
					c.logprob, c.role)
			}
		}
	}
}

// A response of the completions interface can answer several prompts: of each there are n
// choices, in a row by their index.
func TestPrompts(t *testing.T) {
	choices := func(more ...string) string {
		var all []string
		for _, fields := range more {
			all = append(all, `{`+twoOfText+fields+`}`)
		}
		return `"choices": [` + strings.Join(all, ",") + `]`
	}
	four := choices("", "", "", "")
	for _, c := range []struct {
		text string
		want string // a letter for each group, or an error
	}{
		{`{` + four + `, "request": {"prompt": ["a", "b"], "n": 2}}`, "AABB"},
		{`{` + four + `, "request": {"prompt": ["a", "b"]}}`, "AABB"},
		{`{` + four + `, "prompt": ["a", "b"], "n": 2, "best_of": 4}`, "AABB"},
		{`{"request": {"body": {"prompt": ["a", "b"], "n": 2}}, ` + four + `}`, "AABB"},
		{`{` + four + `, "request": {"prompt": [[1, 2], [3]], "n": 2}}`, "AABB"},
		{`{` + four + `, "request": {"prompt": [[1, 2], "b"], "n": 2}}`, "AABB"},
		{`{` + four + `, "request": {"prompt": ["a", "b", "c", "d"], "n": 1, "echo": false}}`, "ABCD"},
		{`{` + four + `, "request": {"prompt": ["a", "b", "a", ""]}}`, "ABAC"},
		{`{` + four + `, "request": {"prompt": ["a", "a", "a", "a"]}, "group_id": 5}`, "AAAA"},
		{`{` + four + `, "request": {"prompt": ["a"], "n": 4}}`, "AAAA"},
		{`{` + four + `, "prompt": ["a", "b"], "request": {"prompt": ["a", "b"], "n": 2.0}}`, "AABB"},
		{`{` + four + `, "prompt": [[1, 2], "b"], "request": {"prompt": [[1, 2], "b"]}}`, "AABB"},
		{`{` + four + `, "prompt": ["a", "b"], "request": {"prompt": null}, "n": "of row 7", "echo": "no"}`, "AABB"},
		{`{` + four + `, "request": {"prompt": "a", "n": 8}}`, "AAAA"},
		{`{` + four + `, "request": {"prompt": [1, 2, 3, 4], "n": 4}}`, "AAAA"},
		{`{` + four + `}`, "AAAA"},
		{`{` + choices(`,"index":3`, `,"index":0`, `,"index":2`, `,"index":1`) + `, "request": {"prompt": ["a", "b"], "n": 2}}`, "ABAB"},
		{`{` + choices(`,"prompt_token_ids":[1]`, `,"prompt_token_ids":[1]`, `,"prompt_token_ids":[2]`, `,"prompt_token_ids":[2]`) + `, "request": {"prompt": ["a", "b"]}}`, "AABB"},
		{`{` + choices(`,"group_id":1`, `,"group_id":1.0`, `,"group_id":2`, `,"group_id":2`) + `, "request": {"prompt": ["a", "b"]}}`, "AABB"},
		{`{"custom_id": "x", "response": {"body": {` + four + `}}, "request": {"prompt": ["a", "b"]}}`, "AABB"},
		{`{` + four + `, "request": {"prompt": ["a", "b", "c"]}}`, "there are 4 choices for the 3 prompts of the request, whose n is 1"},
		{`{` + four + `, "request": {"prompt": ["a", "b"], "n": 2.5}}`, "there are 4 choices for the 2 prompts of the request, whose n is 2.5"},
		{`{` + four + `, "prompt": ["a", "b"], "request": {"prompt": ["a", "c"]}}`, "request.prompt is not the other prompt of the line, want one of them"},
		{`{` + four + `, "prompt": [[1], [2]], "request": {"prompt": [[1], [3]]}}`, "request.prompt is not the other prompt of the line, want one of them"},
		{`{` + four + `, "request": {"prompt": ["a", "b"], "n": 4}}`, "there are 4 choices for the 2 prompts of the request, whose n is 4"},
		{`{` + four + `, "request": {"prompt": ["a", "b"]}, "group_id": 5}`, "group_id is 5, but the request has several prompts: want a group_id in each choice, or none"},
		{`{` + four + `, "request": {"prompt": ["a", "b"]}, "prompt_token_ids": [1]}`, "prompt_token_ids, or prompt_text, is of one prompt, but the request has several"},
		{`{` + four + `, "request": {"prompt": ["a", "b"]}, "prompt": "a"}`, "prompt is not the other prompt of the line"},
		{`{` + four + `, "request": {"prompt": ["a", "b\ud800"]}}`, `request.prompt[1] is "b\ud800", want a text`},
		{`{` + choices(`,"prompt_token_ids":[9]`, "", "", "") + `, "prompt": [[1], [2]]}`, "choices[0]: prompt_token_ids are not the ids of the request's prompt"},
		{`{` + choices("", `,"index":0`, `,"index":2`, `,"index":1`) + `, "request": {"prompt": ["a", "b"]}}`, "choices[0].index is -1, or missing, want each of 0 to 3 once"},
		{`{` + choices(`,"index":0`, `,"index":0`) + `, "request": {"prompt": ["a", "b"]}}`, "choices[1].index is 0, or missing, want each of 0 to 1 once"},
		{`{"choices": [{` + twoOfChat + `}, {` + twoOfChat + `}], "request": {"prompt": ["a", "b"]}}`, "AA"},
		{`{` + four + `, "prompt": [{"role": "user", "content": "a"}]}`, "AAAA"},
	} {
		records, err := parseText(c.text, parseOpenAI)
		if err != nil {
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s:\nerror %v\nwant  %s", c.text, err, c.want)
			}
			continue
		}
		letters, groups := make(map[string]rune), ""
		for _, r := range records {
			r.takeMask()
			key := cmp.Or(r.group, promptKey(r))
			if letters[key] == 0 {
				letters[key] = 'A' + rune(len(letters))
			}
			groups += string(letters[key])
		}
		if groups != c.want {
			t.Errorf("%s: groups %s, want %s", c.text, groups, c.want)
		}
	}
}

// What is in no array is listed, at every depth of every format, unless it is null.
func TestNothingDroppedSilently(t *testing.T) {
	const known = `{"index": 0, "finish_reason": {"type": "stop", "x": null}, "logprobs": {"content": [{"token": "a", "logprob": -1, "x": null, "top_logprobs": [{"token": "b", "logprob": -2}]}]}}`
	for _, c := range []struct {
		parse     parser
		text, old string
		want      []string // with "x": 1 behind each old
	}{
		{parseOpenAI, `{"choices": [` + known + `, ` + known + `], "usage": {"prompt_tokens": 1}, "request": {"sampling_params": {"top_p": 1}, "extra_body": {"n": 1}}}`, "{", []string{
			"choices.finish_reason.y", "choices.logprobs.content.top_logprobs.y", "choices.logprobs.content.y", "choices.logprobs.y", "choices.y",
			"request.extra_body.y", "request.sampling_params.y", "request.y", "usage.y", "y",
		}},
		{parseOpenAI, `{"response": {"body": {"choices": [` + known + `], "usage": {"prompt_tokens": 1}}}}`,
			"{", []string{
				"choices.finish_reason.y", "choices.logprobs.content.top_logprobs.y", "choices.logprobs.content.y", "choices.logprobs.y", "choices.y",
				"response.body.usage.y", "response.body.y", "response.y", "y",
			}},
		{parseSGLang, `{"meta_info": {"finish_reason": {"type": "stop"}, ` + twoOfSGLang +
			`}, "sampling_params": {"top_p": 1}}`, "{", []string{
			"meta_info.finish_reason.y", "meta_info.y", "sampling_params.y", "y",
		}},
		{parseJSONL, `{"role": [0, 1]}`, "{", []string{"y"}},
		{parseNeMoRL, `{"token_ids": [[1]], "token_loss_mask": [[1]], "input_lengths": [1]}`, "{", []string{"y"}},
		{parsePrimeRL, `{"token_ids": [1], "loss_mask": [1], "inference_logprobs": [0]}`, "{", []string{"y"}},
	} {
		records, err := parseText(strings.ReplaceAll(c.text, c.old, c.old+`"y": 1, `), c.parse)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var got []string
		for _, r := range records {
			got = append(got, r.dropped...)
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: dropped %q, want %q", c.text, got, c.want)
		}
	}
	records := must.Get(parseText(`{"meta_info": {"output_token_logprobs": [[-1, 3, "a", 5], [-1, 3, "a", 5]], "output_top_logprobs": [[[-1, 3, "a", 5, null]], null]}}`, parseSGLang))
	if want := []string{"meta_info.output_token_logprobs[3]", "meta_info.output_top_logprobs[2]",
		"meta_info.output_top_logprobs[3]"}; !slices.Equal(records[0].dropped, want) {
		t.Errorf("dropped %q, want %q", records[0].dropped, want)
	}
}
