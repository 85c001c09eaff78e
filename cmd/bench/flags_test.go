package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/machine"
	"github.com/seed621a2839/reweight/internal/must"
)

// TestLists: each list has the names and numbers that were given, in their order.
func TestLists(t *testing.T) {
	f := cli.NewFlags("test")
	ks, isas, sizes := kernelFlag(f), isaFlag(f, "all", &machine.GPU{}), sizeFlags(f, "rows")
	operands, err := f.Parse("", []string{"-kernel", "surrogate,multiply", "a", "-isa", "portable", "-workers", "3,1", "--", "-vocab"}, io.Discard)
	if err != nil || !slices.Equal(operands, []string{"a", "-vocab"}) {
		t.Fatalf("%q, %v", operands, err)
	}
	k, err := ks()
	if err != nil || len(k) != 2 || k[0].Name != "surrogate" || k[1].Name != "multiply" {
		t.Errorf("%v, %v", k, err)
	}
	if i, err := isas(); err != nil || len(i.CPU) != 1 || i.CPU[0].Name != "portable" || i.GPU != nil {
		t.Errorf("%v, %v", i, err)
	}
	s, err := sizes()
	if err != nil || !slices.Equal(s.Workers, []int{3, 1}) || !slices.Equal(s.Vocabs, []int{151936}) || s.Rows != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if !f.Given("isa") || f.Given("vocab") {
		t.Error("flags that were given, or not")
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
		f := cli.NewFlags("test")
		isas := isaFlag(f, "all", &machine.GPU{Open: func() (*gpu.Device, error) { opened = true; return dev, c.open }})
		must.Get(f.Parse("", []string{"-isa", c.list}, io.Discard))
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
	if choice, err := isaFlag(cli.NewFlags("test"), "all", &machine.GPU{})(); choice != nil || err != nil {
		t.Errorf("%v, %v", choice, err)
	}
}
