package scorefiles

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

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
// scores of that name. Another file of that name is an error. names are files, and directories
// that stand for the files in them. Several files are read at a time.
func Directory(opt Options, dir string, p *cli.Progress, names ...string) (*Summary, error) {
	files, warnings, err := prepare(dir, names)
	if err != nil {
		return nil, err
	}
	merged, more, err := statistics(opt, p, files)
	if err != nil {
		return nil, err
	}
	if err := applyAll(opt, dir, merged, p, files); err != nil {
		return nil, err
	}
	t := merged.Totals()
	s := &Summary{
		Directory: dir, Files: len(files), Trajectories: t.Trajectories, Tokens: t.Tokens, Groups: t.Groups,
		Spans:   t.Spans,
		Actions: t.Actions, Signal: opt.Score.ActFocus.Signal.String(), Mean: bench.Number(t.Mean),
		Deviation: bench.Number(t.Deviation),
		Estimates: []Estimate{}, Warnings: append([]string{}, slices.Concat(warnings, more)...), // [] and not null
	}
	for f := range merged.Files() {
		if f.Entropy != nil {
			s.Estimates = append(s.Estimates, Estimate{f.Name, found.NewOrigin(*f.Entropy)})
		}
	}
	slices.Sort(s.Warnings)
	s.Warnings = slices.Compact(s.Warnings)
	return s, nil
}

// ApplyAll writes the scores of files of the batch as Directory does.
func ApplyAll(opt Options, dir string, merged *score.Partial, p *cli.Progress, names ...string) error {
	files, _, err := prepare(dir, names)
	if err == nil {
		err = opt.checkWidth(merged)
	}
	if err != nil {
		return err
	}
	return applyAll(opt, dir, merged, p, files)
}

// Partial returns the statistics of files, of which it reads several at a time. names are as
// those of Directory.
func Partial(opt Options, p *cli.Progress, names ...string) (*score.Partial, error) {
	files, _, err := rollout.Files(names...)
	if err != nil {
		return nil, err
	}
	merged, _, err := statistics(opt, p, files)
	return merged, err
}

// statistics returns the statistics of files, and the warnings about them.
func statistics(opt Options, p *cli.Progress, files []string) (_ *score.Partial, warnings []string, err error) {
	var mu sync.Mutex
	var m score.Merger
	err = each(p, "reading", files, func(name string) error {
		one, report, err := partial(opt, name)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		warnings = append(warnings, report.Warnings...)
		return m.Add(one)
	})
	if err != nil {
		return nil, nil, err
	}
	merged, err := m.Merged()
	return merged, warnings, err
}

// output returns the name of the file in the directory that the scores of a file are written to.
func output(dir, file string) string { return filepath.Join(dir, filepath.Base(file)+".safetensors") }

func applyAll(opt Options, dir string, merged *score.Partial, p *cli.Progress, files []string) error {
	return each(p, "scoring", files, func(name string) error { return apply(opt, name, output(dir, name), merged) })
}

// prepare finds the files of these names, makes the directory and checks all that can be
// checked before the work.
func prepare(dir string, names []string) (files, warnings []string, err error) {
	files, warnings, err = rollout.Files(names...)
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", printable.Text(dir), atomicfile.Cause(err))
	}
	err = eachIn(dir, func(name string) error {
		if atomicfile.IsTemporary(name) {
			warnings = append(warnings, printable.Text(name)+" is incomplete: its run was killed, or still writes it.")
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	of := map[string]string{} // the files, by their outputs
	for _, name := range files {
		info, err := os.Stat(name)
		if err == nil {
			err = atomicfile.CheckRegular(info)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w: it is read twice, so it has to be a file", printable.Text(name),
				atomicfile.Cause(err))
		}
		path := output(dir, name)
		if other, taken := of[path]; taken {
			return nil, nil, fmt.Errorf("the scores of %s and of %s would both be %s",
				printable.Text(other), printable.Text(name), printable.Text(path))
		}
		of[path] = name
		if err := cmp.Or(atomicfile.Check(path), checkScores(path)); err != nil {
			return nil, nil, err
		}
	}
	return files, warnings, nil
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
		return fmt.Errorf("%s: is there and has no scores: it would be lost", printable.Text(name))
	}
	return nil
}

// each calls do with each file, several at a time, and returns the error of the first file that
// has one. After an error no more calls begin.
func each(p *cli.Progress, what string, files []string, do func(name string) error) error {
	p.Expect(len(files))
	errs := make([]error, len(files))
	var failed atomic.Bool
	var done atomic.Int64
	var wg sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, name := range files {
		room <- struct{}{}
		if failed.Load() {
			break
		}
		p.Done = int(done.Load())
		p.NextOf(0, "%s, %d of %d files done", what, p.Done, len(files))
		wg.Go(func() {
			if errs[i] = do(name); errs[i] != nil {
				failed.Store(true)
			}
			done.Add(1)
			<-room
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
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
			text += fmt.Sprintf("; the entropy of %s more files is an estimate too", n(int64(more)))
		}
		cli.Warning(w, text+".")
	}
	for _, warning := range s.Warnings {
		cli.Warning(w, "Warning: "+printable.Line(warning))
	}
	return err
}
