//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// A falseDriver is testdata/libcuda.c: its functions named false_.
type falseDriver struct {
	t testing.TB

	fail    func(name string, nth, code int32) // the nth call of an entry from now on
	calls   func(name string) int32            // of an entry so far
	fault   func(code int32)                   // of the next kernel
	capture func(stream uintptr)               // this stream is captured from now on
	jit     func(log string)                   // the next module does not compile
	version func(v int32)
	memory  func(bytes uintptr)
	devices func(n int32)
	device  func(ordinal int32, name string, major, minor int32)
	push    func(context uintptr) // somebody else's, on this thread
	pop     func() uintptr
	launch  func(*launchRecord) int32 // the last one; returns how many there were
	report  func() string
}

// A launchRecord is what the false driver saw of a launch.
type launchRecord struct {
	Name          [64]byte
	Grid, Threads [3]uint32
	Shared, Size  uint32
	Stream        uint64
	Params        [1024]byte
}

// compile returns the false driver's library, or nil if there is no C compiler.
var compile = sync.OnceValues(func() ([]byte, error) {
	cc := ""
	for _, name := range [...]string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			cc = path
			break
		}
	}
	if cc == "" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "reweight")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "libcuda.so")
	out, err := exec.Command(cc, "-std=c11", "-O1", "-fPIC", "-shared", "-o", file, "testdata/libcuda.c",
		"-lpthread").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return os.ReadFile(file)
})

// falseLibrary returns the false driver's library. The test is skipped without a compiler.
func falseLibrary(t testing.TB) []byte {
	t.Helper()
	lib := must.Get(compile())
	if lib == nil {
		t.Skip("no C compiler here: the false driver that this test needs is not built")
	}
	return lib
}

// use makes this file the driver's library for the test, and returns its name. Another
// copy of it is another driver: it knows nothing of what the first one did.
func use(t testing.TB, lib []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "libcuda.so")
	must.Do(os.WriteFile(file, lib, 0o755))
	t.Setenv("REWEIGHT_LIBCUDA", file)
	return file
}

// newFalse makes a fresh false driver the one that this test uses.
func newFalse(t testing.TB) *falseDriver {
	t.Helper()
	t.Setenv(gpuVariable, "unchecked") // it does not compute
	handle := must.Get(purego.Dlopen(use(t, falseLibrary(t)), purego.RTLD_NOW|purego.RTLD_LOCAL))
	f := &falseDriver{t: t}
	for name, function := range map[string]any{
		"fail": &f.fail, "calls": &f.calls, "fault": &f.fault, "capture": &f.capture, "jit": &f.jit, "version": &f.version, "memory": &f.memory,
		"devices": &f.devices, "device": &f.device, "push": &f.push, "pop": &f.pop, "launch": &f.launch, "report": &f.report,
	} {
		purego.RegisterLibFunc(function, handle, "false_"+name)
	}
	return f
}

// clean wants that nothing went wrong and everything was given back.
func (f *falseDriver) clean() {
	f.t.Helper()
	if report := f.report(); report != "" {
		f.t.Errorf("the driver reports:\n%s", report)
	}
}

// open opens a device with the modules below, which the test closes.
func (f *falseDriver) open(ordinal int) *context {
	return must.Get(open(ordinal, testModules))
}

// testModules is what the false driver needs of PTX: a version and the kernels'
// names and parameters.
var testModules = map[string]string{
	"first":  ".version 7.0\n.visible .entry add(\n\t.param .align 8 .b8 add_param_0[24]\n)\n{\n}\n",
	"second": ".version 7.0\n.visible .entry twice(\n\t.param .align 8 .b8 twice_param_0[16]\n)\n{\n}\n",
}

// addParams is the parameter of the kernel add.
type addParams struct {
	src, dst driver.Ptr
	n        int64
}

// without returns the library without an entry. Its name is spelt otherwise wherever
// the file has it, so that no lookup finds it.
func without(t testing.TB, lib []byte, symbol string) []byte {
	t.Helper()
	name := []byte("\x00" + symbol + "\x00")
	if !bytes.Contains(lib, name) {
		t.Fatalf("the library does not name %s", symbol)
	}
	other := bytes.Clone(name)
	other[1] = 'x'
	return bytes.ReplaceAll(lib, name, other)
}
