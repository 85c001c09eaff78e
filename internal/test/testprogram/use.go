package testprogram

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A Run does what a program does with these arguments and returns the exit status.
type Run func(args []string, stdout, stderr io.Writer) int

// WrongUse wants the program to refuse the arguments, which spaces separate: one line on
// standard error that has each part of want, which | separates, nothing on standard output,
// and status 2.
func (run Run) WrongUse(t *testing.T, args, want string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(strings.FieldsFunc(args, func(r rune) bool { return r == ' ' }), &stdout, &stderr); status != 2 {
		t.Errorf("%s: status %d, want 2", args, status)
	}
	if stdout.Len() > 0 {
		t.Errorf("%s: prints %q", args, stdout.String())
	}
	message := stderr.String()
	if !isLine(message) {
		t.Errorf("%s: not one line: %q", args, message)
	}
	for part := range strings.SplitSeq(want, "|") {
		if !strings.Contains(message, part) {
			t.Errorf("%s: %q does not tell of %q", args, message, part)
		}
	}
}

// Help wants the program to print a help that has the text, and returns the help.
func (run Run) Help(t *testing.T, args, want string) (help string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(strings.Fields(args), &stdout, &stderr); status != 0 || stderr.Len() > 0 {
		t.Errorf("%s: status %d, errors %q", args, status, stderr.String())
	}
	if help = stdout.String(); !strings.Contains(help, want) || !strings.Contains(help, "Usage") {
		t.Errorf("%s: does not tell of %q:\n%s", args, want, help)
	}
	return help
}

// HelpFile wants the program to print for -h what testdata/help.txt has, which go generate writes.
func (run Run) HelpFile(t *testing.T) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "help.txt"))
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.SplitAfter(run.Help(t, "-h", ""), "\n"), strings.SplitAfter(string(file), "\n")
	for i, line := range got {
		if i >= len(want) || line != want[i] {
			t.Fatalf("line %d of -h is %q: if it is right, run go generate in the folder of the program", i+1, line)
		}
	}
	if len(got) < len(want) {
		t.Fatalf("-h lacks %q of testdata/help.txt", want[len(got)])
	}
}

// Version wants the program to print one line for -version that begins with its name.
func (run Run) Version(t *testing.T, name string) {
	t.Helper()
	for _, flag := range []string{"-version", "--version"} {
		var stdout, stderr bytes.Buffer
		if status := run([]string{flag}, &stdout, &stderr); status != 0 || stderr.Len() > 0 {
			t.Errorf("%s: status %d, errors %q", flag, status, stderr.String())
		}
		line := stdout.String()
		if !isLine(line) || !strings.HasPrefix(line, name+" ") || !strings.Contains(line, ", "+runtime.Version()) {
			t.Errorf("%s: %q", flag, line)
		}
	}
}

// CannotWrite wants the program to say in one line that its output cannot be written, be there
// no room at all or some.
func (run Run) CannotWrite(t *testing.T, args ...string) {
	t.Helper()
	for _, space := range []FullDisk{0, 30} {
		var stderr bytes.Buffer
		if status := run(args, &space, &stderr); status != 2 {
			t.Errorf("%v: status %d, want 2", args, status)
		}
		if m := stderr.String(); !isLine(m) || !strings.Contains(m, "no space left on device") {
			t.Errorf("%v: %q", args, m)
		}
	}
}

// A FullDisk takes so many bytes and no more.
type FullDisk int

func (d *FullDisk) Write(b []byte) (int, error) {
	n := min(len(b), int(*d))
	*d -= FullDisk(n)
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

// isLine reports whether a text is one line.
func isLine(text string) bool { return strings.Count(text, "\n") == 1 && strings.HasSuffix(text, "\n") }
