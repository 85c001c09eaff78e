package floors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/measure"
	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/kernels"
)

// quick measures as little as can be.
var quick = bench.Sampler{Block: time.Microsecond, Rounds: 1}

// command runs bench floors on some kernels, with an instruction set unless that is empty.
func command(ctx context.Context, opt Options, names, isa string, out io.Writer) error {
	for name := range strings.SplitSeq(names, ",") {
		k, err := kernels.Find(name)
		if err != nil {
			return err
		}
		opt.Kernels = append(opt.Kernels, k)
	}
	for _, impl := range kernels.Implementations() {
		if impl.Name == isa {
			opt.CPU = []kernels.Implementation{impl}
		}
	}
	if opt.Progress == nil {
		opt.Progress = &cli.Progress{}
	}
	opt.Sampler = quick
	return Run(ctx, opt, out)
}

func names(impls []kernels.Implementation) (all []string) {
	for _, impl := range impls {
		all = append(all, impl.Name)
	}
	return all
}

// onWrite is a writer that tells of what is written.
type onWrite func(string)

func (f onWrite) Write(b []byte) (int, error) { f(string(b)); return len(b), nil }

func TestFloors(t *testing.T) {
	path := reweight.AvailableISAs()[len(reweight.AvailableISAs())-1].String()
	floors := func(times, share float64) floorFile {
		return floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{path: {CPU: "another", Floors: []floor{{"k", "f32", times, share}}}}}
	}
	e := func(median, lo, hi float64) *bench.Estimate {
		return &bench.Estimate{Median: median, Lo: lo, Hi: hi, N: 9}
	}
	for _, c := range []struct {
		name    string
		q       result
		floors  floorFile
		want    bench.Verdict
		message string
	}{
		{"above", result{timesPortable: e(9, 8, 10), share: e(0.9, 0.8, 1)}, floors(7, 0.7), bench.Pass, ""},
		{"within the noise", result{timesPortable: e(9, 8, 10), share: e(0.9, 0.8, 1)}, floors(9.9, 0.99), bench.Pass, ""},
		{"slower than portable allows", result{timesPortable: e(9, 8, 10), share: e(0.9, 0.8, 1)}, floors(11, 0.7), bench.Regression, "floor is 11, recorded on another; this is this one"},
		{"far from the read", result{timesPortable: e(9, 8, 10), share: e(0.9, 0.8, 1)}, floors(7, 1.1), bench.Regression, "floor is 1.1, recorded on another; this is this one"},
		{"tokens", result{timesPortable: e(9, 8, 10)}, floors(7, 1.1), bench.Pass, ""},
		{"none", result{timesPortable: e(9, 8, 10)}, floorFile{}, bench.Inconclusive, "it has no floor: record one"},
		{"wrong", result{timesPortable: e(9, 8, 10), failure: "far off"}, floors(7, 0.7), bench.Regression, "far off"},
	} {
		c.q.kernel, c.q.dtype, c.q.isa = "k", "f32", path
		if c.q.judge(c.floors, "this one"); c.q.verdict != c.want || !strings.HasSuffix(c.q.message, c.message) {
			t.Errorf("%s: %v, %q, want %v", c.name, c.q.verdict, c.q.message, c.want)
		}
	}
}

