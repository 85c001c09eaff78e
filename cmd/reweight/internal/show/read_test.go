package show

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// A source has these trajectories.
type source struct {
	trajectories []*rollout.Trajectory
	report       rollout.Report
	err          error // after the last, instead of io.EOF
}

func (s *source) Next() (*rollout.Trajectory, error) {
	if len(s.trajectories) == 0 {
		if s.err != nil {
			return nil, s.err
		}
		return nil, io.EOF
	}
	next := s.trajectories[0]
	s.trajectories = s.trajectories[1:]
	return next, nil
}

func (s *source) Guard(do func() error) error { return do() }
func (s *source) Report() rollout.Report      { return s.report }

// frozenLake returns the embedded rollouts, in two files, and as one batch.
func frozenLake(t *testing.T) (*source, *reweight.Batch) {
	t.Helper()
	file := must.Get(rollout.Parse(testdata.FrozenLakeSmall))
	b := must.Get(file.Batch())
	lake := must.Get(rollout.Open("../../../../testdata/frozenlake-small.safetensors"))
	t.Cleanup(func() { lake.Close() })
	src := &source{report: rollout.Report{Arrays: []rollout.Origin{{Name: "group_ids"}}}}
	for s := range b.Trajectories() {
		r := must.Get(lake.Next())
		r.File, r.Group = "one", fmt.Sprintf("g%d", b.GroupIDs[s])
		if s >= 20 {
			r.File, r.Line = "two", s
		}
		src.trajectories = append(src.trajectories, r)
	}
	return src, b
}

func choice(t *testing.T, text string) Choice {
	t.Helper()
	return must.Get(ParseChoice(text))
}

// TestRead: every token has the figures that the library computes for the whole batch.
func TestRead(t *testing.T) {
	for _, signal := range []reweight.Signal{reweight.SignalEnergy, reweight.SignalSurprisal, reweight.SignalLogRatio} {
		src, b := frozenLake(t)
		p, err := Read(src, Options{Chosen: choice(t, "31,2-3"), Signal: signal})
		if err != nil {
			t.Fatal(err)
		}
		var ws reweight.Workspace
		weights, factors, advantages := make([]float32, b.Tokens()), make([]float32, b.Tokens()),
			make([]float32, b.Tokens())
		opt := reweight.DefaultActFocus
		opt.Signal = signal
		_, err = ws.ActFocus(weights, b, opt)
		must.Do(errors.Join(err, ws.AEM(factors, b, reweight.DefaultAEM), ws.GRPO(advantages, b, reweight.DefaultGRPO)))
		if len(p.Trajectories) != 3 {
			t.Fatalf("%d trajectories", len(p.Trajectories))
		}
		for i, s := range []int{2, 3, 31} {
			r := p.Trajectories[i]
			from := b.SeqOffsets[s]
			if len(r.Tokens) != int(b.SeqOffsets[s+1]-from) {
				t.Fatalf("%d tokens", len(r.Tokens))
			}
			for j, token := range r.Tokens {
				at := from + int64(j)
				want := Token{fmt.Sprintf("#%d", b.TokenIDs[at]), b.Role[at], nan, nan, float64(weights[at]), nan, nan}
				if b.Role[at] != reweight.RoleMasked {
					want.Entropy, want.Logprob, want.Factor, want.Advantage = float64(b.Entropy[at]),
						float64(b.OldLogprobs[at]), float64(factors[at]), float64(advantages[at])
				}
				if fmt.Sprint(token) != fmt.Sprint(want) { // NaN is not NaN
					t.Fatalf("%v: token %d of %d is %v, want %v", signal, j, s, token, want)
				}
			}
		}
		if got, want := p.Trajectories[2].Title,
			"Trajectory 31 of two, line 31: group g3, reward "; !strings.HasPrefix(got, want) {
			t.Errorf("title %q, want %q", got, want)
		}
		if want := []string{"Tokens without a text are shown as #ID: -vocab-file names a file that has the texts."}; !slices.Equal(p.Notes, want) {
			t.Errorf("notes %q", p.Notes)
		}
	}
}

