package main

import (
	"cmp"
	"os"
	"runtime"
	"strings"

	"github.com/klauspost/cpuid/v2"
	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/bench/report"
)

// thisMachine returns an error if REWEIGHT_ISA asks for what is not there.
func thisMachine() (report.Machine, error) {
	best, err := reweight.Best()
	if err != nil {
		return report.Machine{}, trimmed(err)
	}
	c := &cpuid.CPU
	m := report.Machine{
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
func why(m report.Machine) string {
	if v := os.Getenv("REWEIGHT_ISA"); v != "" {
		return "the best that REWEIGHT_ISA=" + v + " allows"
	}
	if len(m.Paths) == 1 {
		return "the only one for this CPU and build"
	}
	return "the fastest for this CPU and build, of " + strings.Join(m.Paths, ", ")
}
