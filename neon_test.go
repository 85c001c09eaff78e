package reweight

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

// neonWord matches the definition of an instruction that is made of its fields.
var neonWord = regexp.MustCompile(`(?m)^#define (V\w+)\((.*?)\) (?:THREE_SAME|TWO_REG)\(.*$`)

// TestWords assembles the NEON kernels and decodes every word that stands for an
// instruction: it must be what its macro's name says, on the registers that the
// macro was given. Which those are comes from assembling the same source once
// more, with macros that make words of their own number and their arguments.
func TestWords(t *testing.T) {
	header, err := os.ReadFile("neon_arm64.h")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 32 { // the three ways of writing a register must agree
		line := fmt.Sprintf("\n#define Q%d(pick) pick(%[1]d, F%[1]d, V%[1]d, Q%d)\n", i, (i+1)%32)
		if !strings.Contains(string(header), line) {
			t.Errorf("neon_arm64.h lacks the line %q", line)
		}
	}
	var macros []neonMacro
	tracing := neonWord.ReplaceAllStringFunc(string(header), func(line string) string {
		match := neonWord.FindStringSubmatch(line)
		m := neonMacro{match[1], strings.Split(match[2], ", ")}
		macros = append(macros, m)
		return fmt.Sprintf("#define %s(%s) WORD $%s", m.name, match[2], m.trace(len(macros)))
	})
	words := assembleNEON(t, string(header))
	traces := assembleNEON(t, tracing)
	if len(words) == 0 || len(words) != len(traces) {
		t.Fatalf("%d words, %d with the tracing header", len(words), len(traces))
	}
	used := make([]bool, len(macros))
	for i, w := range words {
		number := int(traces[i] >> 15)
		if w == traces[i] || number == 0 || number > len(macros) {
			t.Errorf("word %#x is not made by a macro of neon_arm64.h", w)
			continue
		}
		used[number-1] = true
		want := macros[number-1].decoded(traces[i])
		inst, err := arm64asm.Decode(binary.LittleEndian.AppendUint32(nil, w))
		if got := inst.String(); err != nil || got != want {
			t.Errorf("word %#x is %s (error %v), want %s", w, got, err, want)
		}
	}
	for i, m := range macros {
		if !used[i] {
			t.Errorf("%s is used nowhere", m.name)
		}
	}
}

// A neonMacro is VFADD_S4, say, with the names of its parameters.
type neonMacro struct {
	name   string
	params []string
}

// trace is the expression of a word that holds the macro's number, from 1, and
// its arguments, the destination in the lowest 5 bits.
func (m neonMacro) trace(number int) string {
	word := strconv.Itoa(number << 15)
	for i, p := range m.params {
		word += fmt.Sprintf(" | N(%s)<<%d", p, 5*(len(m.params)-1-i))
	}
	return "(" + word + ")"
}

// decoded is what the decoder should say of the macro with these arguments. It
// has the registers in Arm's order, destination first.
func (m neonMacro) decoded(trace uint32) string {
	mnemonic, arrangement, _ := strings.Cut(m.name, "_")
	mnemonic = strings.TrimPrefix(mnemonic, "V")
	to := arrangement[1:] + arrangement[:1] // S4 is 4S there
	from := to
	switch m.name {
	case "VFCVTL_S4":
		from = "4H"
	case "VFCVTL2_S4":
		from = "8H"
	case "VFCVTL_D2":
		from = "2S"
	case "VFCVTL2_D2":
		from = "4S"
	}
	operands := make([]string, len(m.params))
	for i := range operands {
		size := from
		if i == 0 {
			size = to
		}
		operands[i] = fmt.Sprintf("V%d.%s", trace>>(5*i)&31, size)
	}
	if len(m.params) == 2 && strings.HasSuffix(mnemonic, "V") { // across lanes, into a scalar
		operands[0] = fmt.Sprintf("S%d", trace&31)
	}
	return mnemonic + " " + strings.Join(operands, ", ")
}

// assembleNEON returns the words that WORD put into the object code of the NEON
// kernels, built with that header in place of neon_arm64.h.
func assembleNEON(t *testing.T, header string) []uint32 {
	t.Helper()
	gobin, err := exec.LookPath("go")
	if err != nil {
		t.Skip(err)
	}
	files, err := filepath.Glob("*_arm64.s")
	if err != nil || len(files) == 0 {
		t.Fatalf("files %q, error %v", files, err)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for _, name := range files {
		const include = "#include \"neon_arm64.h\"\n"
		source, err := os.ReadFile(name)
		if err != nil || strings.Count(string(source), include) != 1 {
			t.Fatalf("%s does not include neon_arm64.h once (error %v)", name, err)
		}
		original, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = filepath.Join(dir, name)
		changed := strings.Replace(string(source), include, header, 1)
		if err := os.WriteFile(replace[original], []byte(changed), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gobin, "build", "-overlay", filepath.Join(dir, "overlay.json"), "-asmflags=-S", ".")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0", "GOFLAGS=")
	listing, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, listing)
	}
	// For each function the listing has a line per instruction, then its code in
	// lines of up to 16 bytes; both begin with an offset.
	var words []uint32
	var offsets []int
	var code []byte
	take := func() {
		for _, o := range offsets {
			words = append(words, binary.LittleEndian.Uint32(code[o:]))
		}
		offsets, code = nil, nil
	}
	for line := range strings.Lines(string(listing)) {
		fields := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, "\t0x"):
			take()
		case len(fields[1]) > 2 && slices.Contains(fields, "WORD"):
			o, err := strconv.ParseInt(fields[1], 10, 32)
			if err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			offsets = append(offsets, int(o))
		case len(fields[1]) == 2:
			_, hex, _ := strings.Cut(line, " ")
			for _, f := range strings.Fields(hex[:3*16]) { // then the same as text
				b, err := strconv.ParseUint(f, 16, 8)
				if err != nil {
					t.Fatalf("%v in %q", err, line)
				}
				code = append(code, byte(b))
			}
		}
	}
	take()
	return words
}
