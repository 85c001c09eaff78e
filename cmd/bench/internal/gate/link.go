package gate

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Test binaries know their sources by paths. Benchmarks that print or hash them, or the
// end of them, would differ between the sides if the paths were not alike. So the working
// copy is built through a symbolic link whose path is as long as that of the base's tree
// and ends in the same name.

// linksName is the directory of such links in the cache, where one stays: the go command
// builds what has another path anew.
const linksName = "w"

// linkTo makes a link to a working copy, like the path of the tree of a cached checkout.
func (c *checkout) linkTo(top string) (link string, err error) {
	if !c.cached {
		return "", errors.New("the checkout is not in the cache")
	}
	links := filepath.Join(filepath.Dir(c.dir), linksName)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(top)))
	parent := filepath.Join(links, sum[:len(sum)-len(linksName)-1])
	for _, dir := range [...]string{links, parent} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if err := checkPrivate(dir); err != nil {
			return "", err
		}
	}
	link = filepath.Join(parent, treeName)
	if to, err := os.Readlink(link); err != nil || to != top {
		os.Remove(link)
		if err := os.Symlink(top, link); err != nil {
			return "", err
		}
	}
	return link, nil
}

// linkLike makes a link in a directory of the run, like a path.
func linkLike(path, in, to string) (link string, err error) {
	const longest = 255 // of a name in most file systems
	name := filepath.Base(path)
	n := len(path) - len(in) - len(name) - 2 // separators
	if n < 1 || n > longest {
		return "", fmt.Errorf("a path of %d bytes in %s is not possible", len(path), in)
	}
	parent := filepath.Join(in, strings.Repeat("w", n))
	if err := os.Mkdir(parent, 0o700); err != nil {
		return "", err
	}
	link = filepath.Join(parent, name)
	return link, os.Symlink(to, link)
}
