// Build makes the C library and the Python package, in the folder dist: libreweight.so,
// libreweight.a, reweight.h and a wheel, which has the library and the program reweight
// inside. It needs xz and a C compiler, gcc or clang: $CC, or cc, or for -arch the one of
// Debian's cross compilers.
package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/native/library"
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
	if err := cmp.Or(flags.ParseAlone("Usage: go run ./native/build [flags]\n", args, stdout), flags.NotEmpty("o", "arch")); err != nil {
		return cli.ExitStatus("build", err, stderr)
	}
	if err := build(*dir, o, stdout); err != nil {
		fmt.Fprintln(stderr, "build:", err) // which may be what a compiler says, in many lines
		return 1
	}
	return 0
}

// build makes everything and says what it made.
func build(dir string, o library.Options, stdout io.Writer) error {
	if err := library.Build(dir, o); err != nil {
		return err
	}
	made := []string{"libreweight.so"}
	if o.Sanitize == "" {
		module, err := library.SourceDir()
		if err != nil {
			return err
		}
		wheel, err := writeWheel(dir, module, o.Arch)
		if err != nil {
			return err
		}
		made = append(made, "libreweight.a", "reweight.h", wheel)
	}
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
