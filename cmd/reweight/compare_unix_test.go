//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/compare"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/scheme"
	"golang.org/x/sys/unix"
)

// TestTruncated: a file that becomes shorter while it is read is told in one line.
func TestTruncated(t *testing.T) {
	path := write(t, embedded(t))
	shorten := func(b *reweight.Batch, picked []scheme.Scheme, uniform scheme.Scheme,
		opt compare.Options) (*compare.Comparison, error) {
		must.Do(os.Truncate(path, 0))
		return compare.Schemes(b, picked, uniform, opt)
	}
	needAddresses(t)
	var out, stderr bytes.Buffer
	err := compareCommand([]string{path}, &out, new(cli.Progress), shorten)
	if err == nil || !strings.Contains(err.Error(), "became shorter") || strings.Count(err.Error(), path) != 1 ||
		out.Len() > 0 {
		t.Fatalf("error %v, printed %q", err, out.String())
	}
	if status := cli.ExitStatus("reweight", err, &stderr); status != 2 || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("status %d, standard error %q", status, stderr.String())
	}
}

// needAddresses skips the test where the address that is reported of a fault is not
// that of the byte which was read, as in some emulators.
func needAddresses(t *testing.T) {
	t.Helper()
	file := must.Get(os.Create(filepath.Join(t.TempDir(), "gone")))
	defer file.Close()
	page := os.Getpagesize()
	must.Do(file.Truncate(int64(page)))
	data := must.Get(unix.Mmap(int(file.Fd()), 0, page, unix.PROT_READ, unix.MAP_SHARED))
	defer unix.Munmap(data)
	must.Do(file.Truncate(0))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault, ok := recover().(interface{ Addr() uintptr })
		if !ok || fault.Addr()/uintptr(page) != uintptr(unsafe.Pointer(&data[0]))/uintptr(page) {
			t.Skip("no address is reported of a fault, as in an emulator")
		}
	}()
	missing = data[1]
}

var missing byte // keeps the read above

// TestSpecialFiles: a device or a directory with a pipe as input, and anything that is no
// file as output is refused at once, in one line, with status 2.
func TestSpecialFiles(t *testing.T) {
	good, dir := write(t, embedded(t)), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Skip("no pipe can be made: ", err)
	}
	for _, args := range [][]string{
		{dir}, {"/dev/null"}, {""},
		{"convert", good, fifo}, {"convert", good, dir}, {"convert", good, "/dev/null"}, {"convert", good, ""}, {"convert", "/dev/null", filepath.Join(dir, "x.safetensors")},
		{"-o", fifo, good}, {"-o", "/dev/null", good}, {"-o", "", good}, {"-o", dir, good}, {"score", "", good}, {"score", fifo, good}, {"score", "/dev/null", good},
	} {
		status, stderr, out := make(chan int, 1), new(bytes.Buffer), new(bytes.Buffer)
		go func() { status <- run(args, out, stderr) }()
		select {
		case s := <-status:
			if s != 2 || strings.Count(stderr.String(), "\n") != 1 || out.Len() > 0 {
				t.Errorf("reweight %q: status %d, printed %q and %q", args, s, out, stderr)
			}
		case <-time.After(5 * time.Minute):
			t.Fatalf("reweight %q waits", args)
		}
	}
}

// TestSchemesPipe: a pipe is read once.
func TestSchemesPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Skip("no pipe can be made: ", err)
	}
	const line = `{"group_id":1,"reward":1,"token_ids":[5,30,7],"mask":[0,1,1],"old_logprobs":[0,-0.1,-0.6]}` + "\n"
	go os.WriteFile(fifo, []byte(line), 0o666) // waits for a reader
	printed := make(chan string)
	go func() {
		var stdout, stderr bytes.Buffer
		run([]string{"-scheme", "uniform", "-format", "json", fifo}, &stdout, &stderr)
		printed <- stdout.String() + stderr.String()
	}()
	select {
	case got := <-printed:
		// It names no group: its id is not known.
		for _, want := range []string{"Trajectory 0 of " + fifo + ": reward 1, ", `"#30"`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for a second writer")
	}
}
