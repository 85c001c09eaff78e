// Build makes the C library and the Python package, in the folder dist: libreweight.so,
// libreweight.a, reweight.h and a wheel, which has the library and the program reweight
// inside. It needs a C compiler, gcc or clang: $CC, or cc, or for -arch the one of Debian's
// cross compilers. What pip calls is backend.py, which finds or asks for Go and a compiler.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/native/internal/library"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 1 if something could not be made, 2 if the command line is
// wrong.
func run(args []string, stdout, stderr io.Writer) int {
	var o library.Options
	flags := cli.NewFlags("build")
	dir := flags.String("o", "dist", "the `folder` that is written to")
	flags.StringVar(&o.Arch, "arch", runtime.GOARCH, "the `CPU`, amd64 or arm64")
	flags.StringVar(&o.Sanitize, "sanitize", "", "make only libreweight.so, with these `sanitizers`: address,undefined")
	wheel := flags.Bool("wheel", false, "make only the wheel")
	editable := flags.Bool("editable", false, "make only a wheel that has Python take the package from this folder, and put what it needs there")
	if err := cmp.Or(flags.ParseAlone("Usage: go run ./native/build [flags]\n", args, stdout),
		flags.NotEmpty("o", "arch")); err != nil {
		return cli.ExitStatus("build", err, stderr)
	}
	made, err := build(*dir, o, *wheel, *editable)
	if err == nil {
		err = say(stdout, *dir, made)
	}
	if err != nil {
		fmt.Fprintln(stderr, "build:", err) // which may be what a compiler says, in many lines
		return 1
	}
	return 0
}

// build returns the names of the files that it makes in the folder.
func build(dir string, o library.Options, wheel, editable bool) ([]string, error) {
	if o.Sanitize != "" {
		return []string{"libreweight.so"}, library.Build(dir, o)
	}
	libraries, made := dir, []string{"libreweight.so", "libreweight.a", "reweight.h"}
	if o.Shared = wheel || editable; o.Shared {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		tmp, err := os.MkdirTemp("", "reweight-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(tmp)
		libraries, made = tmp, nil
	}
	if err := library.Build(libraries, o); err != nil {
		return nil, err
	}
	module, err := library.SourceDir()
	if err != nil {
		return nil, err
	}
	files := sources
	if editable {
		files = inPlace
	}
	members, err := files(module, filepath.Join(libraries, "libreweight.so"))
	if err != nil {
		return nil, err
	}
	name, err := writeWheel(dir, module, o.Arch, members)
	return append(made, name), err
}

// say prints what was made.
func say(stdout io.Writer, dir string, made []string) error {
	for _, name := range made {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%7d bytes  %s\n", info.Size(), path)
	}
	return nil
}
