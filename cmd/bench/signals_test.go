//go:build !js && !plan9

package main

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/cmd/bench/internal/report"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/testprogram"
)

// TestSignals: the first interrupt prints what there is and exits with 130, and
// leaves no line of progress.
func TestSignals(t *testing.T) {
	if runtime.GOOS == "windows" || testing.Short() {
		t.Skip("sends signals to a process that works for a second")
	}
	for after := time.Second; ; after *= 4 {
		c := testprogram.Command(t)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		must.Do(c.Start())
		time.Sleep(after)
		sent := time.Now()
		must.Do(c.Process.Signal(os.Interrupt))
		time.Sleep(50 * time.Millisecond)
		if time.Since(sent) < 500*time.Millisecond { // a second interrupt ends it only a second later
			c.Process.Signal(os.Interrupt) // as people do; it may have ended
		}
		c.Wait()
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() &&
			status.Signal() == syscall.SIGINT && after < time.Minute {
			continue // on a slow machine it had not begun
		}
		if status := c.ProcessState.ExitCode(); status != 130 || !strings.Contains(stdout.String(), report.Ended) ||
			strings.ContainsAny(stdout.String()+stderr.String(), "\x1b\r") {
			t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr.String(), stdout.String())
		}
		if m := stderr.String(); strings.Count(m, "\n") != 1 || !strings.Contains(m, "interrupted") {
			t.Errorf("stderr %q", m)
		}
		return
	}
}
