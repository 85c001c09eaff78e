package floors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	if opt.Plan.Progress == nil {
		opt.Plan.Progress = &cli.Progress{}
	}
	opt.Plan.Sampler, opt.Plan.Check = quick, measure.Check
	for name := range strings.SplitSeq(names, ",") {
		opt.Plan.Kernels = append(opt.Plan.Kernels, must.Get(kernels.Find(name)))
	}
	opt.Plan.CPU = kernels.Implementations()[1:]
	for _, impl := range kernels.Implementations() {
		if impl.Name == isa {
			opt.Plan.CPU = []kernels.Implementation{impl}
		}
	}
	return Run(ctx, opt, out)
}

func TestFloors(t *testing.T) {
	path := reweight.AvailableISAs()[len(reweight.AvailableISAs())-1].String()
	floors := func(times, share float64) floorFile {
		return floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{path: {CPU: "another", Floors: []floor{{"k", "f32", times, share}}}}}
	}
	measured := func(vocab int) measure.Result {
		estimate := func(median, lo, hi float64) bench.Estimate {
			return bench.Estimate{Median: median, Lo: lo, Hi: hi, N: 9}
		}
		return measure.Result{
			Kernel: "k", DType: "f32", ISA: path, Vocab: vocab, TimesPortable: estimate(9, 8, 10), Share: estimate(0.9, 0.8, 1),
		}
	}
	rows, tokens, wasteful := measured(1), measured(0), measured(0)
	wasteful.AllocsPerOp = 3
	for _, c := range []struct {
		name    string
		q       measure.Result
		floors  floorFile
		want    bench.Verdict
		message string
	}{
		{"above", rows, floors(7, 0.7), bench.Pass, ""},
		{"within the noise", rows, floors(9.9, 0.99), bench.Pass, ""},
		{"slower than portable allows", rows, floors(11, 0.7), bench.Regression, "floor is 11, recorded on another; this is this one"},
		{"far from the read", rows, floors(7, 1.1), bench.Regression, "floor is 1.1, recorded on another; this is this one"},
		{"tokens", tokens, floors(7, 1.1), bench.Pass, ""},
		{"none", tokens, floorFile{}, bench.Inconclusive, "it has no floor: record one"},
		{"allocates", wasteful, floors(7, 0.7), bench.Regression, "3 heap allocations of 0 bytes per call, want none"},
	} {
		if q := c.floors.judge(c.q, "this one"); q.verdict != c.want || !strings.HasSuffix(q.message, c.message) {
			t.Errorf("%s: %v, %q, want %v", c.name, q.verdict, q.message, c.want)
		}
	}
}

// TestFloorsConfirm: what is too slow twice is a regression, what allocates at once,
// and what passed is not judged again.
func TestFloorsConfirm(t *testing.T) {
	plan := measure.Plan{
		Kernels: []kernels.Kernel{{Name: "k", DTypes: []reweight.DType{reweight.DTypeF32}}},
		CPU:     []kernels.Implementation{{Name: "portable"}, {Name: "avx2"}, {Name: "avx512"}},
	}
	floors := floorFile{Vocab: floorVocab, ISAs: map[string]isaFloors{}}
	for _, p := range plan.CPU {
		floors.ISAs[p.Name] = isaFloors{Floors: []floor{{"k", "f32", 5, 0}}}
	}
	name := filepath.Join(t.TempDir(), "floors.json")
	must.Do(os.WriteFile(name, must.Get(json.Marshal(floors)), 0o666))
	const allocates = -1
	for _, c := range []struct {
		times [][]float64 // of each measurement, times the speed of the portable path
		want  [3]bench.Verdict
	}{
		{[][]float64{{6, 7, 8}}, [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[][]float64{{6, 4, 8}, {1, 9, 1}}, [3]bench.Verdict{bench.Pass, bench.Pass, bench.Pass}},
		{[][]float64{{4, 6, 4}, {9, 1, 4}}, [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
		{[][]float64{{allocates, 6, 8}}, [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[][]float64{{allocates, 6, 4}, {9, 6, 9}}, [3]bench.Verdict{bench.Regression, bench.Pass, bench.Pass}},
		{[][]float64{{9, 6, 4}, {9, 6, allocates}}, [3]bench.Verdict{bench.Pass, bench.Pass, bench.Regression}},
	} {
		g, n := check{Options: Options{File: name, Plan: plan}}, 0
		err := g.compare(func(p measure.Plan) (r measure.Results, err error) {
			if n >= len(c.times) || len(p.Kernels) != 1 {
				t.Fatalf("%v: measured once more, %v", c.times, p.Kernels)
			}
			for i, x := range c.times[n] {
				q := measure.Result{Kernel: "k", DType: "f32", ISA: p.CPU[i].Name, TimesPortable: bench.Estimate{Median: x, Lo: x, Hi: x}}
				if x == allocates {
					q.AllocsPerOp, q.TimesPortable.Hi = 3, 9
				}
				r.Results = append(r.Results, q)
			}
			n++
			return r, nil
		})
		if err != nil || n != len(c.times) {
			t.Errorf("%v: measured %d times, %v", c.times, n, err)
		}
		for i, q := range g.results {
			if q.verdict != c.want[i] || c.times[0][i] == allocates && !strings.Contains(q.message, "3 heap allocations") {
				t.Errorf("%v: %s: %v, %q, want %v", c.times, q.ISA, q.verdict, q.message, c.want[i])
			}
		}
	}
}

// TestFloorsFail: a wrong result is a failed check, and said.
func TestFloorsFail(t *testing.T) {
	g := check{failures: []string{"k f32 on avx2: far off"}}
	var out bytes.Buffer
	must.Do(g.write(&out))
	if err := g.verdict(); cli.ExitStatus("", err, io.Discard) != 1 || !strings.Contains(out.String(), "far off") {
		t.Errorf("%v\n%s", err, out.String())
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
		{filepath.Join(dir, "f.json"), "portable", "portable has no floors"},
		{dir, "", "not a regular file"},
		{filepath.Join(dir, "no", "f.json"), "", filepath.Join(dir, "no")},
	} {
		var measured bytes.Buffer
		err := command(t.Context(), Options{File: c.name, Record: true, Plan: measure.Plan{Progress: &cli.Progress{W: &measured}}}, "multiply", c.path, io.Discard)
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
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":-1}]}}}`:                                                "k f32 on avx2: times_portable is -1 and roofline_share 0, want more than 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32"}]}}}`:                                                                    "k f32 on avx2: times_portable is 0",
		`{"vocab":151936,"isas":{"avx2":{"floors":[{"kernel":"k","dtype":"f32","times_portable":1,"roofline_share":-1}]}}}`:                             "roofline_share -1",
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
	var recorded [recordings]measure.Results
	for i, x := range [recordings]float64{30, 10, 24.4} {
		of := func(x float64) bench.Estimate { return bench.Estimate{Median: x} }
		recorded[i].Results = []measure.Result{
			{Kernel: "k", DType: "f32", ISA: "avx2", Vocab: 1, TimesPortable: of(x), Share: of(x / 100)},
			{Kernel: "k", DType: "bf16", ISA: "avx2", TimesPortable: of(2 * x)},
		}
	}
	var f floorFile
	n := f.record(recorded, "this one")
	if got, want := f.ISAs["avx2"].Floors, []floor{{"k", "f32", 12, 0.12}, {"k", "bf16", 24, 0}}; n != 2 || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
