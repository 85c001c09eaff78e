package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// newRepository makes a repository of the directory, where git works as if nobody had
// configured it. The functions run git there, and commit a file.
func newRepository(t *testing.T, dir string) (do func(args ...string), commit func(name, text string)) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	// They may be in the user's cache directory.
	if out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output(); err == nil {
		caches := strings.Split(string(out), "\n")
		t.Setenv("GOCACHE", caches[0])
		t.Setenv("GOMODCACHE", caches[1])
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	do = func(args ...string) {
		must.Get(git(t.Context(), dir,
			append([]string{"-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false"}, args...)...))
	}
	commit = func(name, text string) {
		put(filepath.Join(dir, filepath.FromSlash(name)), text)
		do("add", "-A")
		do("commit", "--quiet", "-m", name)
	}
	do("init", "--quiet", "--initial-branch=main")
	return do, commit
}

// TestGateGit: which revisions there are, and what is said of those that are none.
func TestGateGit(t *testing.T) {
	dir := t.TempDir()
	do, commit := newRepository(t, dir)
	t.Chdir(t.TempDir())
	open := func(ref string) (repository, error) { return openRepository(t.Context(), ".", ref, false) }
	refuse := func(ref, want string) {
		t.Helper()
		if _, err := open(ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-base %s: %v, want %q", ref, err, want)
		}
	}
	refuse("HEAD", "not a git repository")
	t.Chdir(dir)
	if _, err := execx.Run(t.Context(), dir, execx.Environ(), "sh", "-c",
		"printf 'go: downloading x v1\\n# x\\nx.go: wrong\\n' >&2; exit 1"); err == nil ||
		err.Error() != "x.go: wrong" {
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
	notes("The base and HEAD are the same commit")
	put("new.txt", "")
	notes("The working tree has changes")
	refuse("nowhere", `-base "nowhere": no such commit here: git fetch gets the commits of a remote`)
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
	t.Setenv("PATH", "")
	refuse("HEAD", "-base needs git: ")
}

// TestMergeBase: the base is where HEAD began, also in a clone that lacks most commits.
func TestMergeBase(t *testing.T) {
	dir := t.TempDir()
	do, commit := newRepository(t, dir)
	commit("x", "1")
	do("checkout", "--quiet", "-b", "feature")
	commit("y", "1")
	do("checkout", "--quiet", "main")
	commit("x", "2")
	commit("x", "3")
	do("checkout", "--quiet", "feature")
	is := func(dir, ref string, exact bool, want string) { // what it is compared with, and the notes
		t.Helper()
		r, err := openRepository(t.Context(), dir, ref, exact)
		if got := fmt.Sprintf("%s|%s", strings.Split(r.against, " (")[0], strings.Join(r.notes, "|")); err != nil ||
			!strings.HasPrefix(got+"$", want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	lacks := func(ref, want string) {
		t.Helper()
		if _, err := openRepository(t.Context(), filepath.Join(dir, "clone"), ref, false); err == nil ||
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	is(dir, "main", false, "the merge base with main|commits of main that HEAD lacks, and that it is not compared with: 2 (-base-exact compares with the tip)$")
	is(dir, "main", true, "main|$")
	is(dir, "HEAD~1", false, "HEAD~1|$")

	clone := filepath.Join(dir, "clone")
	in := func(dir string, args ...string) {
		must.Get(execx.Run(t.Context(), dir, execx.Environ(), "git", args...))
	}
	in(dir, "clone", "--quiet", "--depth", "1", "-b", "feature", "file://"+dir, clone)
	const help = "git fetch --unshallow origin '+refs/heads/*:refs/remotes/origin/*' gets all"
	lacks("origin/main", help)
	in(clone, "fetch", "--quiet", "--depth", "1", "origin", "main:refs/remotes/origin/main")
	lacks("origin/main", help+"; -base-exact compares with it as it is")
	is(clone, "origin/main", true, "origin/main|This clone is shallow: lines Bench-Accept of commits that it lacks are not seen$")
	in(clone, "fetch", "--quiet", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*") // as the error says
	is(clone, "origin/main", false, "the merge base with origin/main|commits of origin/main that HEAD lacks")
}
