package gpu

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/driver"
	"github.com/seed621a2839/reweight/internal/shape"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// somewhere is the address of an array that no kernel of these tests touches.
const somewhere Ptr = 1 << 20

// everything is a batch that has all arrays.
var everything = &Batch{
	Tokens: 5000, Trajectories: 100,
	Role: somewhere, SeqOffsets: somewhere, GroupIDs: somewhere, Rewards: somewhere, SpanIDs: somewhere,
	RefEnergy: somewhere, Entropy: somewhere, OldLogprobs: somewhere, Logprobs: somewhere, RefLogprobs: somewhere,
	RefEntropy: somewhere, Advantages: somewhere, Values: somewhere,
}

// calls has calls of every method of Workspace that queues work. Together they launch
// every kernel.
var calls = []struct {
	method string
	call   func(ws *Workspace) error
}{
	{"TokenStats", func(ws *Workspace) error {
		return eachRowKernel(reweight.DTypeF16, func(logits Rows, temperature float64) error {
			opt := reweight.TokenStatsOptions{Temperature: temperature}
			if err := ws.TokenStats(Stats{LSE: somewhere, Entropy: somewhere, Logprob: somewhere}, logits,
				IDs{Ptr: somewhere}, opt); err != nil {
				return err
			}
			return ws.TokenStats(Stats{LogSumSqProbs: somewhere}, logits, IDs{}, opt)
		})
	}},
	{"RowGradient", func(ws *Workspace) error {
		return eachRowKernel(reweight.DTypeBF16, func(logits Rows, temperature float64) error {
			return ws.RowGradient(logits, logits, IDs{Ptr: somewhere},
				RowGradientInput{Logprobs: somewhere, Entropy: somewhere, Grad: somewhere},
				reweight.RowGradientOptions{Temperature: temperature})
		})
	}},
	{"ReadMemory", func(ws *Workspace) error { return ws.ReadMemory(somewhere, 1<<20) }},
	{"CopyMemory", func(ws *Workspace) error { return ws.CopyMemory(somewhere, somewhere+1<<20, 1<<20) }},
	{"Multiply", func(ws *Workspace) error { return ws.Multiply(somewhere, somewhere, somewhere, 1000) }},
	{"MaskedMoments", func(ws *Workspace) error {
		return ws.MaskedMoments(somewhere, somewhere, somewhere, 1000, reweight.Responses, 0)
	}},
	{"ActFocus", func(ws *Workspace) error {
		return ws.ActFocus(somewhere, somewhere, everything,
			reweight.ActFocusOptions{Beta: 1, Signal: reweight.SignalLogRatio})
	}},
	{"ActFocusWeights", func(ws *Workspace) error {
		return ws.ActFocusWeights(somewhere, somewhere, somewhere, 1000, 0, 1, reweight.DefaultActFocus)
	}},
	{"Whiten", func(ws *Workspace) error { return ws.Whiten(somewhere, somewhere, somewhere, 1000) }},
	{"Surrogate", func(ws *Workspace) error {
		return ws.Surrogate(somewhere, somewhere, somewhere, somewhere, somewhere, 0, somewhere, 1000, 1,
			reweight.DefaultLoss)
	}},
	{"Loss", func(ws *Workspace) error {
		opt := reweight.DefaultLoss
		opt.Aggregation = reweight.SeqMeanTokenMean
		return ws.Loss(somewhere, somewhere, somewhere, everything, opt)
	}},
	{"SpanMeans", func(ws *Workspace) error { return ws.SpanMeans(somewhere, somewhere, somewhere, 10, 100) }},
	{"MinMax", func(ws *Workspace) error { return ws.MinMax(somewhere, somewhere, somewhere, somewhere, 10, 100) }},
	{"ExpScale", func(ws *Workspace) error { return ws.ExpScale(somewhere, somewhere, 100, 1, 2) }},
	{"AEM", func(ws *Workspace) error { return ws.AEM(somewhere, everything, reweight.DefaultAEM) }},
	{"GRPO", func(ws *Workspace) error { return ws.GRPO(somewhere, everything, reweight.DefaultGRPO) }},
	{"GAE", func(ws *Workspace) error {
		return ws.GAE(somewhere, somewhere, somewhere, everything, reweight.DefaultGAE)
	}},
}

