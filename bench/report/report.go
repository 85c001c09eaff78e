// Package report holds what bench run measured. It writes that for people and
// for programs, reads it back, and compares it with an earlier run.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
)

// A Report is a run of the bench.
type Report struct {
	Machine  Machine  `json:"machine"`
	Partial  bool     `json:"partial"` // the run was interrupted, or failed
	Roofline Roofline `json:"roofline"`
	Results  []Result `json:"results"`
	Sweep    []Result `json:"sweep,omitempty"` // shorter measurements at several sizes, for growth
}

// A Roofline is the speed of the plain read: the median over the workloads on
// rows of logits, or on tokens where there are none, and the slowest and the
// fastest of them.
type Roofline struct {
	ReadGBPerS float64 `json:"read_gb_per_s"`
	Lo         float64 `json:"read_lo"`
	Hi         float64 `json:"read_hi"`
}

// A Result is a measurement, beside that of an earlier run if there is one.
type Result struct {
	bench.Result
	Baseline *Comparison `json:"baseline,omitempty"`
}

// A Machine is where the figures come from. Sizes of caches are those that one
// CPU sees, 0 where unknown.
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
	Paths      []string `json:"paths"`  // implementations of the kernels that run here
	Chosen     string   `json:"chosen"` // the one that is used unless asked otherwise
}

// Rows describes the machine line by line: what, and what it is. why says why
// the chosen path was chosen.
func (m Machine) Rows(why string) [][]string {
	cache := func(bytes int) string {
		if bytes == 0 {
			return "unknown"
		}
		return humanize.IBytes(uint64(bytes))
	}
	pinned := ""
	if m.Pinned != nil {
		pinned = ", " + m.pinned()
	}
	return [][]string{
		{"CPU", fmt.Sprintf("%s, %d logical, GOMAXPROCS %d%s", m.CPU, m.CPUs, m.GOMAXPROCS, pinned)},
		{"instruction sets", cmp.Or(strings.Join(m.Features, " "), "none that matter here")},
		{"caches", fmt.Sprintf("L1 %s, L2 %s, L3 %s", cache(m.L1), cache(m.L2), cache(m.L3))},
		{"Go", fmt.Sprintf("%s %s/%s", m.Go, m.OS, m.Arch)},
		{"kernels", fmt.Sprintf("%s: %s", m.Chosen, why)},
	}
}

func (m Machine) pinned() string {
	if m.Pinned == nil {
		return "not pinned"
	}
	return fmt.Sprintf("pinned to CPU %d", *m.Pinned)
}

// WriteJSON writes the report as Read reads it.
func (r Report) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// maxFile bounds the files that Read reads: the largest runs are a thousandth.
const maxFile = 1 << 28

// Read reads the report of an earlier run. Errors name the file.
func Read(path string) (Report, error) {
	var r Report
	info, err := os.Stat(path)
	if err != nil {
		return r, err
	}
	if !info.Mode().IsRegular() {
		return r, fmt.Errorf("%s: not a regular file", path)
	}
	if info.Size() > maxFile {
		return r, fmt.Errorf("%s: %d bytes, too many for a saved run", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: not a saved run: %w", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return r, fmt.Errorf("%s: not a saved run: more follows its end", path)
	}
	if len(r.Results) == 0 {
		return r, fmt.Errorf("%s: not a saved run: no results", path)
	}
	seen := map[key]bool{}
	for _, q := range r.Results {
		k := keyOf(q.Result)
		if seen[k] {
			return r, fmt.Errorf("%s: two results of %v", path, k)
		}
		seen[k] = true
		for _, f := range [...]struct {
			name      string
			lo, x, hi float64
		}{
			{"ns_per_element", q.NsLo, q.NsPerElement, q.NsHi},
			{"gb_per_s", q.GBPerS, q.GBPerS, q.GBPerS},
			{"read_gb_per_s", q.ReadGBPerS, q.ReadGBPerS, q.ReadGBPerS},
			{"roofline_share", q.ShareLo, q.RooflineShare, q.ShareHi},
		} {
			const least, most = 1e-6, 1e12 // no machine is beyond, and their ratios are numbers
			if !(least <= f.lo && f.lo <= f.x && f.x <= f.hi && f.hi <= most) {
				return r, fmt.Errorf("%s: %v: %s is %v, from %v to %v: no measurement", path, k, f.name, f.x, f.lo, f.hi)
			}
		}
	}
	return r, nil
}

// A key tells results apart.
type key struct {
	kernel, typ, path    string
	rows, vocab, workers int
}

func keyOf(r bench.Result) key {
	return key{r.Kernel, r.Type, r.Path, r.Rows, r.Vocab, r.Workers}
}

func (k key) String() string {
	return fmt.Sprintf("%s %s on %s, %s", k.kernel, k.typ, k.path, k.shape())
}

func (k key) shape() string { return Shape(k.rows, k.vocab, k.workers) }
