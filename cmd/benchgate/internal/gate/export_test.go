//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gate

import (
	"errors"
	"io"
	"io/fs"
	"maps"
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

// aRepository makes a repository with one commit of the files, and changes to its
// directory. The temporary files of the test are its own.
func aRepository(t *testing.T, files map[string]string) (do func(args ...string)) {
	t.Helper()
	dir := t.TempDir()
	do, _ = newRepository(t, dir)
	t.Setenv("TMPDIR", t.TempDir())
	t.Chdir(dir)
	for name, text := range files {
		put(name, text)
	}
	do("add", "-A")
	do("commit", "--quiet", "-m", "all")
	return do
}

// TestExport: the files are those that git would write into a clone, whatever the
// repository's settings, and the repository stays as it is.
func TestExport(t *testing.T) {
	do := aRepository(t, map[string]string{
		"sub/file":            "text\n",
		"has\na line break":   "text\n",
		" spaces ":            "text\n",
		"run":                 "#!/bin/sh\n",
		"dos.txt":             "text\n",
		"sub/.gitattributes":  "*.txt -text\n",
		"sub/unix.txt":        "text\n",
		".gitattributes":      "*.txt eol=crlf\n*.big filter=big\n",
		"file.big":            "small\n",
		"outside":             "text\n",
		"ignored/but/in/it":   "text\n",
		"-n":                  "text\n",
		"\u00fcml\u00e4ut":    "text\n",
		"deep/er/and/er/file": "text\n",
	})
	must.Do(os.Chmod("run", 0o755))
	must.Do(os.Symlink("sub/file", "link"))
	must.Do(os.Symlink("/nowhere", "broken"))
	do("add", "-A")
	here := must.Get(os.Getwd())
	do("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", here, "sub/module")
	head := must.Get(git(t.Context(), ".", "rev-parse", "HEAD"))
	do("update-index", "--add", "--cacheinfo", "160000,"+head+",has two\nlines") // without its .gitmodules
	must.Do(os.MkdirAll("has two\nlines", 0o700))
	do("commit", "--quiet", "-m", "more")
	do("worktree", "add", "--quiet", "--detach", filepath.Join(t.TempDir(), "linked"), "HEAD")
	linked := must.Get(git(t.Context(), ".", "worktree", "list", "--porcelain"))
	_, linked, _ = strings.Cut(linked, "\n\nworktree ")
	linked, _, _ = strings.Cut(linked, "\n")

	// The attributes of the working tree are not those of the commit.
	put(".gitattributes", "*.txt -text\n")
	put("outside", "changed\n")
	called := filepath.Join(t.TempDir(), "called")
	for _, name := range []string{"post-checkout", "post-index-change", "fsmonitor"} {
		put(filepath.Join(".git", "hooks", name), "#!/bin/sh\ntouch '"+called+"'\n")
		must.Do(os.Chmod(filepath.Join(".git", "hooks", name), 0o700))
	}
	for _, setting := range [][2]string{
		{"core.fsmonitor", ".git/hooks/fsmonitor"}, {"core.sparseCheckout", "true"}, {"core.splitIndex", "true"}, {"core.ignoreStat", "true"},
		{"core.untrackedCache", "true"}, {"submodule.recurse", "true"}, {"filter.big.smudge", "sed s/small/big/"}, {"filter.big.clean", "sed s/big/small/"},
	} {
		do("config", setting[0], setting[1])
	}
	put(".git/info/sparse-checkout", "/sub/\n")
	os.Remove(called)

	for _, dir := range []string{".", "sub", linked} {
		before := snapshot(".git")
		r := must.Get(openRepository(t.Context(), dir, "HEAD", false))
		if notes := strings.Join(r.notes, "|"); !strings.Contains(notes, `The base has submodules, which are empty directories in its checkout: "has two\nlines" (and 1 more)`) {
			t.Errorf("notes %q", r.notes)
		}
		run := must.Get(newRunDir(t.Context()))
		tree := must.Get(r.export(t.Context(), run))
		for name, want := range map[string]string{
			"sub/file": "text\n", "has\na line break": "text\n", " spaces ": "text\n", "run": "#!/bin/sh\n", "dos.txt": "text\r\n",
			"sub/unix.txt": "text\n", "file.big": "big\n", "outside": "text\n", "ignored/but/in/it": "text\n", "-n": "text\n",
			"\u00fcml\u00e4ut": "text\n", "deep/er/and/er/file": "text\n", "link": "text\n",
		} {
			if text, err := os.ReadFile(filepath.Join(tree, name)); err != nil || string(text) != want {
				t.Errorf("%s: %q is %q, %v, want %q", dir, name, text, err, want)
			}
		}
		for name, want := range map[string]string{"link": "sub/file", "broken": "/nowhere"} {
			if target, err := os.Readlink(filepath.Join(tree, name)); err != nil || target != want {
				t.Errorf("%s: %q links to %q, %v", dir, name, target, err)
			}
		}
		for name, want := range map[string]fs.FileMode{"run": 0o100, "outside": 0, "sub/module": fs.ModeDir | 0o100,
			"has two\nlines": fs.ModeDir | 0o100} {
			if info, err := os.Lstat(filepath.Join(tree, name)); err != nil || info.Mode()&(fs.ModeType|0o100) != want {
				t.Errorf("%s: the mode of %q is %v, %v", dir, name, info.Mode(), err)
			}
		}
		run.remove()
		if after := snapshot(".git"); !maps.Equal(before, after) {
			t.Errorf("%s: the repository has changed:\n%v\n%v", dir, before, after)
		}
		if _, err := os.Lstat(called); err == nil {
			t.Errorf("%s: a program of the user's was started", dir)
		}
	}
}

// TestExportFails: what goes wrong in the checkout of the base says that it is the base's.
func TestExportFails(t *testing.T) {
	do := aRepository(t, map[string]string{"file.big": "text\n", ".gitattributes": "*.big filter=big\n"})
	do("config", "filter.big.clean", "cat")
	do("config", "filter.big.smudge", "no-such-program-here")
	do("config", "filter.big.required", "true")
	r := must.Get(openRepository(t.Context(), ".", "HEAD", false))
	run := must.Get(newRunDir(t.Context()))
	defer run.remove()
	want := "writing the files of the base, HEAD (" + r.commit[:12] + "): "
	if _, err := r.export(t.Context(), run); err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "no-such-program-here") {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestStatusFails: a filter that fails already on the working tree is named as one.
func TestStatusFails(t *testing.T) {
	do := aRepository(t, map[string]string{"file.big": "text\n", ".gitattributes": "*.big filter=big\n"})
	put("file.big", "Text\n") // of the same length: git reads it
	do("config", "filter.big.clean", "no-such-program-here")
	do("config", "filter.big.required", "true")
	const want = "git status, which runs the filters of .gitattributes on the working tree: "
	if _, err := openRepository(t.Context(), ".", "HEAD", false); err == nil || !strings.HasPrefix(err.Error(), want) ||
		!strings.Contains(err.Error(), "no-such-program-here") {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestLacksSubmodule: where the base does not build and has submodules, the error says that they are empty in its
// checkout.
func TestLacksSubmodule(t *testing.T) {
	do := aRepository(t, map[string]string{
		"go.mod":    "module m\n\ngo 1.26\n\nrequire m/lib v0.0.0\n\nreplace m/lib => ./sub\n",
		"x_test.go": "package m\n\nimport (\n\t\"testing\"\n\n\t_ \"m/lib\"\n)\n\nfunc BenchmarkX(b *testing.B) {}\n"})
	lib := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m/lib\n\ngo 1.26\n", "lib.go": "package lib\n"} {
		put(filepath.Join(lib, name), text)
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "-A"}, {"-c", "user.name=n", "-c", "user.email=e@x",
		"commit", "--quiet", "-m", "lib"}} {
		must.Get(git(t.Context(), lib, args...))
	}
	do("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", lib, "sub")
	do("commit", "--quiet", "-m", "with it")
	err := Run(t.Context(), Options{Base: "HEAD", Dir: ".", Bench: ".", Packages: []string{AllPackages}, CPU: 1,
		Budget: time.Minute, Alpha: Alpha, Slower: 1.05}, io.Discard)
	const want = ". The base has submodules, which are empty directories in its checkout: sub"
	if err == nil || !strings.HasPrefix(err.Error(), "HEAD: ") || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// deathVariable tells TestDeath of another process that it is to die.
const deathVariable = "BENCH_GATE_TEST_DEATH"

// TestDeath is a run that is killed while git writes files, as TestAfterDeath wants it.
func TestDeath(t *testing.T) {
	if os.Getenv(deathVariable) == "" {
		t.Skip("a part of TestAfterDeath")
	}
	os.Setenv("GATE_PID", strconv.Itoa(os.Getpid())) // git starts what kills this process
	r := must.Get(openRepository(t.Context(), ".", "HEAD", false))
	r.export(t.Context(), must.Get(newRunDir(t.Context())))
}

// TestAfterDeath kills a run. What it has left is removed, but not while git still writes.
func TestAfterDeath(t *testing.T) {
	canStart(t)
	do := aRepository(t, map[string]string{"sub/file": "text\n", "slow": "text\n",
		".gitattributes": "slow filter=slow\n"})
	goOn := filepath.Join(t.TempDir(), "go-on")
	do("config", "filter.slow.smudge",
		"if test -n \"$GATE_PID\"; then kill -9 $GATE_PID; while test ! -e '"+goOn+"'; do sleep 0.02; done; fi; cat")
	before := snapshot(".git")
	cmd := exec.Command(must.Get(os.Executable()), "-test.run=^TestDeath$")
	cmd.Env = append(os.Environ(), deathVariable+"=1")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok ||
		exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v\n%s", err, out)
	}
	left := filepath.Join(os.Getenv("TMPDIR"), dirPrefix+"0")
	next := func(want string) { // run
		t.Helper()
		run := must.Get(newRunDir(t.Context()))
		if filepath.Base(run.dir) != want {
			t.Errorf("the next run is in %s, want %s", run.dir, want)
		}
		run.remove()
	}
	next(dirPrefix + "1") // git still writes
	put(goOn, "")
	f := must.Get(os.OpenFile(filepath.Join(left, ownerName), os.O_RDWR, 0))
	must.Do(syscall.Flock(int(f.Fd()), syscall.LOCK_EX)) // until git ends
	if _, err := os.Lstat(filepath.Join(left, "base", "sub", "file")); err != nil {
		t.Error(err)
	}
	must.Do(f.Close())
	next(dirPrefix + "0")
	if _, err := os.Lstat(left); err == nil {
		t.Errorf("%s remains", left)
	}
	if after := snapshot(".git"); !maps.Equal(before, after) {
		t.Errorf("the repository has changed:\n%v\n%v", before, after)
	}
}