// TestMissing: what is missing leaves out what is computed from it, with a note.
func TestMissing(t *testing.T) {
	has := func(figures [][2]string, name string) bool {
		return slices.ContainsFunc(figures, func(f [2]string) bool { return f[0] == name })
	}
	for _, c := range []struct {
		drop func(*rollout.Trajectory)
		gone string // figures, separated by |
		note string
	}{
		{func(r *rollout.Trajectory) { r.RefEnergy = nil }, "", "ActFocus is left out: ref_energy is missing, and cannot be derived without ref_logits. With -signal surprisal it takes old_logprobs instead."},
		{func(r *rollout.Trajectory) { r.RefEnergy, r.OldLogprobs = nil, nil }, "mean surprisal", "ActFocus is left out: ref_energy is missing, and cannot be derived without ref_logits."},
		{func(r *rollout.Trajectory) { r.Entropy = nil }, "mean entropy|AEM factor", "AEM is left out: entropy is missing, and cannot be derived without old_logits. With -surprisal-entropy it takes old_logprobs instead."},
		{func(r *rollout.Trajectory) { r.SpanIDs = nil }, "AEM factor", "AEM is left out: span_ids is missing."},
		{func(r *rollout.Trajectory) { r.Rewards = nil }, "advantage", "Advantages are left out: rewards is missing."},
		{func(r *rollout.Trajectory) { r.GroupIDs = nil }, "advantage|AEM factor", "Advantages are left out: group_ids is missing."},
		{func(r *rollout.Trajectory) { r.RefEnergy, r.Entropy = nil, nil }, "reasoning weighs|action weighs|mean entropy|AEM factor", "AEM is left out: entropy is missing, and cannot be derived without old_logits. With -surprisal-entropy it takes old_logprobs instead."},
		{func(r *rollout.Trajectory) { r.Rewards, r.Advantages = nil, make([]float32, len(r.Role)) }, "", "The advantages are the file's own, because rewards is missing."},
		{func(r *rollout.Trajectory) { r.TokenIDs = nil }, "", "Tokens without a text are shown as #ID: -vocab-file names a file that has the texts."},
		{func(r *rollout.Trajectory) {
			for i, role := range r.Role {
				r.Role[i] = min(role, reweight.RoleReasoning)
			}
		}, "action weighs", ""}, // the report has a warning
	} {
		src, _ := frozenLake(t)
		for _, r := range src.trajectories {
			r.Role = slices.Clone(r.Role)
			c.drop(r)
		}
		p, err := Read(src, Options{Chosen: choice(t, "0")})
		if err != nil {
			t.Errorf("%s: %v", c.note, err)
			continue
		}
		if c.note != "" && !slices.Contains(p.Notes, c.note) {
			t.Errorf("notes %q, want %q", p.Notes, c.note)
		}
		figures := p.Figures(p.Trajectories[0], p.Trajectories[0].Turns[0])
		for _, name := range []string{"tokens read", "tokens written", "mean entropy", "mean surprisal", "AEM factor",
			"advantage", "reasoning weighs", "action weighs"} {
			if gone := slices.Contains(strings.Split(c.gone, "|"), name); has(figures, name) == gone {
				t.Errorf("%s: figures %v, %q gone: %v", c.note, figures, name, gone)
			}
		}
	}
}

// TestEstimates: they are marked, and a note says what they are.
func TestEstimates(t *testing.T) {
	src, _ := frozenLake(t)
	src.report.Arrays = append(src.report.Arrays,
		rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: "surprisal", Width: math.Inf(1)})
	src.report.Warnings = []string{"A warning."}
	p := must.Get(Read(src, Options{Chosen: choice(t, "1")}))
	if want := "Figures with ~ are estimates: entropy is estimated from surprisal, without bounds."; !slices.Contains(p.Notes, want) || !slices.Contains(p.Notes, "A warning.") {
		t.Errorf("notes %q", p.Notes)
	}
	for _, f := range p.Figures(p.Trajectories[0], p.Trajectories[0].Turns[0]) {
		estimated := f[0] == "mean entropy" || f[0] == "AEM factor" || strings.HasSuffix(f[0], "weighs")
		if strings.HasPrefix(f[1], "~") != estimated {
			t.Errorf("%s is %s", f[0], f[1])
		}
	}
}

