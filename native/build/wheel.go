package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/version"
)

// tags say which systems a wheel is for: Linux with glibc 2.17 or musl 1.1, or newer.
var tags = map[string][]string{
	"amd64": {"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"},
	"arm64": {"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"},
}

// The distribution is called reweight-rl, because reweight is another project's on PyPI.
const (
	info    = "reweight_rl-" + version.Version + ".dist-info/"
	scripts = "reweight_rl-" + version.Version + ".data/scripts/" // pip installs these on the PATH
)

// metadata is what the package is called and requires. The backend reads it too.
//
//go:embed METADATA
var metadata string

// entryPoints names what other packages import of this one where both are installed.
const entryPoints = `[verl.plugins]
reweight = reweight.adapters.verl_plugin
`

// A member is a file of a wheel.
type member struct {
	name string
	data []byte
	mode fs.FileMode
}

// writeWheel makes the wheel of the package in the folder dir and returns its name. The
// same files give the same bytes.
func writeWheel(dir, module, arch string, files []member) (string, error) {
	license, err := os.ReadFile(filepath.Join(module, "LICENSE"))
	if err != nil {
		return "", err
	}
	program, err := buildProgram(module, arch)
	if err != nil {
		return "", err
	}
	members := append(files, member{scripts + "reweight", program, 0o755})
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	members = append(members,
		member{info + "METADATA", []byte(strings.Replace(metadata, "\nVersion: VERSION\n",
			"\nVersion: "+version.Version+"\n", 1)), 0o644},
		member{info + "WHEEL", wheelFile(arch), 0o644},
		member{info + "entry_points.txt", []byte(entryPoints), 0o644},
		member{info + "licenses/LICENSE", license, 0o644},
	)
	members = append(members, member{info + "RECORD", record(members), 0o644})

	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		h.SetMode(m.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			return "", err
		}
		if _, err := w.Write(m.data); err != nil {
			return "", err
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	name := fmt.Sprintf("reweight_rl-%s-py3-none-%s.whl", version.Version, strings.Join(tags[arch], "."))
	return name, os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o666)
}

// buildProgram returns the program reweight, which needs no C library to start.
func buildProgram(module, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "reweight-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "reweight")
	linker := "-s -w -X github.com/seed621a2839/reweight/internal/cli.release=v" + version.Version
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", linker, "-o", file, "./cmd/reweight")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cmd/reweight: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.ReadFile(file)
}

// sources returns the files of the package: Python's, and what is built.
func sources(module, shared string) ([]member, error) {
	var members []member
	python := os.DirFS(filepath.Join(module, "python"))
	err := fs.WalkDir(python, "reweight", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".py" && entry.Name() != "py.typed" {
			return err
		}
		data, err := fs.ReadFile(python, name)
		members = append(members, member{name, data, 0o644})
		return err
	})
	if err != nil {
		return nil, err
	}
	files, err := built(module, shared)
	return append(members, files...), err
}

// built returns the library and the code of the GPU as files of the package.
func built(module, shared string) ([]member, error) {
	so, err := os.ReadFile(shared)
	if err != nil {
		return nil, err
	}
	members := []member{{"reweight/libreweight.so", so, 0o755}}
	paths, err := filepath.Glob(filepath.Join(module, "gpu", "internal", "device", "*.ptx.gz"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		members = append(members, member{"reweight/ptx/" + filepath.Base(p), data, 0o644})
	}
	return members, nil
}

// inPlace puts what is built beside the package's Python files, and returns the file of a
// wheel that names their folder to Python.
func inPlace(module, shared string) ([]member, error) {
	files, err := built(module, shared)
	if err != nil {
		return nil, err
	}
	python := filepath.Join(module, "python")
	for _, m := range files {
		file := filepath.Join(python, filepath.FromSlash(m.name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return nil, err
		}
		err := atomicfile.Write(file, func(w io.Writer) error { // a process may have the old one open
			_, err := w.Write(m.data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return []member{{"reweight_rl.pth", []byte(python + "\n"), 0o644}}, nil
}

func wheelFile(arch string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "Wheel-Version: 1.0\nGenerator: reweight %s\nRoot-Is-Purelib: false\n", version.Version)
	for _, tag := range tags[arch] {
		fmt.Fprintf(&out, "Tag: py3-none-%s\n", tag)
	}
	return out.Bytes()
}

// record lists the files with their hashes and sizes; of itself only the name.
func record(members []member) []byte {
	var out bytes.Buffer
	for _, m := range members {
		sum := sha256.Sum256(m.data)
		fmt.Fprintf(&out, "%s,sha256=%s,%d\n", m.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(m.data))
	}
	fmt.Fprintf(&out, "%sRECORD,,\n", info)
	return out.Bytes()
}
