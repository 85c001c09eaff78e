//go:build linux && !android && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/test/must"
)

var _ driver.Guarded = (*context)(nil)

// wantUnavailable wants that there is no GPU for this reason.
func wantUnavailable(t *testing.T, err error, reason string) {
	t.Helper()
	var u *UnavailableError
	if !errors.As(err, &u) || !strings.Contains(err.Error(), reason) {
		t.Errorf("error %v, want an UnavailableError with %q", err, reason)
	}
}

// TestOpen opens a device with the kernels of package gpu, and fails to.
func TestOpen(t *testing.T) {
	f := newFalse(t)
	d := must.Get(Open(0))
	want := gpu.Info{Name: "False H100", Multiprocessors: 132, Capability: [2]int{9, 0}, Memory: 80 << 30,
		Driver: [2]int{12, 4}}
	if d.Info() != want {
		t.Errorf("Info: %+v, want %+v", d.Info(), want)
	}
	ws := must.Get(d.NewWorkspace(0, gpu.Size{Tokens: 1000, Trajectories: 10, Spans: 20}))
	must.Do(errors.Join(ws.Close(), d.Close()))
	f.clean()

	f.fail("cuDevicePrimaryCtxRetain", 1, refused)
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "cuDevicePrimaryCtxRetain failed") {
		t.Errorf("error %v", err)
	}
	f.clean()
}

// TestLoads: a module is loaded when a kernel of it is used first, or prepared.
func TestLoads(t *testing.T) {
	f := newFalse(t)
	d := must.Get(Open(0))
	ws := must.Get(d.NewWorkspace(0, gpu.Size{}))
	p := must.Get(d.Alloc(4096))
	stats := func(dtype reweight.DType) func() error {
		return func() error {
			logits := gpu.Rows{Ptr: p, DType: dtype, Rows: 2, Vocab: 10}
			return ws.TokenStats(gpu.Stats{LSE: p}, logits, gpu.IDs{}, reweight.DefaultTokenStats)
		}
	}
	prepare := func(methods []string, formats []reweight.DType) func() error {
		return func() error { return d.Prepare(methods, formats) }
	}
	bf16 := []reweight.DType{reweight.DTypeBF16}
	for i, step := range []struct {
		call   func() error
		loaded int32 // modules so far
	}{
		{func() error { return nil }, 0},
		{func() error { return ws.Multiply(p, p, p, 10) }, 1},
		{func() error { return ws.Multiply(p, p, p, 10) }, 1},
		{prepare([]string{"TokenStats", "RowGradient"}, bf16), 4}, // TokenStats has two
		{stats(reweight.DTypeBF16), 4},
		{stats(reweight.DTypeF32), 5},
		{prepare([]string{"GRPO"}, nil), 7}, // the layout's and its own
		{prepare(nil, nil), 19},
		{prepare(nil, nil), 19},
	} {
		must.Do(step.call())
		if n := f.calls("cuModuleLoadDataEx"); n != step.loaded {
			t.Errorf("step %d: %d modules are loaded, want %d", i, n, step.loaded)
		}
	}
	must.Do(errors.Join(d.Free(p), ws.Close(), d.Close()))
	f.clean()
}

