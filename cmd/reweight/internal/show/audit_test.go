package show

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/testdata/golden"
)

// audits returns the golden audits: their names, the text of Python, and the file.
func audits(t *testing.T) (cases []struct {
	Name, Text string
	File       json.RawMessage
}) {
	golden.Read(t, "audit.json", &cases)
	return cases
}

// TestAudit: the text is Python's, from a file and from the folder in which it lies.
func TestAudit(t *testing.T) {
	for _, c := range audits(t) {
		dir := t.TempDir()
		path := filepath.Join(dir, "audit.json")
		must.Do(os.WriteFile(path, c.File, 0o666))
		for _, name := range []string{path, dir} {
			found := FindAudit(name)
			if found != path {
				t.Fatalf("%s: the audit is %q, want %q", c.Name, found, path)
			}
			var b strings.Builder
			must.Do(WriteAudit(&b, must.Get(ReadAudit(found))))
			if got := b.String(); got != c.Text+"\n" {
				t.Errorf("%s: got\n%s\nwant\n%s", c.Name, got, c.Text)
			}
		}
	}
}

// TestAuditFiles: other files are no audits, and what is none inside is an error of one line that is safe to print.
func TestAuditFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.json")
	for _, content := range []string{"", "{}", `{"audits": {}}`, `[{"audit": {}}]`, `{"reward": 1, "audit": 2}`,
		`"audit"`} {
		must.Do(os.WriteFile(path, []byte(content), 0o666))
		if found := FindAudit(path); found != "" {
			t.Errorf("%s is an audit", content)
		}
	}
	for _, name := range []string{filepath.Join(dir, "none"), t.TempDir(), "/dev/null"} {
		if found := FindAudit(name); found != "" {
			t.Errorf("%s is an audit", name)
		}
	}
	good := string(audits(t)[0].File)
	for want, content := range map[string]string{
		"unexpected end of JSON input":  good[:len(good)/2],
		`"audit" is null`:               ` { "audit": null}`,
		"Parts are 0, of 0 layers":      `{"audit": {}}`,
		"cannot unmarshal number":       `{"audit": 7}`,
		"Parts are 1, of 0 layers":      `{"audit": {"parts": ["a\u001b[31m"]}}`,
		`Prompts[1] has the key "q\x1b`: `{"audit": {"parts": ["a"], "layers": ["0"], "prompts": [{"key": "q\u001b", "answers": 3, "tokens": [1], "S": [[[1]]], "T": [[[1]]]}, {"key": "q\u001b"}]}}`,
	} {
		must.Do(os.WriteFile(path, []byte(content), 0o666))
		if FindAudit(path) != path {
			t.Errorf("%.40s is no audit", content)
		}
		_, err := ReadAudit(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%v, want one with %q", err, want)
		}
	}
	odd := strings.ReplaceAll(good, `"action"`, `"a\u001b[31m\n::error"`)
	must.Do(os.WriteFile(path, []byte(odd), 0o666))
	var b strings.Builder
	must.Do(WriteAudit(&b, must.Get(ReadAudit(path))))
	if strings.Contains(b.String(), "\x1b") || strings.Contains(b.String(), "\n::") {
		t.Errorf("a name is printed as it is: %q", b.String())
	}
}
