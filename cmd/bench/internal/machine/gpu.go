package machine

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/kernels"
)

// CUDA is the name of the GPU among the implementations of the kernels, in flags and
// in results.
const CUDA = "cuda"

// A Choice says what to run the kernels on.
type Choice struct {
	CPU []kernels.Implementation // by instruction sets
	GPU *gpu.Device              // or nil
}

// A Graphics describes a GPU.
type Graphics struct {
	Name            string `json:"name"`
	Capability      string `json:"compute_capability"` // "9.0"
	Multiprocessors int    `json:"multiprocessors"`
	Memory          int64  `json:"memory_bytes"`
	Driver          string `json:"driver"` // the newest version of CUDA that the driver knows: "12.4"
}

// graphicsOf describes a device.
func graphicsOf(info gpu.Info) Graphics {
	return Graphics{
		Name: info.Name, Multiprocessors: info.Multiprocessors, Memory: info.Memory,
		Capability: fmt.Sprintf("%d.%d", info.Capability[0], info.Capability[1]),
		Driver:     fmt.Sprintf("%d.%d", info.Driver[0], info.Driver[1]),
	}
}

// String describes it in a line.
func (g Graphics) String() string {
	return fmt.Sprintf("%s, compute capability %s, %d multiprocessors, %s, driver for CUDA %s", g.Name, g.Capability,
		g.Multiprocessors, humanize.IBytes(uint64(g.Memory)), g.Driver)
}

// SetGPU adds to the description of the machine what GPU there is, or why none is
// used: neither if none was looked for.
func (m *Machine) SetGPU(dev *gpu.Device, err error) {
	switch {
	case err != nil:
		m.NoGPU = err.Error()
	case dev != nil:
		g := graphicsOf(dev.Info())
		m.GPU = &g
	}
}

// Series returns the names of all that the machine runs the kernels on, the GPU's
// last.
func (m Machine) Series() []string {
	names := append([]string(nil), m.ISAs...)
	if m.GPU != nil {
		names = append(names, CUDA)
	}
	return names
}