// TestVariable: REWEIGHT_GPU says whether the GPU is used, and whether unchecked. The false driver does not compute, so
// every kernel is wrong on it; that is an error of every call, which names what its reader has to know.
func TestVariable(t *testing.T) {
	f := newFalse(t)
	t.Setenv("REWEIGHT_GPU", "off")
	_, err := Open(0)
	wantUnavailable(t, err, "REWEIGHT_GPU is off")
	_, err = Devices()
	wantUnavailable(t, err, "REWEIGHT_GPU is off")
	t.Setenv("REWEIGHT_GPU", "on")
	var input *reweight.InputError
	if _, err := Open(0); !errors.As(err, &input) ||
		!strings.Contains(err.Error(), `REWEIGHT_GPU is "on", want off, unchecked or nothing`) {
		t.Errorf("error %v", err)
	}
	t.Setenv("REWEIGHT_GPU", "")
	d := must.Get(Open(0))
	ws := must.Get(d.NewWorkspace(0, gpu.Size{}))
	p := must.Get(d.Alloc(4096))
	for name, call := range map[string]func() error{
		"kernel multiply":        func() error { return ws.Multiply(p, p, p, 10) },
		"kernel token_stats_f32": func() error { return d.Prepare([]string{"TokenStats"}, []reweight.DType{reweight.DTypeF32}) },
	} {
		for range 2 {
			err := call()
			for _, want := range []string{name + " is wrong on False H100 with its driver for CUDA 12.4: ",
				"differ from the CPU's",
				"REWEIGHT_GPU=off", "REWEIGHT_GPU=unchecked"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %v, want %s", name, err, want)
				}
			}
		}
	}
	must.Do(errors.Join(d.Free(p), ws.Close(), d.Close()))
	f.clean()
}

// TestCapture: while a stream is captured, what would break that is an error, and the
// driver is not asked for it.
func TestCapture(t *testing.T) {
	for _, stream := range []gpu.Stream{7, 0} { // the default stream is of no use while another one is captured
		f := newFalse(t)
		d := must.Get(Open(0))
		ws := must.Get(d.NewWorkspace(stream, gpu.Size{}))
		p := must.Get(d.Alloc(4096))
		must.Do(d.Prepare([]string{"Multiply"}, nil))
		f.capture(7)
		entries := [...]string{"cuMemAlloc_v2", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuStreamSynchronize",
			"cuMemcpyDtoHAsync_v2"}
		before := [len(entries)]int32{}
		for i, e := range entries {
			before[i] = f.calls(e)
		}
		_, created := d.NewWorkspace(stream, gpu.Size{})
		for err, want := range map[error]string{
			created:                      "reweight: stream is being captured: allocate before the capture begins",
			ws.SpanMeans(p, p, p, 1, 10): "reweight: stream is being captured: call Prepare before the capture begins, because the driver has to compile kernels",
			ws.Check():                   "reweight: stream is being captured: nothing can wait for it before the capture has ended",
		} {
			var input *reweight.InputError
			if !errors.As(err, &input) || err.Error() != want {
				t.Errorf("error %v, want %s", err, want)
			}
		}
		if err := ws.Multiply(p, p, p, 10); err != nil {
			t.Errorf("what is prepared: %v", err)
		}
		for i, e := range entries {
			if n := f.calls(e); n != before[i] {
				t.Errorf("%s is called during the capture", e)
			}
		}
		f.capture(0)
		must.Do(errors.Join(ws.Check(), ws.SpanMeans(p, p, p, 1, 10), d.Free(p), ws.Close(), d.Close()))
		f.clean()
	}
}

