package gate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A repository is a git working tree and the commit that it is compared with.
type repository struct {
	top     string   // of the working tree
	gitDir  string   // of the working tree
	ref     string   // as the user gave it
	commit  string   // its full name
	head    string   // the commit that is checked out
	against string   // in words, with the commit
	exact   bool     // the commit is that of ref, and not the merge base with head
	lacks   string   // what its checkout will lack, in words; or empty
	changed bool     // the working tree has changes that are not committed
	notes   []string // uncommitted changes; both versions the same commit; submodules
}

// openRepository finds the working tree of the directory and the commit of the
// reference. Files of the gate itself are no changes of the tree.
func openRepository(ctx context.Context, dir, ref string, exact bool, own ...string) (r repository, err error) {
	if _, err := exec.LookPath("git"); err != nil {
		return r, fmt.Errorf("-base needs git: %w", err)
	}
	r.ref, r.exact = ref, exact
	if dir, err = filepath.Abs(dir); err != nil {
		return r, err
	}
	if r.top, err = git(ctx, dir, "rev-parse", "--show-toplevel"); err != nil {
		return r, err
	}
	r.top = filepath.FromSlash(r.top)
	if r.gitDir, err = git(ctx, r.top, "rev-parse", "--absolute-git-dir"); err != nil {
		return r, err
	}
	if r.head, err = git(ctx, r.top, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return r, fmt.Errorf("%s has no commit yet", printable.Text(r.top))
	}
	if err := r.find(ctx); err != nil {
		return r, err
	}
	// Without the option, status may write the index.
	status := []string{"--no-optional-locks", "status", "--porcelain", "--", "."}
	for _, path := range own {
		if rel, err := filepath.Rel(r.top, path); err == nil && filepath.IsLocal(rel) {
			status = append(status, ":(exclude,literal)"+filepath.ToSlash(rel))
		}
	}
	changed, err := git(ctx, r.top, status...)
	if err != nil {
		return r, fmt.Errorf("git status, which runs the filters of .gitattributes on the working tree: %w", err)
	}
	r.changed = changed != ""
	switch {
	case r.changed:
		r.notes = append(r.notes, "The working tree has changes that are not committed; they were measured too")
	case r.head == r.commit:
		r.notes = append(r.notes, "The base and HEAD are the same commit: this measures the noise")
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
		r.lacks = "The base has submodules, which are empty directories in its checkout: " + cli.FirstOf(submodules)
		r.notes = append(r.notes, r.lacks)
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
		return fmt.Errorf("-base %q: no such commit here: %s", ref, r.fetch(ctx))
	}
	r.commit, r.against = commit, ref
	if !r.exact {
		fork, err := git(ctx, r.top, "merge-base", commit, r.head)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("-base %q has no commit in common with HEAD here: %s; -base-exact compares with it as it is", ref, r.fetch(ctx))
		}
		if fork != commit {
			ahead, err := git(ctx, r.top, "rev-list", "--count", fork+".."+commit)
			if err != nil {
				return err
			}
			r.against = "the merge base with " + ref
			r.notes = append(r.notes, fmt.Sprintf("commits of %s that HEAD lacks, and that it is not compared with: %s (-base-exact compares with the tip)", ref, ahead))
		}
		r.commit = fork
	}
	if short := r.commit[:12]; !strings.HasPrefix(r.commit, ref) {
		r.against += " (" + short + ")"
	}
	if r.isShallow(ctx) {
		r.notes = append(r.notes, "This clone is shallow: lines "+trailer+" of commits that it lacks are not seen")
	}
	return nil
}

func (r *repository) isShallow(ctx context.Context) bool {
	shallow, _ := git(ctx, r.top, "rev-parse", "--is-shallow-repository")
	return shallow == "true"
}

// fetch says how to get what the repository lacks. A clone with --depth has one branch
// only, and fetches others only if they are named with where they go.
func (r *repository) fetch(ctx context.Context) string {
	if !r.isShallow(ctx) {
		return "git fetch gets the commits of a remote"
	}
	remotes, _ := git(ctx, r.top, "remote")
	remote, _, _ := strings.Cut(cmp.Or(remotes, "origin"), "\n")
	return fmt.Sprintf("this clone is shallow, and git fetch --unshallow %s '+refs/heads/*:refs/remotes/%s/*' gets all", remote, remote)
}

// export writes the files of the commit to a directory in that of the run. Git's read-tree
// obeys the attributes of the commit, and neither it nor its index changes the repository. A
// child of a killed gate still holds the lock, so that nobody removes what it writes.
func (r *repository) export(ctx context.Context, run *runDir) (tree string, err error) {
	tree = filepath.Join(run.dir, "base")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return "", err
	}
	env := append(execx.Environ(), "GIT_INDEX_FILE="+filepath.Join(run.dir, "index"))
	_, err = execx.RunHolding(ctx, tree, env, run.owner, "git", slices.Concat(gitSettings, []string{
		"-c", "core.sparseCheckout=false", "-c", "submodule.recurse=false", // all files, and none of other repositories
		"-c", "core.splitIndex=false", // a part of the index would be in the repository
		"--git-dir=" + r.gitDir, "--work-tree=.", "read-tree", "--reset", "-u", r.commit,
	})...)
	if err != nil {
		err = fmt.Errorf("writing the files of the base, %s: %w", r.against, err)
	}
	return tree, err
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
	out, err := execx.Run(ctx, dir, execx.Environ(), "git", slices.Concat(gitSettings, args)...)
	if err != nil && strings.Contains(err.Error(), "dubious ownership") { // git's next lines say what to do
		err = fmt.Errorf("%w: git config --global --add safe.directory '*' lets git read it all the same", err)
	}
	return strings.TrimSuffix(out, "\n"), err
}
