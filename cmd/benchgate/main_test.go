package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/history"
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
	history := aHistory(t)
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
		{"-base HEAD -history=", "-history is empty, want a name"},
		{"-base HEAD -history /nowhere/h", "-history: |/nowhere"},
		{"-base HEAD -history " + dir, "-history: |not a regular file"},
		{"trend", "benchgate trend: want FILE"},
		{"trend a b", `unexpected argument "b"`},
		{"trend /nowhere", "/nowhere: no such file"},
		{"trend " + noise, "no line of it is one of benchgate -history: line 1: invalid character"},
		{"trend " + dir, "not a regular file"},
		{"trend -html= " + noise, "-html is empty"},
		{"trend -html /nowhere/p " + history, "-html: /nowhere/p: "},
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
		"trend -h":   "-html",
	} {
		program.Help(t, args, want)
	}
}

// aHistory is a file of 40 commits of a benchmark that becomes slower at the 21st.
func aHistory(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	var points []history.Point
	for i := range 40 {
		ratio := 1 + float64(i*7%10)/1000 + float64(i/20)*0.1
		points = append(points, history.Point{Date: "2026-11-28T15:00:00Z", Commit: fmt.Sprintf("%040x", i+1),
			Reference: strings.Repeat("f", 40), Package: "m", Benchmark: "BenchmarkX", Ratio: ratio, Lo: ratio,
			Hi: ratio, Ns: 1, ReferenceNs: 1})
	}
	must.Do(history.Append(path, points))
	return path
}

// TestTrend: the chart and the step are on standard output, and the page in its file.
func TestTrend(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	var out, log bytes.Buffer
	if status := program([]string{"trend", aHistory(t), "-html", page}, &out, &log); status != 0 || log.Len() > 0 {
		t.Fatalf("status %d, %s", status, &log)
	}
	text := string(must.Get(os.ReadFile(page)))
	const want = "slower since 000000000000 (2026-11-28): git log 000000000000..000000000000"
	if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "┤") || !strings.Contains(text, want) ||
		!strings.Contains(text, "<svg") {
		t.Errorf("it prints\n%s\nand the page is\n%s", &out, text)
	}
}
