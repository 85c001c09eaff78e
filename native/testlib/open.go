package testlib

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/seed621a2839/reweight/native/internal/library"
)

// pathVariable is the environment variable that names a library to test instead.
const pathVariable = "REWEIGHT_LIBRARY"

// errNone is of a machine or a build that can have no library.
var errNone = errors.New("there is no C library here")

// open loads the library, which is made once for all tests, once in a process.
var open = sync.OnceValues(func() (*Library, error) {
	if !canLoad {
		return nil, fmt.Errorf("%w: this is a build without cgo, or not for Linux", errNone)
	}
	if path := os.Getenv(pathVariable); path != "" {
		l, err := load(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pathVariable, err)
		}
		return l, nil
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil, fmt.Errorf("%w: it is made for amd64 and arm64, and this is %s", errNone, runtime.GOARCH)
	}
	var opt library.Options
	if Sanitized {
		opt.Sanitize = "address,undefined"
	}
	dir, err := library.Cached(opt)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", errNone, err)
	}
	if err != nil {
		return nil, err
	}
	return load(filepath.Join(dir, "libreweight.so"))
})

// Open returns the library, or skips the test where there can be none.
func Open(t testing.TB) *Library {
	t.Helper()
	l, err := open()
	if errors.Is(err, errNone) {
		t.Skipf("testlib: %v", err)
	}
	if err != nil {
		t.Fatalf("testlib: %v", err)
	}
	return l
}

// Supported says whether there can be a library.
func Supported() bool {
	_, err := open()
	return !errors.Is(err, errNone)
}
