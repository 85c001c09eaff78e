package rollout

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

func TestVocabulary(t *testing.T) {
	for _, c := range []struct {
		file string
		want Vocabulary
		err  string
	}{
		{`["a", "\n", ""]`, Vocabulary{0: "a", 1: "\n", 2: ""}, ""},
		{` []`, Vocabulary{}, ""},
		{`{"model": {"type": "BPE", "vocab": {"Ġgo": 3, "Ċ": 1, "æĿ": 2, "é": 5, "東": 6}}, "decoder": {"type": "ByteLevel"},
			"added_tokens": [{"id": 9, "content": "<|im_end|>"}, {"id": 10, "content": "Ġ"}]}`,
			Vocabulary{3: " go", 1: "\n", 2: "\xe6\x9d", 5: "\xe9", 6: "東", 9: "<|im_end|>", 10: "Ġ"}, ""},
		{`{"model": {"vocab": {"Ġ": 0}}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]}}`, Vocabulary{0: " "}, ""},
		{`{"model": {"vocab": {"▁go": 0, "<0x0A>": 1, "<0xE6>": 2, "<0x0A": 3, "Ġ": 4}}, "decoder": {"type": "ByteFallback"}}`,
			Vocabulary{0: " go", 1: "\n", 2: "\xe6", 3: "<0x0A", 4: "Ġ"}, ""},
		{`["a", 1]`, nil, "cannot unmarshal number"},
		{`{"model": {"vocab": [["a", -1.5]]}}`, nil, "cannot unmarshal array"},
		{`{"model": {"vocab": {"a": 99999999999}}}`, nil, "cannot unmarshal number"},
		{`{}`, nil, "is neither a JSON list of texts nor a tokenizer.json with model.vocab, nor a vocab.json"},
		{`{"Ġgo": 3, "Ċ": 1}`, Vocabulary{3: " go", 1: "\n"}, ""},
		{`{"▁go": 0}`, Vocabulary{0: " go"}, ""},
		{`{"go": "x"}`, nil, "is neither a JSON list of texts"},
		{``, nil, "unexpected end of JSON input"},
		{`[`, nil, "unexpected end of JSON input"},
		{"\x00", nil, "invalid character"},
	} {
		path := filepath.Join(t.TempDir(), "vocab\n.json")
		must.Do(os.WriteFile(path, []byte(c.file), 0o666))
		got, err := ReadVocabulary(path)
		if c.err == "" {
			if err != nil || !maps.Equal(got, c.want) {
				t.Errorf("%s: %q, %v, want %q", c.file, got, err, c.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) ||
			!strings.Contains(err.Error(), `vocab\n.json": `) {
			t.Errorf("%s: error %v, want %s", c.file, err, c.err)
		}
	}
	dir := t.TempDir()
	for path, want := range map[string]string{dir: dir + ": not a regular file", filepath.Join(dir, "none"): "none: "} {
		if _, err := ReadVocabulary(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestBytes: each byte has one character in byte-level vocabularies.
func TestBytes(t *testing.T) {
	seen := map[byte]bool{}
	for _, b := range byteOf {
		seen[b] = true
	}
	if len(byteOf) != 256 || len(seen) != 256 {
		t.Errorf("%d characters for %d bytes", len(byteOf), len(seen))
	}
	for r, want := range map[rune]byte{'!': '!', 'Ā': 0, 'Ġ': ' ', 'ġ': 0x7f, 'ł': 0xa0, 'Ń': 0xad, '®': 0xae,
		'ÿ': 0xff} {
		if byteOf[r] != want {
			t.Errorf("%c is %#x, want %#x", r, byteOf[r], want)
		}
	}
}
