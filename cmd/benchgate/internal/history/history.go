// Package history keeps how long benchmarks take from commit to commit, in a file of lines, and finds the commits from
// which on they take longer.
package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/printable"
)

// A Point is a line of the file: what a benchmark takes at a commit, over what it takes at a commit that stays the
// same, the reference. Both were measured in one run.
type Point struct {
	Date        string  `json:"date"` // of the run
	Commit      string  `json:"commit"`
	Reference   string  `json:"reference"`
	Package     string  `json:"package"`
	Benchmark   string  `json:"benchmark"`
	Ratio       float64 `json:"ratio"` // the median of the pairs
	Lo          float64 `json:"lo"`    // bounds of it
	Hi          float64 `json:"hi"`
	Pairs       int     `json:"pairs"`
	Ns          float64 `json:"ns"` // of a call
	ReferenceNs float64 `json:"reference_ns"`
	Machine     string  `json:"machine"`
	Go          string  `json:"go"`
	Version     string  `json:"version"` // of the gate
}

// What a line of a file may hold.
const (
	mostBytes = 64 << 20 // of the file
	mostLine  = 16 << 10
	mostRatio = 1e6 // and one over it is the least
)

var commit = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// check returns what is wrong with a point, if something is.
func (p Point) check() error {
	sane := func(x float64) bool { return x >= 1/mostRatio && x <= mostRatio }
	switch _, err := time.Parse(time.RFC3339, p.Date); {
	case err != nil:
		return fmt.Errorf("its date is %q, want one like 2026-11-28T15:04:05Z", p.Date)
	case !commit.MatchString(p.Commit):
		return fmt.Errorf("its commit is %q, want 40 or 64 hexadecimal digits", p.Commit)
	case !commit.MatchString(p.Reference):
		return fmt.Errorf("its reference is %q, want 40 or 64 hexadecimal digits", p.Reference)
	case p.Package == "" || p.Benchmark == "":
		return errors.New("its package or its benchmark is empty")
	case !(p.Ns > 0 && p.ReferenceNs > 0) || math.IsInf(p.Ns+p.ReferenceNs, 1):
		return fmt.Errorf("its times are %v and %v, want positive numbers", p.Ns, p.ReferenceNs)
	case !sane(p.Ratio) || !sane(p.Lo) || !sane(p.Hi) || p.Lo > p.Ratio || p.Ratio > p.Hi:
		return fmt.Errorf("its ratio is %v, from %v to %v, want positive numbers in order, of at most %g",
			p.Ratio, p.Lo,
			p.Hi, float64(mostRatio))
	}
	return nil
}

// Check finds out whether Append can write to the file.
func Check(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Check(path)
	}
	if err == nil {
		err = atomicfile.CheckRegular(info)
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", printable.Text(path), atomicfile.Cause(err))
	}
	return f.Close()
}

// Append adds lines to the end of the file, in one write, but none that Read would leave out. What is in the file stays
// as it is, so that nothing of it is lost whatever happens, and runs may add to it at the same time. A line that a full
// disk has cut off stays alone.
func Append(path string, points []Point) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", printable.Text(path), atomicfile.Cause(err))
		}
	}()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	var text []byte
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		end := make([]byte, 1)
		if _, err = f.ReadAt(end, info.Size()-1); end[0] != '\n' {
			text = append(text, '\n')
		}
	}
	if err != nil {
		return err
	}
	for _, p := range points {
		if p.check() != nil {
			continue // a benchmark may report any number
		}
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		text = append(printable.AppendJSON(text, line), '\n')
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

// A History is what a benchmark took at some commits, over what it took at one reference.
type History struct {
	Reference, Package, Benchmark string
	Points                        []Point // one for each commit, in the order of the file
	Steps                         []Step  // At and so on are indices of Points
}

// Name is the benchmark with its package.
func (h History) Name() string { return h.Package + " " + h.Benchmark }

// Read reads a file, and finds the steps. Those with steps come first. The notes are about lines that are left out.
// If a commit has been measured again, the last line counts.
func Read(path string) (all []History, notes []string, err error) {
	text, err := atomicfile.Read(path, mostBytes)
	if err != nil {
		return nil, nil, err
	}
	index := map[[3]string]int{} // of all
	seen := map[[4]string]int{}  // points of a history
	lines, bad, again := 0, 0, 0 // of the file
	var wrong string             // with the first bad line
	for line := range bytes.Lines(text) {
		lines++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var p Point
		err := errors.New("it is longer than 16 KiB")
		if len(line) <= mostLine {
			if err = json.Unmarshal(line, &p); err == nil {
				err = p.check()
			}
		}
		if err != nil {
			if bad++; bad == 1 {
				wrong = fmt.Sprintf("line %d: %v", lines, err)
			}
			continue
		}
		key := [3]string{p.Reference, p.Package, p.Benchmark}
		i, ok := index[key]
		if !ok {
			i = len(all)
			index[key] = i
			all = append(all, History{Reference: p.Reference, Package: p.Package, Benchmark: p.Benchmark})
		}
		h := &all[i]
		at := [4]string{p.Commit, p.Reference, p.Package, p.Benchmark}
		if j, ok := seen[at]; ok {
			h.Points[j] = p
			again++
			continue
		}
		seen[at] = len(h.Points)
		h.Points = append(h.Points, p)
	}
	if len(all) == 0 {
		if bad > 0 {
			return nil, nil, fmt.Errorf("%s: no line of it is one of benchgate -history: %s",
				printable.Text(path), wrong)
		}
		return nil, nil, fmt.Errorf("%s is empty", printable.Text(path))
	}
	if bad > 0 {
		notes = append(notes, fmt.Sprintf("%s left out, which benchgate -history has not written so: %s",
			isAre(bad, "line"), wrong))
	}
	if again > 0 {
		notes = append(notes, fmt.Sprintf("%s not shown, as their commits were measured again later",
			isAre(again, "line")))
	}
	for i := range all {
		h := &all[i]
		ratios := make([]float64, len(h.Points))
		for j, p := range h.Points {
			ratios[j] = p.Ratio
		}
		h.Steps = Find(ratios)
	}
	slices.SortStableFunc(all, func(a, b History) int {
		return cmp.Or(cmp.Compare(min(1, len(b.Steps)), min(1, len(a.Steps))), strings.Compare(a.Name(), b.Name()))
	})
	return all, notes, nil
}

// isAre is so many things with the verb.
func isAre(n int, thing string) string {
	if n == 1 {
		return cli.Counted(n, thing) + " is"
	}
	return cli.Counted(n, thing) + " are"
}
