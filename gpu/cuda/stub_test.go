//go:build nogpu || !linux || android || !(amd64 || arm64)

package cuda

import (
	"errors"
	"strings"
	"testing"
)

// TestLeftOut: where CUDA is left out there is no GPU, and the error says that.
func TestLeftOut(t *testing.T) {
	_, err := Open(0)
	var u *UnavailableError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), "is built without CUDA") {
		t.Errorf("Open: error %v", err)
	}
	if _, err := Devices(); !errors.As(err, &u) {
		t.Errorf("Devices: error %v", err)
	}
}
