package rollout

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
	"pgregory.net/rapid"
)

// TestWriteLines: each line has its numbers, and all other text is as it was.
func TestWriteLines(t *testing.T) {
	b := &reweight.Batch{Role: make([]reweight.Role, 5), SeqOffsets: []int64{0, 3, 5}}
	tensors := []Tensor{vector("weights", []float32{1, 0.5, -2, 1e-45, 3}), vector("advantages", []float32{10, 11, 12, 13, 14})}
	one, two := Part{0, 0, 3}, Part{1, 0, 2}
	for _, c := range []struct {
		text  string
		parts []Part
		want  string
	}{
		{`{"a":1}`, []Part{one, two}, `{"a":1,"weights":[[1,0.5,-2],[1e-45,3]],"advantages":[[10,11,12],[13,14]]}`},
		{"{ \"a\" : 1.50e0 ,\n \"z\":{\"weights\" : [ ]} \r\n}", []Part{two}, "{ \"a\" : 1.50e0 ,\n \"z\":{\"weights\" : [ ]},\"weights\":[1e-45,3],\"advantages\":[13,14] \r\n}"},
		{`{"advantages": [0.10, 2E5] , "b":"]}\"\u00e9"}`, []Part{two}, `{"advantages": [13,14] , "b":"]}\"\u00e9","weights":[1e-45,3]}`},
		{`{"advantages":[ [0, 0, 0] ]}`, []Part{two}, `{"advantages":[[13,14]],"weights":[[1e-45,3]]}`},
		{`{"advantages":null,"weights":[],"b":[[1]]}`, []Part{two}, `{"advantages":[13,14],"weights":[1e-45,3],"b":[[1]]}`},
		{`{"adv\u0061ntages":[1]}`, []Part{two}, `{"adv\u0061ntages":[13,14],"weights":[1e-45,3]}`},
		{`{}`, []Part{two}, `{"weights":[1e-45,3],"advantages":[13,14]}`},
		{`{"a":1}`, []Part{{0, 1, 2}}, `{"a":1,"weights":[0.5],"advantages":[11]}`},
		{`{"a":1}`, []Part{{1, 2, 2}}, `{"a":1,"weights":[],"advantages":[]}`},
	} {
		got, err := Line{[]byte(c.text), c.parts}.with(nil, b, tensors, nil)
		if err != nil || string(got) != c.want+"\n" {
			t.Errorf("%s: %v, got\n%s\nwant\n%s", c.text, err, got, c.want)
		}
	}
	var out bytes.Buffer
	lines := []Line{{[]byte(`{"a":1}`), []Part{one}}, {[]byte(`{"a":2,"estimates":1}`), []Part{two}}}
	if err := WriteLines(&out, lines, b, tensors[:1], map[string]string{"entropy": "an <estimate>"}); err != nil {
		t.Fatal(err)
	}
	const want = `{"a":1,"weights":[1,0.5,-2],"estimates":{"entropy":"an \u003cestimate\u003e"}}
{"a":2,"estimates":{"entropy":"an \u003cestimate\u003e"},"weights":[1e-45,3]}
`
	if out.String() != want {
		t.Errorf("\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	for _, c := range []struct {
		err  error
		want string
	}{
		{WriteLines(&out, lines[:1], b, tensors, nil), "only 3 of the 5 tokens come from lines of JSON: the others have none that could be written back"},
		{WriteLines(&out, lines, b, []Tensor{vector("x", []int32{1})}, nil), `tensor "x": want float32 of 5 tokens`},
		{WriteLines(&out, lines, b, []Tensor{vector("x", []float32{1})}, nil), `tensor "x": want float32 of 5 tokens`},
	} {
		if c.err == nil || c.err.Error() != c.want || out.Len() > 0 {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
}

// TestKeepLines: a source hands out the lines with the tokens that they gave.
func TestKeepLines(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.json")
	texts := []string{
		`{"mask":[0,1],"token_ids":[1,2],"group_id":"x"}`,
		`{"token_ids":[1,2,3] ,"mask":[0,1,1],"trajectory_id":7, "group_id":"x"}`,
		"{\"mask\":[0,1],\n\"token_ids\":[4,5],\"trajectory_id\":7}",
		`{"mask":[0,1],"token_ids":[1,2],"group_id":"x"}`,
		`{"mask":[0,1],"token_ids":[1,2],"group_id":"x"}`,
	}
	if err := os.WriteFile(a, []byte(strings.Join(texts[:4], "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b, []byte("[ "+texts[4]+" ]"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		source, err := Options{KeepLines: keep}.Open(a, b)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		batch, err := source.Batch()
		if err != nil {
			t.Fatal(err)
		}
		lines := source.Lines()
		if !keep {
			if lines != nil {
				t.Error("there are lines")
			}
			continue
		}
		if batch.Trajectories() != 4 || len(lines) != len(texts) {
			t.Fatalf("%d trajectories, %d lines", batch.Trajectories(), len(lines))
		}
		for i, want := range []Part{{0, 0, 2}, {1, 0, 3}, {1, 3, 5}, {2, 0, 2}, {3, 0, 2}} {
			if l := lines[i]; string(l.Text) != texts[i] || !slices.Equal(l.Parts, []Part{want}) {
				t.Errorf("line %d is %s with %v, want %s with %v", i, l.Text, l.Parts, texts[i], want)
			}
		}
	}
}

// TestWriteLinesReadBack: what is written is JSON with the same fields, the numbers are
// read back, and a second time changes nothing.
func TestWriteLinesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.StringMatching(`[ \t\r\n]{0,2}`)
		values := rapid.SampledFrom([]string{"1", "-0.0", "1e5", `"x\"}"`, "null", "[1, [2]]", `{"weights":[1]}`, "[[]]", "[ ]"})
		var text strings.Builder
		text.WriteByte('{')
		for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "weights", "advantages", "z"}), 1, 5, rapid.ID).Draw(t, "names") {
			if i > 0 {
				text.WriteByte(',')
			}
			text.WriteString(space.Draw(t, "s") + `"` + name + `"` + space.Draw(t, "s") + ":" + space.Draw(t, "s") + values.Draw(t, "value") + space.Draw(t, "s"))
		}
		text.WriteByte('}')
		n := rapid.IntRange(1, 4).Draw(t, "tokens")
		b := &reweight.Batch{Role: make([]reweight.Role, n), SeqOffsets: []int64{0, int64(n)}}
		numbers := rapid.SliceOfN(rapid.Float32(), n, n).Draw(t, "numbers")
		tensors := []Tensor{vector("weights", numbers), vector("advantages", numbers)}
		line := Line{[]byte(text.String()), []Part{{0, 0, n}}}
		before, err := line.fields()
		if err != nil {
			t.Fatal(err)
		}
		once, err := line.with(nil, b, tensors, nil)
		if err != nil {
			t.Fatal(err)
		}
		again := Line{bytes.TrimSuffix(once, []byte("\n")), line.Parts}
		after, err := again.fields()
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		for i, f := range before {
			g := after[i]
			if g.name != f.name || f.name != "weights" && f.name != "advantages" && !bytes.Equal(line.Text[f.begin:f.end], again.Text[g.begin:g.end]) {
				t.Fatalf("%s became %s", line.Text, once)
			}
		}
		for _, f := range after {
			if f.name == "weights" || f.name == "advantages" {
				var s jsonscan.Scanner
				s.Reset(bytes.Replace(bytes.Replace(again.Text[f.begin:f.end], []byte("[["), []byte("["), 1), []byte("]]"), []byte("]"), 1))
				got, err := s.Floats(nil)
				if err != nil || !slices.Equal(got, numbers) {
					t.Fatalf("%s is read as %v, want %v", again.Text[f.begin:f.end], got, numbers)
				}
			}
		}
		if twice, err := again.with(nil, b, tensors, nil); err != nil || !bytes.Equal(twice, once) {
			t.Fatalf("%s became %s, %v", once, twice, err)
		}
	})
}
