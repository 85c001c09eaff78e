package bench

import (
	"errors"
	"runtime"
	"testing"
)

func TestPeakMemory(t *testing.T) {
	before, ok := PeakMemory()
	if !ok {
		if runtime.GOOS != "windows" {
			t.Error("none on", runtime.GOOS)
		}
		t.Skip("the system does not tell")
	}
	const size = 64 << 20
	x := make([]byte, size)
	for i := range x {
		x[i] = 1
	}
	after, _ := PeakMemory()
	if runtime.KeepAlive(x); after < size || after < before || before < 1<<20 {
		t.Errorf("peak of %d bytes before %d were written, %d after", before, size, after)
	}
}

func TestPinElsewhere(t *testing.T) {
	if runtime.GOOS == "linux" {
		t.Skip("pins on Linux: TestPin")
	}
	if err := Pin(0); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
