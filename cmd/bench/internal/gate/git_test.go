package gate

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/tool"
)

// withoutSettings makes git work as if nobody had configured it, in the directory,
// and gives the test a cache of its own.
func withoutSettings(t *testing.T, dir string) {
	if out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output(); err == nil { // they may be in the user's cache directory
		caches := strings.Split(string(out), "\n")
		t.Setenv("GOCACHE", caches[0])
		t.Setenv("GOMODCACHE", caches[1])
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
}

// inRepository returns functions that run git in the directory, and that commit
// a file there.
func inRepository(t *testing.T, dir string) (do func(args ...string), commit func(name, text string)) {
	do = func(args ...string) {
		t.Helper()
		if _, err := git(t.Context(), dir, append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"}, args...)...); err != nil {
			t.Fatal(args, err)
		}
	}
	commit = func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		do("add", "-A")
		do("commit", "--quiet", "-m", name)
	}
	return do, commit
}

// TestGateGit builds revisions of a small program instead of bench.
func TestGateGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	canStart(t)
	dir := t.TempDir()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	withoutSettings(t, dir)
	t.Chdir(dir)
	refuse := func(ref, want string) {
		t.Helper()
		var out bytes.Buffer
		err := command(t.Context(), []string{"-base", ref}, &out, &cli.Progress{}, quick)
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitStatus("", err, io.Discard) != 2 {
			t.Errorf("-base %s: %v, want %q", ref, err, want)
		}
		if left, _ := os.ReadDir(temporary); len(left) > 0 {
			t.Errorf("-base %s leaves %v", ref, left)
		}
	}
	refuse("HEAD", "not a git repository")
	do, commit := inRepository(t, dir)
	do("init", "--quiet")
	if _, err := tool.Run(t.Context(), dir, tool.Environ(), "sh", "-c", "printf 'go: downloading x v1\\n# x\\nx.go: wrong\\n' >&2; exit 1"); err == nil || err.Error() != "x.go: wrong" {
		t.Errorf("of a build: %v", err)
	}
	commit("go.mod", "module small\n\ngo 1.26\n")
	refuse("HEAD", "no cmd/bench")
	commit("cmd/bench/main.go", "package main\n\nfunc main() { wrong }\n")
	commit("cmd/bench/main.go", "package main\n\nimport (\"fmt\"; \"os\")\n\nfunc main() { fmt.Fprintln(os.Stderr, \"unknown command\", os.Args[1]); os.Exit(2) }\n")
	if err := os.WriteFile(".git/hooks/post-checkout", []byte("#!/bin/sh\ntouch \""+temporary+"/hooked\"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	refuse("HEAD", "the bench of HEAD is older than the gate")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if kept, _ := os.ReadDir(filepath.Join(cache, cacheName)); len(kept) > 0 {
		t.Errorf("without a cache, it keeps %v", kept)
	}
	notes := func(want string) {
		t.Helper()
		b, err := buildBoth(t.Context(), "HEAD", true)
		defer b.remove()
		if err != nil || len(b.notes) != 1 || !strings.Contains(b.notes[0], want) {
			t.Errorf("notes %q, %v, want %q", b.notes, err, want)
		}
	}
	notes("Both sides are the same commit")
	if err := os.WriteFile("new.txt", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	notes("The working tree has changes")
	if err := os.Remove("new.txt"); err != nil {
		t.Fatal(err)
	}
	// As in a hook: neither that index nor that of the repository is touched.
	hooked := filepath.Join(t.TempDir(), "index")
	var indexes [2][]byte
	for i, name := range []string{filepath.Join(dir, ".git", "index"), hooked} {
		var err error
		if indexes[i], err = os.ReadFile(filepath.Join(dir, ".git", "index")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, indexes[i], 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"GIT_INDEX_FILE": hooked, "GIT_DIR": filepath.Join(dir, ".git"), "GIT_WORK_TREE": t.TempDir()} {
		t.Setenv(name, value)
		refuse("HEAD~1", "-base HEAD~1 does not build")
	}
	for i, name := range []string{filepath.Join(dir, ".git", "index"), hooked} {
		if text, err := os.ReadFile(name); err != nil || !bytes.Equal(text, indexes[i]) {
			t.Errorf("%s is not as it was: %v", name, err)
		}
	}
	refuse("HEAD~1", "-base HEAD~1 does not build: cmd/bench/main.go:3:15: undefined: wrong")
	refuse("HEAD~2", "-base HEAD~2 does not build: ")
	refuse("nowhere", `-base "nowhere": no such commit`)
	refuse("-x", `-base "-x": no such commit`)
	refuse("--all", `-base "--all": no such commit`)
	refuse("HEAD\n", `-base "HEAD\n": no such commit`)
	for _, ref := range []string{"^HEAD", "HEAD~1..HEAD", "HEAD...HEAD~1", "..", "^nowhere"} {
		refuse(ref, fmt.Sprintf("-base %q: not a commit, but a range of them", ref))
	}
	refuse("HEAD^!", `-base "HEAD^!": no such commit`)
	refuse("HEAD:go.mod", "no such commit")
	do("commit", "--quiet", "--allow-empty", "-m", "a word to be found")
	refuse(":/word to", "the bench of :/word to is older than the gate")
	refuse(":/no such word", "no such commit")
	if err := os.WriteFile("cmd/bench/main.go", []byte("package main\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	refuse("HEAD", "the working tree does not build: ")
	// Without go, and without git.
	bin := t.TempDir()
	if program, err := exec.LookPath("git"); err == nil && os.Symlink(program, filepath.Join(bin, "git")) == nil {
		t.Setenv("PATH", bin)
		refuse("HEAD", "-base needs go: ")
	}
	t.Setenv("PATH", "")
	refuse("HEAD", "-base needs git: ")
}