var index = &Index{somewhere, 900}

// eachRowKernel calls f for rows of every DType up to the last, at two temperatures.
func eachRowKernel(last reweight.DType, f func(logits Rows, temperature float64) error) error {
	for d := reweight.DTypeF32; d <= last; d++ {
		for _, temperature := range [...]float64{1, 0.7} {
			if err := f(Rows{Ptr: somewhere, DType: d, Rows: 1000, Vocab: 10, Index: index}, temperature); err != nil {
				return err
			}
		}
	}
	return nil
}

// waiting are the methods of Workspace that do not queue work.
var waiting = []string{"Check", "Close"}

// A launched says how a kernel was launched.
type launched struct {
	threads, shared int
	size            uintptr
}

// idle is a driver that runs nothing. Once it is ready, a call that waits, copies or
// allocates fails the test.
type idle struct {
	testing.TB
	names    []string // of the functions
	ready    bool
	launched map[string]launched
}

func (d *idle) Info() driver.Info {
	return driver.Info{Name: "none", Multiprocessors: 3, Capability: [2]int{8, 0}}
}

func (d *idle) Function(name string, threads, shared int) (driver.Function, int, error) {
	d.names = append(d.names, name)
	return driver.Function(len(d.names) - 1), 2, nil
}

func (d *idle) Launch(f driver.Function, grid, threads, shared int, params unsafe.Pointer, size uintptr,
	s driver.Stream) error {
	if grid < 1 || grid > 2*3 {
		d.Errorf("%s: %d CTAs, want 1 to the 6 that the device runs at a time", d.names[f], grid)
	}
	if s != 7 {
		d.Errorf("%s: launched on stream %d, not on the workspace's", d.names[f], s)
	}
	if d.launched != nil {
		d.launched[d.names[f]] = launched{threads, shared, size}
	}
	return nil
}

func (d *idle) Copy(dst, src driver.Ptr, bytes int, s driver.Stream) error { return nil }
func (d *idle) Captured(s driver.Stream) (bool, error)                     { return false, nil }

func (d *idle) Fill(p driver.Ptr, value byte, bytes int, s driver.Stream) error { return nil }

func (d *idle) Alloc(bytes int) (driver.Ptr, error)                        { return 1 << 30, d.wait("Alloc") }
func (d *idle) Free(p driver.Ptr) error                                    { return d.wait("Free") }
func (d *idle) Upload(dst driver.Ptr, src []byte, s driver.Stream) error   { return d.wait("Upload") }
func (d *idle) Download(dst []byte, src driver.Ptr, s driver.Stream) error { return d.wait("Download") }
func (d *idle) Synchronize(s driver.Stream) error                          { return d.wait("Synchronize") }
func (d *idle) Close() error                                               { return d.wait("Close") }

func (d *idle) wait(what string) error {
	if d.ready {
		d.Errorf("%s is called", what)
	}
	return nil
}

// idleWorkspace returns a workspace that launches nothing.
func idleWorkspace(t *testing.T) (*Workspace, *idle) {
	drv := &idle{TB: t}
	ws := must.Get(NewDevice(drv, nil).NewWorkspace(7, Size{Tokens: 5000, Trajectories: 100, Spans: 300}))
	drv.ready = true
	return ws, drv
}

// TestCalls: every method is in the list of calls.
func TestCalls(t *testing.T) {
	methods := reflect.TypeFor[*Workspace]()
	for i := range methods.NumMethod() {
		name := methods.Method(i).Name
		listed := 0
		for _, c := range calls {
			if c.method == name {
				listed++
			}
		}
		if (listed > 0) == slices.Contains(waiting, name) {
			t.Errorf("%s is in the list of calls %d times, and among those that do not queue work: %v", name, listed, waiting)
		}
	}
}

