package score

import (
	"bytes"
	"crypto/sha256"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// partials returns partials of all kinds as text: of rewards and of advantages, of one
// file and of several, with estimates and with nothing.
func partials(t testing.TB) [][]byte {
	all := trajectories(t)
	given := *all[3]
	given.Rewards, given.Advantages = nil, make([]float32, given.Tokens())
	estimated := mustOf(t, Default, named("<e>\u2028", all[5]))
	estimated.files[0].Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated,
		From: "top 20 log-probabilities", Width: 0.051}
	unbounded := mustOf(t, Default, named("u", all[6]))
	unbounded.files[0].Entropy = &rollout.Origin{Name: "entropy", Kind: rollout.Estimated, From: "surprisal",
		Width: math.Inf(1)}
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

// TestSmall: a partial is small: some hundred bytes, and for each group as many, and its
// trajectories and spans.
func TestSmall(t *testing.T) {
	p := mustOf(t, Default, named("a", trajectories(t)...))
	n := p.Totals()
	if size, most := len(marshal(t, p)), 500+200*n.Groups+6*(int(n.Trajectories)+n.Spans); size > most {
		t.Errorf("%d bytes, want at most %d", size, most)
	}
}

// TestHostile: what Apply cannot use is refused in one line.
func TestHostile(t *testing.T) {
	texts := partials(t)
	const infinity = "AACAfw=="
	for _, c := range []struct{ old, new, want string }{
		{`"reweight_partial":4`, `"reweight_partial":2,"files":[]`, "reweight_partial is 2, want 4"},
		{`"reweight_partial":4`, `"x":1`, "reweight_partial is missing"},
		{`"signal":"energy"`, `"signal":"heat"`, `is "heat", want one of`},
		{`"advantages":"rewards"`, `"advantages":"luck"`, `advantages is "luck", want "rewards" or "advantages"`},
		{`"advantages":"rewards"`, `"advantages":7`, "cannot unmarshal"},
		{`"files":1`, `"files":2`, "files[1]: sha256 has 0 bytes, want 32"},
		{`"groups":1`, `"groups":2`, "files or groups are not in order"},
		{`"groups":1`, `"groups":0`, "more lines than the first one says"},
		{`"sha256":"`, `"sha256":"AAAA`, "files[0]: sha256 has 35 bytes, want 32"},
		{`"sha256":"`, `"sha256":"!`, "illegal base64"},
		{`"actions":{"n":`, `"actions":{"n":-`, "actions: no -"},
		{`"actions":{"n":`, `"actions":{"n":1e`, "cannot unmarshal"},
		{`"sum":-`, `"sum":-9`, "values of float32 have these sums"},
		{`"sum":-`, `"sum":"-`, "invalid"},
		{`"file":0`, `"file":1`, "groups[0]: file is 1, of 1 files"},
		{`"file":0`, `"file":-1`, "groups[0]: file is -1, of 1 files"},
		{`"spans":"`, `"spans":"AAAA`, "spans: not float32 values in order, of a magnitude of at most 1e+30"},
		{`"spans":"`, `"spans":"` + infinity + `","x":"`, "spans: not float32 values in order"},
		{`"rewards":"`, `"rewards":"` + infinity + `","x":"`, "rewards: not float32 values in order"},
		{`"rewards":"`, `"rewards":"AAAAAAAAgL8=","x":"`, "rewards: not float32 values in order"},
		{`"width":null`, `"width":"x"`, "cannot unmarshal"},
		{"}\n", "}}\n", "invalid character"},
		{`{`, `[`, "invalid character"},
	} {
		found := false
		for _, text := range texts {
			bad := strings.Replace(string(text), c.old, c.new, 1)
			if bad == string(text) {
				continue
			}
			err := decodeText(bad)
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
	for _, text := range []string{
		"", "null", "0", "[]", "{}", `"x"`, `{"reweight_partial":4,"files":1}`, `{"reweight_partial":null}`, strings.Repeat("[", 1<<20),
	} {
		if err := decodeText(text); err == nil {
			t.Errorf("%.20q is taken", text)
		}
	}
	text := string(texts[3])
	for n := range len(text) {
		if err := decodeText(text[:n]); err == nil {
			t.Fatalf("%d of %d bytes are taken: %s", n, len(text), text[:n])
		}
	}
	lines := strings.SplitAfter(text, "\n")
	lines[1], lines[2] = lines[2], lines[1]
	if err := decodeText(strings.Join(lines, "")); err == nil || err.Error() != "files or groups are not in order" {
		t.Errorf("error %v", err)
	}
}

// TestEveryByte: a partial of which a byte is another, is missing or is there twice is refused.
func TestEveryByte(t *testing.T) {
	changed := 0
	for _, text := range partials(t) {
		text = text[:min(len(text), 1024)]
		if decodeText(string(text)) != nil { // it was longer
			continue
		}
		try := func(bad []byte) {
			changed++
			if err := decodeText(string(bad)); err == nil {
				t.Errorf("%s is taken for %s", bad, text)
			} else if s := err.Error(); printable.Line(s) != s || len(s) > 600 {
				t.Errorf("error %q is not one short line", s)
			}
		}
		for i, c := range text {
			for _, other := range []byte("0A\" \n") {
				if other != c {
					try(slices.Replace(slices.Clone(text), i, i+1, other))
				}
				try(slices.Insert(slices.Clone(text), i, other))
			}
			for bit := range 8 {
				try(slices.Replace(slices.Clone(text), i, i+1, c^1<<bit))
			}
			try(slices.Delete(slices.Clone(text), i, i+1))
		}
		try(append(slices.Clone(text), '\n'))
	}
	if changed < 10000 {
		t.Errorf("only %d texts were tried", changed)
	}
}

// TestNames: a name of a file that could change how a terminal shows the text is escaped.
func TestNames(t *testing.T) {
	const name = "a\u202e\x1b[2J\u2066\u009b##[error]"
	p := mustOf(t, Default, named(name, trajectories(t)[0]))
	text := strings.Split(string(marshal(t, p)), "\n")
	if want := `"name":"a\u202e\u001b[2J\u2066\u009b#\u0023[error]"`; !strings.Contains(text[1], want) ||
		printable.Line(text[1]) != text[1] {
		t.Errorf("%q, want %s in it", text[1], want)
	}
	if got := reread(t, p).files[0].Name; got != name {
		t.Errorf("the name is %q, want %q", got, name)
	}
}

// summed returns lines with the right sum in the place of the last one.
func summed(text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	sum := sha256.New()
	var all []byte
	for _, line := range lines[:max(len(lines)-2, 0)] {
		all = append(all, line...)
	}
	sum.Write(all)
	return append(all, lastLine(sum)...)
}

func decodeText(text string) error {
	_, err := Decode(strings.NewReader(text))
	return err
}

// checkText reads any text as a partial: no panic, memory of the order of its size, an
// error or a partial that can be written, read and used.
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
	p = reread(t, p)
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
	f.Fuzz(func(t *testing.T, text []byte) {
		checkText(t, text)
		checkText(t, summed(text))
	})
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
		text := damaged(rng, texts[rng.IntN(len(texts))])
		checkText(t, text)
		checkText(t, summed(text))
	})
}

var token = regexp.MustCompile(`"[^"]*"|-?[0-9.]+|[][{}:,]|null`)

// damaged changes one to three tokens of the text.
func damaged(rng *rand.Rand, text []byte) []byte {
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
			bad := []string{"0", "1", "-1", "9007199254740992", "9223372036854775807", "1e309", "0.5", "null", `""`,
				"-123456789012345678901234567890", `"AACAPw=="`, `"\ud800"`, "[]", "{}", "true"}
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
