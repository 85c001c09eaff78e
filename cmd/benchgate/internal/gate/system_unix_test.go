//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gate

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestOnlyRegularFiles: what is none is refused before anything is measured, and
// without waiting for the other end of a pipe.
func TestOnlyRegularFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := syscall.Mkfifo("pipe", 0o666); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"pipe", os.DevNull, "/"} {
		opt := Options{Base: "HEAD", Dir: "."}
		opt.Files[0] = name
		if err := Run(t.Context(), opt, io.Discard); err == nil ||
			!strings.Contains(err.Error(), "not a regular file") &&
				!strings.Contains(err.Error(), "not the name of a file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGateRemovesDeadRuns: what a run that was killed has left, and nothing else.
func TestGateRemovesDeadRuns(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	start := func() *runDir { return must.Get(newRunDir(t.Context())) }
	is := func(what, path string, want bool) {
		t.Helper()
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: it is there: %v, want %v", what, err == nil, want)
		}
	}
	create := func(name, owner string) string { // a directory with an owner file
		path := filepath.Join(temp, name)
		put(filepath.Join(path, ownerName), owner)
		return path
	}

	alive, dead := start(), start()
	if first, second := filepath.Base(alive.dir), filepath.Base(dead.dir); first != dirPrefix+"0" ||
		second != dirPrefix+"1" {
		t.Errorf("the runs are in %s and %s", first, second)
	}
	is("a run that lives", alive.dir, true)
	is("a second run that lives", dead.dir, true)
	owner := string(must.Get(os.ReadFile(filepath.Join(dead.dir, ownerName))))
	closed := filepath.Join(dead.dir, "checkout", "closed")
	must.Do(os.MkdirAll(filepath.Join(closed, "dir"), 0o700))
	must.Do(os.Chmod(closed, 0o500))
	other := create("other", owner)
	must.Do(os.Symlink(other, filepath.Join(dead.dir, "link")))
	dead.owner.Close() // as the end of a process does

	stranger := create("benchgate-3", strings.ToUpper(owner))
	nobody := create("benchgate-4", "")
	link := filepath.Join(temp, "benchgate-5")
	must.Do(os.Symlink(other, link))
	open := create("benchgate-6", owner)
	must.Do(os.Chmod(open, 0o777))
	linked := filepath.Join(temp, "benchgate-7")
	must.Do(os.Mkdir(linked, 0o700))
	must.Do(os.Symlink(filepath.Join(other, ownerName), filepath.Join(linked, ownerName)))
	named := create("benchgate-named", owner)

	f := must.Get(os.Open(filepath.Join(nobody, ownerName)))
	if !isFile(f, f.Name()) {
		t.Error("an open file is not the one that was opened")
	}
	must.Do(os.Remove(f.Name()))
	put(f.Name(), "")
	if isFile(f, f.Name()) {
		t.Error("a new file is the one that was opened")
	}
	f.Close()

	fresh := start()
	if fresh.dir != dead.dir {
		t.Errorf("the run that does it is in %s, and not where the dead one was, in %s", fresh.dir, dead.dir)
	}
	is("what the dead run left", closed, false)
	is("a run that lives", alive.dir, true)
	is("of another host", stranger, true)
	is("of nobody", nobody, true)
	is("another name", filepath.Join(other, ownerName), true)
	is("a link", link, true)
	is("a directory that others can write to", open, true)
	is("a link to an owner file", linked, true)
	is("a name without a number", named, true)
	fresh.remove()
	is("a run that has ended", fresh.dir, false)
	alive.remove()
}

// TestProcessEndsWhatItLeft: a worker that ends by itself leaves no child alive.
func TestProcessEndsWhatItLeft(t *testing.T) {
	p := process{of: "sh", patience: time.Minute, most: 100}
	if err := p.run(t.Context(), exec.CommandContext(t.Context(), "sh", "-c",
		"sleep 600 >/dev/null 2>&1 & echo $!")); err != nil {
		t.Skip(err)
	}
	line := must.Get(p.line())
	if err := p.close(); err != nil {
		t.Error(err)
	}
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(line))))
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		// It is gone, or dead and its new parent has not waited for it.
		if err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
	syscall.Kill(pid, syscall.SIGKILL)
}
