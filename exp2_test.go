package reweight

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestConstantsAMD64 holds the float32 constants of exp2_amd64.h against those that
// the portable kernels have.
func TestConstantsAMD64(t *testing.T) {
	header, err := os.ReadFile("exp2_amd64.h")
	if err != nil {
		t.Fatal(err)
	}
	bits := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^VECTOR\((\w+), (0x[0-9a-f]{8})\)`).FindAllStringSubmatch(string(header), -1) {
		if bits[m[1]], err = strconv.ParseUint(m[2], 0, 32); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]float32{
		"exp2C1": exp2C1, "exp2C2": exp2C2, "exp2C3": exp2C3, "exp2C4": exp2C4, "exp2C5": exp2C5,
		"twiceC1": 2 * exp2C1, "twiceC2": 2 * exp2C2, "twiceC3": 2 * exp2C3, "twiceC4": 2 * exp2C4, "twiceC5": 2 * exp2C5,
		"magic": magic, "magic126": magic + 126, "minY": minY, "maxY": maxY, "log2E32": log2E32,
		"one": 1, "two": 2,
		"posInf": float32(math.Inf(1)), "negInf": float32(math.Inf(-1)),
		"minLogRatio": -20, "maxLogRatio": 20, "signBit": float32(math.Copysign(0, -1)),
	} {
		if got, ok := bits[name]; !ok || uint32(got) != math.Float32bits(want) {
			t.Errorf("exp2_amd64.h has %#x for %s, want %#x", got, name, math.Float32bits(want))
		}
		delete(bits, name)
	}
	for name := range bits {
		t.Errorf("exp2_amd64.h has %s, which this test does not know", name)
	}
}