// TestNoDriver: without a library there is no GPU; one that was named must be there.
func TestNoDriver(t *testing.T) {
	t.Setenv("REWEIGHT_LIBCUDA", "/nowhere/libcuda.so")
	var u *UnavailableError
	if _, err := Open(0); err == nil || errors.As(err, &u) ||
		!strings.Contains(err.Error(), `REWEIGHT_LIBCUDA is "/nowhere/libcuda.so"`) {
		t.Errorf("error %v", err)
	}
	t.Setenv("REWEIGHT_LIBCUDA", "libc.so.6")
	if _, err := Open(0); err == nil || !strings.Contains(err.Error(), "has no cuGetErrorName") {
		t.Errorf("error %v", err)
	}
	t.Setenv("REWEIGHT_LIBCUDA", "")
	for _, name := range [...]string{"libcuda.so.1", "libcuda.so"} {
		if _, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL); err == nil {
			t.Skipf("this machine has %s: not tested without", name)
		}
	}
	_, err := Open(0)
	wantUnavailable(t, err, "there is no driver: libcuda.so.1")
	// The C library keeps the text by thread, and goroutines move between threads.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 300 {
				if _, err := openLibrary(); err == nil || !strings.Contains(err.Error(), "libcuda.so.1") {
					t.Errorf("error %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	_, err = Devices()
	wantUnavailable(t, err, "there is no driver: libcuda.so.1")
}

// TestInitFails: a driver that finds no device is none; any other failure is its own.
func TestInitFails(t *testing.T) {
	newFalse(t).devices(0)
	_, err := Open(0)
	wantUnavailable(t, err, "the driver finds no device")

	f := newFalse(t)
	f.fail("cuInit", 1, 803)
	var failed *CallError
	want := CallError{"cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
		"system has unsupported display driver / cuda driver combination"}
	if _, err := Open(0); !errors.As(err, &failed) || *failed != want {
		t.Errorf("error %v, want %v", err, &want)
	}

	lib := must.Get(openLibrary())
	f.devices(0)
	_, err = lib.devices()
	wantUnavailable(t, err, "the driver finds no device")
}

// TestOldDriver: the age of the driver is the error, even if it lacks entries as well.
func TestOldDriver(t *testing.T) {
	const want = "the driver is for CUDA 10.2, want 11.0 or newer"
	f := newFalse(t)
	f.version(10020)
	_, err := Open(0)
	wantUnavailable(t, err, want)

	handle := must.Get(purego.Dlopen(use(t, without(t, falseLibrary(t), "cuMemAddressReserve")),
		purego.RTLD_NOW|purego.RTLD_LOCAL))
	purego.RegisterLibFunc(&f.version, handle, "false_version")
	f.version(10020)
	_, err = Open(0)
	wantUnavailable(t, err, want)

	f = newFalse(t)
	f.version(11000)
	must.Do(f.open(0).Close())
}

// TestDevices: several devices, one of them too old, and numbers of none.
func TestDevices(t *testing.T) {
	f := newFalse(t)
	f.devices(3)
	f.device(1, "False T4", 7, 5)
	f.device(2, "False A100", 8, 0)
	infos := must.Get(Devices())
	if len(infos) != 3 || infos[0].Name != "False H100" || infos[1].Name != "False T4" ||
		infos[1].Capability != [2]int{7, 5} || infos[2].Capability != [2]int{8, 0} {
		t.Errorf("Devices: %+v", infos)
	}
	_, err := Open(1)
	wantUnavailable(t, err, "device 1, False T4, has compute capability 7.5, want 8.0 or newer")
	for _, ordinal := range [...]int{-1, 3, 1 << 40} {
		_, err := Open(ordinal)
		var input *reweight.InputError
		if !errors.As(err, &input) || input.Arg != "ordinal" || !strings.Contains(err.Error(), "want 0 to 2") {
			t.Errorf("Open(%d): error %v", ordinal, err)
		}
	}
	a, b := f.open(0), f.open(2)
	if b.Info().Name != "False A100" {
		t.Errorf("device 2 is %v", b.Info())
	}
	for _, c := range [...]*context{a, b, a} { // the false driver knows whose a function is
		if fn, _, err := c.Function("add", 128, 0); err != nil {
			t.Error(err)
		} else if err := c.Launch(fn, 1, 128, 0, unsafe.Pointer(&addParams{}), unsafe.Sizeof(addParams{}),
			0); err != nil {
			t.Error(err)
		}
	}
	must.Do(errors.Join(a.Close(), b.Close()))
	f.clean()
}

// TestModules: what the driver's compiler says is in the error.
func TestModules(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	f.jit("ptxas error: line 7: no such instruction")
	_, _, err := c.Function("add", 128, 0)
	if err == nil || !strings.Contains(err.Error(), "module first") ||
		!strings.Contains(err.Error(), "CUDA_ERROR_INVALID_PTX (218)") ||
		!strings.Contains(err.Error(), "line 7: no such instruction") {
		t.Errorf("error %v", err)
	}
	must.Do(c.Close())
	f.clean()
}

// TestFunction: the kernels of all modules, how many CTAs fit, and shared memory above
// what every function may have.
func TestFunction(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	if _, _, err := c.Function("sub", 128, 0); err == nil ||
		!strings.Contains(err.Error(), "no module has a kernel sub") {
		t.Errorf("error %v", err)
	}
	for _, test := range [...]struct {
		name                 string
		threads, shared, fit int
	}{{"add", 128, 0, 16}, {"twice", 256, 0, 8}, {"add", 128, 48 << 10, 4}, {"twice", 128, 100 << 10, 2}} {
		if _, fit, err := c.Function(test.name, test.threads, test.shared); err != nil || fit != test.fit {
			t.Errorf("%+v: %d fit, error %v", test, fit, err)
		}
	}
	var failed *CallError
	if _, _, err := c.Function("add", 128, 228<<10); !errors.As(err, &failed) ||
		failed.Function != "cuFuncSetAttribute" {
		t.Errorf("error %v", err)
	}
	must.Do(c.Close())
	f.clean()
}

// TestLaunch: what is launched arrives as it is, a parameter of another size is an
// error, and nothing is allocated.
func TestLaunch(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	fn, _, err := c.Function("add", 128, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	params := &addParams{0x123456789abcdef0, 0xfedcba9876543210, -5}
	size := unsafe.Sizeof(*params)
	must.Do(c.Launch(fn, 1<<20, 128, 64<<10, unsafe.Pointer(params), size, 7))
	want := launchRecord{Grid: [3]uint32{1 << 20, 1, 1}, Threads: [3]uint32{128, 1, 1}, Shared: 64 << 10,
		Size: 24, Stream: 7}
	copy(want.Name[:], "add")
	copy(want.Params[:], unsafe.Slice((*byte)(unsafe.Pointer(params)), size))
	var got launchRecord
	if n := f.launch(&got); n != 1 || got != want {
		t.Errorf("%d launches, the last %+v, want %+v", n, got, want)
	}
	if err := c.Launch(fn, 1, 128, 0, unsafe.Pointer(params), size-8, 0); err == nil {
		t.Error("a launch with 16 bytes of parameters, where the kernel has 24")
	}
	if report := f.report(); !strings.Contains(report, "add: 16 bytes of parameters, want 24") {
		t.Errorf("the driver reports:\n%s", report)
	}
	p := must.Get(c.Alloc(100))
	for name, call := range map[string]func() error{
		"Launch":      func() error { return c.Launch(fn, 1, 128, 0, unsafe.Pointer(params), size, 0) },
		"Fill":        func() error { return c.Fill(p, 1, 100, 0) },
		"Synchronize": func() error { return c.Synchronize(0) },
	} {
		var failed error
		allocs := testing.AllocsPerRun(100, func() {
			if err := call(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
		}
		if allocs != 0 && !raceDetector() {
			t.Errorf("%s allocates %v times", name, allocs)
		}
	}
	must.Do(errors.Join(c.Free(p), c.Close()))
}

// raceDetector tells whether this is built with the race detector, under which pools
// of memory lose some of it on purpose.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" && s.Value == "true" {
			return true
		}
	}
	return false
}

// TestMemory: copies and fills do what they should, in the order of the stream, and
// wait where they should.
func TestMemory(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	p := must.Get(c.Alloc(1000))
	if p%256 != 0 {
		t.Errorf("the address is %#x", p)
	}
	src := make([]byte, 500)
	for i := range src {
		src[i] = byte(i)
	}
	want := bytes.Repeat([]byte{7}, 1000)
	copy(want[300:], src)
	got := make([]byte, 1000)
	must.Do(errors.Join(c.Fill(p, 7, 1000, 3), c.Upload(p+300, src, 3)))
	clear(src) // it was read when Upload returned
	copy(want[0:], want[300:500])
	must.Do(errors.Join(c.Copy(p, p+300, 200, 3), c.Copy(p, p, 0, 3), c.Download(got, p, 3)))
	if !bytes.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Nothing is a copy, too, and waits.
	if err := errors.Join(c.Fill(p, 9, 1000, 3), c.Upload(p, nil, 3), c.Download(nil, p, 3),
		c.Fill(p, 8, 0, 3)); err != nil {
		t.Error(err)
	}
	if err := c.Download(got[:1], p, 3); err != nil || got[0] != 9 {
		t.Errorf("got %d, error %v", got[0], err)
	}
	must.Do(c.Free(p))
	if _, err := c.Alloc(0); err == nil {
		t.Error("0 bytes are allocated")
	}
	if err := c.Free(p); err == nil {
		t.Error("memory is freed twice")
	}
	must.Do(c.Close())
	if report := f.report(); strings.Count(report, "\n") != 1 || !strings.Contains(report, "given back twice") {
		t.Errorf("the driver reports:\n%s", report)
	}
}

// TestOutOfMemory: the error says so, and the device goes on.
func TestOutOfMemory(t *testing.T) {
	f := newFalse(t)
	f.memory(4 << 20)
	c := f.open(0)
	var failed *CallError
	if _, err := c.Alloc(5 << 20); !errors.As(err, &failed) || failed.Name != "CUDA_ERROR_OUT_OF_MEMORY" {
		t.Errorf("error %v", err)
	}
	if _, _, _, err := c.AllocGuarded(5 << 20); !errors.As(err, &failed) || failed.Function != "cuMemCreate" ||
		failed.Code != 2 {
		t.Errorf("error %v", err)
	}
	p := must.Get(c.Alloc(3 << 20))
	must.Do(errors.Join(c.Free(p), c.Close()))
	f.clean()
}

// TestNotGuarded: a driver that maps no memory is not an error of the driver.
func TestNotGuarded(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	for _, entry := range [...]string{"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate"} {
		f.fail(entry, 1, notSupported)
		if _, _, _, err := c.AllocGuarded(1000); err != errors.ErrUnsupported {
			t.Errorf("%s: error %v", entry, err)
		}
	}
	must.Do(c.Close())
	f.clean()
}

// TestGuarded: what is next to the memory on both sides is not there.
func TestGuarded(t *testing.T) {
	f := newFalse(t)
	f.devices(2)
	f.device(1, "False A100", 8, 0)
	c := f.open(1)
	lo, hi, free, err := c.AllocGuarded(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if hi-lo != 4<<20 {
		t.Errorf("%d bytes", hi-lo)
	}
	must.Do(errors.Join(c.Upload(lo, make([]byte, hi-lo), 0), c.Fill(hi-1, 1, 1, 0), c.Synchronize(0)))
	for _, p := range [...]driver.Ptr{lo - 1, hi} {
		if err := c.Fill(p, 1, 1, 0); err == nil {
			t.Errorf("%#x is memory", p)
		}
	}
	must.Do(errors.Join(free(), c.Close()))
	if report := f.report(); strings.Count(report, "\n") != 2 || strings.Count(report, "no device memory") != 2 {
		t.Errorf("the driver reports:\n%s", report)
	}
	if err := free(); err != errClosed {
		t.Errorf("free after Close: error %v", err)
	}
}

// TestKernelFails: after a kernel's failure every call has its error, and Close gives
// back what can be given back.
func TestKernelFails(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	fn, _, err := c.Function("add", 128, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := must.Get(c.Alloc(1000))
	params := new(addParams)
	launch := func() error { return c.Launch(fn, 1, 128, 0, unsafe.Pointer(params), unsafe.Sizeof(*params), 0) }
	f.fault(700)
	if err := launch(); err != nil {
		t.Fatalf("the launch itself: %v", err)
	}
	first := c.Synchronize(0)
	const want = "cuda: cuStreamSynchronize failed with CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered; this process cannot use False H100 any more and must be restarted"
	if first == nil || first.Error() != want {
		t.Fatalf("error %v, want %s", first, want)
	}
	calls := f.calls("cuCtxPushCurrent_v2")
	for name, call := range map[string]func() error{
		"Function":     func() error { _, _, err := c.Function("add", 128, 0); return err },
		"Launch":       launch,
		"Fill":         func() error { return c.Fill(p, 1, 10, 0) },
		"Alloc":        func() error { _, err := c.Alloc(10); return err },
		"Free":         func() error { return c.Free(p) },
		"Upload":       func() error { return c.Upload(p, make([]byte, 10), 0) },
		"Download":     func() error { return c.Download(make([]byte, 10), p, 0) },
		"Synchronize":  func() error { return c.Synchronize(0) },
		"AllocGuarded": func() error { _, _, _, err := c.AllocGuarded(10); return err },
	} {
		if err := call(); err != first {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if n := f.calls("cuCtxPushCurrent_v2"); n != calls {
		t.Errorf("%d contexts were pushed after the failure", n-calls)
	}
	if err := c.Close(); err != first {
		t.Errorf("Close: error %v", err)
	}
	if report := f.report(); strings.Contains(report, "primary context") || strings.Contains(report, "popped") {
		t.Errorf("the driver reports:\n%s", report)
	}
	// Another process may be well; in this one a new Open meets the same error.
	var failed *CallError
	if _, err := open(0, testModules); !errors.As(err, &failed) || failed.Code != 700 {
		t.Errorf("Open: error %v", err)
	}
}

// TestClose: a closed device can do nothing; closing it again is no error.
func TestClose(t *testing.T) {
	f := newFalse(t)
	c := f.open(0)
	for range 3 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Synchronize(0); err != errClosed {
		t.Errorf("error %v", err)
	}
	if _, err := c.Alloc(10); err != errClosed {
		t.Errorf("error %v", err)
	}
	f.clean()
}

// TestThreads: many goroutines, each with a context of somebody else current on its
// thread, use devices of their own and a shared one in turn. Each finds its thread as
// it left it.
func TestThreads(t *testing.T) {
	f := newFalse(t)
	shared := f.open(0)
	var turn sync.Mutex
	var threads sync.WaitGroup
	for i := range 16 {
		threads.Go(func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine
			foreign := uintptr(0xf0000 + i)
			f.push(foreign)
			own := must.Get(open(0, testModules))
			for range 20 {
				p := must.Get(own.Alloc(64))
				want, got := bytes.Repeat([]byte{byte(i)}, 64), make([]byte, 64)
				if err := errors.Join(own.Upload(p, want, driver.Stream(i+1)), own.Download(got, p, driver.Stream(i+1)),
					own.Free(p)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %v, error %v", got, err)
				}
				turn.Lock()
				must.Do(shared.Synchronize(0))
				turn.Unlock()
			}
			must.Do(own.Close())
			if now := f.pop(); now != foreign {
				t.Errorf("the current context is %#x, was %#x", now, foreign)
			}
		})
	}
	threads.Wait()
	must.Do(shared.Close())
	f.clean()
}

// TestMoves: goroutines that Go moves from thread to thread between the calls, and
// would within a call as well.
func TestMoves(t *testing.T) {
	f := newFalse(t)
	var users sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		users.Go(func() {
			c := must.Get(open(0, testModules))
			for range 100 {
				must.Do(c.Synchronize(0))
			}
			must.Do(c.Close())
		})
	}
	users.Wait()
	f.clean()
}

// BenchmarkLaunch is what a launch costs on the host without the driver's own work.
func BenchmarkLaunch(b *testing.B) {
	f := newFalse(b)
	c := f.open(0)
	fn, _, err := c.Function("add", 128, 0)
	if err != nil {
		b.Fatal(err)
	}
	params := new(addParams)
	b.ReportAllocs()
	for b.Loop() {
		must.Do(c.Launch(fn, 1, 128, 0, unsafe.Pointer(params), unsafe.Sizeof(*params), 0))
	}
	must.Do(c.Close())
	f.clean()
}
