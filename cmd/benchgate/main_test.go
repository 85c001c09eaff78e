package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
)

// program is benchgate.
var program testprogram.Run = func(args []string, stdout, stderr io.Writer) int {
	return run(context.Background(), args, stdout, stderr)
}

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
		{"-base HEAD -benchfmt=", "-benchfmt is empty, want a name"},
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
		program.WrongUse(t, c.args, c.want)
	}
}

func TestVersion(t *testing.T) { program.Version(t, "benchgate") }

//go:generate sh -c "go run . -h >testdata/help.txt"

func TestHelp(t *testing.T) {
	program.HelpFile(t)
	for args, want := range map[string]string{
		"-h":         "-markdown",
		"compare -h": "OLD NEW",
	} {
		program.Help(t, args, want)
	}
}
