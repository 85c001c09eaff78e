//go:build !js && !plan9

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/report"
)

// canStart skips a test that starts this program where an emulated process cannot.
func canStart(t *testing.T) {
	t.Helper()
	if err := exec.Command(os.Args[0], "-test.run", "^$").Run(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("an emulated process cannot start another")
	}
}

// command is this program with these arguments.
func command(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "REWEIGHT_TEST_MAIN=1")
	return c
}

// TestSignals: the first interrupt prints what there is and exits with 130, and
// leaves no line of progress; writing to a full device is an error.
func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" || testing.Short() {
		t.Skip("sends signals to a process that works for seconds")
	}
	canStart(t)
	for _, args := range [][]string{{}, {"run", "-format", "json"}, {"overhead"}} {
		expectInterrupted(t, args)
	}
}

// expectInterrupted interrupts a command while it measures.
func expectInterrupted(t *testing.T, args []string) {
	t.Helper()
	for after := 3 * time.Second; ; after *= 4 {
		c := command(args...)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Start(); errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulator runs this, and the system cannot start it: ", err)
		} else if err != nil {
			t.Fatal(err)
		}
		endLate(t, c)
		time.Sleep(after)
		sent := time.Now()
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if time.Since(sent) < 500*time.Millisecond { // a second interrupt ends it only a second later
			c.Process.Signal(os.Interrupt) // as people do; it may have ended
		}
		c.Wait()
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGINT && after < time.Minute {
			continue // on a slow machine it had not begun
		}
		mark := report.Ended
		if slices.Contains(args, "json") {
			mark = `"partial": true`
		}
		if status := c.ProcessState.ExitCode(); status != 130 || !strings.Contains(stdout.String(), mark) || strings.ContainsAny(stdout.String()+stderr.String(), "\x1b\r") {
			t.Errorf("bench %v: status %d, stderr %q, stdout\n%s", args, status, stderr.String(), stdout.String())
		}
		if m := stderr.String(); strings.Count(m, "\n") != 1 || !strings.Contains(m, "interrupted") {
			t.Errorf("bench %v: stderr %q", args, m)
		}
		return
	}
}

// endLate kills a process that does not end by itself.
func endLate(t *testing.T, c *exec.Cmd) {
	late := time.AfterFunc(5*time.Minute, func() { c.Process.Kill() })
	t.Cleanup(func() { late.Stop() })
}
