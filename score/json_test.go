package score

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/rollout"
)

// partials returns partials of all kinds as text: of rewards and of advantages, of one
// file and of several, with estimates and with nothing.
func partials(t testing.TB) [][]byte {
	all := trajectories(frozenLake(t))
	given := *all[3]
	given.Rewards, given.Advantages = nil, make([]float32, given.Tokens())
	estimated := mustOf(t, Default, named("<e>\u2028", all[5]))
	estimated.files[0].Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: "top 20 log-probabilities", Width: 0.051}
	unbounded := mustOf(t, Default, named("u", all[6]))
	unbounded.files[0].Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: "surprisal", Width: math.Inf(1)}
	var texts [][]byte
	for _, p := range []*Partial{
		mustOf(t, Default), mustOf(t, Default, named("a", all[0])), mustOf(t, Default, named("g", &given)),
		mustMerge(t, estimated, unbounded), mustOf(t, Default, deal(all, 3, 1)...), mustOf(t, Default, counted("l", 1, all[7])),
	} {
		reread(t, p)
		texts = append(texts, marshal(t, p))
	}
	return texts
}

// TestEstimates: which files have estimated entropies survives merging and writing.
func TestEstimates(t *testing.T) {
	p := must.Get(Decode(bytes.NewReader(partials(t)[3])))
	got := ""
	for f := range mustMerge(t, p, mustOf(t, Default, named("x", trajectories(frozenLake(t))[0]))).Files() {
		if f.Entropy != nil {
			got += fmt.Sprintf("%s: %v\n", f.Name, *f.Entropy)
		}
	}
	for _, want := range []string{"<e>\u2028: {entropy 2 top 20 log-probabilities 0.051}\n", "u: {entropy 2 surprisal +Inf}\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("estimates are %s, want %s", got, want)
		}
	}
}

// TestSmall: a partial is small: some hundred bytes, and for each group as many, and its
// spans.
func TestSmall(t *testing.T) {
	p := mustOf(t, Default, named("a", trajectories(frozenLake(t))...))
	n := p.Totals()
	if size, most := len(marshal(t, p)), 500+300*n.Groups+6*n.Spans; size > most {
		t.Errorf("%d bytes, want at most %d", size, most)
	}
}

// TestSpace: white space around and within the text does not count.
func TestSpace(t *testing.T) {
	for _, text := range partials(t) {
		var indented bytes.Buffer
		must.Do(json.Indent(&indented, text, " ", "\t"))
		if _, err := Decode(&indented); err != nil {
			t.Error(err)
		}
	}
}

