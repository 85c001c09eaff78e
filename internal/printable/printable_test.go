package printable

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"runs/a b.safetensors": "runs/a b.safetensors",
		"Läufe/日本.json":        "Läufe/日本.json",
		`C:\runs\"x"`:          `C:\runs\"x"`,
		"�":                    "�",
		"":                     `""`,
		"a\nb":                 `"a\nb"`,
		"\x1b[2J":              `"\x1b[2J"`,
		"a\u202eb":             `"a\u202eb"`,
		"a\u2028b":             `"a\u2028b"`,
		"a\xffb":               `"a\xffb"`,
		"\u009b2J":             `"\u009b2J"`,
		"a::error::b":          "a::error::b",
		"::error::b":           `"::error::b"`,
		" ::error::b":          `" ::error::b"`,
		"a##[error]b":          `"a#\x23[error]b"`,
	} {
		if got := Text(text); got != want {
			t.Errorf("Text(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for line, want := range map[string]string{
		"":                       "",
		"a b, 日本: \"x\" \\ y":    "a b, 日本: \"x\" \\ y",
		"a\nb\r\tc":              `a\nb\r\tc`,
		"\x1b[2J\u202e\u2028":    `\x1b[2J\u202e\u2028`,
		"a\xffb":                 "a\ufffdb",
		"a ::error::b":           "a ::error::b",
		"::error::b":             `\x3a:error::b`,
		"  ::error::b":           `  \x3a:error::b`,
		"a ##[error]b":           `a #\x23[error]b`,
		"####[error]b":           `###\x23[error]b`,
		"\n::error::b":           `\n::error::b`,
		"::##[group]::##[error]": `\x3a:#\x23[group]::#\x23[error]`,
	} {
		if got := Line(line); got != want {
			t.Errorf("Line(%q) = %s, want %s", line, got, want)
		}
	}
}

// What is escaped in JSON stays the same value, and is one that Line leaves as it is.
func TestAppendJSON(t *testing.T) {
	for text, want := range map[string]string{
		"a b, 日本: \"x\" \\ y":                 `"a b, 日本: \"x\" \\ y"`,
		"\x1b[2J\u202e\u2028\u2066\x7f\u009b": `"\u001b[2J\u202e\u2028\u2066\u007f\u009b"`,
		"\U000e0001\U0001f600\ufeff":          `"\udb40\udc01😀\ufeff"`,
		"a ##[error] ####[b":                  `"a #\u0023[error] ###\u0023[b"`,
		"[##":                                 `"[##"`,
	} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		got := string(AppendJSON([]byte("##"), quoted)[2:])
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != text || got != want || Line(got) != got {
			t.Errorf("%q: %s, which is %q, %v: want %s", text, got, back, err, want)
		}
	}
	if got := string(AppendJSON(nil, []byte("{\n  \"a\": 1\n}"))); got != "{\n  \"a\": 1\n}" {
		t.Errorf("%s", got)
	}
}
