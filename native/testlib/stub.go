//go:build !cgo || !linux

package testlib

import (
	"errors"

	"github.com/seed621a2839/reweight"
)

// canLoad says whether this build can load libraries.
const canLoad = false

// A Library is a loaded C library. There is none in this build.
type Library struct{}

// load returns an error.
func load(path string) (*Library, error) {
	return nil, errors.New("testlib: this build has no cgo, or is not for Linux: it cannot load " + path)
}

// The methods are there for what uses them to build.

func (l *Library) ISAs() []reweight.ISA { return nil }

func (l *Library) Runner(isa reweight.ISA, workers int) *Runner { return nil }

// A Runner has the methods of *reweight.Workspace. There is none in this build.
type Runner struct{ *reweight.Workspace }
