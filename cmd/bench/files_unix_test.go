//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSpecialFiles: what is no file to read or no directory to write is refused, without
// waiting, in one line that shows nothing of its name as it is.
func TestSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Skip("no pipe can be made: ", err)
	}
	hostile := filepath.Join(dir, "x\n::error::bad\r\x1b[31m\u202e")
	if err := os.WriteFile(hostile, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-baseline", fifo}, {"-baseline", dir}, {"-out", fifo}, {"-baseline", hostile}, {"-out", hostile},
	} {
		status, stderr, out := make(chan int, 1), new(bytes.Buffer), new(bytes.Buffer)
		go func() { status <- run(t.Context(), append([]string{"run"}, args...), out, stderr, nil) }()
		select {
		case s := <-status:
			if s != 2 || strings.Count(stderr.String(), "\n") != 1 || strings.ContainsAny(stderr.String(), "\r\x1b\u202e") || out.Len() > 0 {
				t.Errorf("bench run %q: status %d, printed %q and %q", args, s, out, stderr)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("bench run %q waits", args)
		}
	}
}
