package gate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/internal/execx"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A checkout is a directory with the files of a commit and with what was built of
// them. It is an entry of the cache, or in the directory of the run.
type checkout struct {
	dir   string
	notes []string // why it is not in the cache

	repository repository
	cached     bool
	owner      *os.File // of the entry or of the run, locked
}

// In the directory of a checkout are, besides the owner file of an entry:
const (
	treeName  = "tree"  // the files of the commit
	binName   = "bin"   // what was built of them: each file has its name when it is whole
	indexName = "index" // git's index of tree
)

// The cache is a directory of this name in the user's cache directory. An entry
// has a SHA-256 sum as its name and the owner file, whose time is that of the last
// use. The entry is locked for one process while it is made or repaired, and for
// all while it is used.
const (
	cacheName  = "benchgate"
	cacheOwner = "benchgate cache 1\n"
	maxEntries = 10
	maxUnused  = 30 * 24 * time.Hour
)

func (c *checkout) tree() string { return filepath.Join(c.dir, treeName) }
func (c *checkout) bin() string  { return filepath.Join(c.dir, binName) }

// close lets others change the entry of the cache. What is not in the cache is
// removed.
func (c *checkout) close() {
	if c.cached {
		c.owner.Close()
		return
	}
	removeAll(c.dir)
}

// checkout makes a checkout of the commit: the cache's entry for the key, which names
// all that decides what is built of the commit, or if the cache cannot be used, one in
// the directory of the run.
func (r repository) checkout(ctx context.Context, run *runDir, key string) (*checkout, error) {
	c, err := r.entry(ctx, key)
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	c = &checkout{dir: filepath.Join(run.dir, "checkout"), repository: r, owner: run.owner, notes: []string{"The base is not cached: " + printable.Line(err.Error())}}
	return c, c.export(ctx)
}

// entry returns the entry of the cache for the key.
func (r repository) entry(ctx context.Context, key string) (c *checkout, err error) {
	if !canLock {
		return nil, errors.New("this system cannot lock files")
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	name, err := r.sum(ctx, key)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, name)
	owner, err := openEntry(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			owner.Close()
		}
	}()
	c = &checkout{dir: dir, repository: r, cached: true, owner: owner}
	if !c.isClean(ctx) {
		if err := c.mend(ctx); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	if err := os.Chtimes(owner.Name(), now, now); err != nil {
		return nil, err
	}
	removeOld(cache, name)
	return c, nil
}

// mend makes the tree of an entry anew. Then others may share the entry.
func (c *checkout) mend(ctx context.Context) error {
	if lock(c.owner) != nil || !isFile(c.owner, c.owner.Name()) {
		return errors.New("another run uses the same entry of the cache")
	}
	if !c.isClean(ctx) { // another run can have made it meanwhile
		if _, err := c.owner.WriteAt([]byte(cacheOwner), 0); err != nil {
			return err
		}
		if err := c.export(ctx); err != nil {
			return err
		}
	}
	return lockShared(c.owner)
}

// cacheDir returns the directory of the cache, which it makes if there is none.
func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, cacheName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, checkPrivate(dir)
}

// checkPrivate returns an error if the path is not a directory of this user that
// nobody else can write to.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !ours(info) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only this user can write to", printable.Text(dir))
	}
	return nil
}

// sum returns the name of the entry for the key.
func (r repository) sum(ctx context.Context, key string) (string, error) {
	settings, err := git(ctx, r.top, "config", "--list", "-z")
	if err != nil {
		return "", err
	}
	parts := []string{r.commit, r.sub, key, os.Getenv("GIT_LFS_SKIP_SMUDGE")}
	for s := range strings.SplitSeq(settings, "\x00") { // those that decide what git writes into files
		for _, prefix := range [...]string{"core.autocrlf\n", "core.eol\n", "core.symlinks\n", "core.attributesfile\n", "filter.", "lfs.fetch"} {
			if strings.HasPrefix(s, prefix) {
				parts = append(parts, s)
			}
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", parts))), nil
}

// openEntry opens the owner file of an entry, which it makes if there is none, and
// locks it together with others. The file of a new entry is empty.
func openEntry(dir string) (f *os.File, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := checkPrivate(dir); err != nil {
		return nil, err
	}
	notOurs := fmt.Errorf("%s is not an entry of the cache", printable.Text(dir))
	name := filepath.Join(dir, ownerName)
	if info, err := os.Lstat(name); err == nil && (!info.Mode().IsRegular() || !ours(info)) {
		return nil, notOurs
	}
	if f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if tryLockShared(f) != nil || !isFile(f, name) {
		return f, errors.New("another run makes the same entry of the cache")
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return f, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return f, err
	}
	if string(text) != cacheOwner && (len(text) > 0 || len(entries) > 1) {
		return f, notOurs
	}
	return f, nil
}

// export makes tree anew, and bin if there is none. Git's read-tree obeys the
// attributes of the commit, and neither it nor its index changes the repository.
func (c *checkout) export(ctx context.Context) error {
	for _, name := range [...]string{treeName, indexName, indexName + ".lock"} {
		if err := removeAll(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	for _, dir := range [...]string{c.tree(), c.bin()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	_, err := c.git(ctx, "read-tree", "--reset", "-u", c.repository.commit)
	return err
}

// git runs git on tree with the index of it. A child of a killed gate still holds
// the lock, so that nobody removes what it writes.
func (c *checkout) git(ctx context.Context, args ...string) (string, error) {
	env := append(execx.Environ(), "GIT_INDEX_FILE="+filepath.Join(c.dir, indexName))
	return execx.RunHolding(ctx, c.tree(), env, c.owner, "git", slices.Concat(gitSettings, []string{
		"-c", "core.sparseCheckout=false", "-c", "submodule.recurse=false", // all files, and none of other repositories
		"-c", "core.splitIndex=false", // a part of the index would be in the repository
		"-c", "core.ignoreStat=false", // changes are looked for
		"--git-dir=" + c.repository.gitDir, "--work-tree=.",
	}, args)...)
}

// isClean reports whether tree has the files of the commit and no others.
func (c *checkout) isClean(ctx context.Context) bool {
	if info, err := os.Lstat(c.tree()); err != nil || !info.IsDir() {
		return false
	}
	if _, err := os.Lstat(filepath.Join(c.dir, indexName)); err != nil { // git takes no index for an empty one
		return false
	}
	changed, err := c.git(ctx, "ls-files", "-z", "--modified", "--others", "--directory")
	return err == nil && changed == ""
}

// removeOld removes what nobody has used for long, and of the rest the least
// recently used that are too many, but not the entry of that name. An error is
// none of the run that calls it.
func removeOld(cache, name string) {
	type entry struct {
		dir  string
		used time.Time
	}
	var others []entry
	list, _ := os.ReadDir(cache)
	for _, e := range list {
		if e.Name() == name || len(e.Name()) != 2*sha256.Size || !isObject(e.Name()) {
			continue
		}
		dir := filepath.Join(cache, e.Name())
		if info, err := os.Lstat(filepath.Join(dir, ownerName)); err == nil {
			others = append(others, entry{dir, info.ModTime()})
		}
	}
	slices.SortFunc(others, func(a, b entry) int { return b.used.Compare(a.used) })
	for i, e := range others {
		if i >= maxEntries-1 || time.Since(e.used) > maxUnused {
			removeIfDead(e.dir, cacheOwner)
		}
	}
}
