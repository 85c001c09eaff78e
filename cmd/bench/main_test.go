package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/bench/internal/machine"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
)

// program is bench without a GPU.
var program testprogram.Run = func(args []string, stdout, stderr io.Writer) int {
	return run(context.Background(), args, stdout, stderr, noGPU("none"))
}

// TestWrongUse: one line on standard error that says what is wrong, nothing on
// standard output, status 2.
func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args string // separated by spaces
		want string // parts of the message, separated by |
	}{
		{"nonsense", `bench: unknown command "nonsense"|, want run, overhead or info`},
		{"-x", "bench: |-x"},
		{"-json", "bench: |-json"},
		{"info -x", "bench info: |-x"},
		{"info more", `bench info: unexpected argument "more"`},
		{"run more", `bench run: unexpected argument "more"`},
		{"run -x", "-x"},
		{"run -kernel", "-kernel"},
		{"run -kernel gemm", `-kernel has "gemm"|[token_stats |rollout_correction]`},
		{"run -kernel token_stats,", `-kernel has ""|token_stats`},
		{"run -kernel=", `-kernel has ""|token_stats`},
		{"run -isa sse9", `-isa has "sse9"|portable`},
		{"run -vocab 0", `-vocab has "0"`},
		{"run -vocab 8,-1", `-vocab has "-1"`},
		{"run -vocab 99999999999999999999", `-vocab has "99999999999999999999"`},
		{"run -rows 0", "-rows is 0"},
		{"run -rows -1", "-rows is -1"},
		{"run -rows x", "-rows"},
		{"run -rows 16777216 --vocab 16777216", "-rows is 16777216 and -vocab 16777216"},
		{"run -kernel multiply,surrogate,multiply", `-kernel has "multiply" twice`},
		{"run -isa portable,portable", `-isa has "portable" twice`},
		{"run -vocab 8,08", `-vocab has "08" twice`},
		{"run -kernel multiply,surrogate --vocab 8", "-vocab |multiply,surrogate|no vocabulary"},
		{"run -kernel multiply --workers 2", "-workers |multiply|one worker"},
		{"run -pin=-1", "-pin: |CPU -1"},
		{"run -pin 100000", "-pin: |CPU 100000"},
		{"overhead -pin 100000", "-pin: |CPU 100000"},
		{"overhead -pin x", "-pin"},
		{"run -json", "-json"},
		{"run -format yaml", `-format is "yaml", want table or json`},
		{"run -format", "-format"},
		{"overhead more", `bench overhead: unexpected argument "more"`},
		{"overhead -kernel multiply", "-kernel"},
		{"overhead -format go", `-format is "go", want table or json`},
		{"overhead -isa sse9", `-isa has "sse9"|portable`},
		{"overhead -rows 0", "-rows is 0"},
		{"overhead -rows 1", "-rows is 1, want at least 2 tokens for a training step"},
		{"overhead -rows 16777216 --vocab 16777216", "-rows is 16777216 and -vocab 16777216"},
		{"overhead -scheme remax", `-scheme has "remax": remax is verl's, and not here`},
		{"overhead -scheme=", `-scheme has ""`},
		{"overhead -workers 0", `-workers has "0"`},
		{"run -workers 1,2,1e9", `-workers has "1e9"`},
	} {
		program.WrongUse(t, c.args, c.want)
	}
}

func TestVersion(t *testing.T) { program.Version(t, "bench") }

//go:generate sh -c "go run . -h >testdata/help.txt"

func TestHelp(t *testing.T) {
	program.HelpFile(t)
	for args, want := range map[string]string{
		"-h":          "bench overhead",
		"--help":      "Exit status",
		"run -help":   "token_stats",
		"overhead -h": "KL anchor",
		"info -h":     "REWEIGHT_ISA",
	} {
		help := program.Help(t, args, want)
		if strings.HasPrefix(args, "overhead") &&
			(strings.Contains(help, "-delta") ||
				!strings.Contains(help, "off_policy_mask, which has no default, is 0.1 nats")) {
			t.Errorf("bench %s does not tell of the bound, or of a flag that it lacks:\n%s", args, help)
		}
	}
}

func TestInfo(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), []string{"info"}, &stdout, &stderr, noGPU("none")); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	m := must.Get(machine.This())
	for _, want := range []string{m.CPU, m.Go, m.Chosen, "caches"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

func TestOutputCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"info"}, {"-h"}, {"run", "-h"}} {
		program.CannotWrite(t, args...)
	}
}

// decode reads JSON that may have no other keys than v.
func decode(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}
