// Mutate says whether tests notice a wrong instruction. It changes one instruction of the assembly at a time, at
// random, in a copy of the module, and runs the tests of the root package, and of package kernels where those pass.
//
//	go run ./internal/test/mutate -n 50 -isa avx2
//
// For arm64, elsewhere, QEMU runs the tests inside of the root package alone, and nothing runs AVX-512 on a CPU that
// has none. It prints each change with what found it, and a table at the end. A change that survives either has no
// effect that a result can show, or needs another test. The same seed gives the same changes, as long as the assembly
// is the same.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight"
)

// A target is an instruction set: its files, and what runs a program for its CPU elsewhere.
type target struct {
	files    []string
	header   string // which each of them includes
	arch     string
	emulator string
}

var targets = map[string]target{
	"avx2":   {[]string{"kernels_amd64.s", "kernels_tokens_amd64.s"}, "exp2_amd64.h", "amd64", "qemu-x86_64-static"},
	"avx512": {[]string{"kernels_avx512_amd64.s", "kernels_tokens_avx512_amd64.s"}, "exp2_amd64.h", "amd64", ""},
	"neon":   {[]string{"kernels_arm64.s", "kernels_tokens_arm64.s"}, "neon_arm64.h", "arm64", "qemu-aarch64-static"},
}

// What found a change, in the order of the table.
var outcomes = []string{"does not build", "found by go test .", "found by go test ./kernels", "found by go vet .",
	"survives"}

func main() {
	n := flag.Int("n", 20, "how many `changes`")
	seed := flag.Uint64("seed", 1, "of the random changes")
	isa := flag.String("isa", "avx2", "whose assembly is changed: avx2, avx512 or neon")
	only := flag.String("only", "", "try only the changes of these `numbers`, as 3,17")
	flag.Parse()
	if err := run(*n, *seed, *isa, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64, isa, only string) error {
	t, ok := targets[isa]
	if !ok {
		return fmt.Errorf("there is no instruction set %q, only avx2, avx512 and neon", isa)
	}
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(dir); err != nil {
		return err
	}
	tests := &tester{target: t, dir: dir, emulated: !has(isa)}
	if tests.emulated && t.emulator == "" {
		fmt.Printf("No CPU for %s here: only tests that read the assembly, and go vet, can find something.\n", isa)
		tests.emulated, tests.readOnly = false, true
	}
	if err := tests.leaveOut(); err != nil {
		return err
	}
	var places []place
	for _, file := range t.files {
		found, err := read(file, t.header)
		if err != nil {
			return err
		}
		places = append(places, found...)
	}
	if err := tests.unchanged(); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 52))
	count := map[string]int{}
	for i := 1; i <= n; i++ {
		p := places[r.IntN(len(places))]
		kinds := p.changes()
		kind := kinds[r.IntN(len(kinds))]
		line := kind.lines[r.IntN(len(kind.lines))]
		if len(wanted) > 0 && !slices.Contains(wanted, fmt.Sprint(i)) {
			continue
		}
		outcome, by, err := tests.try(p, line)
		if err != nil {
			return err
		}
		count[outcome]++
		fmt.Printf("%d %s, %s, %s: `%s` as `%s`: %s %s\n", i, p.file, p.text, kind.name, p.code, code(line),
			outcome, by)
	}
	fmt.Printf("\n%s, seed %d\n", isa, seed)
	for _, o := range outcomes {
		fmt.Printf("%-28s%5d\n", o, count[o])
	}
	return nil
}

// has tells whether this CPU has the instruction set.
func has(isa string) bool {
	_, err := reweight.ParseISA(isa)
	return err == nil
}

// copyModule copies what git knows of the module in the working directory, or would add.
func copyModule(dir string) error {
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) { // removed, but not yet for git
			continue
		}
		to := filepath.Join(dir, name)
		if err := cmp.Or(err, os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, text, 0o666)); err != nil {
			return err
		}
	}
	return nil
}

// A tester runs the tests of the copy.
type tester struct {
	target
	dir      string // the copy
	inside   string // a file that leaves the tests outside of the root package out
	emulated bool
	readOnly bool          // nothing runs the assembly
	limit    time.Duration // for a command
}

// found begin what says that a test failed.
var found = []string{"--- FAIL", "fatal error:", "unexpected fault", "panic:", "SIG", "kernels"}

