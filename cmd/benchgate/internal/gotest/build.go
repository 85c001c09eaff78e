package gotest

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
)

// The worker as it is built into test binaries.
var (
	//go:embed worker/protocol.go
	protocolSource string
	//go:embed worker/worker.go
	workerSource string
	//go:embed worker/shake.go
	shakeSource string

	workerFiles = [...]struct{ name, text string }{{"protocol.go", protocolSource}, {"worker.go", workerSource},
		{"shake.go", shakeSource}}
)

// workerName is the name of the package that the worker is in the user's module.
const workerName = "zz_benchgate"

// Build builds the test binary of a package. With order 0 the linker puts functions
// where it does; any other number is the seed of a random order. Files that are
// needed meanwhile are in scratch.
func (m *Module) Build(ctx context.Context, p Package, exe, scratch string, order int64) error {
	dir, err := os.MkdirTemp(scratch, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.addWorker(p, dir)
	if err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-vet=off", "-buildvcs=false", "-overlay=" + overlay, "-o", exe}, m.flags...)
	if order != 0 {
		args = append(args, m.inOrder(order)...)
	}
	env := m.Environ()
	if os.Getenv("GOTMPDIR") == "" { // what the go command leaves behind if it is killed goes with the directory
		env = append(env, "GOTMPDIR="+dir)
	}
	_, err = execx.Run(ctx, m.Dir, env, "go", append(args, p.Path)...)
	return err
}

// addWorker writes the overlay with which the package's test binary has a worker.
func (m *Module) addWorker(p Package, dir string) (overlay string, err error) {
	replace := maps.Clone(m.overlay)
	if replace == nil {
		replace = map[string]string{}
	}
	add := func(path, text string) error {
		file := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[path] = file
		return os.WriteFile(file, []byte(text), 0o666)
	}
	for _, f := range workerFiles {
		if err := add(filepath.Join(p.module.Dir, workerName, f.name), f.text); err != nil {
			return "", err
		}
	}
	serves := false // one of the packages has the test
	for _, external := range [...]bool{false, true} {
		if text := p.testFile(external, !serves); text != "" {
			serves = true
			name := workerName + "_test.go"
			if external {
				name = workerName + "_external_test.go"
			}
			if err := add(filepath.Join(p.Dir, name), text); err != nil {
				return "", err
			}
		}
	}
	return writeOverlay(dir, replace)
}

// testFile returns the test file that tells the worker of a package's benchmarks,
// none if it has none. It uses no name that the package could have given another
// meaning, not even true.
func (p Package) testFile(external, serves bool) string {
	name, register := p.Name, "Internal"
	if external {
		name, register = p.Name+"_test", "External"
	}
	var list strings.Builder
	for _, b := range p.Benchmarks {
		if b.External == external {
			fmt.Fprintf(&list, "\t\tzz_testing.InternalBenchmark{Name: %q, F: %s},\n", b.Name, b.Name)
		}
	}
	if list.Len() == 0 {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "package %s\n\nimport (\n\tzz_testing \"testing\"\n\n\tzz_worker %q\n)\n\n", name,
		p.module.Path+"/"+workerName)
	fmt.Fprintf(&text, "func init() {\n\tzz_worker.%s(\n%s\t)\n}\n", register, list.String())
	if serves {
		fmt.Fprintf(&text, "\nfunc %s(t *zz_testing.T) { zz_worker.Serve(t) }\n", worker.Test)
	}
	return text.String()
}

// writeOverlay writes the file of -overlay.
func writeOverlay(dir string, replace map[string]string) (path string, err error) {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o666)
}

// inOrder returns the flags that make the linker put functions in a random order, leave
// out what only a debugger reads, as that takes a third of its time, and do what else
// GOFLAGS says. Of several -ldflags the go command takes the last that is for the package.
func (m *Module) inOrder(seed int64) []string {
	random := fmt.Sprintf("-s -w -randlayout=%d", seed)
	flags := []string{"-ldflags=" + random}
	for _, f := range m.goflags {
		if name, value := cutFlag(f); name == "ldflags" && strings.TrimSpace(value) != "" {
			flags = append(flags, "-ldflags="+value+" "+random)
		} else if name == "ldflags" {
			flags = append(flags, "-ldflags="+random)
		}
	}
	return flags
}
