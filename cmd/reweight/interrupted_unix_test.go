//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
)

// TestInterrupted: the first signal ends a command that waits for its input, and nothing
// that is half written is left. SIGKILL leaves no output.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("sends signals to a process that waits for its input")
	}
	in := filepath.Join(t.TempDir(), "in.jsonl")
	convert(t, lake("frozenlake-small.safetensors"), in)
	lines := must.Get(os.ReadFile(in))
	for _, c := range []struct {
		command string
		writes  bool // before its input ends
	}{
		{"convert - DIR/out.safetensors", true},
		{"convert - DIR/out.jsonl", true},
		{"convert - DIR/out.npz", false},
		{"score partial -o DIR/partial -", false},
		{"-", false},
		{"show -", false},
	} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
			dir := t.TempDir()
			p := testprogram.Command(t, strings.Fields(strings.ReplaceAll(c.command, "DIR", dir))...)
			var stderr bytes.Buffer
			p.Stderr = &stderr
			input := must.Get(p.StdinPipe())
			must.Do(p.Start())
			if _, err := input.Write(lines); err != nil { // more than a pipe has room for, so that it reads
				t.Fatal(err)
			}
			proc := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
			// It waits until the program has begun to write, where that can be seen.
			for begin := time.Now(); c.writes && time.Since(begin) < 5*time.Minute; {
				if _, err := os.Stat(proc); err != nil {
					break
				}
				open, _ := filepath.Glob(proc + "/*")
				if slices.ContainsFunc(open, func(fd string) bool {
					name, _ := os.Readlink(fd)
					return strings.Contains(name, ".reweight-")
				}) {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			must.Do(p.Process.Signal(signal))
			if err := p.Wait(); err == nil {
				t.Errorf("%s, %v: no error", c.command, signal)
			}
			input.Close()
			if want := "reweight: interrupted: no file is half written\n"; signal != os.Kill &&
				(p.ProcessState.ExitCode() != 130 || stderr.String() != want) {
				t.Errorf("%s, %v: %v, %q", c.command, signal, p.ProcessState, stderr.String())
			}
			for left := range contents(t, dir, "") {
				if signal != os.Kill || !atomicfile.IsTemporary(left) {
					t.Errorf("%s, %v: left behind: %s", c.command, signal, left)
				}
			}
		}
	}
}

// TestInterruptedFIFO: the first signal ends a command that opens a FIFO without a writer.
func TestInterruptedFIFO(t *testing.T) {
	if testing.Short() {
		t.Skip("sends signals to a process that waits for its input")
	}
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err)
	}
	p := testprogram.Command(t, "convert", fifo, filepath.Join(dir, "out.safetensors"))
	must.Do(p.Start())
	time.Sleep(time.Second) // so that it listens to signals
	p.Process.Signal(syscall.SIGTERM)
	if p.Wait(); p.ProcessState.ExitCode() != 130 {
		t.Errorf("%v", p.ProcessState)
	}
}
