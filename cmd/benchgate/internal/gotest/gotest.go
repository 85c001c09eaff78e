// Package gotest builds the test binaries of a Go module with a worker inside, that
// runs the module's benchmarks one by one as another process asks it to: see
// package worker. The worker's source is given to the go command by -overlay, so
// that nothing is written to the module.
package gotest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Module is a Go module as a working copy has it.
type Module struct {
	Dir  string // absolute: where go.mod is; of Open, without links
	Path string // module path

	goflags   []string          // GOFLAGS
	flags     []string          // of go list and go test, stronger than those
	listFlags []string          // of go list alone
	work      string            // the go.work in force, or empty
	noWork    bool              // the user wants none: GOWORK=off
	env       []string          // changes of the environment
	overlay   map[string]string // files in place of others, both absolute
}

// Open finds the module that the directory is in.
func Open(ctx context.Context, dir string) (*Module, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	env, err := goEnv(ctx, dir, "GOMOD", "GOWORK", "GOFLAGS", "GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH")
	if err != nil {
		return nil, err
	}
	is386 := env["GOHOSTARCH"] == "amd64" && env["GOARCH"] == "386"
	if env["GOOS"] != env["GOHOSTOS"] || env["GOARCH"] != env["GOHOSTARCH"] && !is386 {
		return nil, fmt.Errorf("GOOS and GOARCH are %s and %s: this machine cannot run such a build", env["GOOS"],
			env["GOARCH"])
	}
	if filepath.Base(env["GOMOD"]) != "go.mod" { // it is the null device outside of a module
		if env["GOWORK"] != "" && env["GOWORK"] != "off" {
			return nil, inWorkspace(ctx, dir, env["GOWORK"])
		}
		return nil, fmt.Errorf("%s is not in a Go module: there is no go.mod (-C names a directory of one)",
			printable.Text(dir))
	}
	m := &Module{work: env["GOWORK"]}
	if m.work == "off" {
		m.work, m.noWork = "", true
	}
	if m.goflags, err = split(env["GOFLAGS"]); err != nil {
		return nil, fmt.Errorf("GOFLAGS: %w", err)
	}
	for _, f := range m.goflags {
		switch name, value := cutFlag(f); name {
		case "overlay":
			return nil, errors.New("GOFLAGS has -overlay, of which there can be only one: the one that adds a worker to the test binaries")
		case "coverpkg":
			return nil, errors.New("GOFLAGS has -coverpkg, which cannot cover the worker that is added to the test binaries")
		case "mod":
			if value == "mod" { // which lets the go command change go.mod and go.sum
				m.flags = append(m.flags, "-mod=readonly")
			}
		case "modfile":
			if !filepath.IsAbs(value) {
				m.flags = append(m.flags, "-modfile="+filepath.Join(dir, value))
			}
		}
	}
	if m.Dir, err = filepath.EvalSymlinks(filepath.Dir(env["GOMOD"])); err != nil {
		return nil, err
	}
	return m, m.readPath(ctx)
}

// inWorkspace is the error of a directory that is in a workspace, and in none of its modules.
func inWorkspace(ctx context.Context, dir, work string) error {
	here := &Module{Dir: dir}
	file, err := here.readMod(ctx, work)
	if err != nil {
		return err
	}
	var modules []string
	for _, use := range file.Use {
		modules = append(modules, printable.Text(use.DiskPath))
	}
	return fmt.Errorf("%s is in a workspace, but in none of its modules: -C names the directory of one, of %s: %s",
		printable.Text(dir), printable.Text(filepath.Dir(work)), strings.Join(modules[:min(len(modules), 5)], ", "))
}

// readPath reads the module's path from its go.mod.
func (m *Module) readPath(ctx context.Context) error {
	file, err := m.readMod(ctx, filepath.Join(m.Dir, "go.mod"))
	m.Path = file.Module.Path
	return err
}

// A modFile is what go mod edit -json tells of a go.mod, and go work edit -json of
// a go.work.
type modFile struct {
	Module  struct{ Path string }
	Use     []struct{ DiskPath string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

// readMod reads a go.mod or a go.work.
func (m *Module) readMod(ctx context.Context, path string) (file modFile, err error) {
	what := "mod"
	if strings.HasSuffix(path, ".work") {
		what = "work"
	}
	text, err := m.run(ctx, what, "edit", "-json", path)
	if err == nil {
		err = json.Unmarshal([]byte(text), &file)
	}
	return file, err
}

// Environ is the environment of the module's test binaries, and of the go command
// that builds them: that of this process, without what git tells its hooks.
func (m *Module) Environ() []string { return append(execx.Environ(), m.env...) }

// run runs the go command in the module.
func (m *Module) run(ctx context.Context, args ...string) (string, error) {
	return execx.Run(ctx, m.Dir, m.Environ(), "go", args...)
}

// goEnv returns variables of the go command in the directory.
func goEnv(ctx context.Context, dir string, names ...string) (map[string]string, error) {
	text, err := execx.Run(ctx, dir, execx.Environ(), "go", append([]string{"env", "-json"}, names...)...)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	return values, json.Unmarshal([]byte(text), &values)
}

// split splits a list of flags as the go command does: at white space, but not in
// an element that begins with a quotation mark, which ends at the next such mark.
func split(s string) (list []string, err error) {
	const space = " \t\r\n"
	for s = strings.TrimLeft(s, space); s != ""; s = strings.TrimLeft(s, space) {
		var f string
		if quote := s[:1]; quote == `"` || quote == "'" {
			var closed bool
			if f, s, closed = strings.Cut(s[1:], quote); !closed {
				return nil, fmt.Errorf("unterminated %s string", quote)
			}
		} else {
			i := strings.IndexAny(s, space)
			if i < 0 {
				i = len(s)
			}
			f, s = s[:i], s[i:]
		}
		list = append(list, f)
	}
	return list, nil
}

// cutFlag returns the name and value of a flag, -name=value or --name=value.
func cutFlag(f string) (name, value string) {
	name, value, _ = strings.Cut(f, "=")
	return strings.TrimPrefix(strings.TrimPrefix(name, "-"), "-"), value
}
