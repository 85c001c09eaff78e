package gate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
	"github.com/seed621a2839/reweight/cmd/bench/internal/tool"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A repository is a git working tree and the commit that it is compared with.
type repository struct {
	top     string   // of the working tree
	sub     string   // the directory of openRepository in it, with slashes
	gitDir  string   // of the working tree
	ref     string   // as the user gave it
	commit  string   // its full name
	head    string   // the commit that is checked out
	against string   // in words, with the commit
	notes   []string // uncommitted changes; both sides the same commit; submodules
}

// openRepository finds the working tree of the directory and the commit of the
// reference.
func openRepository(ctx context.Context, dir, ref string) (r repository, err error) {
	for _, name := range [...]string{"git", "go"} {
		if _, err := exec.LookPath(name); err != nil {
			return r, fmt.Errorf("-base needs %s: %w", name, err)
		}
	}
	r.ref = ref
	if dir, err = filepath.Abs(dir); err != nil {
		return r, err
	}
	if r.top, err = git(ctx, dir, "rev-parse", "--show-toplevel"); err != nil {
		return r, err
	}
	r.top = filepath.FromSlash(r.top)
	if r.sub, err = git(ctx, dir, "rev-parse", "--show-prefix"); err != nil {
		return r, err
	}
	if r.gitDir, err = git(ctx, r.top, "rev-parse", "--absolute-git-dir"); err != nil {
		return r, err
	}
	if err := r.find(ctx); err != nil {
		return r, err
	}
	changed, err := git(ctx, r.top, "--no-optional-locks", "status", "--porcelain") // without the option, status may write the index
	if err != nil {
		return r, err
	}
	if r.head, err = git(ctx, r.top, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return r, err
	}
	switch {
	case changed != "":
		r.notes = append(r.notes, "The working tree has changes that are not committed; they were measured too")
	case r.head == r.commit:
		r.notes = append(r.notes, "Both sides are the same commit: this measures the noise")
	}
	files, err := git(ctx, r.top, "ls-tree", "-r", "-z", "--full-tree", r.commit)
	if err != nil {
		return r, err
	}
	var submodules []string
	for file := range strings.SplitSeq(files, "\x00") {
		if path, ok := strings.CutPrefix(file, "160000 "); ok {
			_, path, _ = strings.Cut(path, "\t")
			submodules = append(submodules, printable.Text(path))
		}
	}
	if len(submodules) > 0 {
		r.notes = append(r.notes, "The base has submodules, which are empty directories in its checkout: "+cli.FirstOf(submodules))
	}
	return r, nil
}

// find sets the commit of the reference.
func (r *repository) find(ctx context.Context) error {
	ref := r.ref
	commit, err := git(ctx, r.top, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	if err == nil { // not with ref: in one of the form :/text, ^{commit} would be part of the text
		commit, err = git(ctx, r.top, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	}
	if err == nil && !isObject(commit) {
		err = fmt.Errorf("git names no commit, but %q", commit) // ^HEAD excludes one
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		if strings.HasPrefix(ref, "^") || strings.Contains(ref, "..") {
			return fmt.Errorf("-base %q: not a commit, but a range of them", ref)
		}
		hint := " here: git fetch gets those of a remote"
		if shallow, _ := git(ctx, r.top, "rev-parse", "--is-shallow-repository"); shallow == "true" {
			hint = " in this shallow clone: git fetch --unshallow gets the others"
		}
		return fmt.Errorf("-base %q: no such commit%s", ref, hint)
	}
	r.commit, r.against = commit, ref
	if short := commit[:min(12, len(commit))]; !strings.HasPrefix(commit, ref) {
		r.against += " (" + short + ")"
	}
	return nil
}

// isObject reports whether that is all of the name of an object of git.
func isObject(name string) bool {
	return len(name) >= 40 && strings.Trim(name, "0123456789abcdef") == ""
}

// gitSettings keep git from starting programs of the user's, some of which write
// to the repository.
var gitSettings = []string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false"}

// git runs git in the directory and returns what it prints, without the end of
// the line. A path may end in a space.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := tool.Run(ctx, dir, tool.Environ(), "git", slices.Concat(gitSettings, args)...)
	return strings.TrimSuffix(out, "\n"), err
}
