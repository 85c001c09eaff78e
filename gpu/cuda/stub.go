//go:build nogpu || !linux || android || !(amd64 || arm64)

package cuda

import (
	"runtime"

	"github.com/seed621a2839/reweight/gpu"
)

// Open returns an *UnavailableError: CUDA is left out of this program.
func Open(ordinal int) (*gpu.Device, error) { return nil, leftOut() }

// Devices returns an *UnavailableError: CUDA is left out of this program.
func Devices() ([]gpu.Info, error) { return nil, leftOut() }

func leftOut() error {
	return unavailable("this program for %s/%s is built without CUDA, which takes linux/amd64 or linux/arm64 and no build tag nogpu", runtime.GOOS, runtime.GOARCH)
}
