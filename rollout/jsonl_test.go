package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

// parseLine returns the one record of a line.
func parseLine(parse parser, line string) (*record, error) {
	r := newLines(strings.NewReader(line), "f", parse)
	rec, err := r.next()
	if err != nil {
		return nil, err
	}
	if _, err := r.next(); err != io.EOF {
		return nil, fmt.Errorf("then %w", err)
	}
	return rec, nil
}

// drawFloats returns n float32 of any bits, some of them special.
func drawFloats(t *rapid.T, name string, n int) []float32 {
	bits := rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{
		0, 1 << 31, 1, 0x807fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f7fffff, 0x00800000,
	}))
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(bits.Draw(t, name))
	}
	return x
}

// sameFloats reports whether two arrays are equal to the bit, but for the bits of NaNs.
func sameFloats(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// sameArray is sameFloats for arrays of any type.
func sameArray(a, b reweight.Array) bool {
	if x, ok := a.Data.(*[]float32); ok {
		return sameFloats(*x, *b.Data.(*[]float32))
	}
	return a.Len() == 0 && b.Len() == 0 || reflect.DeepEqual(a.Data, b.Data)
}

// What WriteJSONL writes is what is read, to the bit.
func TestJSONLRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "tokens")
		want := Trajectory{Group: rapid.String().Draw(t, "group")}
		want.SeqOffsets = []int64{0, int64(n)}
		for range n {
			want.Role = append(want.Role, reweight.Role(rapid.IntRange(0, 2).Draw(t, "role")))
		}
		spans := 0
		if rapid.Bool().Draw(t, "spans") {
			r := &record{Batch: want.Batch}
			deriveSpans(r)
			want.SpanIDs, spans = r.SpanIDs, int(countSpans(r.SpanIDs))
		}
		for _, a := range want.Arrays() {
			if !rapid.Bool().Draw(t, a.Name) {
				continue
			}
			switch data := a.Data.(type) {
			case *[]float32:
				switch a.Per {
				case reweight.PerToken:
					*data = drawFloats(t, a.Name, n)
				case reweight.PerSpan:
					*data = drawFloats(t, a.Name, spans)
				case reweight.PerPart:
					*data = rapid.SliceOfN(rapid.Float32(), 1, 3).Draw(t, a.Name)
				default:
					*data = []float32{rapid.Float32().Draw(t, a.Name)}
				}
			case *[]int32:
				switch a.Field {
				case "TokenIDs":
					*data = rapid.SliceOfN(rapid.Int32(), n, n).Draw(t, a.Name)
				case "Anchors":
					*data = rapid.SliceOfN(rapid.Int32(), spans, spans).Draw(t, a.Name)
				}
			}
		}
		if rapid.Bool().Draw(t, "texts") {
			want.Texts = rapid.SliceOfN(rapid.String(), n, n).Draw(t, "texts")
		}
		var line bytes.Buffer
		must.Do(WriteJSONL(&line, &want))
		got, err := parseLine(parseJSONL, line.String())
		if err != nil {
			t.Fatalf("%s: %v", &line, err)
		}
		if got.group != want.Group || len(got.dropped) != 0 || !slices.Equal(got.texts, want.Texts) {
			t.Fatalf("%s: %q, %q, %q", &line, got.group, got.dropped, got.texts)
		}
		wanted := want.Arrays()
		for i, a := range got.Arrays() {
			if a.Per != reweight.PerBoundary && !sameArray(a, wanted[i]) {
				t.Errorf("%s is %v, in\n%s", a.Name, reflect.ValueOf(a.Data).Elem(), &line)
			}
		}
	})
}

