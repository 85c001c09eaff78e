package gpuslices

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/internal/test/randomcalls"
)

var (
	mutations    = flag.Int("mutations", 0, "how many mutations of the PTX TestMutations tries")
	mutationSeed = flag.Uint64("mutations.seed", 1, "of TestMutations")
	mutationIn   = flag.String("mutations.in", "", "the kernel that TestMutations changes; \"\" is any")
)

const (
	// roundsOfMutant is how often each trial that launches the kernel is repeated until a
	// mutation counts as one that survives.
	roundsOfMutant = 600

	// mostSteps is what a launch may run, which is some times what the longest of the
	// trials runs: a mutation may make a loop without end.
	mostSteps = 200_000_000
)

// TestMutations changes an instruction of the PTX at a time, at random, and runs the
// trials of the methods that launch its kernel: do they notice?
//
//	go test ./gpu/gpuslices -run TestMutations -mutations 100 -v -timeout 2h
//
// A mutation is caught if the interpreter refuses the text, or if within roundsOfMutant
// rounds of a trial a kernel fails, does not end, writes outside of its arrays or to an
// input, or if a result or an error is not that of plain Go: any bit of a result counts,
// and for rows of logits any of the float64 behind it. Other mutations survive. They are
// printed: each either changes no result that there can be, or needs another trial.
//
// Places are drawn evenly among kernels, and within a kernel among its instructions.
// mutants says which changes are not made because they could have no effect.
func TestMutations(t *testing.T) {
	if *mutations == 0 {
		t.Skip("-mutations is 0")
	}
	modules := must.Get(device.PTX())
	good := must.Get(watch(modules, *mutationSeed))
	launchedBy := methodsOfKernels(good)
	must.Get(good.takeBehind())
	places := placesOf(modules)
	names := slices.Sorted(maps.Keys(places))
	r := rand.New(rand.NewPCG(*mutationSeed, 11))
	caught, refused := 0, 0
	for done := 0; done < *mutations; {
		name := names[r.IntN(len(names))]
		if *mutationIn != "" {
			name = *mutationIn
		}
		p := places[name][r.IntN(len(places[name]))]
		lines := strings.Split(modules[p.module], "\n")
		changed := mutants(lines[p.line])
		if len(changed) == 0 || len(launchedBy[name]) == 0 {
			continue
		}
		done++
		m := changed[r.IntN(len(changed))]
		was := strings.TrimSpace(lines[p.line])
		lines[p.line] = m
		mutated := maps.Clone(modules)
		mutated[p.module] = strings.Join(lines, "\n")
		err := tryMutant(mutated, good, name, launchedBy[name], uint64(done))
		switch {
		case errors.Is(err, errTrial):
			t.Fatal(err)
		case err == nil:
			t.Logf("%d SURVIVES: %s, line %d of %s: `%s` as `%s`", done, name, p.line+1, p.module, was,
				strings.TrimSpace(m))
		case strings.HasPrefix(err.Error(), "refused"):
			refused++
			caught++
		default:
			caught++
		}
	}
	t.Logf("%d of %d mutations are caught, %d of these because the interpreter refuses the text", caught, *mutations, refused)
	if caught*100 < *mutations*80 { // more than those that can have no effect
		t.Error("fewer than 80 of 100 are caught")
	}
}

// A place is a line of a module.
type place struct {
	module string
	line   int
}

var entryName = regexp.MustCompile(`^\.visible \.entry (\w+)\(`)

// placesOf returns the lines of instructions, by the kernel.
func placesOf(modules map[string]string) map[string][]place {
	places := map[string][]place{}
	for module, text := range modules {
		name := ""
		for i, line := range strings.Split(text, "\n") {
			if m := entryName.FindStringSubmatch(line); m != nil {
				name = m[1]
			}
			if name != "" && len(mutants(line)) > 0 {
				places[name] = append(places[name], place{module, i})
			}
		}
	}
	return places
}

// errTrial is of a trial that fails without a mutation: nothing is caught by it.
var errTrial = errors.New("a trial fails without a mutation")

