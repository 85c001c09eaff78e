package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/klauspost/cpuid/v2"
	"github.com/seed621a2839/reweight"
)

// A machine is where the figures come from. Sizes of caches are those that one
// CPU sees, 0 where unknown.
type machine struct {
	CPU        string   `json:"cpu"`
	CPUs       int      `json:"cpus"`
	GOMAXPROCS int      `json:"gomaxprocs"`
	OS         string   `json:"os"`
	Arch       string   `json:"arch"`
	Features   []string `json:"features"` // those that matter to kernels
	L1         int      `json:"l1d_bytes"`
	L2         int      `json:"l2_bytes"`
	L3         int      `json:"l3_bytes"`
	Go         string   `json:"go"`
	Paths      []string `json:"paths"`  // implementations of the kernels that run here
	Chosen     string   `json:"chosen"` // the one that is used unless asked otherwise
}

// thisMachine returns an error if REWEIGHT_ISA asks for what is not there.
func thisMachine() (machine, error) {
	best, err := reweight.Best()
	if err != nil {
		return machine{}, trimmed(err)
	}
	c := &cpuid.CPU
	m := machine{
		CPU: cmp.Or(strings.TrimSpace(c.BrandName), "unknown"), CPUs: runtime.NumCPU(), GOMAXPROCS: runtime.GOMAXPROCS(0),
		OS: runtime.GOOS, Arch: runtime.GOARCH, Features: []string{},
		L1: max(0, c.Cache.L1D), L2: max(0, c.Cache.L2), L3: max(0, c.Cache.L3),
		Go: runtime.Version(), Paths: pathNames(), Chosen: best.String(),
	}
	for _, f := range [...]cpuid.FeatureID{
		cpuid.AVX, cpuid.AVX2, cpuid.FMA3, cpuid.F16C, cpuid.AVX512F, cpuid.AVX512VL, cpuid.AVX512DQ, cpuid.AVX512BW,
		cpuid.AVX512BF16, cpuid.AVX512FP16, cpuid.ASIMD, cpuid.ASIMDHP, cpuid.SVE,
	} {
		if c.Has(f) {
			m.Features = append(m.Features, f.String())
		}
	}
	return m, nil
}

func pathNames() []string {
	var names []string
	for _, p := range reweight.Available() {
		names = append(names, p.String())
	}
	return names
}

// why says why the chosen path was chosen.
func (m machine) why() string {
	if v := os.Getenv("REWEIGHT_ISA"); v != "" {
		return "the best that REWEIGHT_ISA=" + v + " allows"
	}
	if len(m.Paths) == 1 {
		return "the only one for this CPU and build"
	}
	return "the fastest for this CPU and build, of " + strings.Join(m.Paths, ", ")
}

// rows describes the machine line by line.
func (m machine) rows() [][]string {
	cache := func(bytes int) string {
		if bytes == 0 {
			return "unknown"
		}
		return humanize.IBytes(uint64(bytes))
	}
	return [][]string{
		{"CPU", fmt.Sprintf("%s, %d logical, GOMAXPROCS %d", m.CPU, m.CPUs, m.GOMAXPROCS)},
		{"instruction sets", cmp.Or(strings.Join(m.Features, " "), "none that matter here")},
		{"caches", fmt.Sprintf("L1 %s, L2 %s, L3 %s", cache(m.L1), cache(m.L2), cache(m.L3))},
		{"Go", fmt.Sprintf("%s %s/%s", m.Go, m.OS, m.Arch)},
		{"kernels", fmt.Sprintf("%s: %s", m.Chosen, m.why())},
	}
}