// TestReadErrors: they name the file, and the trajectory or its line.
func TestReadErrors(t *testing.T) {
	wrong := func(s int, change func(*rollout.Trajectory)) func(*source) {
		return func(src *source) { change(src.trajectories[s]) }
	}
	spoil := func(x []float32) []float32 {
		x = slices.Clone(x)
		for i := range x {
			x[i] = float32(nan)
		}
		return x
	}
	for _, c := range []struct {
		change func(*source)
		want   string
	}{
		{func(s *source) { s.err = errors.New("bad line") }, "bad line"},
		{func(s *source) { s.trajectories = nil }, "there are no tokens"},
		{wrong(3, func(r *rollout.Trajectory) { r.RefEnergy = spoil(r.RefEnergy) }), "one: trajectory 3: ref_energy[48] is NaN at an action token"},
		{wrong(25, func(r *rollout.Trajectory) { r.RefEnergy = spoil(r.RefEnergy) }), "two:25: ref_energy["},
		{wrong(25, func(r *rollout.Trajectory) { r.Rewards = spoil(r.Rewards) }), "two:25: rewards[0] is NaN, want a finite reward"},
		{wrong(25, func(r *rollout.Trajectory) { r.Entropy = spoil(r.Entropy) }), "two:25: entropy["},
		{func(s *source) { s.trajectories = s.trajectories[:2] }, "-trajectory has 2, want 0 to 1"},
	} {
		src, _ := frozenLake(t)
		c.change(src)
		if _, err := Read(src, Options{Chosen: choice(t, "2")}); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// TestReadBound: what is more than a person reads is refused while the source is read.
func TestReadBound(t *testing.T) {
	for text, want := range map[string]string{
		"0": "the end",
		"1": "long: trajectory 0: the trajectories of -trajectory have more than 1,048,576 tokens up to here, want at most that: choose fewer",
	} {
		src, _ := frozenLake(t)
		src.trajectories[1] = &rollout.Trajectory{File: "long",
			Batch: reweight.Batch{Role: make([]reweight.Role, maxShown+1)}}
		src.trajectories, src.err = src.trajectories[:2], errors.New("the end")
		if _, err := Read(src, Options{Chosen: choice(t, text)}); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}

func TestParseChoice(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "3": "3", "0-2": "0 1 2", "7,2-3,2": "2 3 7", "5-5": "5"} {
		c := choice(t, text)
		var got []string
		for n := range 10 {
			if c.has(n) {
				got = append(got, fmt.Sprint(n))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q is %v, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "1-", "3-2", "1,", "1.5", "1-2-3", "99999999999", "+1", " 1"} {
		if c, err := ParseChoice(text); err == nil {
			t.Errorf("%q is %v", text, c)
		}
	}
}

// TestTurns: where turns begin and end. m is a masked token, r a response's; a digit
// under it is its span.
func TestTurns(t *testing.T) {
	for _, c := range []struct{ roles, spans, want string }{
		{"mmrrmrm", "..00.1.", "[{0 2 4} {4 5 6} {6 7 7}]"},
		{"mmrrmrm", "", "[{0 2 4} {4 5 6} {6 7 7}]"},
		{"rrr", "011", "[{0 0 1} {1 1 3}]"},
		{"mrmrm", ".000.", "[{0 1 4} {4 5 5}]"}, // a masked token within an answer
		{"mrmrm", ".0.0.", "[{0 1 4} {4 5 5}]"},
		{"rmr", "...", "[{0 0 1} {1 2 3}]"},
		{"mm", "..", "[{0 2 2}]"},
		{"", "", "[]"},
	} {
		var roles []reweight.Role
		var spans []int32
		for _, r := range c.roles {
			roles = append(roles, map[rune]reweight.Role{'m': reweight.RoleMasked, 'r': reweight.RoleReasoning}[r])
		}
		for _, s := range c.spans {
			spans = append(spans, map[rune]int32{'.': -1, '0': 0, '1': 1}[s])
		}
		if got := fmt.Sprint(turns(roles, spans)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.roles, c.spans, got, c.want)
		}
	}
}

// TestStep: the scale has round steps and reaches to the largest weight.
func TestStep(t *testing.T) {
	for most, want := range map[float64]float64{0.2: 0.1, 1: 0.1, 1.01: 0.2, 2: 0.2, 2.4: 0.25, 2.6: 0.5, 7: 1,
		1e6: 1e5, math.Inf(1): math.Inf(1)} {
		p := pageOf(action("x", most/0.8))
		if got := p.Step(); math.Abs(got-want) > 1e-9*want {
			t.Errorf("the step for %v is %v, want %v", most, got, want)
		}
	}
}
