//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gate

import (
	"errors"
	"fmt"
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

	"github.com/seed621a2839/reweight/internal/execx"
	"github.com/seed621a2839/reweight/internal/must"
)

// aRepository makes a repository with one commit of the files, and changes to its
// directory. The temporary files and the cache of the test are its own.
func aRepository(t *testing.T, files map[string]string) (r repository, do func(args ...string)) {
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
	return opened(t), do
}

// opened is the repository of the current directory, with HEAD.
func opened(t *testing.T) repository {
	t.Helper()
	return must.Get(openRepository(t.Context(), ".", "HEAD", false))
}

// take makes a checkout for a key.
func (r repository) take(t *testing.T, key string) *checkout {
	t.Helper()
	run := must.Get(newRunDir(t.Context()))
	t.Cleanup(run.remove)
	return must.Get(r.checkout(t.Context(), run, key))
}

// build makes a checkout and builds something in it.
func (r repository) build(t *testing.T, key string) *checkout {
	t.Helper()
	c := r.take(t, key)
	put(filepath.Join(c.bin(), "base"), "built")
	return c
}

// isEntry fails the test unless the checkout is an entry of the cache, with the file of
// the commit, and with what was built or without.
func (c *checkout) isEntry(t *testing.T, built bool) {
	t.Helper()
	if !c.cached || len(c.notes) > 0 {
		t.Errorf("cached %v; notes %q", c.cached, c.notes)
	}
	c.isWhole(t)
	if _, err := os.Lstat(filepath.Join(c.bin(), "base")); (err == nil) != built {
		t.Errorf("what was built: %v, want it: %v", err, built)
	}
}

// isUncached fails the test unless the checkout is one of the run, for that reason.
func (c *checkout) isUncached(t *testing.T, why string) {
	t.Helper()
	if c.cached || len(c.notes) != 1 || !strings.HasPrefix(c.notes[0], "The base is not cached: ") || !strings.Contains(c.notes[0], why) {
		t.Errorf("cached %v, notes %q, want %q", c.cached, c.notes, why)
	}
	c.isWhole(t)
	c.close()
	if _, err := os.Lstat(c.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s remains: %v", c.dir, err)
	}
}

