package rollout

import (
	"bytes"
	"fmt"
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
	one, two := Part{0, 0, 3, 0, 0}, Part{1, 0, 2, 0, 0}
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
		{`{"a":1}`, []Part{{0, 1, 2, 0, 0}}, `{"a":1,"weights":[0.5],"advantages":[11]}`},
		{`{"a":1}`, []Part{{1, 2, 2, 0, 0}}, `{"a":1,"weights":[],"advantages":[]}`},
		{`{"a":1}`, []Part{{1, 1, 2, 2, 0}}, `{"a":1,"weights":[0,0,3],"advantages":[0,0,14]}`},
		{`{"a":[[1,2,3,0]]}`, []Part{{1, 0, 2, 1, 1}}, `{"a":[[1,2,3,0]],"weights":[0,1e-45,3,0],"advantages":[0,13,14,0]}`},
		{`{"a":1}`, []Part{{1, 2, 2, 1, 0}}, `{"a":1,"weights":[0],"advantages":[0]}`},
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
		{WriteLines(&out, append(lines, Line{lines[0].Text, []Part{{2, 0, 1, 0, 0}}}), b, tensors, nil), "line 3 of JSON has tokens of trajectory 2, want one of the 2 of the batch"},
		{WriteLines(&out, append(lines, Line{lines[0].Text, []Part{{1, 0, 3, 0, 0}}}), b, tensors, nil), "line 3 of JSON has the tokens 0 to 3 of trajectory 1, want some of its 2"},
		{WriteLines(&out, append(lines, Line{lines[0].Text, []Part{{1, 1, 2, 0, 0}}}), b, tensors, nil), "line 3 of JSON has token 1 of trajectory 1, which a line before it has"},
		{WriteLines(&out, lines, b, []Tensor{vector("x", []int32{1})}, nil), `tensor "x": want float32 of 5 tokens`},
		{WriteLines(&out, lines, b, []Tensor{vector("x", []float32{1})}, nil), `tensor "x": want float32 of 5 tokens`},
	} {
		if c.err == nil || c.err.Error() != c.want || out.Len() > 0 {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
}

// TestKeepLines: a source hands out the lines with the tokens that they gave, in several
// files and with turns that repeat those before, and each line is written with its own
// numbers.
func TestKeepLines(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		var texts []string
		var want [][]float32 // the number of each token of a line: its id, or 0 where it repeats
		var numbers []float32
		next := int32(1)
		for f := range rapid.IntRange(1, 3).Draw(t, "files") {
			first := len(texts)
			for range rapid.IntRange(1, 4).Draw(t, "trajectories") {
				group := next
				var before []int32
				turns := rapid.IntRange(1, 4).Draw(t, "turns")
				for turn := range turns {
					var ids []int32
					repeats := rapid.Bool().Draw(t, "repeats")
					if repeats {
						ids = slices.Clone(before)
					}
					line := make([]float32, len(ids))
					mask := make([]int32, len(ids))
					for i := range rapid.IntRange(1, 3).Draw(t, "tokens") {
						ids = append(ids, next)
						before = append(before, next)
						numbers = append(numbers, float32(next))
						line = append(line, float32(next))
						mask = append(mask, int32(min(i, 1)))
						next++
					}
					text, id := "", ""
					if turns > 1 {
						id = fmt.Sprintf(`,"trajectory_id":%d`, turns*1000+int(before[0]))
					}
					text = fmt.Sprintf(`{"mask":%s,"token_ids":%s,"group_id":"%d"%s}`, jsonOf(mask), jsonOf(ids), group, id)
					if turn > 0 && rapid.Bool().Draw(t, "on two lines") {
						text = strings.Replace(text, ",", ",\n", 1)
					}
					texts, want = append(texts, text), append(want, line)
				}
			}
			name, data := filepath.Join(dir, fmt.Sprint(f, ".jsonl")), strings.Join(texts[first:], "\n")
			if rapid.Bool().Draw(t, "as an array") {
				data = "[ " + strings.Join(texts[first:], ",") + " ]"
			}
			if err := os.WriteFile(name, []byte(data), 0o666); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		source, err := Options{KeepLines: true}.Open(names...)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		batch, err := source.Batch()
		if err != nil {
			t.Fatal(err)
		}
		lines := source.Lines()
		if len(lines) != len(texts) {
			t.Fatalf("%d lines, want %d", len(lines), len(texts))
		}
		var out, expected bytes.Buffer
		for i, l := range lines {
			if string(l.Text) != texts[i] {
				t.Errorf("line %d is %s, want %s", i, l.Text, texts[i])
			}
			fmt.Fprintf(&expected, "%s,\"weights\":%s}\n", strings.TrimSuffix(texts[i], "}"), jsonOf(want[i]))
		}
		if err := WriteLines(&out, lines, batch, []Tensor{vector("weights", numbers)}, nil); err != nil || out.String() != expected.String() {
			t.Errorf("%v, written\n%swant\n%s", err, &out, &expected)
		}
	})
}

// jsonOf returns a JSON list of the numbers.
func jsonOf[E any](numbers []E) string { return strings.ReplaceAll(fmt.Sprint(numbers), " ", ",") }

// TestKeepNoLines: a source hands out no lines unless it is asked to.
func TestKeepNoLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(name, []byte(`{"mask":[0,1],"token_ids":[1,2]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	source, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := source.Batch(); err != nil {
		t.Fatal(err)
	}
	if source.Lines() != nil {
		t.Error("there are lines")
	}
}

// TestPadding: a padded line of NeMo-RL gets lists of its own length.
func TestPadding(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.jsonl")
	text := `{"token_ids":[[1,2,0,0]],"token_loss_mask":[[0,1,0,0]],"input_lengths":[2],"advantages":[[0,9,9,9]]}
{"token_ids":[[1,2,3]],"token_loss_mask":[[0,1,1]],"input_lengths":[3],"advantages":[[0,9,9]]}
`
	want := `{"token_ids":[[1,2,0,0]],"token_loss_mask":[[0,1,0,0]],"input_lengths":[2],"advantages":[[1,2,0,0]]}
{"token_ids":[[1,2,3]],"token_loss_mask":[[0,1,1]],"input_lengths":[3],"advantages":[[3,4,5]]}
`
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	source, err := Options{KeepLines: true}.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	b, err := source.Batch()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = WriteLines(&out, source.Lines(), b, []Tensor{vector("advantages", []float32{1, 2, 3, 4, 5})}, nil)
	if err != nil || out.String() != want {
		t.Errorf("%v, written\n%swant\n%s", err, &out, want)
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
		line := Line{[]byte(text.String()), []Part{{0, 0, n, 0, 0}}}
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
