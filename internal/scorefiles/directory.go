package scorefiles

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/internal/atomicfile"
	"github.com/seed621a2839/reweight/internal/cli"
	"github.com/seed621a2839/reweight/internal/found"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/score"
)

// A Summary says what Directory has done.
type Summary struct {
	Directory    string       `json:"directory"`
	Files        int          `json:"files"`
	Trajectories int64        `json:"trajectories"`
	Tokens       int64        `json:"tokens"`
	Groups       int          `json:"groups"`
	Spans        int          `json:"spans"`
	Actions      int64        `json:"action_tokens"`
	Signal       string       `json:"signal"`
	Mean         bench.Number `json:"signal_mean"`
	Deviation    bench.Number `json:"signal_deviation"`
	Estimates    []Estimate   `json:"estimated_entropy"`
	Warnings     []string     `json:"warnings"`
}

// An Estimate is a file whose entropies were estimated.
type Estimate struct {
	File string `json:"file"`
	found.Origin
}

// Directory scores files as one batch: it writes the scores of each to a file in the
// directory dir, which has the file's name and the extension .safetensors, and replaces
// scores of that name. Another file of that name is an error. names are files, and directories that stand for the files in them.
// Several files are read at a time.
func Directory(opt Options, dir string, p *cli.Progress, names ...string) (*Summary, error) {
	d := &directory{opt: opt, dir: dir, p: p, warnings: map[string]bool{}}
	if err := d.prepare(names); err != nil {
		return nil, err
	}
	merged, err := d.read()
	if err != nil {
		return nil, err
	}
	if err := d.score(merged); err != nil {
		return nil, err
	}
	return d.summary(merged), nil
}

// ApplyAll writes the scores of files of the batch as Directory does.
func ApplyAll(opt Options, dir string, merged *score.Partial, p *cli.Progress, names ...string) error {
	d := &directory{opt: opt, dir: dir, p: p, warnings: map[string]bool{}}
	if err := d.prepare(names); err != nil {
		return err
	}
	if err := opt.checkWidth(merged); err != nil {
		return err
	}
	return d.score(merged)
}

// Partial returns the statistics of files, of which it reads several at a time. names are as
// those of Directory.
func Partial(opt Options, p *cli.Progress, names ...string) (*score.Partial, error) {
	files, _, err := rollout.Files(names...)
	if err != nil {
		return nil, err
	}
	d := &directory{opt: opt, p: p, warnings: map[string]bool{}}
	for _, name := range files {
		in := input{name: name}
		if info, err := os.Stat(name); err == nil { // standard input has none
			in.size = info.Size()
		}
		d.inputs = append(d.inputs, in)
	}
	return d.read()
}

// A directory is a call of one of these functions.
type directory struct {
	opt    Options
	dir    string
	inputs []input
	p      *cli.Progress

	mu       sync.Mutex
	warnings map[string]bool
}

// An input is a file that is scored.
type input struct {
	name string
	size int64
}

// output returns the name of the file that the scores are written to.
func (d *directory) output(in input) string {
	return filepath.Join(d.dir, filepath.Base(in.name)+".safetensors")
}