func (c *checkout) isWhole(t *testing.T) {
	t.Helper()
	if !c.isClean(t.Context()) {
		t.Error("the tree is not that of the commit")
	}
	if text, err := os.ReadFile(filepath.Join(c.tree(), "sub", "file")); err != nil || string(text) != "text\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// oneFile is a commit of a file, and of a name that git does not show.
var oneFile = map[string]string{"sub/file": "text\n", ".gitignore": "ignored\n"}

// TestCheckoutFiles: the checkout has the files as git would write them into a
// clone, whatever the repository's settings, and the repository stays as it is.
func TestCheckoutFiles(t *testing.T) {
	_, do := aRepository(t, map[string]string{
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

	home := os.Getenv("XDG_CACHE_HOME")
	for _, dir := range []string{".", "sub", linked} {
		before := snapshot(".git")
		r := must.Get(openRepository(t.Context(), dir, "HEAD", false))
		if notes := strings.Join(r.notes, "|"); !strings.Contains(notes, `The base has submodules, which are empty directories in its checkout: "has two\nlines" (and 1 more)`) {
			t.Errorf("notes %q", r.notes)
		}
		if want := map[string]string{"sub": "sub/"}[dir]; r.sub != want {
			t.Errorf("%s: the directory is %q", dir, r.sub)
		}
		run := must.Get(newRunDir(t.Context()))
		for _, cache := range []string{home, home, "relative"} { // which is none
			t.Setenv("XDG_CACHE_HOME", cache)
			c := must.Get(r.checkout(t.Context(), run, "key"))
			for name, want := range map[string]string{
				"sub/file": "text\n", "has\na line break": "text\n", " spaces ": "text\n", "run": "#!/bin/sh\n", "dos.txt": "text\r\n",
				"sub/unix.txt": "text\n", "file.big": "big\n", "outside": "text\n", "ignored/but/in/it": "text\n", "-n": "text\n",
				"\u00fcml\u00e4ut": "text\n", "deep/er/and/er/file": "text\n", "link": "text\n",
			} {
				if text, err := os.ReadFile(filepath.Join(c.tree(), name)); err != nil || string(text) != want {
					t.Errorf("%s: %q is %q, %v, want %q", dir, name, text, err, want)
				}
			}
			for name, want := range map[string]string{"link": "sub/file", "broken": "/nowhere"} {
				if target, err := os.Readlink(filepath.Join(c.tree(), name)); err != nil || target != want {
					t.Errorf("%s: %q links to %q, %v", dir, name, target, err)
				}
			}
			for name, want := range map[string]fs.FileMode{"run": 0o100, "outside": 0, "sub/module": fs.ModeDir | 0o100, "has two\nlines": fs.ModeDir | 0o100} {
				if info, err := os.Lstat(filepath.Join(c.tree(), name)); err != nil || info.Mode()&(fs.ModeType|0o100) != want {
					t.Errorf("%s: the mode of %q is %v, %v", dir, name, info.Mode(), err)
				}
			}
			if !c.isClean(t.Context()) {
				t.Errorf("%s: the checkout is not that of the commit", dir)
			}
			c.close()
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

// shell runs a script in a directory. $OUTSIDE is an empty one.
func shell(t *testing.T, dir, script string) {
	t.Helper()
	if out, err := execx.Run(t.Context(), dir, append(execx.Environ(), "OUTSIDE="+t.TempDir()), "sh", "-ec", script); err != nil {
		t.Fatal(script, out, err)
	}
}

// TestCacheRepairs: what is built stays, and the files are those of the commit,
// whatever an earlier run has done to them.
func TestCacheRepairs(t *testing.T) {
	r, do := aRepository(t, oneFile)
	do("config", "core.ignoreStat", "true")
	r.build(t, "key").close()
	for what, script := range map[string]string{ // of a shell in the entry
		"nothing":                     "",
		"a new text":                  "echo TEXT >tree/sub/file",
		"another mode":                "chmod u+x tree/sub/file",
		"no file":                     "rm tree/sub/file",
		"a new file":                  "touch tree/sub/new",
		"an ignored":                  "touch tree/ignored",
		"a directory":                 "mkdir tree/new",
		"closed":                      "mkdir -p tree/new/a && chmod 500 tree/new",
		"one more":                    "touch bin/more",
		"no tree":                     "rm -r tree",
		"no index":                    "rm index",
		"a wrong index":               "printf DIRC >index",
		"an empty tree without index": "rm -r tree index && mkdir tree",
		"a locked index":              "touch index.lock && rm tree/sub/file",
		"a linked tree":               `mv tree "$OUTSIDE" && ln -s "$OUTSIDE/tree" tree`,
		"a linked directory":          `mv tree/sub "$OUTSIDE" && ln -s "$OUTSIDE/sub" tree/sub`,
	} {
		c := r.take(t, "key")
		shell(t, c.dir, script)
		c.close()
		t.Run(what, func(t *testing.T) {
			c := r.take(t, "key")
			c.isEntry(t, true)
			if info, err := os.Lstat(c.tree()); err != nil || !info.IsDir() {
				t.Errorf("the tree is no directory: %v", err)
			}
			if _, err := os.Lstat(filepath.Join(c.tree(), "new")); err == nil {
				t.Error("the tree still has something new")
			}
			c.close()
		})
	}
	r.take(t, "key").isEntry(t, true)
	r.take(t, "another key").isEntry(t, false)
	t.Chdir("sub")
	opened(t).take(t, "key").isEntry(t, false)
	do("config", "core.eol", "lf")
	r.take(t, "key").isEntry(t, false)
}

// TestCacheOfTwoRuns: both have a checkout.
func TestCacheOfTwoRuns(t *testing.T) {
	r, _ := aRepository(t, oneFile)
	first := r.build(t, "key")
	second := r.take(t, "key")
	second.isEntry(t, true)
	if first.dir != second.dir {
		t.Errorf("%s and %s", first.dir, second.dir)
	}
	put(filepath.Join(first.tree(), "new"), "")
	r.take(t, "key").isUncached(t, "another run uses the same entry")
	first.close()
	r.take(t, "key").isUncached(t, "another run uses the same entry")
	second.close()
	third := r.take(t, "key")
	third.isEntry(t, true) // it has repaired it, and shares it
	r.take(t, "key").isEntry(t, true)
}

// TestCacheForgets: the entries that nobody has used for long, and those that are
// too many.
func TestCacheForgets(t *testing.T) {
	r, _ := aRepository(t, oneFile)
	old := r.build(t, "old")
	old.close()
	long := time.Now().Add(-2 * maxUnused)
	must.Do(os.Chtimes(filepath.Join(old.dir, ownerName), long, long))
	var all []*checkout
	used := time.Now().Add(-24 * time.Hour)
	for i := range maxEntries {
		c := r.build(t, fmt.Sprint("key ", i))
		c.close()
		if _, err := os.Lstat(old.dir); err == nil {
			t.Fatal("what nobody has used for long remains")
		}
		used = used.Add(time.Minute)
		must.Do(os.Chtimes(filepath.Join(c.dir, ownerName), used, used))
		all = append(all, c)
	}
	there := func(want ...bool) {
		t.Helper()
		for i, want := range want {
			if _, err := os.Lstat(all[i].dir); (err == nil) != want {
				t.Errorf("entry %d is there: %v, want %v", i, err == nil, want)
			}
		}
	}
	cache := filepath.Dir(old.dir)
	foreign := map[string]string{
		strings.Repeat("a", 64): strings.ToUpper(cacheOwner),
		strings.Repeat("b", 64): "",
		strings.Repeat("c", 63): cacheOwner,
		"tmp":                   cacheOwner,
	}
	for name, text := range foreign {
		put(filepath.Join(cache, name, ownerName), text)
		must.Do(os.Chtimes(filepath.Join(cache, name, ownerName), long, long))
	}
	r.take(t, "key 0").close() // the least recently used is now key 1
	there(true, true, true)
	held := r.take(t, "key 2")
	must.Do(os.Chtimes(held.owner.Name(), long, long))
	must.Do(os.Chtimes(filepath.Join(all[5].dir, ownerName), long, long))
	r.build(t, "one more").close()
	there(true, true, true, true, true, false, true, true, true, true) // ten and the held one
	r.build(t, "two more").close()
	there(true, true, true, true)
	r.build(t, "three more").close()
	there(true, false, true, true)
	held.close()
	r.take(t, "one more").close()
	there(true, false, false, true)
	for name := range foreign {
		if _, err := os.Lstat(filepath.Join(cache, name, ownerName)); err != nil {
			t.Error(err)
		}
	}
}

// TestCacheRefused: what is not an entry of this user is not used and stays, and
// without a cache the run goes on.
func TestCacheRefused(t *testing.T) {
	r, _ := aRepository(t, oneFile)
	c := r.build(t, "key")
	c.close()
	cache := filepath.Dir(c.dir)
	const private, noEntry = "not a directory that only this user", "not an entry of the cache"
	const write = "printf 'benchgate cache 1\n' >$ENTRY/owner"
	for _, test := range []struct{ what, do, undo, why string }{ // of a shell beside the cache, with $ENTRY
		{"a link", `mv $ENTRY moved && ln -s "$PWD/moved" $ENTRY`, "rm $ENTRY && mv moved $ENTRY", private},
		{"for the group", "chmod 770 $ENTRY", "chmod 700 $ENTRY", private},
		{"for all", "chmod 777 benchgate", "chmod 700 benchgate", private},
		{"an owner", "printf somebody >$ENTRY/owner", write, noEntry},
		{"no owner", "rm $ENTRY/owner", write, noEntry},
		{"a linked owner", `mv $ENTRY/owner moved && ln -s "$PWD/moved" $ENTRY/owner`, "rm $ENTRY/owner && mv moved $ENTRY/owner", noEntry},
		{"a pipe", "rm $ENTRY/owner && mkfifo $ENTRY/owner", "rm $ENTRY/owner && " + write, noEntry},
		{"a file", "mv benchgate moved && touch benchgate", "rm benchgate && mv moved benchgate", "not a directory"},
	} {
		entry := "ENTRY=benchgate/" + filepath.Base(c.dir) + "\n"
		shell(t, filepath.Dir(cache), entry+test.do)
		t.Run(test.what, func(t *testing.T) { r.take(t, "key").isUncached(t, test.why) })
		shell(t, filepath.Dir(cache), entry+test.undo)
	}
	c = r.take(t, "key")
	c.isEntry(t, true)
	c.close()
	t.Run("read-only", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("this user may write everywhere")
		}
		must.Do(os.Chmod(cache, 0o500))
		defer os.Chmod(cache, 0o700)
		r.take(t, "another key").isUncached(t, "permission denied")
	})
	t.Run("nowhere", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", "")
		t.Setenv("HOME", "")
		r.take(t, "key").isUncached(t, "HOME")
	})
}

// deathVariable tells TestDeath of another process when it is to die.
const deathVariable = "BENCH_GATE_TEST_DEATH"

// TestDeath is a run that is killed, as TestCacheAfterDeath wants it.
func TestDeath(t *testing.T) {
	when := os.Getenv(deathVariable)
	if when == "" {
		t.Skip("a part of TestCacheAfterDeath")
	}
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	if when == "export" { // git starts what kills this process
		os.Setenv("GATE_PID", strconv.Itoa(os.Getpid()))
	}
	r := opened(t)
	run := must.Get(newRunDir(t.Context()))
	if when == "run" {
		die()
	}
	c := must.Get(r.checkout(t.Context(), run, "key"))
	put(filepath.Join(c.bin(), "base"), "built")
	die()
}

// TestCacheAfterDeath kills runs. The next removes what they have left, and makes
// what is not complete anew.
func TestCacheAfterDeath(t *testing.T) {
	canStart(t)
	r, do := aRepository(t, map[string]string{"sub/file": "text\n", "slow": "text\n", ".gitattributes": "slow filter=slow\n"})
	goOn := filepath.Join(t.TempDir(), "go-on")
	do("config", "filter.slow.smudge", "if test -n \"$GATE_PID\"; then kill -9 $GATE_PID; while test ! -e '"+goOn+"'; do sleep 0.02; done; fi; cat")
	self := must.Get(os.Executable())
	before := snapshot(".git")
	kill := func(when string, more ...string) {
		t.Helper()
		cmd := exec.Command(self, "-test.run=^TestDeath$")
		cmd.Env = append(os.Environ(), deathVariable+"="+when)
		cmd.Env = append(cmd.Env, more...)
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: %v\n%s", when, err, out)
		}
	}
	next := func(complete bool) {
		t.Helper()
		c := r.take(t, "key")
		c.isEntry(t, complete)
		c.close()
		must.Get(newRunDir(t.Context())).remove() // and that of the killed run
		if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), dirPrefix+"*", "*", treeName)); err != nil || len(left) > 0 {
			t.Errorf("there remain %v, %v", left, err)
		}
	}
	c := r.take(t, "key")
	c.close()
	must.Do(os.RemoveAll(c.dir))
	must.Do(os.Mkdir(c.dir, 0o700)) // killed before it had the owner file
	next(false)
	must.Do(os.RemoveAll(c.dir))
	put(filepath.Join(c.dir, ownerName), "") // before it had written it
	next(false)

	waitFor := func(owner string) { // until git ends
		t.Helper()
		f := must.Get(os.OpenFile(owner, os.O_RDWR, 0))
		must.Do(flock(f, syscall.LOCK_EX))
		must.Do(f.Close())
	}
	export := func() {
		t.Helper()
		os.Remove(goOn)
		kill("export")
		r.take(t, "key").isUncached(t, "another run makes the same entry") // git still writes
		put(goOn, "")
		waitFor(filepath.Join(c.dir, ownerName))
	}
	must.Do(os.RemoveAll(c.dir))
	export()
	next(false)
	kill("build")
	next(true)
	put(filepath.Join(c.tree(), "sub", "file"), "other") // a repair is killed
	export()
	next(true)
	kill("run")
	next(true)

	const nowhere = "XDG_CACHE_HOME=relative" // there is no cache
	kill("build", nowhere)
	next(true)
	t.Setenv("TMPDIR", t.TempDir())
	os.Remove(goOn)
	kill("export", nowhere)
	must.Get(newRunDir(t.Context())).remove()
	owners, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), dirPrefix+"*", ownerName))
	if err != nil || len(owners) != 1 {
		t.Fatalf("git still writes, and there are %v, %v", owners, err)
	}
	put(goOn, "")
	waitFor(owners[0])
	must.Get(newRunDir(t.Context())).remove()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("there remain %v, %v", left, err)
	}
	if after := snapshot(".git"); !maps.Equal(before, after) {
		t.Errorf("the repository has changed:\n%v\n%v", before, after)
	}
}
