//go:build linux && !noasm && !purego

package reweight

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDetect compares what is detected with what the kernel says of the CPU: an
// instruction set that this machine has must not be missed.
func TestDetect(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip(err)
	}
	_, line, _ := strings.Cut(string(info), "\nflags")
	line, _, _ = strings.Cut(line, "\n")
	flags := strings.Fields(line)
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(flags, n) })
	}
	want := []ISA{Portable}
	if has("avx2", "fma", "f16c") {
		want = append(want, AVX2)
		if has("avx512f", "avx512vl", "avx512dq", "avx512bw") {
			want = append(want, AVX512)
		}
	}
	if got := detect(); !slices.Equal(got, want) {
		t.Errorf("detected %v, but /proc/cpuinfo has %v", got, want)
	}
}
