package gate

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A run keeps what it builds in a directory of this prefix and a number. There are:
const (
	dirPrefix = "bench-gate-"
	treeName  = "tree"  // the git worktree of the base
	ownerName = "owner" // says whose the directory is; locked as long as the run lives
)

// isRunDir reports whether a run may have given its directory that name.
func isRunDir(name string) bool {
	number, ok := strings.CutPrefix(name, dirPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// ownerOf is the text of the file that says whose a directory is: a run of the
// gate on this host, in the repository of the working tree.
func ownerOf(ctx context.Context, top string) (string, error) {
	repository, err := git(ctx, top, "rev-parse", "--git-common-dir")
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(repository) {
		repository = filepath.Join(top, repository)
	}
	host, err := os.Hostname()
	return "bench gate\n" + host + "\n" + repository + "\n", err
}

// claim makes the file that says whose the directory is, and locks it. Where
// files cannot be locked the file stays empty, and nobody removes the directory
// but the run itself.
func claim(dir, owner string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if lock(f) == nil { // before it says whose it is
		_, err = f.WriteString(owner)
	}
	return f, err
}

// removeDead removes what runs of this owner have left that were killed: their
// directories, and git's entries of their worktrees. What is in doubt stays. An
// error is none of the run that calls it, and is not returned.
func removeDead(ctx context.Context, top, temp, owner string) {
	list, _ := git(ctx, top, "worktree", "list", "--porcelain", "-z") // older than 2.36, git does not know -z
	for field := range strings.SplitSeq(list, "\x00") {
		tree, ok := strings.CutPrefix(field, "worktree ")
		dir := filepath.Dir(filepath.FromSlash(tree))
		if !ok || filepath.Base(tree) != treeName || !isRunDir(filepath.Base(dir)) {
			continue
		}
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			builds{top: top, dir: dir}.remove() // there is only the entry
			continue
		}
		removeIfDead(top, dir, owner)
	}
	entries, _ := os.ReadDir(temp)
	for _, e := range entries { // those that were killed before there was a worktree, or after
		if isRunDir(e.Name()) {
			removeIfDead(top, filepath.Join(temp, e.Name()), owner)
		}
	}
}

// removeIfDead removes the directory of a run if its owner is this and does not
// live any more.
func removeIfDead(top, dir, owner string) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !ours(info) {
		return
	}
	name := filepath.Join(dir, ownerName)
	if info, err := os.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(owner)) {
		return
	}
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err == nil && string(text) == owner && lock(f) == nil {
		builds{top: top, dir: dir, owner: f}.remove()
	}
}
