package gotest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/internal/printable"
)

// ErrNoModule is the error of At where the tree does not have the module.
var ErrNoModule = errors.New("there is no go.mod")

// At returns the same module in another tree. top is the top directory of the
// repository that m is in, tree has another revision of it, and files are written
// to scratch, that the result needs as long as it is used. All three are absolute.
//
// What is outside of the repository stays where it is: a replace directive whose
// relative path leads there gets an absolute path, unless the module is vendored.
// So do the paths of the go.work in force, if that itself is outside, or is a file
// of the working copy alone; paths into the repository lead into the tree.
func (m *Module) At(ctx context.Context, top, tree, scratch string) (*Module, error) {
	top, err := filepath.EvalSymlinks(top) // as m.Dir is
	if err != nil {
		return nil, err
	}
	mv := mover{top, tree, scratch, map[string]string{}}
	rel, inside := under(top, m.Dir)
	if !inside {
		return nil, fmt.Errorf("module %s is not in %s", m.Path, printable.Text(top))
	}
	dir := filepath.Join(tree, rel)
	mod := filepath.Join(dir, "go.mod")
	if _, err := os.Stat(mod); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNoModule, printable.Text(rel))
	}
	to := &Module{Dir: dir, goflags: m.goflags, noWork: m.noWork}
	for _, f := range m.flags {
		if name, value := cutFlag(f); name == "modfile" {
			mod, _ = mv.inTree(value)
			f = "-modfile=" + mod
		}
		to.flags = append(to.flags, f)
	}
	mods := map[string]string{dir: mod}
	if !m.noWork {
		if err := mv.workspace(ctx, m, to, mods); err != nil {
			return nil, err
		}
	}
	to.env = []string{"GOWORK=off"} // and not a go.work above the tree
	if to.work != "" {
		to.env = []string{"GOWORK=" + to.work}
	}
	for dir, mod := range mods {
		if err := mv.replaces(ctx, to, dir, mod); err != nil {
			return nil, err
		}
	}
	if len(mv.overlay) > 0 {
		overlay, err := writeOverlay(mv.scratch, mv.overlay)
		if err != nil {
			return nil, err
		}
		to.overlay, to.listFlags = mv.overlay, []string{"-overlay=" + overlay}
	}
	return to, to.readPath(ctx)
}

// A mover moves paths from a repository to another tree of it.
type mover struct {
	top, tree, scratch string
	overlay            map[string]string
}

// under returns the path relative to the directory, if it is inside.
func under(dir, path string) (rel string, ok bool) {
	rel, err := filepath.Rel(dir, path)
	return rel, err == nil && filepath.IsLocal(rel)
}

// inTree returns where a path of the repository is in the tree, and any other path
// as it is.
func (mv *mover) inTree(path string) (moved string, inside bool) {
	if rel, ok := under(mv.top, path); ok {
		return filepath.Join(mv.tree, rel), true
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		if rel, ok := under(mv.top, real); ok {
			return filepath.Join(mv.tree, rel), true
		}
	}
	return path, false
}

// path returns the absolute path in place of one in a go.mod or go.work of the
// directory, and whether it leads elsewhere than that does in the tree.
func (mv *mover) path(dir, path string) (moved string, inside, changed bool) {
	path = filepath.FromSlash(path)
	isAbs := filepath.IsAbs(path)
	if !isAbs {
		path = filepath.Join(dir, path)
	}
	moved, inside = mv.inTree(path)
	return moved, inside, inside == isAbs
}

// replaces puts a changed go.mod in place of that of a module in the tree if it
// has a replace directive with a path that leads elsewhere from there.
func (mv *mover) replaces(ctx context.Context, to *Module, dir, mod string) error {
	rel, ok := under(mv.tree, dir)
	if !ok || to.vendored(dir) {
		return nil
	}
	file, err := to.readMod(ctx, mod)
	if err != nil {
		return err
	}
	var edits []string
	for _, r := range file.Replace {
		if r.New.Version != "" {
			continue // a module, not a directory
		}
		if path, _, changed := mv.path(filepath.Join(mv.top, rel), r.New.Path); changed {
			old := strings.TrimSuffix(r.Old.Path+"@"+r.Old.Version, "@")
			edits = append(edits, "-replace="+old+"="+path)
		}
	}
	if edits == nil {
		return nil
	}
	text, err := os.ReadFile(mod)
	if err != nil {
		return err
	}
	copied := filepath.Join(mv.scratch, fmt.Sprintf("%d.mod", len(mv.overlay)))
	if err := os.WriteFile(copied, text, 0o666); err != nil {
		return err
	}
	mv.overlay[mod] = copied
	_, err = to.run(ctx, slices.Concat([]string{"mod", "edit"}, edits, []string{copied})...)
	return err
}