// TestFloorsConfirm: what is too slow twice is a regression, what is wrong at once,
// and what passed is not measured again.
func TestFloorsConfirm(t *testing.T) {
	paths := []kernels.Implementation{{Name: "portable"}, {Name: "avx2"}, {Name: "avx512"}}
	floors := floorFile{ISAs: map[string]isaFloors{}}
	for _, p := range paths {
		floors.ISAs[p.Name] = isaFloors{Floors: []floor{{"k", "f32", 5, 0}}}
	}
	const allocates = -1
	for _, c := range []struct {
		first, second []float64 // times the speed of the portable path
		again         string
		want          [3]bench.Verdict
	}{
		{[]float64{6, 7, 8}, nil, "", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[]float64{6, 4, 8}, []float64{9}, "[avx2]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[]float64{4, 6, 4}, []float64{9, 4}, "[portable avx512]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
		{[]float64{allocates, 6, 8}, nil, "", [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[]float64{allocates, 6, 4}, []float64{9}, "[avx512]", [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[]float64{9, 6, 4}, []float64{allocates}, "[avx512]", [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
	} {
		times, again := c.first, ""
		results, err := confirm(floors, "", paths, func(asked []kernels.Implementation) (all []result, err error) {
			if times == nil || len(times) != len(asked) {
				t.Fatalf("%v: asked for %v", c.first, asked)
			}
			for i, p := range asked {
				r := measure.Result{Kernel: "k", DType: "f32", ISA: p.Name, TimesPortable: bench.Estimate{Median: times[i], Lo: times[i], Hi: times[i]}}
				if times[i] == allocates {
					r.AllocsPerOp, r.TimesPortable.Hi = 3, 9
				}
				all = append(all, newResult(false, measure.Parity{}, r))
			}
			if &times[0] != &c.first[0] {
				again = fmt.Sprint(names(asked))
			}
			times = c.second
			return all, nil
		})
		if err != nil || again != c.again {
			t.Errorf("%v: measures %s again, want %s, %v", c.first, again, c.again, err)
		}
		for i, q := range results {
			if q.verdict != c.want[i] || q.isa != paths[i].Name || c.first[i] == allocates && !strings.Contains(q.message, "3 heap allocations") {
				t.Errorf("%v, %v: %s: %v, %q, want %v", c.first, c.second, q.isa, q.verdict, q.message, c.want[i])
			}
		}
	}
	if q := newResult(true, measure.Parity{Failure: "far off"}, measure.Result{AllocsPerOp: 1, Share: bench.Estimate{Median: 0.5}}); q.failure != "far off" || q.share.Median != 0.5 {
		t.Errorf("%+v", q)
	}
}

// TestFloorsOnce records floors, keeps those of others, and compares with them and
// with ones that nothing reaches.
func TestFloorsOnce(t *testing.T) {
	if len(reweight.AvailableISAs()) < 2 {
		t.Skip("only the portable kernels run here")
	}
	best := must.Get(reweight.BestISA()).String()
	name := filepath.Join(t.TempDir(), "floors.json")
	gateRun := func(record bool, isa string) (string, error) {
		var out bytes.Buffer
		err := command(t.Context(), Options{File: name, Record: record}, "multiply", isa, &out)
		return out.String(), err
	}
	if _, err := gateRun(false, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	other := floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{
		"sve9": {CPU: "another", Floors: []floor{{"multiply", "f32", 5, 0}}},
		best:   {CPU: "the moon", Floors: []floor{{"surrogate", "f32", 3, 0}, {"token_stats", "f32", 3, 0}, {"token_stats", "bf16", 3, 0}, {"forgotten", "f32", 3, 0}, {"multiply", "f32", 1e9, 0}}},
	}}
	text, _ := json.Marshal(other)
	must.Do(os.WriteFile(name, text, 0o666))
	if out, err := gateRun(false, best); err == nil || cli.ExitStatus("", err, io.Discard) != 1 || !strings.Contains(out, "floor is 1e+09, recorded on the moon; this is ") || !strings.Contains(out, "The floor of forgotten f32 on "+best+" is of a kernel that does not exist") || !strings.Contains(out, "The floors of sve9 were not looked at") {
		t.Errorf("below its floor: %v\n%s", err, out)
	}
	if out, err := gateRun(true, ""); err != nil || !strings.Contains(out, "floors") {
		t.Fatalf("%v\n%s", err, out)
	}
	f := must.Get(readFloors(name))
	if q, ok := f.find("sve9", "multiply", "f32"); !ok || q.TimesPortable != 5 || f.Margin != floorMargin {
		t.Errorf("%+v", f)
	}
	if q, ok := f.find(best, "multiply", "f32"); !ok || !(q.TimesPortable > 0 && q.TimesPortable < 1e6) || q.Share != 0 {
		t.Errorf("%+v", f)
	}
	if _, ok := f.find(best, "surrogate", "f32"); !ok {
		t.Errorf("a kernel that was not measured lost its floor: %+v", f)
	}
	if _, ok := f.find(best, "forgotten", "f32"); ok {
		t.Errorf("a kernel that is no more has a floor: %+v", f)
	}
	save := func() {
		text, _ := json.Marshal(f)
		must.Do(os.WriteFile(name, text, 0o666))
	}
	for _, of := range f.ISAs { // one round may be far off
		for i := range of.Floors {
			of.Floors[i].TimesPortable = 1e-9
		}
	}
	save()
	if out, err := gateRun(false, ""); err != nil || !strings.Contains(out, " pass ") {
		t.Errorf("%v\n%s", err, out)
	}
	// An instruction set without floors is no pass.
	delete(f.ISAs, best)
	save()
	if out, err := gateRun(false, ""); cli.ExitStatus("", err, io.Discard) != 3 || !strings.Contains(out, "it has no floor") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRecordFirstFloors: into a file that has none.
func TestRecordFirstFloors(t *testing.T) {
	if len(reweight.AvailableISAs()) < 2 {
		t.Skip("only the portable kernels run here")
	}
	for _, text := range []string{`{"vocab":151936}`, `{"vocab":151936,"isas":null}`} {
		name := filepath.Join(t.TempDir(), "floors.json")
		must.Do(os.WriteFile(name, []byte(text), 0o666))
		if err := command(t.Context(), Options{File: name, Record: true}, "multiply", "", io.Discard); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if f, err := readFloors(name); err != nil || len(f.ISAs) == 0 {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, path, want string
	}{
		{"-", "", "not standard output"},
		{filepath.Join(dir, "f.json"), "portable", "portable has no floors"},
		{dir, "", "not a regular file"},
		{filepath.Join(dir, "no", "f.json"), "", filepath.Join(dir, "no")},
	} {
		var measured bytes.Buffer
		err := command(t.Context(), Options{File: c.name, Record: true, Progress: &cli.Progress{W: &measured}}, "multiply", c.path, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || measured.Len() > 0 {
			t.Errorf("%s: %v, want %q; progress %q", c.name, err, c.want, measured.String())
		}
	}
	if err := command(t.Context(), Options{File: dir}, "multiply", "", io.Discard); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("of a directory: %v", err)
	}
}

func TestReadFloors(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "EOF",
		"{":                            "unexpected EOF",
		`{"vocab":151936} {}`:          "more than one",
		`{"vocab":151936, "floor":{}}`: `unknown field "floor"`,
		`{"vocab":1000}`:               "vocabulary of 1000",
		`{"vocab":"many"}`:             "vocab",
		`{"vocab":151936,"isas":{"::error::x":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1}]}}}`:                                           `"::error::x" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k\u202e","dtype":"f32","times_portable":1}]}}}`:                                           `"k\u202e" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","times_portable":1}]}}}`:                                                               `"" is not the name of`,
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":-1}]}}}`:                                                "k f32 on avx2: times_portable is -1, want more than 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32"}]}}}`:                                                                    "k f32 on avx2: times_portable is 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1,"roofline_share":-1}]}}}`:                             "roofline_share is -1",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1},{"kernel":"k","dtype":"f32","times_portable":2}]}}}`: "k f32 on avx2: given twice",
	} {
		name := filepath.Join(t.TempDir(), "floors.json")
		must.Do(os.WriteFile(name, []byte(text), 0o666))
		if _, err := readFloors(name); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestFloorsOf: the middle of three recordings, in any order, and two digits of half of that.
func TestFloorsOf(t *testing.T) {
	var recorded [recordings][]result
	for i, x := range [recordings]float64{30, 10, 24.4} {
		e := &bench.Estimate{Median: x}
		recorded[i] = []result{
			{kernel: "k", dtype: "f32", isa: "avx2", timesPortable: e, share: &bench.Estimate{Median: x / 100}},
			{kernel: "k", dtype: "f32", isa: "avx512", timesPortable: &bench.Estimate{Median: 2 * x}},
		}
	}
	if got, want := floorsOf(recorded), []floor{{"k", "f32", 12, 0.12}, {"k", "f32", 24, 0}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHangup: a terminal that is closed ends it as an interrupt does.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) || runtime.GOOS == "windows" {
		t.Skip("a hangup does nothing here")
	}
	name := filepath.Join(t.TempDir(), "floors.json")
	must.Do(os.WriteFile(name, []byte(`{"vocab":151936}`), 0o666))
	self := must.Get(os.FindProcess(os.Getpid()))
	rescue := make(chan os.Signal, 1) // from the end of the test's process
	signal.Notify(rescue, syscall.SIGHUP)
	defer signal.Stop(rescue)
	hangUp := &cli.Progress{W: onWrite(func(line string) {
		if strings.Contains(line, "measuring multiply") {
			self.Signal(syscall.SIGHUP)
			<-rescue
			time.Sleep(time.Second) // what else waits for the signal has it too, and needs a moment to end the context
		}
	})}
	if err := command(t.Context(), Options{File: name, Progress: hangUp}, "multiply,surrogate", must.Get(reweight.BestISA()).String(), io.Discard); cli.ExitStatus("", err, io.Discard) != 130 {
		t.Errorf("%v", err)
	}
}