// leaveOut writes the file for the go command that leaves the tests outside of the root package out.
func (t *tester) leaveOut() error {
	tests, err := filepath.Glob(filepath.Join(t.dir, "*_test.go"))
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for _, file := range tests {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\npackage reweight_test\n")) ||
			bytes.HasPrefix(text, []byte("package reweight_test\n")) {
			replace[file] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	t.inside = filepath.Join(t.dir, "inside.json")
	return os.WriteFile(t.inside, text, 0o666)
}

// unchanged wants that the tests pass without a change: a failure would be taken for one that finds it.
// What takes much longer than they do does not end.
func (t *tester) unchanged() error {
	t.limit = time.Hour
	begin := time.Now()
	outcome, by, err := t.test()
	if err == nil && outcome != "survives" {
		err = fmt.Errorf("without a change: %s %s", outcome, by)
	}
	t.limit = 5*time.Minute + 5*time.Since(begin) // a machine that is busy later is no reason to say so
	return err
}

// try runs the tests with a line in the place of another.
func (t *tester) try(p place, line string) (outcome, by string, err error) {
	file := filepath.Join(t.dir, p.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	lines := slices.Clone(p.lines)
	lines[p.line] = line
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
		return "", "", err
	}
	outcome, by, err = t.test()
	return outcome, by, cmp.Or(err, os.WriteFile(file, text, 0o666))
}

// test runs the tests, and says what fails.
func (t *tester) test() (outcome, by string, err error) {
	binary := filepath.Join(t.dir, "root.test")
	root := []string{binary, "-test.failfast", "-test.short"}
	kernels := []string{"go", "test", "-failfast", "-short", "./kernels", "-gpu", "none"}
	if t.emulated {
		root = append([]string{t.emulator}, root...)
	}
	// First the tests inside of the package alone, which find most: their program is built sooner.
	overlays := []string{t.inside, ""}
	if t.emulated { // where the others would take hours
		overlays = overlays[:1]
	}
	for _, overlay := range overlays {
		if out, failed := t.command("go", "test", "-overlay="+overlay, "-c", "-o", binary, "."); failed {
			return outcomes[0], firstLine(out, "kernels"), nil
		}
		if out, failed := t.command(root...); failed {
			return outcomes[1], firstLine(out, found...), nil
		}
	}
	for i, args := range [][]string{kernels, {"go", "vet", "."}} {
		if i == 0 && (t.readOnly || t.emulated) {
			continue
		}
		if out, failed := t.command(args...); failed {
			return outcomes[2+i], firstLine(out, found...), nil
		}
	}
	return outcomes[4], "", nil
}

// command runs a command in the copy, and tells whether it failed or did not end.
func (t *tester) command(args ...string) (out string, failed bool) {
	ctx, cancel := context.WithTimeout(context.Background(), t.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = t.dir, append(os.Environ(), "GOARCH="+t.arch), time.Second
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	if ctx.Err() != nil {
		return "panic: it does not end", true
	}
	return b.String(), err != nil
}

// firstLine returns the first line that has one of the words, of the words that come first.
func firstLine(text string, words ...string) string {
	for _, word := range words {
		for line := range strings.Lines(text) {
			if strings.Contains(line, word) {
				return "(" + strings.TrimSpace(line) + ")"
			}
		}
	}
	return ""
}

// A place is an instruction of a file, or the use of a macro.
type place struct {
	file, text string // text is the function, or the macro in whose definition it is
	lines      []string
	line       int
	code       string
	defined    map[string]string // what names stand for
	constants  []string          // of the file, as operands
}

var (
	define      = regexp.MustCompile(`^#define (\w+) ([$\w]+)(?:\s|$)`)
	undef       = regexp.MustCompile(`^#undef (\w+)`)
	macro       = regexp.MustCompile(`^#define (\w+)(?:\([^)]*\))? (?:[A-Z]\w* |\\)`)
	function    = regexp.MustCompile(`^TEXT ·(\w+)`)
	instruction = regexp.MustCompile(`^(\s+(?:#define \w+\([^)]*\) )?)([A-Z][A-Z0-9]*\b\w*)(\s+[^ ].*|\(.*\))?$`)
	register    = regexp.MustCompile(`^(?:([XYZKQ])\d+|(AX|BX|CX|DX|SI|DI|R\d+))$`)
	number      = regexp.MustCompile(`^\$(-?\d+|0x[0-9a-fA-F]+)$`)
	named       = regexp.MustCompile(`^\$(\w+|\(.*\))$`)
	memory      = regexp.MustCompile(`^([^()]*|\(.*\))\((\w+)\)$`)
	constant    = regexp.MustCompile(`^(\w+<>\(SB\)|CONST_\w+)$`)
	word        = regexp.MustCompile(`\b\w+\b`)
)

// untouched are directives, and instructions without an effect on results.
var untouched = []string{"TEXT", "DATA", "GLOBL", "VECTOR", "PAIR", "ONCE", "RET", "WORD", "PREFETCHT0", "PREFETCHT1",
	"PREFETCHNTA", "PRFM", "PREFETCH", "NOP", "PCALIGN"}

// read returns the instructions of a file, with its header in the place of the line that includes it.
func read(file, header string) ([]place, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	included, err := os.ReadFile(header)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.Replace(string(text), "#include \""+header+"\"\n", string(included)+"\n", 1), "\n")
	var places []place
	var constants []string
	for _, line := range lines {
		for _, o := range operands(arguments(code(line))) {
			if constant.MatchString(o) && !slices.Contains(constants, o) {
				constants = append(constants, o)
			}
		}
	}
	defined, in, using := map[string]string{}, "", used(lines)
	for i, line := range lines {
		if m := define.FindStringSubmatch(line); m != nil {
			defined[m[1]] = m[2]
		}
		if m := undef.FindStringSubmatch(line); m != nil {
			delete(defined, m[1])
		}
		if m := macro.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		if m := function.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		p := place{file: file, text: in, lines: lines, line: i, code: code(line), constants: constants}
		m := instruction.FindStringSubmatch(" " + p.code)
		if m == nil || strings.HasSuffix(p.code, ":") || slices.Contains(untouched, m[2]) {
			continue
		}
		if !using[in] {
			continue
		}
		p.defined = make(map[string]string, len(defined))
		for k, v := range defined {
			p.defined[k] = v
		}
		places = append(places, p)
	}
	return places, nil
}

// used returns the functions, and the macros that they use, those inside of macros too: a header has others as well.
func used(lines []string) map[string]bool {
	words, all, in := map[string][]string{}, map[string]bool{}, ""
	var next []string
	for _, line := range lines {
		if m := macro.FindStringSubmatch(line); m != nil {
			in = m[1]
		}
		if m := function.FindStringSubmatch(line); m != nil {
			in = m[1]
			next = append(next, in)
		}
		words[in] = append(words[in], word.FindAllString(code(line), -1)...)
	}
	for len(next) > 0 {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if !all[name] {
			all[name] = true
			next = append(next, words[name]...)
		}
	}
	return all
}

// code returns a line without its comment, the sign that the macro goes on, and space around it.
func code(line string) string {
	line, _, _ = strings.Cut(line, "//")
	line = strings.TrimSpace(line)
	line = strings.TrimSpace(strings.TrimSuffix(line, "\\"))
	return strings.TrimSpace(strings.TrimSuffix(line, ";"))
}

// arguments returns what stands after the operation.
func arguments(code string) string {
	m := instruction.FindStringSubmatch(" " + code)
	if m == nil {
		return ""
	}
	if args, is := strings.CutPrefix(m[3], "("); is {
		return strings.TrimSuffix(args, ")")
	}
	return strings.TrimSpace(m[3])
}

// operands splits arguments at the commas that are in no parentheses.
func operands(args string) []string {
	if args == "" {
		return nil
	}
	var all []string
	depth, from := 0, 0
	for i, c := range args {
		switch c {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case ',':
			if depth == 0 {
				all = append(all, strings.TrimSpace(args[from:i]))
				from = i + 1
			}
		}
	}
	return append(all, strings.TrimSpace(args[from:]))
}

// A change is a kind of change, with the lines that it may make.
type change struct {
	name  string
	lines []string
}

// changes returns the changes that an instruction allows; at least that it is left out.
func (p *place) changes() []change {
	line := p.lines[p.line]
	m := instruction.FindStringSubmatch(" " + p.code)
	op, args := m[2], arguments(p.code)
	ops := operands(args)
	with := func(o string, changed []string) string {
		was := strings.TrimSpace(m[2] + m[3])
		is := o + strings.Replace(m[3], args, strings.Join(changed, ", "), 1)
		return strings.Replace(line, was, strings.TrimSpace(is), 1)
	}
	var siblings, swapped, immediates, registers []string
	for _, group := range relatives {
		if slices.Contains(group, op) {
			for _, o := range group {
				if o != op {
					siblings = append(siblings, with(o, ops))
				}
			}
		}
	}
	for i := 0; i+1 < len(ops); i++ {
		if ops[i] == ops[i+1] || i == 0 &&
			slices.ContainsFunc(commuting, func(c string) bool { return strings.HasPrefix(op, c) }) &&
			!strings.Contains(op, "ANDN") && len(ops) > 2 {
			continue
		}
		b := slices.Clone(ops)
		b[i], b[i+1] = b[i+1], b[i]
		swapped = append(swapped, with(op, b))
	}
	for i, o := range ops {
		for _, other := range p.values(o) {
			b := slices.Clone(ops)
			b[i] = other
			immediates = append(immediates, with(op, b))
		}
		for _, other := range p.registers(o) {
			b := slices.Clone(ops)
			b[i] = other
			registers = append(registers, with(op, b))
		}
	}
	all := []change{{"left out", []string{strings.Replace(line, strings.TrimSpace(m[2]+m[3]), "", 1)}}}
	for _, c := range []change{{"another instruction", siblings}, {"operands swapped", swapped},
		{"another value", immediates}, {"another register", registers}} {
		if len(c.lines) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// values returns other immediates, addresses or constants for an operand.
func (p *place) values(o string) []string {
	is := o
	if v, ok := p.defined[o]; ok {
		is = v
	}
	if m := number.FindStringSubmatch(is); m != nil {
		return []string{"$(" + m[1] + "+1)", "$(" + m[1] + "^2)"}
	}
	if m := named.FindStringSubmatch(is); m != nil {
		return []string{"$(" + m[1] + "+1)"}
	}
	if constant.MatchString(o) {
		return slices.DeleteFunc(slices.Clone(p.constants), func(c string) bool { return c == o })
	}
	if m := memory.FindStringSubmatch(o); m != nil && m[2] != "FP" && m[2] != "SB" {
		if m[2] == "SP" {
			return []string{strings.Replace(o, "(SP)", "+4(SP)", 1)}
		}
		return []string{fmt.Sprintf("(%s+4)(%s)", zeroIfEmpty(m[1]), m[2])}
	}
	return nil
}

func zeroIfEmpty(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// registers returns an operand with each of its registers as each other one of its kind.
func (p *place) registers(o string) []string {
	var all []string
	for _, at := range word.FindAllStringIndex(o, -1) {
		name := o[at[0]:at[1]]
		is := name
		if v, ok := p.defined[name]; ok {
			is = v
		}
		m := register.FindStringSubmatch(is)
		if m == nil {
			continue
		}
		for _, other := range alike(m[1], strings.HasSuffix(p.file, "_arm64.s")) {
			if other != is {
				all = append(all, o[:at[0]]+other+o[at[1]:])
			}
		}
	}
	return all
}

// alike are the registers whose names begin so; the integer ones where that is empty.
func alike(prefix string, arm bool) []string {
	n := map[string]int{"X": 16, "Y": 16, "Z": 32, "K": 8, "Q": 32, "": 14}[prefix]
	var all []string
	for i := range n {
		switch {
		case prefix != "":
			all = append(all, fmt.Sprint(prefix, i))
		case arm:
			all = append(all, fmt.Sprint("R", i))
		case i < 6:
			all = append(all, []string{"AX", "BX", "CX", "DX", "SI", "DI"}[i])
		default:
			all = append(all, fmt.Sprint("R", i+2))
		}
	}
	return slices.DeleteFunc(all, func(r string) bool { return r == "R14" || r == "R15" })
}

// commuting begin instructions whose first two operands may be in any order.
var commuting = []string{"VADDP", "VMULP", "VPADD", "VPAND", "VPOR", "VXORP", "VORP", "VANDP", "VPXOR", "VPCMPEQ",
	"VFMADD231",
	"VFADD", "VFMUL", "VFMLA", "VAND", "VORR", "VEOR", "VADD", "VFCMEQ", "VFMAX", "VFMIN", "TESTQ", "TESTL", "TESTB"}

// relatives are instructions that a slip may write for each other.
var relatives = [][]string{
	{"VADDPS", "VSUBPS", "VMULPS"}, {"VADDPD", "VSUBPD", "VMULPD"}, {"VMAXPS", "VMINPS"}, {"VMAXSS", "VMINSS"},
	{"VFMADD213PS", "VFMADD231PS", "VFMADD132PS", "VFMSUB213PS", "VFNMADD213PS"},
	{"VFMADD231PS", "VFMSUB231PS", "VFNMADD231PS"}, {"VPADDD", "VPSUBD"}, {"VPADDQ", "VPSUBQ"},
	{"VPAND", "VPANDN", "VPOR"}, {"VANDPS", "VANDNPS", "VORPS"}, {"VORPS", "VANDPS", "VXORPS"}, {"VANDNPD", "VANDPD"},
	{"VPSLLD", "VPSRLD"}, {"VPSRLD", "VPSRAD"}, {"VPMINSD", "VPMAXSD", "VPMINUD"}, {"VCVTPS2DQ", "VCVTTPS2DQ"},
	{"VPMOVZXWD", "VPMOVSXWD"}, {"VPMOVZXBD", "VPMOVSXBD"}, {"VPMOVZXBQ", "VPMOVSXBQ"}, {"VPACKUSDW", "VPACKSSDW"},
	{"VPCMPEQD", "VPCMPGTD"}, {"VPCMPEQQ", "VPCMPGTQ"}, {"VBROADCASTSS", "VMOVSS"}, {"VMOVMSKPS", "VMOVMSKPD"},
	{"KORW", "KANDW"}, {"KANDW", "KORW", "KXORW"}, {"KADDW", "KORW"},
	{"VADDSD", "VSUBSD"}, {"VADDSS", "VSUBSS"}, {"VMULSS", "VADDSS"},
	{"ADDQ", "SUBQ"}, {"ADDL", "SUBL"}, {"DECQ", "INCQ"}, {"SHLQ", "SHRQ"}, {"SUBQ", "ADDQ", "CMPQ"}, {"MOVQ", "LEAQ"},
	{"MOVLQSX", "MOVLQZX"}, {"MOVL", "MOVQ"}, {"CMOVQGT", "CMOVQLT", "CMOVQGE"}, {"CMOVQLT", "CMOVQGT"}, {"ANDQ", "ORQ"},
	{"JEQ", "JNE"}, {"JNE", "JEQ"}, {"JLT", "JLE", "JGE"}, {"JGT", "JGE", "JLE"}, {"JLE", "JLT"}, {"JGE", "JGT", "JLT"},
	{"JCS", "JCC", "JLS"}, {"JCC", "JCS"}, {"JHI", "JCC", "JLS"}, {"JLS", "JHI"},
	{"VFADD_S4", "VFSUB_S4", "VFMUL_S4"}, {"VFADD_D2", "VFSUB_D2", "VFMUL_D2"}, {"VFMAX_S4", "VFMIN_S4"},
	{"VFCMEQ_S4", "VFCMGT_S4"}, {"VFCVTL_S4", "VFCVTL2_S4"}, {"VFCVTL_D2", "VFCVTL2_D2"}, {"VFMAXV_S4", "VFMINV_S4"},
	{"VBIT_B16", "VBIF_B16"}, {"VAND_B16", "VORR_B16", "VEOR_B16"}, {"VFMLA_S4", "VFMUL_S4"}, {"VADD_S4", "VFADD_S4"},
	{"FOUR", "FOUR_N", "FOUR_M"}, {"TO_EXPONENT", "CUT_BF16"},
	{"ADD", "SUB"}, {"SUB", "ADD"}, {"SUBS", "ADDS"}, {"LSL", "LSR"}, {"BEQ", "BNE"}, {"BGT", "BGE", "BLE"},
	{"BLT", "BLE", "BGE"}, {"BLE", "BLT"}, {"BGE", "BGT"}, {"CBZ", "CBNZ"}, {"CBNZ", "CBZ"}, {"BHI", "BLS"}, {"BLS", "BHI"},
	{"TBZ", "TBNZ"}, {"TBNZ", "TBZ"}, {"MOVBU", "MOVB"}, {"MOVWU", "MOVW"}, {"FADDD", "FSUBD"}, {"FMAXS", "FMINS"},
}