func TestWriteJSONL(t *testing.T) {
	tr := Trajectory{Batch: reweight.Batch{
		Role: []reweight.Role{0, 1, 2}, SeqOffsets: []int64{0, 3}, GroupIDs: []int32{4}, Rewards: []float32{0.5},
		SpanIDs: []int32{-1, 0, 0}, Logprobs: []float32{float32(math.NaN()), -0.1, float32(math.Inf(-1))},
	}}
	for _, c := range []struct {
		change func(*Trajectory)
		want   string // the line or the error
	}{
		{func(*Trajectory) {}, `{"role":[0,1,2],"group_id":4,"reward":0.5,"span_ids":[-1,0,0],"logprobs":["NaN",-0.1,"-Infinity"]}` + "\n"},
		{func(t *Trajectory) { t.Group, t.Texts = "a\"b", []string{"x", "\n", "y"} },
			`{"role":[0,1,2],"reward":0.5,"span_ids":[-1,0,0],"logprobs":["NaN",-0.1,"-Infinity"],"group_id":"a\"b","texts":["x","\n","y"]}` + "\n"},
		{func(t *Trajectory) { t.Group, t.LocalGroup, t.Logprobs = "a.jsonl: group 4", true, nil },
			`{"role":[0,1,2],"group_id":4,"reward":0.5,"span_ids":[-1,0,0]}` + "\n"},
		{func(t *Trajectory) { t.Batch = reweight.Batch{SeqOffsets: []int64{0, 0}} }, `{"role":[]}` + "\n"},
		{func(t *Trajectory) { t.SeqOffsets = []int64{0, 1, 3} }, "seq_offsets is of 2 trajectories, want 1"},
		{func(t *Trajectory) { t.SeqOffsets = nil }, "seq_offsets is of 0 trajectories, want 1"},
		{func(t *Trajectory) { t.Entropy = []float32{1} }, "entropy has 1 elements, want 3, one per token"},
		{func(t *Trajectory) { t.Texts = []string{"x"} }, "texts has 1 elements, want 3, one per token"},
		{func(t *Trajectory) { t.OldLogits = reweight.Logits{Vocab: 1, F32: []float32{0, 0, 0}} }, "old_logits cannot be written as JSON: use safetensors"},
	} {
		x := tr
		c.change(&x)
		var line bytes.Buffer
		err := WriteJSONL(&line, &x)
		if err != nil && line.Len() > 0 {
			t.Errorf("%v after %q", err, &line)
		}
		if got := line.String(); got != c.want && fmt.Sprint(err) != c.want {
			t.Errorf("%s%v, want\n%s", got, err, c.want)
		}
	}
	failed := errors.New("the disk is full")
	if err := WriteJSONL(writerFunc(func([]byte) (int, error) { return 0, failed }), &tr); err != failed {
		t.Errorf("%v, want %v", err, failed)
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

func TestParseLine(t *testing.T) {
	const (
		nemo  = `"input_lengths":[2],"token_ids":[[7,8,0]],"token_loss_mask":[[0,1,0]]`
		prime = `"token_ids":[7,8,9],"loss_mask":[false,true,true]`
		root  = `{"token_ids":[7],"mask":[false],"message":{"content":"?"}}`
		said  = `{"parent":0,"token_ids":[8,9],"mask":[true,true],"logprobs":[-1,-2]`
	)
	for _, c := range []struct {
		name  string
		parse parser
		line  string
		want  string // of the record, or the error
	}{
		{"all", parseJSONL, `{"mask":[0,1],"reward":1,"group_id":12,"trajectory_id":"a","entropy":null,"more":{},"seq_offsets":[0,2]}`, "mask=[false true] reward=[1] group=12 trajectory=a dropped=[more]"},
		{"role", parseJSONL, `{"role":[0,3]}`, "f:1: role[1] is 3, want a role: 0, 1 or 2"},
		{"role text", parseJSONL, `{"role":"user"}`, `f:1: role is "user", want an array`},
		{"many", parseJSONL, `{"role":[0,1],"seq_offsets":[0,1,2]}`, "f:1: seq_offsets has 3 elements, want 2, for the one trajectory of a line"},
		{"offsets", parseJSONL, `{"role":[0,1],"seq_offsets":[0,1]}`, "f:1: seq_offsets is [0 1], want [0 2], the one trajectory of a line"},
		{"groups", parseJSONL, `{"role":[0,1],"group_ids":[0]}`, "f:1: group_ids is of many trajectories: want group_id, of the one of a line"},
		{"rewards", parseJSONL, `{"role":[0,1],"rewards":[0,1]}`, "f:1: there are 2 rewards for 1 responses, want one for each"},
		{"logits", parseJSONL, `{"role":[0,1],"old_logits":[[1],[2]]}`, "f:1: old_logits cannot be read from JSON: use safetensors"},
		{"element", parseJSONL, "\n{\"role\":[0,1],\n\"entropy\":[0,{}]}", "f:3: entropy[1] is an object, want a number"},

		{"padding", parseNeMoRL, `{` + nemo + `,"idx":0,"rewards":[0.5],"advantages":[[1,2,3]],"prev_logprobs":[[0,-1,0]],"generation_logprobs":[[0,-2,0]]}`,
			"ids=[7 8] mask=[false true] reward=[0.5] old=[0 -1] rollout=[0 -2] advantages=[1 2] dropped=[idx]"},
		{"placeholders", parseNeMoRL, `{` + nemo + `,"prev_logprobs":[[0,0,0]],"generation_logprobs":[[0,-2,0]]}`,
			"ids=[7 8] mask=[false true] old=[0 -2] rollout=[0 -2] dropped=[prev_logprobs] warnings=1"},
		{"no prev", parseNeMoRL, `{` + nemo + `,"generation_logprobs":[[0,-2,0]]}`, "ids=[7 8] mask=[false true] old=[0 -2] rollout=[0 -2]"},
		{"filtered", parseNeMoRL, `{` + nemo + `,"rewards":[],"filtered_rewards":[0.25]}`, "ids=[7 8] mask=[false true] reward=[0.25] dropped=[rewards]"},
		{"sample mask", parseNeMoRL, `{` + nemo + `,"sample_loss_mask":[0.0],"rewards":[1]}`, "ids=[7 8] mask=[false false] reward=[1] warnings=1"},
		{"half a sample", parseNeMoRL, `{` + nemo + `,"sample_loss_mask":[0.5]}`, "ids=[7 8] mask=[false true] warnings=1"},
		{"added", parseNeMoRL, `{` + nemo + `,"rewards":[1],"reward":2,"group_id":"g","trajectory_id":3}`, "ids=[7 8] mask=[false true] reward=[2] group=g trajectory=3 dropped=[rewards]"},
		{"two samples", parseNeMoRL, `{"input_lengths":[2,2]}`, "f:1: input_lengths has 2 elements, want 1, as in a batch of one sample"},
		{"two rewards", parseNeMoRL, `{` + nemo + `,"rewards":[1,2]}`, "f:1: rewards has 2 elements, want 1, as in a batch of one sample"},
		{"flat", parseNeMoRL, `{"input_lengths":[2],"token_ids":[7,8]}`, "f:1: token_ids[0] is 7, want an array"},
		{"short", parseNeMoRL, `{"input_lengths":[3],"token_ids":[[7,8]]}`, "f:1: token_ids[0] has 2 elements, want at least the 3 of input_lengths"},
		{"length", parseNeMoRL, `{"input_lengths":[-1]}`, "f:1: input_lengths is missing or below 0"},
		{"no length", parseNeMoRL, `{"token_ids":[[7,8]]}`, "f:1: input_lengths is missing or below 0"},
		{"element", parseNeMoRL, `{"input_lengths":[1],"advantages":[[null]]}`, "f:1: advantages[0][0] is null, want a number"},

		{"sequence", parsePrimeRL, `{` + prime + `,"inference_logprobs":[null,-1,-2],"trainer_logprobs":[0,-3,-4],"entropy":[1,2,3],"advantages":[0,1,1],"rl_weights":[null,null,null],"step":1,"env_name":"x"}`,
			"ids=[7 8 9] mask=[false true true] old=[NaN -1 -2] logprobs=[0 -3 -4] entropy=[1 2 3] advantages=[0 1 1] dropped=[env_name step]"},
		{"weights", parsePrimeRL, `{` + prime + `,"rl_weights":[0,0,0.5],"reward":1,"group_id":"g"}`, "ids=[7 8 9] mask=[false false true] reward=[1] group=g warnings=2"},
		{"null", parsePrimeRL, `{` + prime + `,"entropy":[0,1,null]}`, "f:1: entropy[2] is null at a token that counts: the trainer's number was not finite"},
		{"null that does not count", parsePrimeRL, `{` + prime + `,"rl_weights":[1,0,1],"entropy":[0,null,1]}`, "ids=[7 8 9] mask=[false false true] entropy=[0 NaN 1] warnings=1"},
		{"lengths", parsePrimeRL, `{` + prime + `,"entropy":[0,1]}`, "f:1: entropy has 2 elements, but loss_mask 3"},
		{"weights' length", parsePrimeRL, `{` + prime + `,"rl_weights":[0,1]}`, "f:1: rl_weights has 2 elements, but loss_mask 3"},
		{"no mask", parsePrimeRL, `{"token_ids":[1]}`, "f:1: loss_mask is missing"},

		{"trace", parseVerifiers, `{"id":"t","ok":true,"task":{"key":"k"},"agent":{"name":"a"},"rewards":{"x":{"score":2,"weight":0.25},"y":null,"z":{"score":1}},"nodes":[` + root + `,` + said + `}],"timing":{}}`,
			"ids=[7 8 9] mask=[false true true] reward=[1.5] group=k/a trajectory=t old=[0 -1 -2] dropped=[timing]"},
		{"all of a trace", parseVerifiers, `{"traces":[{"nodes":[` + root + `,` + said + `,"trainer_logprobs":[-3,-4],"entropies":[1,2],"advantages":[0.5,1]}]}],"group":{"id":9}}`,
			"ids=[7 8 9] mask=[false true true] reward=[0] group=9/ old=[0 -1 -2] logprobs=[0 -3 -4] entropy=[0 1 2] advantages=[0 0.5 1]"},
		{"no task", parseVerifiers,
			`{"traces":[{"nodes":[` + root + `,` + said + `}]}],"reward":1,"trajectory_id":"x"}`,
			"ids=[7 8 9] mask=[false true true] reward=[1] trajectory=x old=[0 -1 -2]"},
		{"group beside a trace", parseVerifiers,
			`{"traces":[{"nodes":[` + root + `,` + said + `}]}],"task":{"hash":"h"},"group_id":"g"}`,
			"ids=[7 8 9] mask=[false true true] reward=[0] group=g old=[0 -1 -2]"},
		{"not everywhere", parseVerifiers, `{"traces":[{"nodes":[` + root + `,` + said + `,"entropies":[1,2],"advantages":[1,1]},{"parent":1,"token_ids":[3],"mask":[true],"logprobs":[-5]}]}]}`,
			"ids=[7 8 9 3] mask=[false true true true] reward=[0] old=[0 -1 -2 -5] advantages=[0 1 1 0] warnings=1"},
		{"abandoned", parseVerifiers, `{"nodes":[` + root + `,` + said + `},{"parent":1,"token_ids":[3],"mask":[true],"logprobs":[-5],"semantic_parents":[{"node":1,"type":"compaction_attempt"}]},{"parent":1,"token_ids":[4],"mask":[true],"logprobs":[-6]}]}`,
			"ids=[7 8 9 4] mask=[false true true true] reward=[0] old=[0 -1 -2 -6]"},
		{"failed", parseVerifiers, `{"traces":[{"ok":false,"nodes":[` + root + `,` + said + `}]}]}`, "EOF"},
		{"frozen", parseVerifiers, `{"traces":[{"agent":{"trainable":false},"nodes":[` + root + `,` + said + `}]}]}`, "EOF"},
		{"no tokens", parseVerifiers, `{"traces":[{"nodes":[{"message":{}}]}]}`, "EOF"},
		{"parent", parseVerifiers, `{"traces":[{"nodes":[` + root + `,{"parent":1}]}]}`, "f:1: traces[0].nodes[1].parent is 1, want one of the nodes before"},
		{"parent below", parseVerifiers, `{"nodes":[{"parent":-2}]}`, "f:1: nodes[0].parent is -2, want one of the nodes before"},
		{"mask's length", parseVerifiers, `{"nodes":[{"token_ids":[1,2],"mask":[true]}]}`, "f:1: nodes[0].token_ids has 2 elements, but mask 1"},
		{"logprobs' length", parseVerifiers, `{"nodes":[{"token_ids":[1,2],"mask":[true,false],"logprobs":[-1,-1]}]}`, "f:1: nodes[0].logprobs has 2 elements, but 1 tokens of mask were sampled"},
		{"advantages' length", parseVerifiers, `{"traces":[{"nodes":[{"token_ids":[1,2],"mask":[true,true],"advantages":[1]}]}]}`, "f:1: traces[0].nodes[0].advantages has 1 elements, but 2 tokens of mask were sampled"},
		{"null at a token", parseVerifiers, `{"nodes":[` + root + `,` + said + `,"entropies":[1,null]}]}`, "f:1: nodes[1].entropies[1] is null: the trainer's number was not finite"},
		{"a score", parseVerifiers, `{"rewards":{"x":{"score":"high"}}}`, `f:1: rewards.x.score is "high", want a number`},
		{"a reward of two traces", parseVerifiers, `{"traces":[{"nodes":[` + root + `,` + said + `}]},{"nodes":[` + root + `,` + said + `}]}],"reward":1}`, "f:1: there are 1 rewards for 2 responses, want one for each"},

		{"added to a chat", parseOpenAI, `{"choices":[{` + twoOfChat +
			`}],"rewards":[0.25],"group_id":"12","trajectory_id":"x/1"}`,
			"mask=[true true] reward=[0.25] group=12 trajectory=x/1 old=[-0.5 -1]"},
		{"added to a choice", parseOpenAI, `{"choices":[{` + twoOfChat +
			`,"reward":0.25,"group_id":"12"}],"trajectory_id":"x/1"}`,
			"mask=[true true] reward=[0.25] group=12 trajectory=x/1 old=[-0.5 -1]"},
		{"added to a response", parseSGLang, `{"meta_info":{` + twoOfSGLang +
			`},"reward":0.25,"group_id":12,"trajectory_id":"x/1"}`,
			"ids=[3 4] mask=[true true] reward=[0.25] group=12 trajectory=x/1 old=[-0.5 -1]"},
		// SGLang gives the log-probabilities of the prompt's last tokens only, unless it is
		// asked for more. A part of the prompt is not taken for the prompt.
		{"prompt", parseSGLang, `{"meta_info":{"prompt_tokens":2,"input_token_logprobs":[[null,1,null],[-1,2,null]],` + twoOfSGLang + `}}`,
			"ids=[1 2 3 4] mask=[false false true true] old=[0 -1 -0.5 -1]"},
		{"prompt of unknown length", parseSGLang,
			`{"meta_info":{"input_token_logprobs":[[null,1,null],[-1,2,null]],` + twoOfSGLang + `}}`,
			"ids=[1 2 3 4] mask=[false false true true] old=[0 -1 -0.5 -1]"},
		{"part of a prompt", parseSGLang, `{"meta_info":{"prompt_tokens":9,"input_token_logprobs":[[-2,1,null],[-1,2,null]],` + twoOfSGLang + `}}`,
			"ids=[3 4] mask=[true true] old=[-0.5 -1] dropped=[meta_info.input_token_logprobs]"},
		{"part of unknown length", parseSGLang, `{"meta_info":{"input_token_logprobs":[[-2,1,null],[-1,2,null]],` +
			twoOfSGLang + `}}`,
			"ids=[3 4] mask=[true true] old=[-0.5 -1] dropped=[meta_info.input_token_logprobs]"},
		{"prompt without an id", parseSGLang,
			`{"meta_info":{"prompt_tokens":2,"input_token_logprobs":[null,[-1,2,null]],` + twoOfSGLang + `}}`,
			"ids=[3 4] mask=[true true] old=[-0.5 -1] dropped=[meta_info.input_token_logprobs]"},
		{"prompt without tokens", parseSGLang, `{"meta_info":{"prompt_tokens":9,"input_token_logprobs":[],` +
			twoOfSGLang + `}}`,
			"ids=[3 4] mask=[true true] old=[-0.5 -1]"},
		{"prompt by its ids", parseSGLang, `{"prompt_token_ids":[7,1,2],"meta_info":{"prompt_tokens":3,"input_token_logprobs":[[-1,2,null]],` + twoOfSGLang + `}}`,
			"ids=[7 1 2 3 4] mask=[false false false true true] old=[0 0 0 -0.5 -1] dropped=[meta_info.input_token_logprobs]"},
	} {
		r, err := parseLine(c.parse, c.line)
		got := fmt.Sprint(err)
		if err == nil {
			got = describe(r)
		}
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// describe lists what is set in a record.
func describe(r *record) string {
	var b strings.Builder
	add := func(name string, value any) {
		if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Len() > 0 || v.Kind() == reflect.String &&
			v.Len() > 0 {
			fmt.Fprintf(&b, " %s=%v", name, value)
		}
	}
	slices.Sort(r.dropped)
	add("ids", r.TokenIDs)
	add("mask", r.mask)
	add("reward", r.Rewards)
	add("group", r.group)
	add("trajectory", r.trajectory)
	add("old", r.OldLogprobs)
	add("rollout", r.RolloutLogprobs)
	add("logprobs", r.Logprobs)
	add("entropy", r.Entropy)
	add("advantages", r.Advantages)
	add("dropped", r.dropped)
	if len(r.warnings) > 0 {
		fmt.Fprintf(&b, " warnings=%d", len(r.warnings))
	}
	return strings.TrimPrefix(b.String(), " ")
}

// wide returns numbers as float64, as Python writes them.
func wide(numbers []float32) []float64 {
	list := make([]float64, len(numbers))
	for i, x := range numbers {
		list[i] = float64(x)
	}
	return list
}

// padded returns a batch of one list, filled up to n elements.
func padded[E any](list []E, n int, with E) [][]E {
	list = slices.Clone(list)
	for len(list) < n {
		list = append(list, with)
	}
	return [][]E{list}
}

// TestTrainerFiles is that a file of a trainer, with the fields that it writes, gives the
// arrays of the safetensors file that has the same rollouts, to the bit.
func TestTrainerFiles(t *testing.T) {
	mask := func(tr *Trajectory) []bool {
		m := make([]bool, tr.Tokens())
		for i, role := range tr.Role {
			m[i] = role != reweight.RoleMasked
		}
		return m
	}
	tags := Options{ActionOpen: []int32{6}, ActionClose: []int32{7}}
	all := trajectories(frozenLake(t, "frozenlake-small.safetensors"))
	longest := 0
	for _, tr := range all {
		longest = max(longest, tr.Tokens())
		tr.Advantages = make([]float32, tr.Tokens())
		for i := range tr.Advantages {
			tr.Advantages[i] = (tr.Rewards[0] - 0.3) / 0.7
		}
		tr.RolloutLogprobs = tr.Logprobs
		// The file's roles, but for a turn that the game rejected: a tag comes twice in it.
		r := record{Batch: reweight.Batch{Role: tr.Role, SpanIDs: tr.SpanIDs, TokenIDs: tr.TokenIDs}}
		must.Get(markActions(&r, &tags))
		tr.Role = r.Role
		for _, list := range []*[]float32{&tr.Entropy, &tr.OldLogprobs, &tr.Logprobs, &tr.RefLogprobs, &tr.Advantages,
			&tr.RolloutLogprobs} {
			*list = slices.Clone(*list) // some files have none of tokens that were not sampled
			for i, role := range tr.Role {
				if role == reweight.RoleMasked {
					(*list)[i] = 0
				}
			}
		}
	}
	nulls := func(tr *Trajectory) []any { return make([]any, tr.Tokens()) }
	for _, c := range []struct {
		format, arrays string // those compared
		line           func(i int, tr *Trajectory) dict
		dropped        string
	}{
		{"NeMo-RL train_data", "role group_ids rewards span_ids token_ids old_logprobs rollout_logprobs advantages", func(i int, tr *Trajectory) dict {
			bits := make([]int, tr.Tokens())
			for t, response := range mask(tr) {
				if response {
					bits[t] = 1
				}
			}
			return dict{
				"content": list{"text"}, "rewards": wide(tr.Rewards), "input_lengths": list{tr.Tokens()},
				"token_ids": padded(tr.TokenIDs, longest, 0), "token_loss_mask": padded(bits, longest, 0),
				"sample_loss_mask":    list{1.0},
				"advantages":          padded(wide(tr.Advantages), longest, 0),
				"generation_logprobs": padded(wide(tr.RolloutLogprobs), longest, 0),
				"prev_logprobs":       padded(wide(tr.OldLogprobs), longest, 0), "idx": i,
			}
		}, "content idx"},
		{"prime-rl token_exports", "role group_ids span_ids token_ids entropy old_logprobs logprobs advantages",
			func(i int, tr *Trajectory) dict {
				entropy := wide(tr.Entropy)
				return dict{
					"schema_version": 1, "step": 7, "rank": 0, "micro_step": 0, "micro_sequence_idx": i,
					"export_sequence_idx": i, "env_name": "frozenlake",
					"token_ids": tr.TokenIDs, "position_ids": tr.TokenIDs, "loss_mask": mask(tr),
					"advantages":         wide(tr.Advantages),
					"inference_logprobs": wide(tr.OldLogprobs), "trainer_logprobs": wide(tr.Logprobs),
					"entropy": entropy, "mismatch_kl": entropy,
					"log_importance_ratio": entropy, "importance_ratio": entropy, "prob_delta": entropy,
					"is_masked":      mask(tr),
					"is_masked_high": nulls(tr), "is_masked_low": nulls(tr), "rl_weights": nulls(tr),
					"ce_weights": nulls(tr), "ref_kl_weights": nulls(tr),
				}
			}, "ce_weights env_name export_sequence_idx importance_ratio is_masked is_masked_high is_masked_low log_importance_ratio micro_sequence_idx micro_step mismatch_kl position_ids prob_delta rank ref_kl_weights schema_version step"},
		{"verifiers traces", "role group_ids rewards span_ids token_ids entropy old_logprobs logprobs ref_logprobs advantages",
			func(i int, tr *Trajectory) dict {
				var nodes list
				sampled := mask(tr)
				for first := 0; first < tr.Tokens(); {
					end := first + 1
					for end < tr.Tokens() && sampled[end] == sampled[first] {
						end++
					}
					node := dict{"message": dict{"role": "user", "content": "text"}, "sampled": sampled[first],
						"token_ids": tr.TokenIDs[first:end], "mask": sampled[first:end], "is_content": list{},
						"timestamp": 1.5}
					if first > 0 {
						node["parent"] = len(nodes) - 1
					}
					if sampled[first] {
						node["logprobs"] = wide(tr.OldLogprobs[first:end])
						node["trainer_logprobs"] = wide(tr.Logprobs[first:end])
						node["reference_logprobs"] = wide(tr.RefLogprobs[first:end])
						node["entropies"] = wide(tr.Entropy[first:end])
						node["advantages"] = wide(tr.Advantages[first:end])
						node["loss_weights"] = dict{"rl": wide(tr.Advantages[first:end])}
					}
					nodes, first = append(nodes, node), end
				}
				return dict{
					"id": i, "task": dict{"type": "Lake", "key": tr.GroupIDs[0]}, "ok": true, "errors": list{},
					"traces": list{dict{"id": i, "agent": dict{"name": "agent", "trainable": true}, "nodes": nodes,
						"ok": true, "rewards": dict{"goal": dict{"score": wide(tr.Rewards)[0], "weight": 1}}}},
				}
			}, "errors nodes.loss_weights"},
	} {
		t.Run(c.format, func(t *testing.T) {
			var values []any
			for i, tr := range all {
				values = append(values, c.line(i, tr))
			}
			path := writeLines(t, "dump.jsonl", values...)
			s := must.Get(tags.Open(path))
			defer s.Close()
			for i, want := range all {
				got := must.Get(s.Next())
				if got.Line != i+1 || got.File != path {
					t.Errorf("trajectory %d is of %s:%d", i, got.File, got.Line)
				}
				wanted := want.Arrays()
				for j, a := range got.Arrays() {
					if !slices.Contains(strings.Fields(c.arrays), a.Name) {
						continue
					}
					if !sameArray(a, wanted[j]) {
						t.Errorf("%s of trajectory %d differs", a.Name, i)
					}
				}
			}
			if _, err := s.Next(); err != io.EOF {
				t.Fatal(err)
			}
			r := s.Report()
			// The game rejected a turn of these files for that.
			others := slices.DeleteFunc(r.Warnings, func(w string) bool {
				return strings.HasPrefix(w, "Responses in which an opening tag opens no action")
			})
			if fmt.Sprint(r.Formats) != "["+c.format+"]" || strings.Join(r.Dropped, " ") != c.dropped ||
				len(others) != 0 {
				t.Errorf("formats %q, dropped %q, warnings %q", r.Formats, r.Dropped, r.Warnings)
			}
		})
	}
}

// The ids of a prompt make the same group in all formats.
func TestPromptIDs(t *testing.T) {
	const (
		nemo  = `"input_lengths":[3],"token_ids":[[1,2,3,0]],"token_loss_mask":[[0,0,1,0]]`
		prime = `"token_ids":[1,2,4],"loss_mask":[0,0,1],"inference_logprobs":[0,0,-1]`
		chat  = `"prompt_token_ids":[1,2],"choices":[{"message":{},"logprobs":{"content":[{"token":"a","logprob":-1,"top_logprobs":[]}]}`
		lang  = `"prompt_token_ids":[1,2],"meta_info":{"output_token_logprobs":[[-1,5,null]]}`
	)
	first := must.Get(parseLine(parseJSONL, `{"token_ids":[1,2,3],"role":[0,0,1]}`))
	for _, c := range []struct {
		line  string
		parse parser
	}{
		{`{"token_ids":[1,2,4],"role":[0,0,2]}`, parseJSONL},
		{`{` + nemo + `}`, parseNeMoRL},
		{`{` + nemo + `,"sample_loss_mask":[0]}`, parseNeMoRL},
		{`{` + prime + `}`, parsePrimeRL},
		{`{"nodes":[{"token_ids":[1,2,4],"mask":[0,0,1],"logprobs":[-1]}]}`, parseVerifiers},
		{`{` + prime + `,"rl_weights":[0,0,0]}`, parsePrimeRL},
		{`{` + chat + `}]}`, parseOpenAI},
		{`{` + chat + `,"token_ids":[5]}]}`, parseOpenAI},
		{`{` + lang + `}`, parseSGLang},
	} {
		r, err := parseLine(c.parse, c.line)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		r.takeMask()
		if got, want := promptKey(r), promptKey(first); got != want {
			t.Errorf("%s: the key %s, want %s", c.line, got, want)
		}
	}
	// A response that begins at once has no prompt, also where its tokens do not count.
	for line, parse := range map[string]parser{
		`{"input_lengths":[1],"token_ids":[[1]],"token_loss_mask":[[1]],"sample_loss_mask":[0]}`: parseNeMoRL,
		`{"token_ids":[1],"loss_mask":[1],"rl_weights":[0],"inference_logprobs":[-1]}`:           parsePrimeRL,
	} {
		if r, err := parseLine(parse, line); err != nil || promptKey(r) != "" {
			t.Errorf("%s: %v, or a prompt", line, err)
		}
	}
}

// A list without elements is as good as none, as long as there are tokens.
func TestJSONLEmptyLists(t *testing.T) {
	lists := []string{"texts", "role"}
	for _, a := range new(reweight.Batch).Arrays() {
		if a.Per != reweight.PerTrajectory && a.Field != "Role" && a.Field != "SeqOffsets" {
			if _, ok := a.Data.(*reweight.Logits); !ok {
				lists = append(lists, a.Name)
			}
		}
	}
	for _, name := range lists {
		read, err := readText(`{"mask":[0,1,1],"reward":1,"`+name+`":[]}`+"\n", parseJSONL)
		if err != io.EOF || len(read) != 1 {
			t.Errorf("%s: %d trajectories, %v", name, len(read), err)
			continue
		}
		got := read[0]
		if got.Texts != nil {
			t.Errorf("%s: texts %q", name, got.Texts)
		}
		for _, a := range got.Arrays() {
			if v := reflect.ValueOf(a.Data).Elem(); v.Kind() == reflect.Slice && v.Len() == 0 && !v.IsNil() {
				t.Errorf("%s: %s is empty, want nil", name, a.Name)
			}
		}
	}
}

// Texts of tokens that end within a character, and any other bytes, survive.
func TestTextsOfAnyBytes(t *testing.T) {
	text := rapid.Map(rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 6),
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })),
		func(b []byte) string { return string(b) })
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(text, 1, 8).Draw(t, "texts")
		of := &Trajectory{Texts: texts}
		of.Role = make([]reweight.Role, len(texts))
		of.SeqOffsets = []int64{0, int64(len(texts))}
		var line bytes.Buffer
		must.Do(WriteJSONL(&line, of))
		records, err := parseText(line.String(), parseJSONL)
		if err != nil || !slices.Equal(records[0].texts, texts) {
			t.Fatalf("%q becomes %s, which is read as %q, %v", texts, line.String(), records[0].texts, err)
		}
		broken := slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) })
		if has := strings.Contains(line.String(), `"text_bytes":[`); has != broken || !utf8.Valid(line.Bytes()) ||
			printable.Line(line.String()) != strings.TrimSuffix(line.String(), "\n")+`\n` {
			t.Fatalf("%q becomes %q", texts, line.String())
		}
	})
}

