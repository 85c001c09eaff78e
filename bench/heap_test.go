package bench

import (
	"errors"
	"testing"
)

var sink []byte

func TestAllocs(t *testing.T) {
	for want := range uint64(4) {
		objects, bytes, err := Allocs(func() error {
			for range want {
				sink = make([]byte, 64)
			}
			return nil
		})
		if objects != want || bytes != 64*want || err != nil {
			t.Errorf("%d objects of %d bytes and error %v, want %d of 64", objects, bytes, err, want)
		}
	}
	broken := errors.New("broken")
	if _, _, err := Allocs(func() error { return broken }); err != broken {
		t.Errorf("error %v, want %v", err, broken)
	}
}

// TestFirstAllocsOfABusyProcess: what other goroutines allocate now and then is
// not counted.
func TestFirstAllocsOfABusyProcess(t *testing.T) {
	calls := 0
	objects, bytes, err := FirstAllocs(func() error {
		if calls++; calls < 8 && calls != 5 {
			sink = make([]byte, 64*calls)
		}
		sink = make([]byte, 4096)
		return nil
	})
	if objects != 1 || bytes != 4096 || err != nil {
		t.Errorf("%d objects of %d bytes and error %v after %d calls, want 1 of 4096", objects, bytes, err, calls)
	}
}
