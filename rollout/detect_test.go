package rollout

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed621a2839/reweight/internal/test/must"
	"pgregory.net/rapid"
)

func TestExamine(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                               "",
		`[]`:                               "",
		`[1, 2]`:                           "",
		`{"a": 1, "b": [2, 3]} {"c": 4}`:   "a b",
		"{\"a\": 1}\n{\"c\": 4}":           "a",
		` [ {"a":1} , {"b":2} ]`:           "a",
		`[[{"a":1},{"b":2}]]`:              "a",
		`{"a": {"b": {"c": 1}, "d": 2}}`:   "a a.b a.b.c a.d",
		`{"a": [{"b": 1}, {"c": 2}]}`:      "a a.b a.c",
		`{"a": [[{"b": 1}]], "c": "d"}`:    "a a.b c",
		`{"a": "{\"b\": 1}", "c\"": "\\"}`: `a c"`,
		`{"a": "b", "c": ["d", "e"]}`:      "a c",
		`{"a": NaN, "b": -Infinity`:        "",
		`{"a": NaN, "b": -Infinity}`:       "a b",
		`{"a": {"b`:                        "",
		`{"a":{"b":{"c":{"d":{"e":{"f":{"g":1}}}}}},"h":1}`: "a a.b a.b.c a.b.c.d a.b.c.d.e a.b.c.d.e.f h",
		`}`:         "",
		`{"a": 1}}`: "a",
	} {
		for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader,
			iotest.HalfReader} {
			s := new(stream)
			must.Do(s.decompress(wrap(strings.NewReader(text))))
			found, err := s.examine()
			if got := strings.Join(slices.Sorted(maps.Keys(found)), " "); got != want || err != nil {
				t.Errorf("%s: fields %q, %v, want %q", text, got, err, want)
			}
			if all, err := io.ReadAll(s); string(all) != text || err != nil {
				t.Errorf("%s is read as %s, %v", text, all, err)
			}
		}
	}
}

// Whatever the bytes are, all of them are there after they were examined.
func TestExamineKeepsAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom(
			[]string{"{", "}", "[", "]", `"`, `\`, ":", ",", `"a"`, `"a":`, "1", strings.Repeat("x", 100000)}))
		text := strings.Join(parts.Draw(t, "parts"), "")
		s := new(stream)
		must.Do(s.decompress(strings.NewReader(text)))
		must.Get(s.examine())
		if all, err := io.ReadAll(s); string(all) != text || err != nil {
			t.Errorf("%q becomes %q, %v", text, all, err)
		}
	})
}

// The error of examine is the error of the stream.
func TestExamineError(t *testing.T) {
	s := new(stream)
	cut := gzipped(t, []byte(`{"a": [1, 2, 3]}`))
	must.Do(s.decompress(bytes.NewReader(cut[:len(cut)-8])))
	s.Discard(3)
	if _, err := s.examine(); err == nil || err.Error() != "the gzip data is cut off" {
		t.Error(err)
	}
	s = new(stream) // what follows the first object is not waited for
	must.Do(s.decompress(io.MultiReader(strings.NewReader(`[{"a": 1},`), iotest.ErrReader(io.ErrClosedPipe))))
	if found, err := s.examine(); err != nil || !found["a"] {
		t.Error(found, err)
	}
}

func TestDetect(t *testing.T) {
	small := must.Get(os.ReadFile("../testdata/frozenlake-small.safetensors"))
	for name, c := range map[string]struct {
		data []byte
		want string // of Report.Formats, or the error behind the name
	}{
		"a.safetensors":    {small, "safetensors"},
		"a":                {small, "safetensors"},
		"a.jsonl":          {small, "safetensors"},
		"b.safetensors.gz": {gzipped(t, small), "safetensors"},
		"c.jsonl.zst":      {zstandard(t, small), "safetensors"},
		"d.gz":             {small, "safetensors"},
		"e.jsonl":          {nil, ": no tokens"},
		"e.json":           {[]byte(" \n\n"), ": no tokens"},
		"e.ndjson.gz":      {gzipped(t, []byte("\r\n")), ": no tokens"},
		"e.safetensors":    {nil, ": empty"},
		"e.txt":            {[]byte("a b\n"), `: begins with "a b\n", which is no format that can be read: see https://github.com/seed621a2839/reweight/blob/main/docs/formats.md`},
		"e.gz":             {gzipped(t, gzipped(t, small))[:0:0], ": empty"},
		"f.gz":             {gzipped(t, gzipped(t, small)), `: begins with "\x1f\x8b`},
		"g.json":           {[]byte(`{"b": 1, "a": {"c": 2}}`), `:1: JSON of the fields "a", "b", which is no format that can be read: see https://github.com/seed621a2839/reweight/blob/main/docs/formats.md`},
		"h.json":           {[]byte("\ufeff [1, 2]"), ":1: JSON without fields, which is no format that can be read: see https://github.com/seed621a2839/reweight/blob/main/docs/formats.md"},
		"i.json":           {[]byte(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"\u001b[2J":1}`), `:1: JSON of the fields "\x1b[2J", "a"`},
		"j.json":           {[]byte("{\"\x1b[2J\":1}"), `:1: byte 3: found '\x1b', want an escape sequence`},
		"k.json":           {[]byte(`{"token_ids":[1],"group_id":1}`), `:1: mask, or role, is missing, which says which tokens are the response's, in JSON of the fields "group_id", "token_ids"`},
		"l.json":           {[]byte(`{"entropy":[1],"Masks":[1],"a":{"mask":1}}`), `:1: mask, or role, is missing, which says which tokens are the response's: "Masks" is another name`},
		"n.json":           {[]byte("\n{\"role\": [1,\n}], \"mask\": [1]}"), `:3: byte 1: found '}', want a value`},
		"o.jsonl":          {[]byte("\n\n{\"token_ids\": [1, 2], \"rewa"), ":3: the end is in the middle of an object that begins here: the line is cut off"},
		"p.jsonl.gz":       {gzipped(t, []byte(`{"input":"","output":"","score":1,"step":1`)), ":1: the end is in the middle of an object that begins here: the line is cut off"},
		"q.json":           {[]byte(`[{"choices": [{"message": {"content": "a`), ":1: the end is in the middle of an object that begins here: the line is cut off"},
		"r.json":           {[]byte(`{"token_ids": [1, }`), ":1: byte 19: found '}', want a value"},
		"m.json":           {[]byte(`{"advantages":[1],"mask_":[1]}`), `:1: JSON of the fields "advantages", "mask_", which is no format`},
	} {
		path := filepath.Join(writeFiles(t, map[string][]byte{name: c.data}), name)
		s := must.Get(Open(path))
		_, err := s.Batch()
		switch formats := s.Report().Formats; {
		case err == nil && slices.Equal(formats, []string{c.want}):
		case err != nil && strings.HasPrefix(err.Error(), path+c.want) && !strings.Contains(err.Error(), "\n"):
		default:
			t.Errorf("%s: formats %q, error %v", name, formats, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
