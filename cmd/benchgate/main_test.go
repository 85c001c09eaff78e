package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
)

// TestWrongUse: one line on standard error that says what is wrong, nothing on
// standard output, status 2.
func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	noise := filepath.Join(dir, "noise")
	must.Do(os.WriteFile(noise, bytes.Repeat([]byte("noise"), 100), 0o666))
	for _, c := range []struct {
		args string // separated by spaces
		want string // parts of the message, separated by |
	}{
		{"-base=", "-base is empty, want a name"},
		{"-base", "-base"},
		{"", "benchgate: want -base REF"},
		{"-x", "-x"},
		{"-base HEAD -json=", "-json is empty, want a name"},
		{"-base HEAD -json /nowhere/r.json", "/nowhere: no such file"},
		{"-base HEAD -junit " + dir, "-junit: |not a regular file"},
		{"-base HEAD -json - -markdown -", "-markdown -: only one format"},
		{"-base HEAD -bench [", "-bench: error parsing regexp"},
		{"-base HEAD -bench . -skip a/(b", "-skip: error parsing regexp"},
		{"-base HEAD -benchtime 3", `-benchtime: "3" is neither a time`},
		{"-base HEAD -benchtime 0x", `-benchtime: "0x" is neither a time`},
		{"compare", "benchgate compare: want OLD and NEW"},
		{"compare old", "want OLD and NEW"},
		{"compare " + noise + " " + noise + " ./a", "a test binary is of one: give none"},
		{"compare " + dir + " " + dir, dir + " has no go.mod"},
		{"compare " + dir + " " + noise, dir + " is a directory and " + noise + " is a file"},
		{"compare " + noise + " " + noise, noise + " is not a Go test binary"},
		{"compare " + dir + " /nowhere", "there is no /nowhere"},
		{"compare " + dir + " " + dir + " -bench=", "-bench is empty"},
		{"compare " + dir + " " + dir + " -bench *", "-bench: error parsing regexp"},
		{"compare " + dir + " " + dir + " -slower 0.9", "-slower is 0.9, want a ratio above 1"},
		{"compare " + dir + " " + dir + " -base HEAD", "-base"},
		{"compare " + dir + " " + dir + " -json /nowhere/r.json", "/nowhere: no such file"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), strings.Fields(c.args), &stdout, &stderr)
		if status != 2 {
			t.Errorf("benchgate %s: status %d, want 2", c.args, status)
		}
		if stdout.Len() > 0 {
			t.Errorf("benchgate %s prints %q", c.args, stdout.String())
		}
		message := stderr.String()
		if strings.Count(message, "\n") != 1 || !strings.HasSuffix(message, "\n") {
			t.Errorf("benchgate %s: not one line: %q", c.args, message)
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(message, part) {
				t.Errorf("benchgate %s: %q does not tell of %q", c.args, message, part)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{
		"-h":         "-markdown",
		"compare -h": "OLD NEW",
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(args), &stdout, &stderr); status != 0 || stderr.Len() > 0 {
			t.Errorf("benchgate %s: status %d, errors %q", args, status, stderr.String())
		}
		if !strings.Contains(stdout.String(), want) || !strings.Contains(stdout.String(), "Usage") {
			t.Errorf("benchgate %s does not tell of %q:\n%s", args, want, stdout.String())
		}
	}
}