// TestHostile: what MarshalJSON does not write is refused in one line.
func TestHostile(t *testing.T) {
	texts := partials(t)
	for _, c := range []struct{ old, new, want string }{
		{`"reweight_partial":2`, `"reweight_partial":1`, "reweight_partial is 1, want 2"},
		{`"reweight_partial":2`, `"x":1`, "reweight_partial is missing"},
		{`"reweight_partial":2`, `"Reweight_partial":2`, "reweight_partial is missing"},
		{`"signal":"energy"`, `"signal":"heat"`, `is "heat", want one of`},
		{`"advantages":"rewards"`, `"advantages":"rewards","advantages":"rewards"`, "not as it was written"},
		{`"advantages":"rewards"`, `"advantages":"luck"`, "rewards are there if advantages come from them"},
		{`"advantages":"advantages"`, `"advantages":""`, `advantages is "", want "rewards" or "advantages"`},
		{`"advantages":"rewards"`, `"advantages":"rewards","extra":0`, "not as it was written"},
		{`"advantages":"rewards"`, `"advantages":7`, "cannot unmarshal"},
		{`"files":[`, `"files":null,"x":[`, "not as it was written"},
		{`"sha256":"`, `"sha256":"00`, "want 64 hexadecimal digits"},
		{`"sha256":"`, `"sha256":"x`, "want 64 hexadecimal digits"},
		{`"trajectories":1,`, `"trajectories":0,`, "has 0 trajectories"},
		{`"trajectories":1,`, `"trajectories":2,`, "groups have 1 rewards, but files have 2 trajectories"},
		{`"trajectories":1,`, `"trajectories":9007199254740993,`, "want at least 1, and at most 9007199254740992"},
		{`"trajectories":1,"tokens":`, `"trajectories":1,"tokens":-`, "tokens, want at least 1"},
		{`"actions":{"n":`, `"actions":{"n":9`, "actions: "},
		{`"actions":{"n":`, `"actions":{"n":-`, "actions: n is -"},
		{`"actions":{"n":`, `"actions":{"n":1e`, "cannot unmarshal"},
		{`"sum":"-0x`, `"sum":"-0x0`, "not as it was written"},
		{`"sum":"-0x`, `"sum":"-0xffffffff`, "squares is too small"},
		{`"sum":"-0x`, `"sum":"-1x`, "want a number such as"},
		{`"squares":"0x`, `"squares":"-0x`, "squares is negative"},
		{`"groups":[`, `"groups":[{"id":"~","file":0,"rewards":{"n":1,"sum":"0x0p0","squares":"0x0p0"},"spans":""},`, "not in order"},
		{`"file":0`, `"file":1`, "file is none of the 1 files"},
		{`"file":0`, `"file":-1`, "file is none of the 1 files"},
		{`"file":0,`, ``, "file is none of the 1 files"},
		{`"prompt":"`, `"prompt":"0`, "prompt is"},
		{`"rewards":{"n":1`, `"rewards":{"n":0`, "rewards: n is 0, want at least 1"},
		{` group 0"`, ` group 1"`, "its number is 1, but the file has 1 trajectories"},
		{` group 0"`, ` group x"`, "its number is x"},
		{` group 0"`, ` group 00"`, "its number is 00"},
		{`"id":"file `, `"id":"file 0`, "its id has "},
		{`"spans":"`, `"spans":"AACAfw`, "spans is not base64"},
		{`"spans":"`, `"spans":"AAAAAAAA`, "spans is not base64"},
		{`"spans":"`, `"spans":"AACAfwAAgH8AAIB/`, "spans[0] is +Inf"},
		{`"spans":"`, `"spans":"AAAAgAAAAAAAAAAA`, "spans[0] is -0"},
		{`"spans":"`, `"spans":"AACAPwAAAAAAAIA/`, "spans[1] is 0, below the 1 before it"},
		{`"spans":"`, `"spans":" `, "spans is not base64"},
		{`"id":"`, `"id":"` + strings.Repeat("x", 65), "its id has 66 bytes, want at most 64"},
		{`"width":0.051`, `"width":-1`, "width is -1"},
		{`"width":null`, `"width":"x"`, "cannot unmarshal"},
		{`}`, `}}`, "not as it was written"},
		{`]}`, `]}}`, "invalid character"},
		{`]}`, `]}{}`, "more than one JSON value"},
		{`{`, `[`, "reweight_partial is missing"},
	} {
		found := false
		for _, text := range texts {
			bad := strings.Replace(string(text), c.old, c.new, 1)
			if bad == string(text) {
				continue
			}
			err := decode(bad)
			if err == nil { // of this one it makes another partial
				continue
			}
			found = found || strings.Contains(err.Error(), c.want)
			if s := err.Error(); strings.ContainsAny(s, "\n\u202e") || len(s) > 600 {
				t.Errorf("%s for %s: error %q is not one short line", c.new, c.old, s)
			}
		}
		if !found {
			t.Errorf("%s for %s: no error says %q", c.new, c.old, c.want)
		}
	}
	for _, text := range []string{"", "null", "0", "[]", "{}", `"x"`, `{"reweight_partial":2}`, `{"reweight_partial":null}`, strings.Repeat("[", 1<<20)} {
		if err := decode(text); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
	text := string(texts[3])
	for n := range len(text) - 1 { // the last byte ends the line
		if err := decode(text[:n]); err == nil {
			t.Fatalf("%d of %d bytes are taken: %s", n, len(text), text[:n])
		}
	}
}

func decode(text string) error {
	_, err := Decode(strings.NewReader(text))
	return err
}

// checkText reads any text as a partial: no panic, memory of the order of its size, an
// error or a partial that is written as the same text and can be used.
func checkText(t *testing.T, text []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := Decode(bytes.NewReader(text))
	runtime.ReadMemStats(&after)
	if n, most := after.TotalAlloc-before.TotalAlloc, uint64(100*len(text)+1<<16); n > most {
		t.Errorf("%d bytes of text made %d bytes of allocations", len(text), n)
	}
	if err != nil {
		return
	}
	var compact bytes.Buffer
	must.Do(json.Compact(&compact, text))
	if again := marshal(t, p); !bytes.Equal(bytes.TrimSpace(again), compact.Bytes()) {
		t.Fatalf("%s is written as %s", text, again)
	}
	p.Totals()
	if n := len(p.files); n > 0 {
		if _, err := merge(p, p); err == nil {
			t.Error("its files are taken twice")
		}
	}
	opt := Default
	opt.ActFocus.Signal, opt.AEM.Scope = p.signal, reweight.ScopeBatch
	if _, err := newApplier(p, opt); err != nil {
		t.Error(err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, text := range partials(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkText(t, text) })
}

// FuzzSpoiled reads partials of which some values, names or signs are others, or are
// there twice or not at all: of more of them than of random bytes the form is right.
func FuzzSpoiled(f *testing.F) {
	texts := partials(f)
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		checkText(t, spoiled(rng, texts[rng.IntN(len(texts))]))
	})
}

var token = regexp.MustCompile(`"[^"]*"|-?[0-9.]+|[][{}:,]|null`)

// spoiled changes one to three tokens of the text.
func spoiled(rng *rand.Rand, text []byte) []byte {
	tokens := token.FindAllString(string(text), -1)
	for range 1 + rng.IntN(3) {
		i, other := rng.IntN(len(tokens)), tokens[rng.IntN(len(tokens))]
		switch rng.IntN(6) {
		case 0:
			tokens[i] = other
		case 1:
			tokens[i] += other
		case 2:
			tokens[i] = ""
		case 3:
			bad := []string{"0", "1", "-1", "9007199254740992", "9223372036854775807", "1e309", "0.5", "null", `""`, `"0x0p0"`, `"-0x1p-149"`, `"0x1p277"`, `"AACAPw=="`, `"\ud800"`, "[]", "{}", "true"}
			tokens[i] = bad[rng.IntN(len(bad))]
		case 4: // another digit
			if b := []byte(tokens[i]); len(b) > 2 {
				b[1+rng.IntN(len(b)-2)] = "0123456789abcdefp-+/=A\\"[rng.IntN(23)]
				tokens[i] = string(b)
			}
		case 5: // a piece twice or not at all
			if j := i + rng.IntN(len(tokens)-i); rng.IntN(2) == 0 {
				tokens = slices.Insert(tokens, i, tokens[i:j]...)
			} else if len(tokens) > j-i+1 {
				tokens = slices.Delete(tokens, i, j)
			}
		}
	}
	return []byte(strings.Join(tokens, ""))
}
