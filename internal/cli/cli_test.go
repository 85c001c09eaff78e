package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestStatus: what is wrong with a kernel is status 1, and all else 2.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{{nil, 0}, {Failed([]string{"a", "b"}), 1}, {io.ErrUnexpectedEOF, 2}} {
		var stderr bytes.Buffer
		if got := ExitStatus("bench", c.err, &stderr); got != c.want {
			t.Errorf("status %d for %v, want %d", got, c.err, c.want)
		}
		if lines := strings.Count(stderr.String(), "\n"); lines != min(1, c.want) {
			t.Errorf("%d lines for %v", lines, c.err)
		}
	}
	if got, want := Failed([]string{"a", "b", "c"}).Error(), "a check failed: a (and 2 more)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAlso(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	if Also(nil, nil) != nil || Also(a, nil) != a || Also(nil, b) != b {
		t.Error("one error is not itself")
	}
	if err := Also(Failed([]string{"x"}), ErrInterrupted); ExitStatus("", err, io.Discard) != 1 ||
		err.Error() != "a check failed: x; interrupted: the results are partial" {
		t.Errorf("%v", err)
	}
	if err := Also(ErrInterrupted, b); ExitStatus("", err, io.Discard) != 130 {
		t.Errorf("%v", err)
	}
}

// TestProgress: the time left is that of the work so far, for the work to come.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &Progress{W: &out}
		p.Expect(40)
		for _, c := range []struct {
			work, seconds int
			want          string
		}{
			{1, 2, "\rmeasuring xx"},
			{9, 18, "\r2%, about 1m18s left: measuring xx"},
			{25, 60, "\r25%, about 1m0s left: measuring xx"},
			{5, 10, "\r87%, about 11s left: measuring xx"},
			{5, 10, "\rmeasuring xx"}, // more than was expected
		} {
			out.Reset()
			p.NextOf(c.work, "measuring %s", strings.Repeat("x", 99))
			if line := out.String(); !strings.HasPrefix(line, c.want) || len(line) != progressWidth+1 {
				t.Errorf("%q, want %q and so on, %d wide", line, c.want, progressWidth)
			}
			time.Sleep(time.Duration(c.seconds) * time.Second)
		}
	})
	for _, p := range []*Progress{NewProgress(new(bytes.Buffer)), NewProgress(devNull(t))} { // neither is a terminal
		if p.Next("x"); p.W != nil {
			t.Error("progress where nobody watches")
		}
	}
}

func devNull(t *testing.T) *os.File {
	f := must.Get(os.OpenFile(os.DevNull, os.O_WRONLY, 0))
	t.Cleanup(func() { f.Close() })
	return f
}

func TestMarkdownText(t *testing.T) {
	for text, want := range map[string]string{
		"a|b\nc<d>":        `a\|b c&lt;d>`,
		"![x](https://e)":  `!\[x\](https://e)`,
		"`a` **b** \\*\\|": "\\`a\\` \\*\\*b\\*\\* \\\\\\*\\\\\\|",
		"row_gradient":     "row_gradient",
	} {
		if got := MarkdownText(text); got != want {
			t.Errorf("MarkdownText(%q) = %q, want %q", text, got, want)
		}
	}
}