// TestNothingWaits: no method allocates memory on either side, copies, or waits.
func TestNothingWaits(t *testing.T) {
	for _, c := range calls {
		t.Run(c.method, func(t *testing.T) {
			ws, _ := idleWorkspace(t)
			var err error
			if allocs := testing.AllocsPerRun(20, func() { err = c.call(ws) }); allocs != 0 {
				t.Errorf("%v allocations per call, want 0", allocs)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// An entry is what the PTX says about a kernel.
type entry struct {
	module string
	params uintptr // bytes
	ntid   int     // most threads of a CTA
}

var (
	entryLine = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(((?:.|\n)*?)\n\)\n((?:\..*\n)*)\{`)
	paramLine = regexp.MustCompile(`^\s*\.param \.align 8 \.b8 \w+_param_0\[(\d+)\]$`)
	ntidLine  = regexp.MustCompile(`(?m)^\.maxntid (\d+), 1, 1$`)
)

// entries returns the kernels of all modules.
func entries(t *testing.T) map[string]entry {
	modules := must.Get(device.PTX())
	all := map[string]entry{}
	for module, text := range modules {
		found := entryLine.FindAllStringSubmatch(text, -1)
		if len(found) != strings.Count(text, ".entry ") || len(found) == 0 {
			t.Errorf("%s: %d of %d kernels understood", module, len(found), strings.Count(text, ".entry "))
		}
		for _, e := range found {
			name := e[1]
			param, ntid := paramLine.FindStringSubmatch(strings.TrimPrefix(e[2], "\n")),
				ntidLine.FindStringSubmatch(e[3])
			if param == nil || ntid == nil {
				t.Errorf("%s: %s has not one struct as its parameter, aligned to 8 bytes, or no number of threads", module, name)
				continue
			}
			if other, ok := all[name]; ok {
				t.Errorf("%s is in the modules %s and %s", name, module, other.module)
			}
			size := must.Get(strconv.ParseUint(param[1], 10, 32))
			threads := must.Get(strconv.Atoi(ntid[1]))
			all[name] = entry{module, uintptr(size), threads}
		}
	}
	return all
}

// TestKernels: the lists have every kernel of the PTX and no other, with its number of
// threads, and the calls launch each of them with as many bytes of parameters as it
// has.
func TestKernels(t *testing.T) {
	device := entries(t)
	listed := map[string]shape.Kernel{}
	for _, k := range shape.Kernels {
		if _, twice := listed[k.Name]; twice {
			t.Errorf("%s is listed twice", k.Name)
		}
		listed[k.Name] = k
		e, ok := device[k.Name]
		if !ok {
			t.Errorf("%s is listed, and in no module", k.Name)
		} else if e.ntid != k.Threads*max(1, k.Team) {
			t.Errorf("%s is listed with %d threads, %d times, and made for %d", k.Name, k.Threads, k.Team, e.ntid)
		} else if e.module != k.Module {
			t.Errorf("%s is listed in %s, and in %s", k.Name, k.Module, e.module)
		}
	}
	for name, e := range device {
		if _, ok := listed[name]; !ok {
			t.Errorf("%s, in %s.cu, is not listed", name, e.module)
		}
	}

	ws, drv := idleWorkspace(t)
	drv.launched = map[string]launched{}
	for _, c := range calls {
		if err := c.call(ws); err != nil {
			t.Errorf("%s: %v", c.method, err)
		}
	}
	for name, k := range listed {
		l, ok := drv.launched[name]
		if !ok {
			t.Errorf("%s: none of the calls launches it", name)
		} else if want := (launched{k.Threads, k.Shared, device[name].params}); l != want {
			t.Errorf("%s: launched with %+v, want %+v", name, l, want)
		}
	}
}

// TestTeams: teams take the rows where the device runs as many teams at a time, and warps
// where there are more rows.
func TestTeams(t *testing.T) {
	for rows, times := range map[int]int{1: shape.RowTeam, 2 * 3: shape.RowTeam, 2*3 + 1: 1} {
		ws, drv := idleWorkspace(t)
		drv.launched = map[string]launched{}
		logits := Rows{Ptr: somewhere, DType: reweight.DTypeBF16, Rows: rows, Vocab: 10}
		must.Do(ws.TokenStats(Stats{LSE: somewhere}, logits, IDs{}, reweight.DefaultTokenStats))
		must.Do(ws.TokenStats(Stats{LogSumSqProbs: somewhere}, logits, IDs{}, reweight.DefaultTokenStats))
		must.Do(ws.RowGradient(logits, logits, IDs{Ptr: somewhere},
			RowGradientInput{Logprobs: somewhere, Grad: somewhere}, reweight.DefaultRowGradient))
		for _, k := range shape.Kernels {
			l, ok := drv.launched[k.Name]
			if ok && (l.threads != times*k.Threads || l.shared != times*k.Shared) {
				t.Errorf("%d rows: %s is launched with %d threads and %d bytes, want %d times %d and %d", rows, k.Name,
					l.threads, l.shared, times, k.Threads, k.Shared)
			}
		}
		if len(drv.launched) != 3 {
			t.Errorf("%d rows: %d kernels are launched, want 3", rows, len(drv.launched))
		}
	}
}

// TestPrepare: a method that was prepared launches what is there then, and all of it.
func TestPrepare(t *testing.T) {
	for _, c := range calls {
		ws, drv := idleWorkspace(t)
		must.Do(ws.dev.Prepare([]string{c.method}, nil))
		prepared := slices.Compact(slices.Clone(drv.names)) // alone and as a team: twice
		drv.launched = map[string]launched{}
		if err := c.call(ws); err != nil {
			t.Errorf("%s: %v", c.method, err)
		}
		if !slices.Equal(slices.Compact(drv.names), prepared) || len(drv.launched) != len(prepared) {
			t.Errorf("%s launches %v, and was prepared with %v", c.method, drv.launched, prepared)
		}
	}
	ws, drv := idleWorkspace(t)
	must.Do(ws.dev.Prepare([]string{"TokenStats", "RowGradient"}, []reweight.DType{reweight.DTypeBF16}))
	want := []string{"token_stats_bf16", "token_stats_bf16_tempered", "token_stats_squares_bf16",
		"token_stats_squares_bf16_tempered", "row_gradient_bf16", "row_gradient_bf16_tempered"}
	if got := slices.Compact(drv.names); !slices.Equal(got, want) {
		t.Errorf("prepared %v, want %v", got, want)
	}
	for want, err := range map[string]error{
		`reweight: methods[1] is "Check", want a method of Workspace that queues work`: ws.dev.Prepare([]string{"AEM", "Check"}, nil),
		"reweight: formats[0] is 3, want f32, bf16 or f16":                             ws.dev.Prepare(nil, []reweight.DType{3}),
	} {
		var wrong *reweight.InputError
		if !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestParamsHaveNoGaps: the fields of the structs that kernels take follow each other
// without padding, so that C and Go place them alike.
func TestParamsHaveNoGaps(t *testing.T) {
	for f := range reflect.TypeFor[params]().Fields() {
		if sum := fieldBytes(f.Type); sum != f.Type.Size() {
			t.Errorf("%s: its fields have %d bytes, and it has %d", f.Type.Name(), sum, f.Type.Size())
		}
	}
}

// fieldBytes returns the bytes of the type without padding.
func fieldBytes(t reflect.Type) uintptr {
	switch t.Kind() {
	case reflect.Struct:
		var sum uintptr
		for f := range t.Fields() {
			sum += fieldBytes(f.Type)
		}
		return sum
	case reflect.Array:
		return uintptr(t.Len()) * fieldBytes(t.Elem())
	}
	return t.Size()
}

// TestClosed: a workspace that is closed, or that NewWorkspace has not made, queues
// nothing: its memory may be somebody else's.
func TestClosed(t *testing.T) {
	ws, drv := idleWorkspace(t)
	drv.ready = false
	must.Do(ws.Close())
	drv.ready, drv.launched = true, map[string]launched{}
	if err := ws.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	none := &Workspace{size: ws.size}
	for _, c := range calls {
		if err := c.call(ws); err != errClosed {
			t.Errorf("%s of a closed workspace: %v", c.method, err)
		}
		if err := c.call(none); err != errClosed {
			t.Errorf("%s of no workspace: %v", c.method, err)
		}
	}
	if err := ws.Check(); err != errClosed {
		t.Errorf("Check: %v", err)
	}
	if len(drv.launched) > 0 {
		t.Errorf("launched %v", drv.launched)
	}
}
