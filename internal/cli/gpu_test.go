package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/gpu"
)

// TestGPUIsOpenedOnce: when it is first asked for, and what came of it stays.
func TestGPUIsOpenedOnce(t *testing.T) {
	for _, want := range []struct {
		dev *gpu.Device
		err error
	}{{new(gpu.Device), nil}, {nil, errors.New("the driver finds no device")}} {
		opened := 0
		g := GPU{Open: func() (*gpu.Device, error) { opened++; return want.dev, want.err }}
		for range 3 {
			if dev, err := g.Device(); dev != want.dev || err != want.err || opened != 1 {
				t.Errorf("%v, %v, opened %d times", dev, err, opened)
			}
		}
	}
	if dev, err := new(GPU).Device(); dev != nil || err == nil {
		t.Errorf("%v, %v", dev, err)
	}
}

// TestChoice: cuda is a name among those of instruction sets, and an error where there is
// no GPU. Who does not name it opens none.
func TestChoice(t *testing.T) {
	dev := new(gpu.Device)
	for _, c := range []struct {
		list string
		open error
		cpu  int // instruction sets
		gpu  bool
		want string // error
	}{
		{"portable", nil, 1, false, ""},
		{"cuda", nil, 0, true, ""},
		{"cuda,portable", nil, 1, true, ""},
		{"cuda", errors.New("no driver"), 0, false, `-isa has "cuda", and no GPU can be used: no driver`},
		{"cuda,cuda", nil, 0, false, `-isa has "cuda" twice`},
		{"rocm", nil, 0, false, `-isa has "rocm", want some of [`},
	} {
		opened := false
		f := NewFlags("test")
		isas := f.ISAs("all", &GPU{Open: func() (*gpu.Device, error) { opened = true; return dev, c.open }})
		if _, err := f.Parse("", []string{"-isa", c.list}, io.Discard); err != nil {
			t.Fatal(err)
		}
		choice, err := isas()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.list, err, c.want)
			}
			continue
		}
		if err != nil || len(choice.CPU) != c.cpu || (choice.GPU == dev) != c.gpu || opened != c.gpu {
			t.Errorf("%s: %+v, %v, opened: %v", c.list, choice, err, opened)
		}
	}
	if choice, err := NewFlags("test").ISAs("all", &GPU{})(); choice != nil || err != nil {
		t.Errorf("%v, %v", choice, err)
	}
}

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
	if rows := m.Rows(); len(rows) != before+1 || rows[before][1] != "none is used: the driver finds no device" || len(m.Series()) != 1 {
		t.Errorf("%q", m.Rows())
	}
	g := graphicsOf(gpu.Info{Name: "NVIDIA H100", Capability: [2]int{9, 0}, Multiprocessors: 132, Memory: 80 << 30, Driver: [2]int{12, 4}})
	if want := "NVIDIA H100, compute capability 9.0, 132 multiprocessors, 80 GiB, driver for CUDA 12.4"; g.String() != want {
		t.Errorf("%q, want %q", g, want)
	}
	m.GPU = &g
	if rows := m.Rows(); rows[before][1] != g.String() || strings.Join(m.Series(), " ") != "portable cuda" || len(m.ISAs) != 1 {
		t.Errorf("%q, %q", m.Rows(), m.Series())
	}
}

// TestElements: a GPU takes more rows than the host, which has few of them.
func TestElements(t *testing.T) {
	for _, c := range []struct {
		rows, vocab int
		host, ok    bool
	}{{1 << 14, 1 << 14, true, true}, {1 << 14, 1<<14 + 1, true, false}, {8192, 262144, false, true}, {1 << 15, 1 << 18, false, true}, {1 << 15, 1<<18 + 1, false, false}} {
		if err := (Sizes{Rows: c.rows, Vocabs: []int{c.vocab}}).CheckElements(c.host); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
