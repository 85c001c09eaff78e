//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gate

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
)

// TestOnlyRegularFiles: what is none is refused before anything is measured, and
// without waiting for the other end of a pipe.
func TestOnlyRegularFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("f.json", []byte(`{"vocab":151936}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo("pipe", 0o666); err != nil {
		t.Skip(err)
	}
	for _, args := range [][]string{
		{"-floor", "f.json", "-json", "pipe"},
		{"-floor", "f.json", "-junit", os.DevNull},
		{"-floor", "f.json", "-markdown", "/"},
		{"-base", "HEAD", "-json", "pipe"},
		{"-floor", "pipe"},
		{"-floor", "pipe", "-record"},
		{"-floor", os.DevNull},
	} {
		done := make(chan error, 1)
		progress := &cli.Progress{W: onWrite(func(line string) {
			if strings.TrimSpace(line) != "" {
				t.Errorf("%v: %q", args, line)
			}
		})}
		go func() { done <- command(t.Context(), args, io.Discard, progress, quick) }()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), "not a regular file") && !strings.Contains(err.Error(), "not the name of a file") || cli.ExitStatus("", err, io.Discard) != 2 {
				t.Errorf("%v: %v", args, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%v: waits", args)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) != 2 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
