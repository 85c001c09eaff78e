package printable

import "testing"

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
	} {
		if got := Text(text); got != want {
			t.Errorf("Text(%q) = %s, want %s", text, got, want)
		}
	}
}
