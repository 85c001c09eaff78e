// Package library makes the C library: it takes the assembly of package reweight from an
// object file of Go's linker, and compiles and links it with the C sources in native/src. It
// needs a C compiler for Linux: gcc or clang with what comes with one, ld, ar and objcopy, or
// for the shared library alone zig.
package library

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Options say for what a library is made.
type Options struct {
	Arch     string // amd64 or arm64; "" is that of this process
	Sanitize string // sanitizers, such as "address,undefined"; "" is none
	Shared   bool   // make libreweight.so alone, which takes no objcopy
}

// Build makes libreweight.so in the folder dir, and libreweight.a and reweight.h unless
// sanitizers or the shared library alone are asked for. The same sources, compiler and options give the same bytes.
func Build(dir string, o Options) error {
	o.Arch = cmp.Or(o.Arch, runtime.GOARCH)
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	module, err := SourceDir()
	if err != nil {
		return err
	}
	cc, err := findCompiler(o.Arch)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "reweight-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	objects, err := compile(cc, filepath.Join(module, "native", "src"), tmp, o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := linkShared(cc, tmp, objects, filepath.Join(dir, "libreweight.so"), o); err != nil || o.Shared ||
		o.Sanitize != "" {
		return err
	}
	if err := archive(cc, tmp, objects, filepath.Join(dir, "libreweight.a")); err != nil {
		return err
	}
	header, err := os.ReadFile(filepath.Join(module, "native", "reweight.h"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "reweight.h"), header, 0o666)
}

// Cached returns a folder of the user's cache with what Build makes, for tests: it makes it
// unless these sources and this compiler have made it before.
func Cached(o Options) (string, error) {
	o.Arch = cmp.Or(o.Arch, runtime.GOARCH)
	cc, err := findCompiler(o.Arch)
	if err != nil {
		return "", err
	}
	text, err := assembly(o.Arch)
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%q %+v\n%s\n%s", cc.command[1:], o, cc.macros, text)
	module, err := SourceDir()
	if err != nil {
		return "", err
	}
	for _, pattern := range []string{"native/src/*", "native/reweight.h", "native/internal/library/*.go",
		"internal/version/*.go"} {
		paths, err := filepath.Glob(filepath.Join(module, filepath.FromSlash(pattern)))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(key, "%q %q\n", filepath.Base(path), data)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "reweight")
	dir := filepath.Join(cache, fmt.Sprintf("library-%s-%x", o.Arch, key.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(cache, "library-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := Build(tmp, o); err != nil {
		return "", err
	}
	// Another process may have made it meanwhile, which is as good.
	if err := os.Rename(tmp, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// SourceDir returns the folder of the module.
func SourceDir() (string, error) {
	out, _, err := run("", nil, "go", "list", "-f", "{{.Dir}}", packagePath)
	return strings.TrimSpace(out), err
}

// assembly returns the assembly of package reweight for amd64 or arm64 as GNU assembler.
func assembly(arch string) (string, error) {
	functions, err := functions(arch)
	if err != nil {
		return "", err
	}
	return writeAssembly(functions, arch)
}

// run runs a command in a folder with further environment variables, and returns what it
// prints to the standard output and the standard error. If it fails, the error has what it
// said.
func run(dir string, env []string, name string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		said := cmp.Or(strings.TrimSpace(messages.String()), strings.TrimSpace(out.String()))
		if said == "" {
			return "", "", fmt.Errorf("%s: %w", name, err)
		}
		return "", "", fmt.Errorf("%s: %w:\n%s", name, err, said)
	}
	return out.String(), messages.String(), nil
}
