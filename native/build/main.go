// Build makes the C library: libreweight.so, libreweight.a and reweight.h in the folder
// dist.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/seed621a2839/reweight/native/internal/library"
)

func main() {
	var o library.Options
	out := flag.String("o", "dist", "the folder that is written to")
	flag.StringVar(&o.Arch, "arch", "", "amd64 or arm64; that of this machine if it is not given")
	flag.StringVar(&o.Sanitize, "sanitize", "", "sanitizers, such as address,undefined: makes libreweight.so only")
	flag.Parse()
	if err := library.Build(*out, o); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}
