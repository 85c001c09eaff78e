//go:build !js && !plan9

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestConvertKilled: a process that is killed leaves no output, nor anything else where
// open files can lose their names; one that is told to end leaves nothing and says so.
func TestConvertKilled(t *testing.T) {
	if runtime.GOOS == "windows" || testing.Short() {
		t.Skip("sends signals to a process that waits for its input")
	}
	canStart(t)
	in := filepath.Join(t.TempDir(), "in.jsonl")
	convert(t, lake("frozenlake-small.safetensors"), in)
	lines, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, signal := range []os.Signal{os.Kill, syscall.SIGTERM} {
		c := command("convert", "-", filepath.Join(dir, "out.safetensors"))
		var stderr bytes.Buffer
		c.Stderr = &stderr
		input, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		endLate(t, c)
		if _, err := input.Write(lines); err != nil {
			t.Fatal(err)
		}
		proc := fmt.Sprintf("/proc/%d/fd", c.Process.Pid)
		for begin := time.Now(); time.Since(begin) < 5*time.Minute; { // until it has begun to write, where that can be seen
			if _, err := os.Stat(proc); err != nil {
				break
			}
			open, _ := filepath.Glob(proc + "/*")
			if slices.ContainsFunc(open, func(fd string) bool { name, _ := os.Readlink(fd); return strings.Contains(name, "reweight-") }) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		for err == nil { // more input ends its wait for input; it ends when it has heard of the signal
			_, err = input.Write(lines)
		}
		input.Close()
		if err := c.Wait(); err == nil {
			t.Errorf("%v: no error", signal)
		}
		if want := "bench convert: interrupted: nothing is written\n"; signal != os.Kill && (c.ProcessState.ExitCode() != 130 || stderr.String() != want) {
			t.Errorf("%v: %v, %q", signal, c.ProcessState, stderr.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: left behind: %v, %v", signal, left, err)
		}
	}
}

// TestConvertNPZInterrupted: a signal ends the reading of a batch, which leaves nothing.
func TestConvertNPZInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" || testing.Short() {
		t.Skip("sends signals to a process that waits for its input")
	}
	canStart(t)
	dir := t.TempDir()
	c := command("convert", "-", filepath.Join(dir, "out.npz"))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	input, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	endLate(t, c)
	// More than a pipe has room for, so that the process reads, and no end.
	line := `{"token_ids":[1,2],"mask":[0,1],"old_logprobs":[0,-1],"reward":1,"group_id":7}` + "\n"
	if _, err := input.Write(bytes.Repeat([]byte(line), 1<<13)); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != 130 || stderr.String() != "bench convert: interrupted: nothing is written\n" {
		t.Errorf("%v, %v, %q", err, c.ProcessState, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
