package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/internal/execx"
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
	if _, err := execx.Run(t.Context(), dir, execx.Environ(), "sh", "-c", "printf 'go: downloading x v1\\n# x\\nx.go: wrong\\n' >&2; exit 1"); err == nil || err.Error() != "x.go: wrong" {
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

// TestMergeBase: the base is where HEAD began, also in a clone that lacks most commits.
func TestMergeBase(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	withoutSettings(t, dir)
	do, commit := inRepository(t, dir)
	do("init", "--quiet", "--initial-branch=main")
	commit("x", "1")
	do("checkout", "--quiet", "-b", "feature")
	commit("y", "1")
	do("checkout", "--quiet", "main")
	commit("x", "2")
	commit("x", "3")
	do("checkout", "--quiet", "feature")
	at := func(dir, ref string, exact bool) (string, error) {
		r, err := openRepository(t.Context(), dir, ref, exact)
		return fmt.Sprintf("%s|%s", strings.Split(r.against, " (")[0], strings.Join(r.notes, "|")), err
	}
	if got, err := at(dir, "main", false); err != nil || got != "the merge base with main|commits of main that HEAD lacks, and that it is not compared with: 2 (-base-exact compares with the tip)" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := at(dir, "main", true); err != nil || got != "main|" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := at(dir, "HEAD~1", false); err != nil || got != "HEAD~1|" {
		t.Errorf("%q, %v", got, err)
	}

	clone := filepath.Join(t.TempDir(), "clone")
	in := func(args ...string) {
		t.Helper()
		if _, err := execx.Run(t.Context(), clone, execx.Environ(), "git", args...); err != nil {
			t.Fatal(args, err)
		}
	}
	if _, err := execx.Run(t.Context(), dir, execx.Environ(), "git", "clone", "--quiet", "--depth", "1", "-b", "feature", "file://"+dir, clone); err != nil {
		t.Fatal(err)
	}
	const help = "git fetch --unshallow origin '+refs/heads/*:refs/remotes/origin/*' gets all"
	if _, err := at(clone, "origin/main", false); err == nil || !strings.HasSuffix(err.Error(), help) {
		t.Errorf("error %v", err)
	}
	in("fetch", "--quiet", "--depth", "1", "origin", "main:refs/remotes/origin/main")
	if _, err := at(clone, "origin/main", false); err == nil || !strings.Contains(err.Error(), help+"; -base-exact compares") {
		t.Errorf("error %v", err)
	}
	if got, err := at(clone, "origin/main", true); err != nil || !strings.Contains(got, "This clone is shallow: lines Bench-Accept of commits that it lacks are not seen") {
		t.Errorf("%q, %v", got, err)
	}
	in("fetch", "--quiet", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*") // as the error says
	if got, err := at(clone, "origin/main", false); err != nil || !strings.HasPrefix(got, "the merge base with origin/main|commits of origin/main that HEAD lacks") {
		t.Errorf("%q, %v", got, err)
	}
}
