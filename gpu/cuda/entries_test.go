//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/test/must"
)

// refused is a code that the false driver orders, and that loses nothing.
const refused = 304

// session does everything that a device can do, and returns the errors that there
// were. After one it only gives back what it has.
func session() (errs []error) {
	check := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	// What could not even start is still there, and can be tried again.
	giveBack := func(give func() error) {
		var failed *CallError
		if err := give(); !check(err) && errors.As(err, &failed) && failed.Function == "cuCtxPushCurrent_v2" &&
			failed.Code == refused {
			check(give())
		}
	}
	if _, err := Devices(); !check(err) {
		return
	}
	c, err := open(0, testModules)
	if !check(err) {
		return
	}
	defer func() { check(c.Close()) }()
	_, _, err = c.Function("add", 256, 0)
	if !check(err) {
		return
	}
	// This one is in the second module, and it needs leave for its shared memory.
	f, _, err := c.Function("twice", 128, 64<<10)
	if !check(err) {
		return
	}
	p, err := c.Alloc(1000)
	if !check(err) {
		return
	}
	defer func() { giveBack(func() error { return c.Free(p) }) }()
	var params [2]uint64
	data := make([]byte, 1000)
	if !check(c.Fill(p, 1, 1000, 0)) ||
		!check(c.Upload(p, data, 0)) ||
		!check(c.Copy(p+512, p, 488, 0)) ||
		!check(captured(c)) ||
		!check(c.Launch(f, 1, 128, 64<<10, unsafe.Pointer(&params), unsafe.Sizeof(params), 0)) ||
		!check(c.Download(data, p, 0)) ||
		!check(c.Synchronize(0)) {
		return
	}
	lo, hi, free, err := c.AllocGuarded(1000)
	if !check(err) {
		return
	}
	defer func() { giveBack(free) }()
	if hi-lo < 1000 {
		check(fmt.Errorf("%d bytes", hi-lo))
	}
	check(c.Upload(hi-1000, data, 0))
	return
}

func captured(c *context) error {
	_, err := c.Captured(0)
	return err
}

// TestEveryCallFails: every call of every entry that a session makes fails once. The
// session has one error, which names the entry and the code, and gives everything back.
func TestEveryCallFails(t *testing.T) {
	whole := newFalse(t)
	if errs := session(); errs != nil {
		t.Fatal(errs)
	}
	whole.clean()
	for e, symbol := range symbols {
		calls := int(whole.calls(symbol))
		switch entry(e) {
		case cuGetErrorName, cuGetErrorString: // TestErrorTexts
			continue
		}
		if calls == 0 {
			t.Errorf("the session never calls %s", symbol)
		}
		for n := 1; n <= calls; n++ {
			t.Run(fmt.Sprintf("%s/%d", symbol, n), func(t *testing.T) {
				f := newFalse(t)
				f.fail(symbol, int32(n), refused)
				errs := session()
				if len(errs) != 1 {
					t.Fatalf("errors %v, want one", errs)
				}
				var failed *CallError
				if !errors.As(errs[0], &failed) ||
					*failed != (CallError{symbol, refused, "CUDA_ERROR_OPERATING_SYSTEM",
						"OS call failed or operation not supported on this OS"}) {
					t.Errorf("error %v", errs[0])
				}
				if s := errs[0].Error(); !strings.Contains(s,
					symbol+" failed with CUDA_ERROR_OPERATING_SYSTEM (304): OS call failed") {
					t.Errorf("error %q", s)
				}
				if symbol == "cuCtxPushCurrent_v2" && n == calls {
					// Close cannot unload the modules, so they end with the context.
					if report := f.report(); report != "module 0 is not unloaded\nmodule 1 is not unloaded\n" {
						t.Errorf("the driver reports:\n%s", report)
					}
					return
				}
				f.clean()
			})
		}
	}
}

// TestEveryCallLosesTheContext: the same with a code that takes the context with it.
// Every later call has the same error; the primary context is released all the same.
func TestEveryCallLosesTheContext(t *testing.T) {
	for e, symbol := range symbols {
		if entry(e) <= cuDevicePrimaryCtxRetain { // there is no context before
			continue
		}
		t.Run(symbol, func(t *testing.T) {
			f := newFalse(t)
			f.fail(symbol, 1, 719)
			errs := session()
			if len(errs) == 0 {
				t.Fatal("no error")
			}
			var failed *CallError
			if !errors.As(errs[0], &failed) || failed.Function != symbol || failed.Code != 719 ||
				!strings.Contains(errs[0].Error(), "must be restarted") {
				t.Errorf("error %v", errs[0])
			}
			for _, err := range errs[1:] {
				if !errors.Is(errs[0], err) { // which may say more
					t.Errorf("error %v after %v", err, errs[0])
				}
			}
			if report := f.report(); strings.Contains(report, "primary context") ||
				strings.Contains(report, "not popped") {
				t.Errorf("the driver reports:\n%s", report)
			}
		})
	}
}

// TestErrorTexts: where the driver cannot say what a code is, the code remains.
func TestErrorTexts(t *testing.T) {
	for _, test := range [...]struct {
		entry entry
		code  int32 // of the failure
		want  CallError
	}{
		{cuGetErrorName, 2, CallError{"cuMemAlloc_v2", 2, "an error", "out of memory"}},
		{cuGetErrorString, 2, CallError{"cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", "the driver does not say what that is"}},
		{cuMemAlloc, 12345, CallError{"cuMemAlloc_v2", 12345, "an error", "the driver does not say what that is"}},
	} {
		f := newFalse(t)
		c := f.open(0)
		f.fail(symbols[test.entry], 1, refused)
		f.fail("cuMemAlloc_v2", 1, test.code)
		_, err := c.Alloc(100)
		var failed *CallError
		if !errors.As(err, &failed) || *failed != test.want {
			t.Errorf("error %v, want %v", err, &test.want)
		}
		must.Do(c.Close())
		f.clean()
	}
}

// TestMissingEntry: a library without one of the entries is an error that names it.
func TestMissingEntry(t *testing.T) {
	lib := falseLibrary(t)
	for _, symbol := range symbols {
		use(t, without(t, lib, symbol))
		if _, err := Devices(); err == nil || !strings.Contains(err.Error(), "has no "+symbol+":") {
			t.Errorf("without %s: error %v", symbol, err)
		}
	}
}
