package rollout

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A listReader reads a list of records.
type listReader []*record

func (l *listReader) next() (*record, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	r := (*l)[0]
	*l = (*l)[1:]
	return r, nil
}

// testRecords are the records of files that hold the words "test records" and an index.
var testRecords [][]*record

func init() {
	const mark = "test records "
	formats = append(formats, format{
		name:   "test",
		begins: func(head []byte) bool { return bytes.HasPrefix(head, []byte(mark)) },
		open: func(s *stream, name string, opt *Options) (reader, error) {
			text, err := s.content()
			if err != nil {
				return nil, err
			}
			i, err := strconv.Atoi(strings.TrimPrefix(string(text), mark))
			if err != nil {
				return nil, err
			}
			list := listReader(testRecords[i])
			return &list, nil
		},
	})
}

// sourceOf returns a source of files of these records, which are named a, b and so on.
// The records of a file are in lines 1, 2 and so on.
func sourceOf(t *testing.T, opt Options, files ...[]*record) *Source {
	t.Helper()
	t.Chdir(t.TempDir())
	var names []string
	for i, records := range files {
		for line, r := range records {
			r.line = line + 1
		}
		name := string(rune('a' + i))
		must.Do(os.WriteFile(name, fmt.Appendf(nil, "test records %d", len(testRecords)), 0o666))
		testRecords = append(testRecords, records)
		names = append(names, name)
	}
	return must.Get(opt.Open(names...))
}

