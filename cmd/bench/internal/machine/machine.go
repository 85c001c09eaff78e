// Package machine describes the machine that results come from.
package machine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/klauspost/cpuid/v2"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/kernels"
)

// A Machine describes the machine that results come from. The sizes of caches are
// those of the caches that one CPU uses, 0 where unknown.
type Machine struct {
	CPU        string   `json:"cpu"`
	CPUs       int      `json:"cpus"`
	GOMAXPROCS int      `json:"gomaxprocs"`
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	Features   []string `json:"features"` // those that matter to kernels
	L1         int      `json:"l1d_bytes"`
	L2         int      `json:"l2_bytes"`
	L3         int      `json:"l3_bytes"`
	Pinned     *int     `json:"pinned,omitempty"` // the CPU that the process was kept on, if it was
	Go         string   `json:"go"`
	ISAs       []string `json:"isas"`   // instruction sets of the kernels that run here
	Chosen     string   `json:"chosen"` // the one that is used unless asked otherwise
	Why        string   `json:"why"`    // why that one

	// What GPU there is, or why none is used. Both are empty if none was asked for.
	GPU   *Graphics `json:"gpu,omitempty"`
	NoGPU string    `json:"no_gpu,omitempty"`
}

// Rows describes the machine in rows of a name and a text.
func (m Machine) Rows() [][]string {
	cache := func(bytes int) string {
		if bytes == 0 {
			return "unknown"
		}
		return humanize.IBytes(uint64(bytes))
	}
	pinned := ""
	if m.Pinned != nil {
		pinned = fmt.Sprintf(", pinned to CPU %d", *m.Pinned)
	}
	rows := [][]string{
		{"CPU", fmt.Sprintf("%s, %d logical, GOMAXPROCS %d%s", m.CPU, m.CPUs, m.GOMAXPROCS, pinned)},
		{"CPU features", cmp.Or(strings.Join(m.Features, " "), "none that matter here")},
		{"caches", fmt.Sprintf("L1 %s, L2 %s, L3 %s", cache(m.L1), cache(m.L2), cache(m.L3))},
		{"Go", fmt.Sprintf("%s %s/%s", m.Go, m.OS, m.Arch)},
		{"kernels", fmt.Sprintf("%s: %s", m.Chosen, m.Why)},
	}
	switch {
	case m.GPU != nil:
		rows = append(rows, []string{"GPU", m.GPU.String()})
	case m.NoGPU != "":
		rows = append(rows, []string{"GPU", "none is used: " + m.NoGPU})
	}
	return rows
}

// This describes the machine that it runs on. It returns an error if
// REWEIGHT_ISA does not name an instruction set of it.
func This() (Machine, error) {
	best, err := reweight.BestISA()
	if err != nil {
		if input, ok := errors.AsType[*reweight.InputError](err); ok {
			err = errors.New(input.Sentence(input.Arg))
		}
		return Machine{}, err
	}
	c := &cpuid.CPU
	m := Machine{
		CPU: cmp.Or(strings.TrimSpace(c.BrandName), "unknown"), CPUs: runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		OS:         runtime.GOOS, Arch: runtime.GOARCH, Features: []string{},
		L1: max(0, c.Cache.L1D), L2: max(0, c.Cache.L2), L3: max(0, c.Cache.L3),
		Go: runtime.Version(), ISAs: ISANames(), Chosen: best.String(),
	}
	for _, f := range [...]cpuid.FeatureID{
		cpuid.AVX, cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW,
		cpuid.AVX512BF16, cpuid.AVX512FP16, cpuid.ASIMD, cpuid.ASIMDHP, cpuid.SVE,
	} {
		if c.Has(f) {
			m.Features = append(m.Features, f.String())
		}
	}
	m.Why = m.why()
	return m, nil
}

// LastCache returns the bytes of the largest cache that a CPU of this machine sees,
// 0 if that is not known.
func LastCache() int {
	c := &cpuid.CPU.Cache
	return Machine{L2: c.L2, L3: c.L3}.LastCache()
}

// LastCache returns the bytes of the largest cache that a CPU of the machine sees, 0
// if that is not known.
func (m Machine) LastCache() int { return max(0, m.L2, m.L3) }

// ISANames returns the names of the instruction sets that run here, the slowest
// first.
func ISANames() []string {
	var names []string
	for _, impl := range kernels.Implementations() {
		names = append(names, impl.Name)
	}
	return names
}

func (m Machine) why() string {
	if v := os.Getenv("REWEIGHT_ISA"); v != "" {
		return "the best that REWEIGHT_ISA=" + v + " allows"
	}
	if len(m.ISAs) == 1 {
		return "the only one for this CPU and build"
	}
	return "the fastest for this CPU and build, of " + strings.Join(m.ISAs, ", ")
}