// tryMutant runs the trials of the methods on the modules, and returns what is wrong.
// good is what the modules are compared with where that is not the CPU. Of trials on
// rows, it runs those that launch the kernel.
func tryMutant(modules map[string]string, good *watched, kernel string, methods []string, seed uint64) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	m, err := watch(modules, seed)
	if err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	cpu := reweight.Workspace{ISA: reweight.Portable, Workers: 1}
	for _, tr := range randomcalls.All() {
		if !slices.Contains(methods, tr.Method) {
			continue
		}
		for round, rounds := uint64(0), 0; rounds < roundsOfMutant; round++ {
			if on := rowKernel(tr.Method, draws(round)); on != "" && on != kernel {
				continue
			}
			rounds++
			if _, err := compare(tr, round, m.runners[round%2], &cpu); err != nil {
				if _, err := compare(tr, round, good.runners[round%2], &cpu); err != nil {
					return fmt.Errorf("%w: %s, seed %d: %w", errTrial, tr.Method, round, err)
				}
				_, clearErr := good.takeBehind()
				return errors.Join(err, clearErr)
			}
			if !slices.Contains(methodsOnRows, tr.Method) {
				continue
			}
			// What is behind the results has 64 bits: a wrong one may not show in them.
			tr.Run(draws(round), good.runners[round%2])
			wantBehind, err := good.takeBehind()
			if err != nil {
				return err
			}
			if gotBehind, err := m.takeBehind(); err != nil {
				return err
			} else if err := randomcalls.Differ(randomcalls.Outcome{gotBehind},
				randomcalls.Outcome{wantBehind}); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowKernel returns the kernel on rows that a trial launches, or "" if it launches none.
func rowKernel(method string, d *randomcalls.Draws) string {
	name := ""
	switch method {
	case "TokenStats":
		name = "token_stats_"
		if d.Squares() {
			name += "squares_"
		}
		name += [...]string{"f32", "bf16", "f16"}[d.Format(3)]
	case "RowGradient":
		name = "row_gradient_" + [...]string{"f32", "bf16"}[d.Format(2)]
	default:
		return ""
	}
	if d.Tempered() {
		name += "_tempered"
	}
	return name
}

// methodsOnRows are those whose kernels have a place for the float64 behind results.
var methodsOnRows = []string{"TokenStats", "RowGradient"}

// watched is the interpreter with runners on it. Tests of package gpu compare the float64
// behind the results of rows with the CPU's.
type watched struct {
	*testgpu.Watched // Behind is [randomcalls.MostRows * 4] float64
	runners          [2]*Runner
}

func watch(modules map[string]string, seed uint64) (*watched, error) {
	interpreter, err := ptx.Open(modules, ptx.Options{Seed: seed, Steps: mostSteps})
	if err != nil {
		return nil, err
	}
	w := &watched{Watched: testgpu.Watch(interpreter)}
	dev := gpu.NewDevice(w, nil)
	if w.Behind, err = w.Alloc(randomcalls.MostRows * 4 * 8); err != nil {
		return nil, err
	}
	if err := w.Fill(w.Behind, 0, randomcalls.MostRows*4*8, 0); err != nil {
		return nil, err
	}
	for i, p := range []Placement{Amid, AtEnd} {
		if w.runners[i], err = NewPlaced(dev, p); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// takeBehind returns what kernels on rows have written behind their results, and clears
// it.
func (w *watched) takeBehind() ([]float64, error) {
	x := make([]float64, randomcalls.MostRows*4)
	if err := w.Download(raw.Bytes(x), w.Behind, 0); err != nil {
		return nil, err
	}
	return x, w.Fill(w.Behind, 0, randomcalls.MostRows*4*8, 0)
}

// methodsOfKernels returns the methods whose trials launch each kernel.
func methodsOfKernels(w *watched) map[string][]string {
	methods := map[string][]string{}
	for _, tr := range randomcalls.All() {
		clear(w.Launched)
		for seed := range uint64(100) {
			tr.Run(draws(seed), w.runners[0])
		}
		for name := range w.Launched {
			methods[name] = append(methods[name], tr.Method)
		}
	}
	return methods
}

// swaps are what operations are changed to. Signed for unsigned is rare among them:
// most integers are counts, for which the two are the same.
var swaps = []struct{ from, to string }{
	{"add.", "sub."}, {"sub.", "add."}, {"mul.rn.", "add.rn."}, {"div.rn.", "mul.rn."}, {"mul.lo.", "add."}, {"mad.lo.", "mul.lo."},
	{"max.", "min."}, {"min.", "max."}, {"max.NaN.", "max."}, {"min.NaN.", "min."},
	{"and.", "or."}, {"or.", "and."}, {"xor.", "or."}, {"not.", "mov."}, {"shl.", "shr."}, {"shr.", "shl."}, {"neg.", "mov."},
	{"fma.rn.", "mul.rn."}, {"popc.b32", "mov.b32"},
	{"cvt.rni.", "cvt.rzi."}, {"cvt.s64.s32", "cvt.u64.u32"},
	{"setp.lt", "setp.le"}, {"setp.le", "setp.lt"}, {"setp.gt", "setp.ge"}, {"setp.ge", "setp.gt"}, {"setp.lt", "setp.gt"}, {"setp.eq", "setp.ne"}, {"setp.ne", "setp.eq"},
	{"setp.ltu", "setp.lt"}, {"setp.leu", "setp.ltu"}, {"setp.geu", "setp.ge"}, {"setp.gtu", "setp.geu"}, {"setp.nan", "setp.num"},
	{"shfl.sync.bfly", "shfl.sync.idx"}, {"shfl.sync.idx", "shfl.sync.bfly"}, {"vote.sync.any", "vote.sync.all"}, {"vote.sync.all", "vote.sync.any"},
	{"atom.global.min.u64", "atom.global.max.u64"}, {"atom.global.add", "atom.global.max"},
	{"ld.global.s32", "ld.global.u32"}, {"ld.global.u8", "ld.global.s8"},
	{"cp.async.wait_group 0", "cp.async.wait_group 1"}, {"cp.async.wait_group 1", "cp.async.wait_group 2"},
}

// isOneValue reports whether a swap would change what becomes of one value only: of a
// float64 that equals a constant, or of a zero's sign.
func isOneValue(op, to, line string) bool {
	equality := false // of < and <=, for one
	if was, found := strings.CutPrefix(op, "setp."); found && strings.HasSuffix(op, ".f64") &&
		float64s.MatchString(line) {
		was, _, _ = strings.Cut(was, ".")
		is, _, _ := strings.Cut(strings.TrimPrefix(to, "setp."), ".")
		equality = len(is) == len(was) && is[0] == was[0]
	}
	zero := strings.HasPrefix(op, "add.rn.f32") && strings.HasSuffix(line, ", 0f00000000;")
	return equality || zero
}

var (
	instruction = regexp.MustCompile(`^\t(?:@!?%p\d+ )?\t*([a-z][\w.]*)(?:\s+(.*))?;$`)
	offset      = regexp.MustCompile(`\+(-?\d+)\]`)
	noOffset    = regexp.MustCompile(`\[(%rd?\d+)\]`)
	immediate   = regexp.MustCompile(`, (-?\d+)(,|$)`)
	float32s    = regexp.MustCompile(`0f([0-9A-F]{8})`)
	float64s    = regexp.MustCompile(`0d([0-9A-F]{16})`)
	register    = regexp.MustCompile(`%[a-z]+`)
)

// mutants returns the line with its instruction changed in each of the ways that may
// change its effect.
func mutants(line string) []string {
	m := instruction.FindStringSubmatch(line)
	if m == nil || strings.HasPrefix(m[1], "bra") && !strings.Contains(line, "@") || m[1] == "ret" {
		return nil
	}
	op := m[1]
	var all []string
	add := func(changed string) {
		if changed != line {
			all = append(all, changed)
		}
	}
	for _, s := range swaps {
		if strings.HasPrefix(op+" "+m[2], s.from) && !isOneValue(op, strings.Replace(op, s.from, s.to, 1), line) {
			add(strings.Replace(line, s.from, s.to, 1))
		}
	}
	if strings.HasPrefix(op, "bar.") || strings.HasPrefix(op, "cp.async") || strings.HasPrefix(op, "st.") ||
		strings.HasPrefix(op, "atom.") && !strings.Contains(op, "cas") {
		add("") // dropped
	}
	if strings.Contains(line, ".rn.") {
		add(strings.Replace(line, ".rn.", ".rz.", 1))
	}
	if strings.HasPrefix(line, "\t@!") {
		add(strings.Replace(line, "@!", "@", 1))
	} else if strings.HasPrefix(line, "\t@") {
		add(strings.Replace(line, "@", "@!", 1))
	}
	// Addresses: another element.
	size := "4"
	if strings.Contains(op, "64") {
		size = "8"
	}
	for _, suffix := range []string{"8", "16"} {
		if strings.HasSuffix(op, ".u"+suffix) || strings.HasSuffix(op, ".b"+suffix) {
			size = map[string]string{"8": "1", "16": "2"}[suffix]
		}
	}
	if strings.HasPrefix(op, "cp.async") || strings.Contains(op, ".v4") {
		size = "16"
	}
	step, _ := strconv.Atoi(size)
	if strings.Contains(line, "[") {
		if f := offset.FindStringSubmatch(line); f != nil {
			n, _ := strconv.Atoi(f[1])
			add(strings.Replace(line, f[0], fmt.Sprintf("+%d]", n+step), 1))
			add(strings.Replace(line, f[0], fmt.Sprintf("+%d]", n-step), 1))
		} else if f := noOffset.FindStringSubmatch(line); f != nil {
			add(strings.Replace(line, f[0], fmt.Sprintf("[%s+%d]", f[1], step), 1))
		}
	} else if f := immediate.FindStringSubmatchIndex(line[:len(line)-1]); f != nil {
		n, err := strconv.ParseInt(line[f[2]:f[3]], 10, 64)
		if err == nil {
			others := []int64{n + 1, n - 1, n ^ 2}
			if strings.HasPrefix(op, "shfl.sync.bfly") { // most other masks meet all lanes as well
				others = []int64{n - 1}
			}
			for _, other := range others {
				add(line[:f[2]] + strconv.FormatInt(other, 10) + line[f[3]:])
			}
		}
	}
	// Constants: another bit, and not the lowest ones of a limit or of 0. The lower bits of
	// a float64 are below what is left of it in any result, which mostly is a float32.
	for _, bit := range []int{4, 12, 18} {
		limit := strings.HasPrefix(op, "setp") && bit == 4
		if f := float32s.FindStringSubmatch(line); f != nil && !limit {
			n, _ := strconv.ParseUint(f[1], 16, 32)
			if n == 0 {
				n = 0x3f800000
			}
			if n&0x7fffffff > 0x7f800000 {
				continue // every NaN is one
			}
			add(strings.Replace(line, f[0], fmt.Sprintf("0f%08X", n^1<<bit), 1))
		}
		if f := float64s.FindStringSubmatch(line); f != nil && !limit {
			n, _ := strconv.ParseUint(f[1], 16, 64)
			if n == 0 {
				n = 0x3ff0000000000000
			}
			if n&(1<<63-1) > 0x7ff<<52 {
				continue
			}
			add(strings.Replace(line, f[0], fmt.Sprintf("0d%016X", n^1<<(24+bit)), 1))
		}
	}
	// Operands in another order, where the order counts and their kinds are the same.
	if head, args, ok := strings.Cut(strings.TrimSuffix(line, ";"), "\t%"); ok && !strings.ContainsAny(args, "[{") &&
		!strings.HasPrefix(op, "shfl") {
		a := strings.Split("%"+args, ", ")
		commutes := []string{"add.", "mul.", "and.", "or.", "xor.", "max.", "min.", "setp.eq", "setp.ne", "setp.nan",
			"setp.neu"}
		same := func(i, j int) bool { return a[i] != a[j] && register.FindString(a[i]) == register.FindString(a[j]) }
		for i := 1; i+1 < len(a); i++ {
			if same(i, i+1) && (i > 1 || !slices.ContainsFunc(commutes,
				func(c string) bool { return strings.HasPrefix(op, c) }) && !strings.HasPrefix(op, "fma")) {
				b := slices.Clone(a)
				b[i], b[i+1] = b[i+1], b[i]
				add(head + "\t" + strings.Join(b, ", ") + ";")
			}
		}
	}
	return all
}