// turnOf returns a record of a prompt and a response, as many tokens as the texts have
// letters.
func turnOf(prompt, response string, change ...func(r *record)) *record {
	r := &record{}
	for i, letter := range prompt + response {
		r.TokenIDs = append(r.TokenIDs, letter)
		r.mask = append(r.mask, i >= len(prompt))
		r.OldLogprobs = append(r.OldLogprobs, -float32(i))
		r.texts = append(r.texts, string(letter))
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func inGroup(id string) func(*record)      { return func(r *record) { r.group = id } }
func ofTrajectory(id string) func(*record) { return func(r *record) { r.trajectory = id } }
func withReward(x float32) func(*record)   { return func(r *record) { r.Rewards = []float32{x} } }

// withTop gives each token of a record its two most likely tokens.
func withTop(r *record) {
	r.top, r.topField = slices.Repeat([][]candidate{{{logprob: -0.5}, {logprob: -1.5}}}, len(r.mask)), "choices.top"
}

func withParts(x ...float32) func(*record) { return func(r *record) { r.RewardParts = x } }

// withLogprobs gives a record logprobs, which are not its old_logprobs.
func withLogprobs(r *record) {
	for _, l := range r.OldLogprobs {
		r.Logprobs = append(r.Logprobs, l-0.5)
	}
}

func all(t *testing.T, s *Source) []*Trajectory {
	t.Helper()
	var list []*Trajectory
	for {
		next, err := s.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, next)
	}
}

func TestTurns(t *testing.T) {
	s := sourceOf(t, Options{}, []*record{
		turnOf("ab", "cd", ofTrajectory("1"), inGroup("x")),
		turnOf("", "e", ofTrajectory("1"), withReward(0.5), withParts(1, 2)),
		turnOf("fg", "h", ofTrajectory("1"), withReward(0.5), withParts(1, 2)),
		turnOf("ab", "c", ofTrajectory("2"), withReward(2), withParts(3, 4)),
		turnOf("", "d", ofTrajectory("2"), inGroup("y")),
		turnOf("ab", "d", withReward(3), inGroup("x"), withParts(5, 6)),
		turnOf("ab", "e", withReward(3), inGroup("y"), withParts(7, 8)),
	}, []*record{
		turnOf("ab", "e", ofTrajectory("3"), withReward(1), inGroup("x"), withParts(9, 0)),
	})
	got := all(t, s)
	if len(got) != 5 {
		t.Fatalf("%d trajectories, want 5", len(got))
	}
	first := got[0]
	want := reweight.Batch{
		Role:        []reweight.Role{0, 0, 1, 1, 1, 0, 0, 1},
		SeqOffsets:  []int64{0, 8},
		GroupIDs:    []int32{0},
		Rewards:     []float32{0.5},
		RewardParts: []float32{1, 2},
		SpanIDs:     []int32{-1, -1, 0, 0, 1, -1, -1, 2},
		TokenIDs:    []int32{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'},
		OldLogprobs: []float32{0, -1, -2, -3, 0, 0, -1, -2},
		Logprobs:    []float32{0, -1, -2, -3, 0, 0, -1, -2},
	}
	if !reflect.DeepEqual(first.Batch, want) {
		t.Errorf("got  %+v\nwant %+v", first.Batch, want)
	}
	if text := strings.Join(first.Texts, ""); text != "abcdefgh" {
		t.Errorf("texts %q", text)
	}
	for i, want := range []struct {
		group  string
		number int32
		file   string
		line   int
	}{{"x", 0, "a", 1}, {"y", 1, "a", 4}, {"x", 0, "a", 6}, {"y", 1, "a", 7}, {"x", 0, "b", 1}} {
		g := got[i]
		if g.Group != want.group || g.GroupIDs[0] != want.number || g.File != want.file || g.Line != want.line {
			t.Errorf("trajectory %d: group %s, %d, at %s:%d, want %v", i, g.Group, g.GroupIDs[0], g.File, g.Line, want)
		}
	}
	report := s.Report()
	if report.Trajectories != 5 || report.Tokens != 21 || report.Groups != 2 {
		t.Errorf("%+v", report)
	}
}

// Of the turns of a trajectory some may have logprobs, and in the others old_logprobs
// stand for them.
func TestSpansOfTurns(t *testing.T) {
	spans := func(anchors []int32, rewards ...float32) func(*record) {
		return func(r *record) { r.Anchors, r.SpanRewards = anchors, rewards }
	}
	s := sourceOf(t, Options{}, []*record{
		turnOf("ab", "c", ofTrajectory("1"), spans([]int32{7}, 0.5)),
		turnOf("abcd", "ef", ofTrajectory("1"), spans([]int32{-3}, 1.5)), // repeats the turn before
		turnOf("g", "", ofTrajectory("1")),                               // has no span
		turnOf("", "h", ofTrajectory("1"), spans([]int32{7}, 2.5)),
		turnOf("i", ""),
		turnOf("i", "j", spans([]int32{8}, 3.5)),
	})
	b := must.Get(s.Batch())
	must.Do(b.Validate())
	if !slices.Equal(b.Anchors, []int32{7, -3, 7, 8}) || !slices.Equal(b.SpanRewards, []float32{0.5, 1.5, 2.5, 3.5}) {
		t.Errorf("anchors %v, rewards %v", b.Anchors, b.SpanRewards)
	}
	// A turn whose prompt is not what was before has all of its tokens.
	s = sourceOf(t, Options{}, []*record{
		turnOf("ab", "cd", ofTrajectory("1")), turnOf("abcde", "f", ofTrajectory("1")), turnOf("abdefg", "h", ofTrajectory("1")),
	})
	if got := all(t, s)[0]; strings.Join(got.Texts, "") != "abcdefabdefgh" ||
		!slices.Equal(got.SpanIDs, []int32{-1, -1, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1, 2}) {
		t.Errorf("texts %q, spans %v", got.Texts, got.SpanIDs)
	}
	for _, c := range []struct {
		first, second func(*record)
		want          string
	}{
		{spans([]int32{1, 2}, 1), spans(nil, 1), "a:1: anchors has 2 elements, want 1, one per span"},
		{spans([]int32{1}, 1), spans([]int32{1}, 1, 2), "a:2: span_rewards has 2 elements, want 1, one per span"},
		{spans([]int32{1}, 1), spans([]int32{1}), "a:2: span_rewards is missing, but it is there at a:1"},
		{spans(nil, 1), spans([]int32{1}, 1), "a:2: anchors is there, but it is missing at a:1"},
	} {
		wantError(t, sourceOf(t, Options{}, []*record{turnOf("a", "b", ofTrajectory("1"), c.first),
			turnOf("", "c", ofTrajectory("1"), c.second)}), c.want)
	}
	wantError(t, sourceOf(t, Options{}, []*record{{Batch: reweight.Batch{SpanRewards: []float32{1}}}}),
		"a:1: span_rewards has 1 elements, but neither role nor a mask of the response tokens has any")
}

func TestLogprobsOfTurns(t *testing.T) {
	for first, want := range [][]float32{{0, -1, 0, -0.5, -1.5}, {-0.5, -1.5, -0.5, 0, -1}} {
		turns := []*record{turnOf("a", "b", ofTrajectory("1")), turnOf("", "c", ofTrajectory("1")),
			turnOf("d", "e", ofTrajectory("1"))}
		for i, r := range turns {
			r.OldLogprobs = slices.Grow(r.OldLogprobs, 8) // room that logprobs must not share
			if first == 0 && i == 2 || first == 1 && i < 2 {
				withLogprobs(r)
			}
		}
		tr := all(t, sourceOf(t, Options{}, turns))[0]
		if old := []float32{0, -1, 0, 0, -1}; !slices.Equal(tr.OldLogprobs, old) || !slices.Equal(tr.Logprobs, want) {
			t.Errorf("old_logprobs %v, want %v; logprobs %v, want %v", tr.OldLogprobs, old, tr.Logprobs, want)
		}
	}
}

func TestOrigins(t *testing.T) {
	find := func(r Report, name string) string {
		for _, o := range r.Arrays {
			if o.Name == name {
				return fmt.Sprintf("%d %s %.3g", o.Kind, o.From, o.Width)
			}
		}
		return ""
	}
	const none = "absent"
	for _, c := range []struct {
		name    string
		opt     Options
		records []*record
		want    map[string]string
	}{
		{"derived", Options{}, []*record{turnOf("a", "b"), turnOf("b", "c")}, map[string]string{
			"role": "1 mask 0", "span_ids": "1 mask 0", "group_ids": "1 prompt 0", "token_ids": "0  0", "old_logprobs": "0  0",
			"logprobs": "1 old_logprobs: the first update after sampling 0", "entropy": none, "rewards": none, "seq_offsets": none,
		}},
		{"given", Options{}, []*record{turnOf("a", "b", inGroup("1"), withReward(1), func(r *record) {
			r.Role, r.SpanIDs, r.Logprobs, r.Entropy = []reweight.Role{0, 2}, []int32{-1, 0}, []float32{0, -1},
				[]float32{0, 1}
		})}, map[string]string{"role": "0  0", "span_ids": "0  0", "group_ids": "0  0", "logprobs": "0  0",
			"entropy": "0  0", "rewards": "0  0"}},
		{"logprobs of some", Options{}, []*record{turnOf("a", "b", withLogprobs), turnOf("a", "c"),
			turnOf("a", "d", withLogprobs)}, map[string]string{
			"old_logprobs": "0  0", "logprobs": "1 old_logprobs: the first update after sampling 0",
		}},
		{"spans of roles", Options{}, []*record{turnOf("a", "b", func(r *record) { r.Role = []reweight.Role{0, 2} })}, map[string]string{"role": "0  0", "span_ids": "1 role 0"}},
		{"logits", Options{SurprisalEntropy: true}, []*record{turnOf("\x01", "\x00", func(r *record) {
			r.Logits = reweight.Logits{Vocab: 2, F32: make([]float32, 4)}
			r.OldLogits = r.Logits
		})}, map[string]string{"logprobs": none, "entropy": none, "logits": "0  0"}},
		{"tags", Options{ActionOpen: []int32{'<'}, ActionClose: []int32{'>'}}, []*record{turnOf("a", "<b>")}, map[string]string{"role": "1 mask and tags 0"}},
		{"tags for roles", Options{ActionOpen: []int32{'<'}, ActionClose: []int32{'>'}}, []*record{turnOf("a", "<b>", func(r *record) { r.Role = []reweight.Role{0, 1, 1, 1} })}, map[string]string{"role": "1 role and tags 0", "span_ids": "1 role 0"}},
		{"surprisal", Options{SurprisalEntropy: true}, []*record{turnOf("a", "bc")}, map[string]string{"entropy": "2 surprisal +Inf"}},
		{"top", Options{Vocab: 4, SurprisalEntropy: true}, []*record{turnOf("a", "bc", withTop)}, map[string]string{"entropy": "2 top 2 log-probabilities 0.118"}},
		{"top of some", Options{Vocab: 4}, []*record{turnOf("a", "bc", withTop), turnOf("a", "bc", func(r *record) { r.Entropy = make([]float32, 3) })}, map[string]string{"entropy": "2 top 2 log-probabilities 0.118"}},
		{"top without the vocabulary", Options{}, []*record{turnOf("a", "bc", withTop)}, map[string]string{"entropy": none}},
		{"group size", Options{GroupSize: 2}, []*record{turnOf("a", "b", inGroup("1")), turnOf("b", "c", inGroup("2"))}, map[string]string{"group_ids": "1 every 2 trajectories 0"}},
	} {
		s := sourceOf(t, c.opt, c.records)
		all(t, s)
		report := s.Report()
		for name, want := range c.want {
			if want == none {
				want = ""
			}
			if got := find(report, name); got != want {
				t.Errorf("%s: %s has the origin %q, want %q", c.name, name, got, want)
			}
		}
		warned := slices.ContainsFunc(report.Warnings, func(w string) bool {
			return strings.Contains(w, "size of the vocabulary")
		})
		if warned != (c.name == "top without the vocabulary") {
			t.Errorf("%s: warnings %q", c.name, report.Warnings)
		}
	}
}

func TestGroupSize(t *testing.T) {
	four := func() (list []*record) {
		for range 4 {
			list = append(list, turnOf("a", "b"))
		}
		return list
	}
	s := sourceOf(t, Options{GroupSize: 2}, four(), four())
	var numbers []int32
	keys := make(map[string]bool)
	for _, g := range all(t, s) {
		numbers = append(numbers, g.GroupIDs[0])
		keys[g.Group] = true
	}
	if !slices.Equal(numbers, []int32{0, 0, 1, 1, 2, 2, 3, 3}) || len(keys) != 4 {
		t.Errorf("groups %d, %v", numbers, keys)
	}
	wantError(t, sourceOf(t, Options{GroupSize: 3}, four()), "a: 4 trajectories, want a multiple of the group size, 3")
}

// wantError reads trajectories until an error, which has to be that one and to stay.
func wantError(t *testing.T, s *Source, want string) {
	t.Helper()
	for {
		_, err := s.Next()
		if err == nil {
			continue
		}
		if err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
		_, again := s.Next()
		_, batch := s.Batch()
		if again != err || batch != err {
			t.Errorf("after %v, Next says %v and Batch %v", err, again, batch)
		}
		return
	}
}

func TestRecordErrors(t *testing.T) {
	set := func(f func(r *record)) *record { return turnOf("ab", "c", f) }
	for _, c := range []struct {
		want  string
		files [][]*record
	}{
		{"a:1: entropy has 2 elements, want 3, one per token", [][]*record{{set(func(r *record) { r.Entropy = make([]float32, 2) })}}},
		{"a:1: token_ids has 3 elements, want 2, one per token", [][]*record{{set(func(r *record) { r.Role = make([]reweight.Role, 2) })}}},
		{"a:1: the texts of tokens has 2 elements, want 3, one per token", [][]*record{{set(func(r *record) { r.texts = r.texts[:2] })}}},
		{"a:1: the list of the most likely tokens has 1 elements, want 3, one per token", [][]*record{{set(func(r *record) { r.top = make([][]candidate, 1) })}}},
		{"a:1: token_ids has 3 elements, but neither role nor a mask of the response tokens has any", [][]*record{{set(func(r *record) { r.mask = nil })}}},
		{"a:1: rewards has 2 elements, want 1, one per trajectory", [][]*record{{set(func(r *record) { r.Rewards = make([]float32, 2) })}}},
		{"a:2: rewards[0] is NaN, want a finite reward", [][]*record{{set(withReward(0)), set(withReward(float32(math.NaN())))}}},
		{"a:1: role[2] is 3, want 0, 1 or 2", [][]*record{{set(func(r *record) { r.Role = []reweight.Role{0, 0, 3} })}}},
		{"a:1: span_ids[2] is 1, want -1 to 0: spans are numbered from 0 in the order in which they appear", [][]*record{{set(func(r *record) { r.SpanIDs = []int32{-1, -1, 1} })}}},
		{"a:1: old_logprobs[2] is 0.5 at a response token, want a log-probability: at most 0", [][]*record{{set(func(r *record) { r.OldLogprobs[2] = 0.5; r.OldLogprobs[1] = 0.5 })}}},
		{"a:1: old_logprobs[2] is NaN at a response token, want a finite log-probability", [][]*record{{set(func(r *record) { r.OldLogprobs[2] = float32(math.NaN()); r.OldLogprobs[1] = float32(math.NaN()) })}}},
		{"a:1: logprobs[2] is -Inf at a response token, want a finite log-probability", [][]*record{{set(func(r *record) { r.Logprobs = []float32{0, 0, float32(math.Inf(-1))} })}}},
		{"a:1: ref_logprobs[2] is -9999 at a response token, which stands for a value that is missing", [][]*record{{set(func(r *record) { r.RefLogprobs = []float32{0, 0, -9999} })}}},
		{"a:2: entropy is there, but it is missing at a:1", [][]*record{{turnOf("a", "b"), set(func(r *record) { r.Entropy = make([]float32, 3) })}}},
		{"b:1: old_logprobs is missing, but it is there at a:2", [][]*record{{turnOf("", "", inGroup("x")), turnOf("a", "b")}, {set(func(r *record) { r.OldLogprobs = nil })}}},
		{"b:1: rewards is missing, but it is there at a:1", [][]*record{{turnOf("a", "b", withReward(1))}, {turnOf("a", "b")}}},
		{"a:2: group_ids is missing, but it is there at a:1", [][]*record{{turnOf("a", "b"), turnOf("", "b")}}},
		{"a:2: logits has rows of 3 f32 logits, but of 2 f32 at a:1", [][]*record{{
			turnOf("\x01", "", func(r *record) { r.Logits = reweight.Logits{Vocab: 2, F32: make([]float32, 2)} }),
			turnOf("\x01", "", func(r *record) { r.Logits = reweight.Logits{Vocab: 3, F32: make([]float32, 3)} }),
		}}},
		{"a:2: logits has rows of 2 f16 logits, but of 2 f32 at a:1", [][]*record{{
			turnOf("\x01", "", func(r *record) { r.Logits = reweight.Logits{Vocab: 2, F32: make([]float32, 2)} }),
			turnOf("\x01", "", func(r *record) { r.Logits = reweight.Logits{Vocab: 2, F16: make([]reweight.F16, 2)} }),
		}}},
		{"a:3: rewards is 2, but line 1 has 1 for the same trajectory: want one reward", [][]*record{{
			turnOf("a", "b", ofTrajectory("t"), withReward(1)), turnOf("a", "b", ofTrajectory("t")),
			turnOf("a", "b", ofTrajectory("t"), withReward(2)),
		}}},
		{"a:2: reward_parts is [1 2], but line 1 has [1 3] for the same trajectory", [][]*record{{
			turnOf("a", "b", ofTrajectory("t"), withParts(1, 3)), turnOf("a", "b", ofTrajectory("t"), withParts(1, 2)),
		}}},
		{"a:2: reward_parts has 1 elements, but 2 at a:1", [][]*record{{turnOf("a", "b", withParts(1, 3)), turnOf("a", "b", withParts(1))}}},
		{"a:2: reward_parts is missing, but it is there at a:1", [][]*record{{turnOf("a", "b", withParts(1, 3)), turnOf("a", "b")}}},
		{"a:1: reward_parts[1] is NaN, want a finite reward", [][]*record{{turnOf("a", "b", withParts(1, float32(math.NaN())))}}},
		{`a:2: group_id is "\x1b", but line 1 has "x" for the same trajectory`, [][]*record{{
			turnOf("a", "b", ofTrajectory("t"), inGroup("x")), turnOf("a", "b", ofTrajectory("t"), inGroup("\x1b")),
		}}},
		{`a:4: trajectory_id "t" is also on line 1, and there are others between: sort the lines by trajectory_id`, [][]*record{{
			turnOf("a", "b", ofTrajectory("t")), turnOf("a", "b", ofTrajectory("t")), turnOf("a", "b"),
			turnOf("a", "b", ofTrajectory("t")),
		}}},
		{`b:3: trajectory_id "u" is also on line 1, and there are others between: sort the lines by trajectory_id`, [][]*record{
			{turnOf("a", "b", ofTrajectory("t"))},
			{turnOf("a", "b", ofTrajectory("u")), turnOf("a", "b", ofTrajectory("t")), turnOf("a", "b", ofTrajectory("u"))},
		}},
		{`b:1: group_id "x" is also in an earlier file, but with another prompt: number the groups of all files anew, or convert each file alone`, [][]*record{
			{turnOf("a", "b", inGroup("x")), turnOf("b", "c", inGroup("x"))}, {turnOf("c", "b", inGroup("x"))},
		}},
	} {
		wantError(t, sourceOf(t, Options{}, c.files...), c.want)
	}
}

// A trajectory without tokens has a reward and a group, and lacks nothing.
func TestNoTokens(t *testing.T) {
	s := sourceOf(t, Options{}, []*record{
		{group: "x", Batch: reweight.Batch{Rewards: []float32{1}}},
		turnOf("a", "b", inGroup("x"), withReward(2)),
		{group: "x", Batch: reweight.Batch{Rewards: []float32{3}}},
	})
	b := must.Get(s.Batch())
	if !slices.Equal(b.SeqOffsets, []int64{0, 0, 2, 2}) || !slices.Equal(b.Rewards, []float32{1, 2, 3}) ||
		!slices.Equal(b.GroupIDs, []int32{0, 0, 0}) {
		t.Errorf("%+v", b)
	}
	wantError(t, sourceOf(t, Options{},
		[]*record{{group: "x", Batch: reweight.Batch{Rewards: []float32{float32(math.Inf(1))}}}}),
		"a:1: rewards[0] is +Inf, want a finite reward")
}

func TestReportNotes(t *testing.T) {
	s := sourceOf(t, Options{}, []*record{
		turnOf("a", "b", func(r *record) { r.dropped, r.warnings = []string{"z", "b\n"}, []string{"One.", "Two."} }),
		turnOf("a", "b", func(r *record) { r.dropped, r.warnings = []string{"z"}, []string{"Two.", "Three."} }),
	})
	all(t, s)
	r := s.Report()
	if !slices.Equal(r.Dropped, []string{`b\n`, "z"}) ||
		!slices.Equal(r.Warnings[:min(3, len(r.Warnings))], []string{"One.", "Two.", "Three."}) {
		t.Errorf("dropped %q, warnings %q", r.Dropped, r.Warnings)
	}
}

func TestOriginsOfMetadata(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		metadata map[string]string
		from     string
		width    float64
	}{
		{map[string]string{"entropy": "estimated from top 20 log-probabilities", "entropy_width": "0.0625"}, "top 20 log-probabilities", 0.0625},
		{map[string]string{"entropy": "estimated from surprisal", "entropy_width": "+Inf"}, "surprisal", inf},
		{map[string]string{"entropy": "guessed\n"}, `guessed\n`, inf},
		{map[string]string{"entropy": "x", "entropy_width": "-1"}, "x", inf},
		{map[string]string{"entropy": "x", "entropy_width": "NaN"}, "x", inf},
	} {
		got := originsOf(c.metadata)
		want := []Origin{{Name: "entropy", Kind: Estimated, From: c.from, Width: c.width}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", c.metadata, got, want)
		}
	}
	if got := originsOf(map[string]string{"vocab": "x", "entropy_width": "1"}); got != nil {
		t.Errorf("%+v of a file without estimates", got)
	}
}

func TestPlace(t *testing.T) {
	for want, got := range map[string]string{
		"a.jsonl:3": Place("a.jsonl", 3, 9), "a.npz: trajectory 9": Place("a.npz", 0, 9), "standard input:3": Place("-", 3, 9),
		`"a\n": trajectory 0`: Place("a\n", 0, 0), "trajectory 9": Place("", 0, 9),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Fields that our own JSONL does not have are named and counted: they may be misspelt.
func TestUnknownFields(t *testing.T) {
	var text strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, `{"role": [0, 2], "entropi": [0, 1], "field %d": 0, "entropy": null}`+"\n", i)
	}
	for _, c := range []struct{ text, want string }{
		{"{\"role\": [0, 2], \"old-logprobs\": [0, -1]}\n{\"role\": [0, 2], \"old_logprobs\": null, \"x\\n\": 1}\n", `: old-logprobs in 1, x\n in 1 of them.`},
		{text.String(), `: entropi in 12, field 0 in 1, field 1 in 1, field 10 in 1, field 11 in 1, field 2 in 1, field 3 in 1, field 4 in 1, ... of them.`},
		{`{"role": [0, 2], "texts": ["a", "b"], "group_id": 1, "trajectory_id": 2, "anchors": [3], "span_rewards": null}`, ""},
	} {
		s := must.Get(Open(filepath.Join(writeFiles(t, map[string][]byte{"a.jsonl": []byte(c.text)}), "a.jsonl")))
		defer s.Close()
		all(t, s)
		var want []string
		if c.want != "" {
			want = []string{"Lines of JSON have fields that no array takes" + c.want +
				" https://github.com/seed621a2839/reweight/blob/main/docs/formats.md lists the names."}
		}
		if got := s.Report().Warnings; !slices.Equal(got, want) {
			t.Errorf("warnings %q\nwant %q", got, want)
		}
	}
}

// Options that find nothing, and those that are missing, make a warning.
func TestWarningsOfAll(t *testing.T) {
	const noTags = "No response token is an action: tags around actions say which are, -action-tags or -action-open and -action-close, and tags= of a trainer's Credit."
	const dropped = "The log-probabilities of the most likely tokens, up to 2 at each of 3 response tokens, are dropped: bounds of the entropy need the size of the vocabulary too, Options.Vocab, on the command line -vocab."
	ids := Options{ActionOpen: []int32{'<'}, ActionClose: []int32{'>'}}
	both := Options{ActionOpen: []int32{'<'}, ActionClose: []int32{'>'}, ActionTags: [][2]string{{"(\n", ")"}}}
	for _, c := range []struct {
		opt     Options
		records []*record
		want    []string
	}{
		{Options{}, nil, nil},
		{Options{}, []*record{turnOf("a", "b")}, []string{noTags}},
		{Options{}, []*record{turnOf("a", "b"), turnOf("a", "b", func(r *record) { r.Role = []reweight.Role{0, 2} })}, nil},
		{Options{}, []*record{turnOf("a", "b", func(r *record) { r.Role = []reweight.Role{0, 0} }, inGroup("x"))}, []string{"No token is one of a response: all are masked."}},
		{ids, []*record{turnOf("a", "b"), turnOf("a", "<b>")}, nil},
		{ids, []*record{turnOf("<a>", ">b<"), turnOf("a", "<>")}, []string{"No response token is an action: no response has a token between the tags of the token ids [60] and [62], in this order."}},
		{both, []*record{turnOf("a", "b")}, []string{`No response token is an action: no response has a token between the tags of the token ids [60] and [62], or (\n and ), in this order.`}},
		{ids, []*record{turnOf("a", "<b>", withTop)}, []string{dropped}},
		{Options{ActionOpen: ids.ActionOpen, ActionClose: ids.ActionClose, SurprisalEntropy: true}, []*record{turnOf("a", "<b>", withTop)}, []string{dropped}},
	} {
		s := sourceOf(t, c.opt, c.records)
		all(t, s)
		report := s.Report()
		if !slices.Equal(report.Warnings, c.want) {
			t.Errorf("warnings %q\nwant %q", report.Warnings, c.want)
		}
		if drops := slices.Equal(report.Dropped, []string{"choices.top"}); drops != slices.Contains(c.want, dropped) {
			t.Errorf("dropped %q", report.Dropped)
		}
	}
}

// Log-probabilities that are 0 everywhere are counted, by the name of the array.
func TestZeroLogprobs(t *testing.T) {
	const zeros = " is 0 at every response token in "
	for _, c := range []struct {
		lines string
		want  []string // the beginnings of the warnings about zeros
	}{
		{`{"role": [0, 2], "old_logprobs": [0, -1]}`, nil},
		{`{"role": [0, 2], "entropy": [0, 0]}`, nil},
		{`{"role": [0, 2, 1], "old_logprobs": [-1, 0, -0.0]}`, []string{"old_logprobs" + zeros + "1 of 1 trajectories"}},
		{`{"role": [0, 2, 1], "old_logprobs": [0, 0, -1e-9]}`, nil},
		{`{"role": [0, 0], "old_logprobs": [0, 0]}` + "\n" + `{"role": [0, 2], "old_logprobs": [0, 0]}` + "\n" +
			`{"role": [1], "old_logprobs": [0]}`,
			[]string{"old_logprobs" + zeros + "2 of 2 trajectories"}},
		{`{"role": [1, 1, 1, 1, 1, 1, 1, 2], "old_logprobs": [0, 0, 0, 0, 0, 0, 0, 0]}` + "\n" +
			`{"role": [0, 2], "old_logprobs": [0, -1]}`,
			[]string{"old_logprobs" + zeros + "1 of 2 trajectories"}},
		{`{"role": [0, 1, 1, 1, 1, 1, 1, 2], "old_logprobs": [0, 0, 0, 0, 0, 0, 0, 0]}` + "\n" + `{"role": [0, 2], "old_logprobs": [0, -1]}`, nil}, // a short answer
		{`{"role": [2, 2], "old_logprobs": [-1, -1], "ref_logprobs": [0, 0], "rollout_logprobs": [0, 0]}`,
			[]string{"ref_logprobs" + zeros + "1 of 1 trajectories",
				"rollout_logprobs" + zeros + "1 of 1 trajectories"}},
		{`{"choices": [{"logprobs": {"content": [{"token": "a", "logprob": 0}, {"token": "b", "logprob": 0.0}]}}]}`, []string{"old_logprobs" + zeros + "1 of 1"}},
		{`{"meta_info": {"output_token_logprobs": [[0.0, 3, null], [0, 4, null]]}}`, []string{"old_logprobs" + zeros + "1 of 1"}},
		{`{"token_ids": [1, 2], "loss_mask": [0, 1], "inference_logprobs": [0, 0]}`, []string{"old_logprobs" + zeros + "1 of 1"}},
		{`{"token_ids": [[1, 2]], "token_loss_mask": [[0, 1]], "input_lengths": [2], "prev_logprobs": [[0, 0]], "generation_logprobs": [[0, 0]]}`,
			[]string{"old_logprobs" + zeros + "1 of 1", "rollout_logprobs" + zeros + "1 of 1"}},
	} {
		s := must.Get(Open(filepath.Join(writeFiles(t, map[string][]byte{"a.jsonl": []byte(c.lines)}), "a.jsonl")))
		defer s.Close()
		all(t, s)
		var got []string
		for _, warning := range s.Report().Warnings {
			if strings.Contains(warning, zeros) {
				got = append(got, warning)
			}
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: warnings %q, want %q", c.lines, got, c.want)
		}
	}
}

// A turn whose prompt is not the tokens before it makes one warning for the file, with the place
// of the first.
func TestRetold(t *testing.T) {
	turn := func(id int, ids, mask string) string {
		return fmt.Sprintf(`{"trajectory_id": %d, "token_ids": [%s], "mask": [%s]}`+"\n", id, ids, mask)
	}
	dir := writeFiles(t, map[string][]byte{
		"a.jsonl": []byte(turn(1, "1,2,3", "0,1,1") + turn(1, "1,2,3,4,5", "0,0,0,0,1") + turn(2, "1,2,3", "0,1,1") + turn(2, "3,4", "1,1")),
		"b.jsonl": []byte(turn(1, "1,2,3", "0,1,1") + turn(1, "1,23,4,5", "0,0,0,1") + turn(1, "1,23,4,5,6,7", "0,0,0,0,0,1") + turn(2, "1,2", "0,1") + turn(2, "1,2,3", "0,1,1")),
		"c.jsonl": []byte(turn(1, "1,2", "0,1") + turn(1, "7", "1") + turn(1, "2,7,8", "0,0,1")),
	})
	s := must.Get(Open(dir))
	defer s.Close()
	all(t, s)
	var got []string
	for _, warning := range s.Report().Warnings {
		if strings.Contains(warning, "the prompt of this turn") {
			got = append(got, warning)
		}
	}
	const is = ": the prompt of this turn is not known to be the tokens of the turns before it, and stands behind them whole: if it repeats them in other tokens, they are there twice. Such turns in the file: "
	want := []string{filepath.Join(dir, "b.jsonl") + ":2" + is + "3.", filepath.Join(dir, "c.jsonl") + ":3" + is + "1."}
	if !slices.Equal(got, want) {
		t.Errorf("warnings\n%q, want\n%q", got, want)
	}
}

// Numbers of one value are one id, whatever their spelling. What is no id is refused.
func TestIDs(t *testing.T) {
	ids := [][]string{ // one id each
		{"1", "1.0", "1e0", "10e-1", "0.1e1", "1.000", `"1"`},
		{"0", "-0", "-0.0", "0e7"},
		{"-1", "-1.0", "-0.1e1"},
		{"10", "1e1", "1E+1", "100e-1"},
		{"9007199254740992", "9007199254740992.0"}, {"9007199254740993", "9.007199254740993e15"}, {"9007199254740994"},
		{"123456789012345678901234567890", "1.2345678901234567890123456789e29"},
		{"1e300", "10e299", "1" + strings.Repeat("0", 300)}, {"1e400"},
		{"0.5", "5e-1", "0.50"}, {"1.5", "15e-1"}, {"1e-300"}, {"0.1"}, {"0.10000000000000000001"},
		{`"1.0"`}, {`"a"`, `"\u0061"`}, {`"A"`}, {`"\ud83d\ude00"`, `"😀"`}, {`"\ufffd"`, "\"\ufffd\""}, {`"\\ud83d"`}, {`"\\ud83d\ufffd"`}, {`"\ud83d\ude00\ufffd"`}, {`" a"`}, {`"true"`},
	}
	var text, same []byte
	for _, one := range ids {
		for _, id := range one {
			text = fmt.Appendf(text, `{"role": [1], "group_id": %s}`+"\n", id)
		}
		same = fmt.Appendf(same, `{"role": [1], "trajectory_id": %s, "group_id": "g"}`+"\n", one[0])
		for _, id := range one[1:] {
			same = fmt.Appendf(same, `{"role": [1], "trajectory_id": %s}`+"\n", id)
		}
	}
	dir := writeFiles(t, map[string][]byte{"a.jsonl": text, "b.jsonl": same})
	s := must.Get(Open(filepath.Join(dir, "a.jsonl")))
	defer s.Close()
	for i, one := range ids {
		for _, id := range one {
			if got := must.Get(s.Next()); got.GroupIDs[0] != int32(i) {
				t.Errorf("%s is group %d, want %d", id, got.GroupIDs[0], i)
			}
		}
	}
	s = must.Get(Open(filepath.Join(dir, "b.jsonl")))
	defer s.Close()
	if got := all(t, s); len(got) != len(ids) {
		t.Errorf("%d trajectories, want %d", len(got), len(ids))
	}
	for _, field := range []string{"group_id", "trajectory_id"} {
		for _, id := range []string{
			"true", "false", "[]", "[1]", "{}", `{"a": 1}`, "NaN", "Infinity", "-Infinity", "1e99999999999999999999", "1e-9999999999",
			`"\ud83d"`, `"\ude00"`, `"\ud83d\ud83d"`, `"\ude00\ud83d"`, `"\ud83dx"`, `"\ud83d\u0061"`, `"\ud83d\n"`, "\"\xff\"", "\"\xfe\"", "\"\xed\xa0\xbd\"",
		} {
			_, err := parseText(fmt.Sprintf(`{"role": [1], "%s": %s}`, field, id), parseJSONL)
			if err == nil || !strings.HasPrefix(err.Error(), field+" is ") ||
				!strings.Contains(err.Error(), ", want ") || printable.Line(err.Error()) != err.Error() {
				t.Errorf("%s %s: error %v", field, id, err)
			}
		}
	}
}