// vendored reports whether builds of the module in the directory use a directory
// vendor, whose list of modules must be that of go.mod.
func (m *Module) vendored(dir string) bool {
	for _, f := range m.goflags {
		if name, value := cutFlag(f); name == "mod" && value != "vendor" {
			return false
		}
	}
	if m.work != "" {
		dir = filepath.Dir(m.work)
	}
	_, err := os.Stat(filepath.Join(dir, "vendor", "modules.txt"))
	return err == nil
}

// withPaths matches the directives of a formatted go.work that have paths, alone or in a block.
var withPaths = regexp.MustCompile(`(?m)^(use|replace) (\((?s:.*?)^\)|[^(].*)$\n?`)

// workspace finds the go.work for a module in the tree, and adds its modules to
// mods, by directory. If one in the working copy is in force, it is the tree's of the
// same name, or else that itself, with other paths.
func (mv *mover) workspace(ctx context.Context, m, to *Module, mods map[string]string) error {
	work, origin := m.work, filepath.Dir(m.work) // what is read, and where its relative paths begin
	if work == "" {
		rel := ""
		if work, rel = mv.workAbove(to.Dir); work == "" {
			return nil
		}
		origin = filepath.Join(mv.top, rel)
	}
	moved, inTree := mv.inTree(work)
	if under, ok := under(mv.tree, work); ok {
		moved, inTree = filepath.Join(mv.tree, under), true
	}
	if inTree {
		if _, err := os.Stat(moved); err == nil {
			work = moved
		} else {
			inTree = false
		}
	}
	file, err := to.readMod(ctx, work)
	if err != nil {
		return err
	}
	var text strings.Builder
	anew := !inTree
	for _, u := range file.Use {
		path, inside, changed := mv.path(origin, u.DiskPath)
		if inside {
			mod := filepath.Join(path, "go.mod")
			if _, err := os.Stat(mod); err != nil {
				anew = true // this revision does not have that module
				continue
			}
			if mods[path] == "" {
				mods[path] = mod
			}
		}
		anew = anew || changed
		fmt.Fprintf(&text, "use %s\n", strconv.Quote(path))
	}
	for _, r := range file.Replace {
		to := strconv.Quote(r.New.Path) + " " + r.New.Version
		if r.New.Version == "" {
			path, _, changed := mv.path(origin, r.New.Path)
			to, anew = strconv.Quote(path), anew || changed
		}
		fmt.Fprintf(&text, "replace %s %s => %s\n", strconv.Quote(r.Old.Path), r.Old.Version, to)
	}
	if to.work = work; !anew {
		return nil
	}
	rest, err := to.run(ctx, "work", "edit", "-print", work)
	if err != nil {
		return err
	}
	to.work = filepath.Join(mv.scratch, "go.work")
	if err := os.WriteFile(to.work, []byte(withPaths.ReplaceAllString(rest, "")+text.String()), 0o666); err != nil {
		return err
	}
	sum, err := os.ReadFile(work + ".sum")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.WriteFile(to.work+".sum", sum, 0o666)
	}
	return err
}

// workAbove returns the go.work in force in a directory of the tree, and where it
// is there.
func (mv *mover) workAbove(dir string) (work, rel string) {
	for rel, ok := under(mv.tree, dir); ok; rel, ok = under(mv.tree, dir) {
		work = filepath.Join(dir, "go.work")
		if info, err := os.Stat(work); err == nil && info.Mode().IsRegular() {
			return work, rel
		}
		dir = filepath.Dir(dir)
	}
	return "", ""
}
