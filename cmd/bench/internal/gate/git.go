package gate

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// builds are the benches of two revisions.
type builds struct {
	repository
	base, now *kernelBench

	run      *runDir
	checkout *checkout
}

// buildBoth builds the bench of a git revision, in a checkout of its own, and that
// of the working tree as it is. It builds both, because the bench that runs may
// have been built in another way. The caller must remove what it has made, even if
// it returns an error.
func buildBoth(ctx context.Context, ref string, cached bool) (b builds, err error) {
	if b.repository, err = openRepository(ctx, ".", ref); err != nil {
		return b, err
	}
	if _, err := os.Stat(filepath.Join(b.top, "cmd", "bench")); err != nil {
		return b, fmt.Errorf("%s has no cmd/bench, so it is not a working tree of this project: -bench compares the benchmarks of other modules", printable.Text(b.top))
	}
	if b.run, err = newRunDir(ctx); err != nil {
		return b, err
	}
	key, err := goSettings(ctx, b.run.dir)
	if err != nil {
		return b, err
	}
	if b.checkout, err = b.repository.checkout(ctx, b.run, "cmd/bench "+key, cached); err != nil {
		return b, err
	}
	b.notes = append(b.notes, b.checkout.notes...)
	b.base = &kernelBench{name: ref, dir: b.checkout.tree(), exe: filepath.Join(b.checkout.bin(), "base"), patience: workerPatience}
	if _, err := os.Stat(filepath.Join(b.base.dir, "go.work")); err != nil || os.Getenv("GOWORK") != "" {
		b.base.env = []string{"GOWORK=off"} // a workspace around the checkout is not that of the base
	}
	b.now = &kernelBench{name: "the working tree", dir: b.top, exe: filepath.Join(b.run.dir, "new"), patience: workerPatience}
	for _, k := range [...]*kernelBench{b.base, b.now} {
		k.reordered = filepath.Join(b.run.dir, "reordered-"+filepath.Base(k.exe))
		if runtime.GOOS == "windows" {
			k.exe += ".exe"
		}
	}
	if !b.checkout.complete() {
		if err := b.base.build(ctx, b.base.exe); err != nil {
			return b, fmt.Errorf("-base %s does not build: %w", ref, err)
		}
		if err := b.checkout.finished(); err != nil {
			return b, err
		}
	}
	if err := b.now.build(ctx, b.now.exe); err != nil {
		return b, fmt.Errorf("the working tree does not build: %w", err)
	}
	return b, nil
}

// remove removes what is not cached.
func (b builds) remove() {
	if b.checkout != nil {
		b.checkout.close()
	}
	if b.run != nil {
		b.run.remove()
	}
}

// goSettings are the version of Go and the settings that decide what it builds of
// a source. The directory must be of no module, because a module can choose a
// version of Go.
func goSettings(ctx context.Context, dir string) (string, error) {
	return tool.Run(ctx, dir, tool.Environ(), "go", "env", "GOVERSION", "GOTOOLCHAIN", "GOOS", "GOARCH", "GO386", "GOAMD64", "GOARM", "GOARM64",
		"GOMIPS", "GOMIPS64", "GOPPC64", "GORISCV64", "GOFLAGS", "GOWORK", "GOEXPERIMENT", "GOFIPS140",
		"CGO_ENABLED", "CC", "CXX", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS", "PKG_CONFIG")
}