func TestBytesOfTexts(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`"texts": ["a", "b"], "text_bytes": null`, `["a" "b"]`},
		{`"texts": ["a", "b"], "text_bytes": []`, `["a" "b"]`},
		{`"texts": ["a", "b"], "text_bytes": [null, [227, 128]]`, `["a" "\xe3\x80"]`},
		{`"text_bytes": [[], [97, 98]], "texts": ["a", "b"]`, `["" "ab"]`},
		{`"texts": ["a", "b"], "text_bytes": [null]`, "text_bytes has 1 elements, want 2, one for each of texts"},
		{`"text_bytes": [null, null]`, "text_bytes has 2 elements, want 0, one for each of texts"},
		{`"texts": ["a", "b"], "text_bytes": [null, [256]]`, "text_bytes[1][0] is 256, want a byte: 0 to 255"},
		{`"texts": ["a", "b"], "text_bytes": [null, [-1]]`, "text_bytes[1][0] is -1, want a byte: 0 to 255"},
		{`"texts": ["a", "b"], "text_bytes": [null, "b"]`, `text_bytes[1] is "b", want an array`},
		{`"texts": ["a", "b"], "mask": [0, 0]`, "role and mask say different tokens to be the response's: want one of them"},
		{`"texts": ["a", "b"], "mask": [1]`, "role and mask say different tokens to be the response's: want one of them"},
		{`"texts": ["a", "b"], "mask": [0, 1]`, `["a" "b"]`},
	} {
		records, err := parseText(`{"role": [0, 2], `+c.line+`}`, parseJSONL)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprintf("%q", records[0].texts)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
	}
	of := &Trajectory{Group: "a\xff"}
	of.SeqOffsets = []int64{0, 0}
	if err := WriteJSONL(io.Discard, of); err == nil || err.Error() != `the group "a\xff" is not UTF-8` {
		t.Errorf("error %v", err)
	}
}
