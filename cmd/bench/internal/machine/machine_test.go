package machine

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/gpu"
)

// TestMachineHasGPU: a machine is described with its GPU, with the reason why none is
// used, or without a word where none was looked for.
func TestMachineHasGPU(t *testing.T) {
	m := Machine{ISAs: []string{"portable"}}
	m.SetGPU(nil, nil)
	before := len(m.Rows())
	if m.GPU != nil || m.NoGPU != "" || len(m.Series()) != 1 {
		t.Errorf("%+v", m)
	}
	m.SetGPU(nil, errors.New("the driver finds no device"))
	if rows := m.Rows(); len(rows) != before+1 || rows[before][1] != "none is used: the driver finds no device" ||
		len(m.Series()) != 1 {
		t.Errorf("%q", m.Rows())
	}
	g := graphicsOf(gpu.Info{Name: "NVIDIA H100", Capability: [2]int{9, 0}, Multiprocessors: 132, Memory: 80 << 30,
		Driver: [2]int{12, 4}})
	if want := "NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB, driver for CUDA 12.4"; g.String() != want {
		t.Errorf("%q, want %q", g, want)
	}
	m.GPU = &g
	if rows := m.Rows(); rows[before][1] != g.String() || strings.Join(m.Series(), " ") != "portable cuda" ||
		len(m.ISAs) != 1 {
		t.Errorf("%q, %q", m.Rows(), m.Series())
	}
}
