package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	dir := t.TempDir()
	withoutSettings(t, dir)
	t.Chdir(dir)
	open := func(ref string) (repository, error) { return openRepository(t.Context(), ".", ref, false) }
	refuse := func(ref, want string) {
		t.Helper()
		if _, err := open(ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-base %s: %v, want %q", ref, err, want)
		}
	}
	refuse("HEAD", "not a git repository")
	do, commit := inRepository(t, dir)
	do("init", "--quiet")
	if _, err := tool.Run(t.Context(), dir, tool.Environ(), "sh", "-c", "printf 'go: downloading x v1\\n# x\\nx.go: wrong\\n' >&2; exit 1"); err == nil || err.Error() != "x.go: wrong" {
		t.Errorf("of a build: %v", err)
	}
	commit("go.mod", "module small\n\ngo 1.26\n")
	commit("x.go", "package small\n")
	notes := func(want string) {
		t.Helper()
		if r, err := open("HEAD"); err != nil || len(r.notes) != 1 || !strings.Contains(r.notes[0], want) {
			t.Errorf("notes %q, %v, want %q", r.notes, err, want)
		}
	}
	notes("Both sides are the same commit")
	put(t, "new.txt", "")
	notes("The working tree has changes")
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
	if _, err := open(":/word to"); err != nil {
		t.Error(err)
	}
	refuse(":/no such word", "no such commit")
	// Without go, and without git.
	bin := t.TempDir()
	if program, err := exec.LookPath("git"); err == nil && os.Symlink(program, filepath.Join(bin, "git")) == nil {
		t.Setenv("PATH", bin)
		refuse("HEAD", "-base needs go: ")
	}
	t.Setenv("PATH", "")
	refuse("HEAD", "-base needs git: ")
}
