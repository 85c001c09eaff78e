package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed621a2839/reweight/internal/printable"
)

// builds are the benches of two revisions.
type builds struct {
	base, now string // the programs
	against   string // in words, with the commit
	notes     []string

	top, dir string   // of the working tree, and of all that remove removes
	owner    *os.File // says whose dir is, see claim
}

// buildBoth builds the bench of a git revision, in a worktree of its own, and
// that of the working tree as it is. It builds both, because the bench that runs
// may have been built in another way. The caller must remove what it has made,
// even if it returns an error. What runs that were killed have left is removed
// first.
func buildBoth(ctx context.Context, ref string) (b builds, err error) {
	for _, name := range [...]string{"git", "go"} {
		if _, err := exec.LookPath(name); err != nil {
			return b, fmt.Errorf("-base needs %s: %w", name, err)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		return b, err
	}
	if b.top, err = git(ctx, here, "rev-parse", "--show-toplevel"); err != nil {
		return b, err
	}
	b.top = filepath.FromSlash(b.top)
	if _, err := os.Stat(filepath.Join(b.top, "cmd", "bench")); err != nil {
		return b, fmt.Errorf("%s has no cmd/bench: not a working tree of this project", printable.Text(b.top))
	}
	commit, err := git(ctx, b.top, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	if err == nil { // not with ref: in one of the form :/text, ^{commit} would be part of the text
		commit, err = git(ctx, b.top, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	}
	if err == nil && !isObject(commit) {
		err = fmt.Errorf("git names no commit, but %q", commit) // ^HEAD excludes one
	}
	if err != nil {
		if ctx.Err() != nil {
			return b, err
		}
		if strings.HasPrefix(ref, "^") || strings.Contains(ref, "..") {
			return b, fmt.Errorf("-base %q: not a commit, but a range of them", ref)
		}
		hint := ""
		if shallow, _ := git(ctx, b.top, "rev-parse", "--is-shallow-repository"); shallow == "true" {
			hint = " in this shallow clone: git fetch --unshallow gets the others"
		}
		return b, fmt.Errorf("-base %q: no such commit%s", ref, hint)
	}
	b.against = ref
	if short := commit[:min(12, len(commit))]; !strings.HasPrefix(commit, ref) {
		b.against += " (" + short + ")"
	}
	changed, err := git(ctx, b.top, "--no-optional-locks", "status", "--porcelain") // without the option, status may write the index
	if err != nil {
		return b, err
	}
	head, err := git(ctx, b.top, "rev-parse", "--verify", "--quiet", "HEAD")
	if err != nil {
		return b, err
	}
	switch {
	case changed != "":
		b.notes = append(b.notes, "The working tree has changes that are not committed; they were measured too")
	case head == commit:
		b.notes = append(b.notes, "Both sides are the same commit: this measures the noise")
	}

	temp, err := filepath.Abs(os.TempDir()) // git and go run in other directories than this process
	if err != nil {
		return b, err
	}
	owner, err := ownerOf(ctx, b.top)
	if err != nil {
		return b, err
	}
	removeDead(ctx, b.top, temp, owner)
	if b.dir, err = os.MkdirTemp(temp, dirPrefix); err != nil {
		return b, err
	}
	if b.owner, err = claim(b.dir, owner); err != nil {
		return b, err
	}
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	b.base, b.now = filepath.Join(b.dir, "base"+exe), filepath.Join(b.dir, "new"+exe)
	tree := b.tree()
	// Without the hooks of the repository: they are not meant for this checkout.
	if _, err := git(ctx, b.top, "-c", "core.hooksPath="+os.DevNull, "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return b, err
	}
	if err := build(ctx, tree, b.base); err != nil {
		return b, fmt.Errorf("-base %s does not build: %w", ref, err)
	}
	if err := build(ctx, b.top, b.now); err != nil {
		return b, fmt.Errorf("the working tree does not build: %w", err)
	}
	return b, nil
}

func (b builds) tree() string { return filepath.Join(b.dir, treeName) }

// isObject reports whether that is all of the name of an object of git.
func isObject(name string) bool {
	return len(name) >= 40 && strings.Trim(name, "0123456789abcdef") == ""
}

// remove removes what was built and the worktree, after an interrupt too.
func (b builds) remove() {
	if b.dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	git(ctx, b.top, "worktree", "remove", "--force", "--force", b.tree())
	if b.owner != nil {
		b.owner.Close() // some systems remove no file that is open
	}
	os.RemoveAll(b.dir)
}

// git runs git in the directory and returns what it prints, without the end of
// the line. A path may end in a space.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := tool(ctx, dir, "git", args...)
	return strings.TrimSuffix(out, "\n"), err
}

// build builds the bench of the module in the directory, without its version and
// directory in it, so that builds of the same source are equal.
func build(ctx context.Context, dir, exe string) error {
	_, err := tool(ctx, dir, "go", "build", "-trimpath", "-buildvcs=false", "-o", exe, "./cmd/bench")
	return err
}

// hookVariables are the environment variables by which git tells a hook where the
// repository and its index are. In the gate's own worktree they would be wrong: if
// a hook runs the gate, git would check the base out into the index of the commit
// that is being made.
var hookVariables = sync.OnceValue(func() (names []string) {
	list, _ := exec.Command("git", "rev-parse", "--local-env-vars").Output() // without git, the error is that of the first use of it
	for name := range strings.FieldsSeq(string(list)) {
		if name != "GIT_CONFIG_PARAMETERS" && name != "GIT_CONFIG_COUNT" { // these are settings of the user, not a place
			names = append(names, name)
		}
	}
	return names
})

// maxTool bounds what is kept of what a program prints. The longest is the list of
// changes, of which only matters whether there are any.
const maxTool = 1 << 20

// tool runs a program in the directory and returns what it prints. If the program
// fails, the error is the first line on its standard error that tells of one.
func tool(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(hookVariables(), name)
	})
	for i, v := range cmd.Env {
		switch name, path, _ := strings.Cut(v, "="); name {
		case "TMPDIR", "GOTMPDIR": // relative to the directory of this process
			if path, err := filepath.Abs(path); err == nil && !strings.HasSuffix(v, "=") {
				cmd.Env[i] = name + "=" + path
			}
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it can clean up
	cmd.WaitDelay = 5 * time.Second
	stdout, stderr := &capped{most: maxTool}, &capped{most: maxTool}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if err == nil || ctx.Err() != nil {
		return stdout.text.String(), err
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", err // there is no such program
	}
	for line := range strings.Lines(stderr.text.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading ") {
			return "", errors.New(strings.TrimPrefix(line, "fatal: "))
		}
	}
	return "", fmt.Errorf("%s %s: %w", name, args[0], err)
}
