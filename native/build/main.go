// Build makes the C library and the Python package, in the folder dist: libreweight.so,
// libreweight.a, reweight.h and a wheel, which has the library and the program reweight
// inside. It needs xz and a C compiler, gcc or clang: $CC, or cc, or for -arch the one of
// Debian's cross compilers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/seed621a2839/reweight/internal/native/library"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 1 if something could not be made, 2 if the command line is
// wrong.
func run(args []string, stdout, stderr io.Writer) int {
	var o library.Options
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("o", "dist", "the `folder` that is written to")
	flags.StringVar(&o.Arch, "arch", runtime.GOARCH, "the `CPU`, amd64 or arm64")
	flags.StringVar(&o.Sanitize, "sanitize", "", "make only libreweight.so, with these `sanitizers`: address,undefined")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stdout, "usage: go run ./native/build [flags]")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("what is %q? Only flags are known", flags.Arg(0))
	case *dir == "":
		err = errors.New("-o is empty, want a folder")
	case tags[o.Arch] == nil:
		err = fmt.Errorf("-arch is %q, want amd64 or arm64", o.Arch)
	}
	if err != nil {
		fmt.Fprintln(stderr, "build:", err)
		return 2
	}
	if err := build(*dir, o, stdout); err != nil {
		fmt.Fprintln(stderr, "build:", err)
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
