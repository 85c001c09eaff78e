package gotest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed621a2839/reweight/internal/execx"
)

// goVariables are those of go env that change what a build makes.
var goVariables = []string{
	"GOVERSION", "GOROOT", "GOTOOLCHAIN", "GOMODCACHE", "GOFLAGS", "GOEXPERIMENT", "GOFIPS140", "GO111MODULE",
	"GOOS", "GOARCH", "GO386", "GOAMD64", "GOARM", "GOARM64", "GOMIPS", "GOMIPS64", "GOPPC64", "GORISCV64", "GOWASM",
	"CGO_ENABLED", "CGO_CFLAGS", "CGO_CPPFLAGS", "CGO_CXXFLAGS", "CGO_FFLAGS", "CGO_LDFLAGS", "CC", "CXX", "FC", "AR", "PKG_CONFIG",
}

// cVariables are what C compilers and pkg-config read.
var cVariables = []string{
	"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_SYSROOT_DIR",
}

// Key is a digest of what builds depend on besides the sources in the repository:
// the versions of Go and of the C compilers, their settings, the go.work in force,
// directories outside of the repository (of a module that At returned), and the
// worker.
func (m *Module) Key(ctx context.Context) (string, error) {
	h := sha256.New()
	env, err := goEnv(ctx, m.Dir, m.env, goVariables...)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(h, "%s=%q\n", name, env[name])
	}
	if env["CGO_ENABLED"] == "1" {
		for _, name := range cVariables {
			fmt.Fprintf(h, "%s=%q\n", name, os.Getenv(name))
		}
		for _, name := range [...]string{"CC", "CXX"} {
			command, err := split(env[name])
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			if len(command) > 0 { // without a compiler no version, and no build that needs it
				version, _ := execx.Run(ctx, m.Dir, m.Environ(), command[0], append(command[1:], "--version")...)
				fmt.Fprintf(h, "%s --version: %q\n", name, version)
			}
		}
	}
	var files []string
	for _, path := range slices.Sorted(maps.Keys(m.overlay)) {
		files = append(files, m.overlay[path])
	}
	for _, f := range m.flags {
		if name, path := cutFlag(f); name == "modfile" {
			files = append(files, path)
		}
	}
	if m.work != "" {
		files = append(files, m.work)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %q\n", filepath.Base(path), text)
	}
	for _, dir := range m.outside {
		addTree(h, dir)
	}
	fmt.Fprintf(h, "%q\n", workerFiles)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// addTree adds the names, sizes and times of all files under a directory. What
// cannot be read counts as not there: then the build cannot read it either.
func addTree(h hash.Hash, dir string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && d.Name() == ".git" {
			return fs.SkipDir
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			fmt.Fprintf(h, "%q %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	})
}
