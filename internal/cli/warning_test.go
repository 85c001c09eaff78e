package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestWarning: colour is for terminals only.
func TestWarning(t *testing.T) {
	var b bytes.Buffer
	Warning(&b, "text")
	Warning(&FirstError{W: &b}, "more")
	if b.String() != "text\nmore\n" {
		t.Errorf("%q", b.String())
	}
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "file")))
	defer file.Close()
	if Coloured(file) || Coloured(&FirstError{W: file}) {
		t.Error("a file is no terminal")
	}
	if got := coloured("text"); got != "\x1b[1;33mtext\x1b[0m" {
		t.Errorf("%q", got)
	}
}