// read returns the statistics of all inputs.
func (d *directory) read() (*score.Partial, error) {
	var m score.Merger
	err := d.each("reading", func(in input) error {
		p, report, err := partial(d.opt, in.name)
		if err != nil {
			return err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.warn(report.Warnings)
		return m.Add(p)
	})
	if err != nil {
		return nil, err
	}
	return m.Merged()
}

// score writes the scores of all inputs.
func (d *directory) score(merged *score.Partial) error {
	return d.each("scoring", func(in input) error { return apply(d.opt, in.name, d.output(in), merged) })
}

func (d *directory) warn(warnings []string) {
	for _, w := range warnings {
		d.warnings[w] = true
	}
}

// prepare finds the files of these names, makes the directory and checks all that can be
// checked before the work.
func (d *directory) prepare(names []string) error {
	files, warnings, err := rollout.Files(names...)
	if err != nil {
		return err
	}
	d.warn(warnings)
	if err := os.MkdirAll(d.dir, 0o777); err != nil {
		return fmt.Errorf("-o: %s: %w", printable.Text(d.dir), atomicfile.Cause(err))
	}
	dir, err := os.Stat(d.dir)
	if err != nil {
		return fmt.Errorf("-o: %s: %w", printable.Text(d.dir), atomicfile.Cause(err))
	}
	for _, name := range names { // scores would be inputs of the next run
		if in, err := os.Stat(name); err == nil && os.SameFile(dir, in) {
			return fmt.Errorf("-o: %s is an input: scores need a directory of their own", printable.Text(d.dir))
		}
	}
	err = eachIn(d.dir, func(name string) error {
		if atomicfile.IsTemporary(name) {
			d.warn([]string{printable.Text(name) + " is incomplete: its run was killed, or still writes it."})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	outputs := map[string]string{}
	for _, name := range files {
		in := input{name: name}
		info, err := os.Stat(name)
		if err == nil {
			err = atomicfile.CheckRegular(info)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: it is read twice, so it has to be a file", printable.Text(name), atomicfile.Cause(err))
		}
		in.size = info.Size()
		output := d.output(in)
		if other, taken := outputs[output]; taken {
			return fmt.Errorf("-o: the scores of %s and of %s would both be %s", printable.Text(other), printable.Text(name), printable.Text(output))
		}
		outputs[output] = name
		if err := atomicfile.Check(output); err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		if err := checkScores(output); err != nil {
			return fmt.Errorf("-o: %s: %w", printable.Text(output), err)
		}
		d.inputs = append(d.inputs, in)
	}
	return nil
}

// checkScores returns an error if a file has the name and is not one of scores: nobody named
// it, and it would be lost.
func checkScores(name string) error {
	if _, err := os.Lstat(name); err != nil {
		return nil
	}
	var tensors []string
	if f, err := rollout.OpenFile(name); err == nil {
		defer f.Close()
		for _, t := range f.Tensors() {
			tensors = append(tensors, t.Name)
		}
	}
	slices.Sort(tensors)
	if !slices.Equal(tensors, []string{"advantages", "seq_offsets", "weights"}) {
		return errors.New("is there and has no scores: it would be lost")
	}
	return nil
}

// each calls do with each input, in several goroutines, and returns the error
// of the first input that has one. After an error no more calls begin.
func (d *directory) each(what string, do func(in input) error) error {
	total := int64(0)
	for _, in := range d.inputs {
		total += in.size
	}
	unit := total/1000 + 1 // of progress, in bytes
	d.p.Expect(int(total / unit))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first error // of the first input that has one
	next, done, read, failed := 0, 0, int64(0), len(d.inputs)
	work := func() {
		for {
			mu.Lock()
			i := next
			if i == len(d.inputs) || failed < i {
				mu.Unlock()
				return
			}
			next++
			d.p.Done = int(read / unit)
			d.p.NextOf(0, "%s, %d of %d files done", what, done, len(d.inputs))
			mu.Unlock()
			err := do(d.inputs[i])
			mu.Lock()
			if err != nil && i < failed {
				first, failed = err, i
			}
			done++
			read += d.inputs[i].size
			mu.Unlock()
		}
	}
	for range min(len(d.inputs), runtime.GOMAXPROCS(0)) {
		wg.Go(work)
	}
	wg.Wait()
	return first
}

func (d *directory) summary(merged *score.Partial) *Summary {
	t := merged.Totals()
	s := &Summary{
		Directory: d.dir, Files: len(d.inputs), Trajectories: t.Trajectories, Tokens: t.Tokens, Groups: t.Groups, Spans: t.Spans,
		Actions: t.Actions, Signal: d.opt.Score.ActFocus.Signal.String(), Mean: bench.Number(t.Mean), Deviation: bench.Number(t.Deviation),
		Estimates: []Estimate{}, Warnings: []string{},
	}
	for f := range merged.Files() {
		if f.Entropy != nil {
			s.Estimates = append(s.Estimates, Estimate{f.Name, found.NewOrigin(*f.Entropy)})
		}
	}
	s.Warnings = append(s.Warnings, slices.Sorted(maps.Keys(d.warnings))...)
	return s
}

// Write prints the summary for people.
func (s *Summary) Write(w io.Writer) error {
	n := func(i int64) string { return humanize.Comma(i) }
	fmt.Fprintf(w, "Scored as one batch: files %s, groups %s, trajectories %s, responses %s, tokens %s\n",
		n(int64(s.Files)), n(int64(s.Groups)), n(s.Trajectories), n(int64(s.Spans)), n(s.Tokens))
	fmt.Fprintf(w, "Action tokens: %s; their signal, %s: mean %s nats, standard deviation %s\n",
		n(s.Actions), s.Signal, cli.Small(float64(s.Mean)), cli.Small(float64(s.Deviation)))
	_, err := fmt.Fprintf(w, "Weights and advantages are in %s\n", printable.Text(s.Directory))
	if len(s.Estimates) > 0 {
		text := fmt.Sprintf("The entropy of %s is %v", printable.Text(s.Estimates[0].File), s.Estimates[0])
		if more := len(s.Estimates) - 1; more > 0 {
			text += fmt.Sprintf("; that of %s more files is an estimate too", n(int64(more)))
		}
		cli.Warning(w, text+".")
	}
	for _, warning := range s.Warnings {
		cli.Warning(w, "Warning: "+printable.Line(warning))
	}
	return err
}
