package scorefiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

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
	Written      int          `json:"written"` // the others had their scores before
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
// directory dir, which has the file's name and the extension .safetensors, and beside it
// the file's statistics, with the extension .partial.json. Of what is there from an
// earlier run nothing is done again: statistics are those of a file of the same path, size,
// inode and time of the inode's change, where the system has these (on other systems
// statistics are made anew), and scores those of the same file, options and batch. What a
// run that was killed left behind is removed, with a warning. It is an error if another call
// writes to dir at the time, and if a file in dir that is not of such a run would be lost.
//
// names are files, and directories that stand for the files in them. Several files are
// read at a time.
func Directory(opt Options, dir string, p *cli.Progress, names ...string) (*Summary, error) {
	d := &directory{opt: opt, dir: dir, p: p}
	unlock, err := d.open(names)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := d.prepare(); err != nil {
		return nil, err
	}
	err = d.scoreAll()
	for errors.Is(err, errStale) { // at most once for each input: it has no kept statistics then
		err = d.scoreAll()
	}
	if err != nil {
		return nil, err
	}
	if err := d.findOthers(); err != nil {
		return nil, err
	}
	return d.summary(), nil
}

// errStale says that the statistics that were kept of a file turned out to be of another
// content.
var errStale = errors.New("statistics are of another content")

// scoreAll makes the statistics that are missing, and the scores of all files.
func (d *directory) scoreAll() error {
	if err := d.each("reading", d.read); err != nil {
		return err
	}
	var partials []*score.Partial
	for _, in := range d.inputs {
		partials = append(partials, in.partial)
	}
	var err error
	if d.merged, err = score.Merge(partials...); err != nil {
		return err
	}
	if err := d.opt.checkWidth(d.merged); err != nil {
		return err
	}
	d.digest = d.merged.Digest()
	return d.each("scoring", d.score)
}

// A directory is a call of Directory.
type directory struct {
	opt      Options
	dir      string
	files    []string
	inputs   []*input
	warnings []string
	merged   *score.Partial
	digest   string

	mu sync.Mutex
	p  *cli.Progress
}

// An input is a file that is scored.
type input struct {
	name, output, saved string
	info                fs.FileInfo
	looked              time.Time // when info was taken
	partial             *score.Partial
	kept                bool // partial is of an earlier run
	stale               bool // what an earlier run has kept is of another content
	warnings            []string
	written             bool // its scores, by this call
}

// open finds the files of these names, and makes and locks the directory.
func (d *directory) open(names []string) (unlock func(), err error) {
	if d.files, d.warnings, err = rollout.Files(names...); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.dir, 0o777); err != nil {
		return nil, fmt.Errorf("-o: %s: %w", printable.Text(d.dir), atomicfile.Cause(err))
	}
	if err := d.checkOutside(names); err != nil {
		return nil, err
	}
	if unlock, err = atomicfile.Lock(d.dir); err != nil {
		return nil, fmt.Errorf("-o: %w", err)
	}
	return unlock, nil
}

// prepare checks all that can be checked before the work, and cleans the directory.
func (d *directory) prepare() error {
	outputs := map[string]string{}
	for _, name := range d.files {
		base := filepath.Join(d.dir, filepath.Base(name))
		in := &input{name: name, output: base + ".safetensors", saved: base + ".partial.json", looked: time.Now()}
		var err error
		if in.info, err = os.Stat(name); err == nil {
			err = atomicfile.CheckRegular(in.info)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: it is read twice, so it has to be a file", printable.Text(name), atomicfile.Cause(err))
		}
		if other, taken := outputs[in.output]; taken {
			return fmt.Errorf("-o: the scores of %s and of %s would both be %s", printable.Text(other), printable.Text(name), printable.Text(in.output))
		}
		outputs[in.output] = name
		if _, err = metadataOf(in.output); err == nil {
			_, err = savedIn(in.saved)
		}
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
		d.inputs = append(d.inputs, in)
	}
	left, err := atomicfile.RemoveLeft(d.dir)
	if err != nil {
		return fmt.Errorf("-o: %s: %w", printable.Text(d.dir), err)
	}
	if left > 0 {
		d.warnings = append(d.warnings, fmt.Sprintf("%s had %s of a run that was killed: removed.", printable.Text(d.dir), cli.Counted(left, "incomplete file")))
	}
	return nil
}

// checkOutside returns an error if the directory is one of the inputs: scores would be
// inputs of the next run.
func (d *directory) checkOutside(names []string) error {
	dir, err := os.Stat(d.dir)
	if err != nil {
		return fmt.Errorf("-o: %s: %w", printable.Text(d.dir), atomicfile.Cause(err))
	}
	for _, name := range names {
		if in, err := os.Stat(name); err == nil && os.SameFile(dir, in) {
			return fmt.Errorf("-o: %s is an input: scores need a directory of their own", printable.Text(d.dir))
		}
	}
	return nil
}

// metadataOf returns the metadata of the scores in the file of that name, or nil if there
// is no such file. Any other file of that name is an error: it would be lost.
func metadataOf(name string) (map[string]string, error) {
	if there, err := isThere(name); !there {
		return nil, err
	}
	f, err := rollout.OpenFile(name)
	if err == nil {
		defer f.Close()
		if m := f.Metadata(); m[keyOptions] != "" {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s is there and has no scores: it would be lost", printable.Text(name))
}

// isThere reports whether a file has the name. The error says why none can.
func isThere(name string) (bool, error) {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", printable.Text(name), atomicfile.Cause(err))
}

// each calls do with each input, in several goroutines, and returns the error of the first
// input that has one. After an error no more calls begin.
func (d *directory) each(what string, do func(in *input) error) error {
	total := int64(0)
	for _, in := range d.inputs {
		total += in.info.Size()
	}
	unit := total/1000 + 1 // of progress, in bytes
	d.p.Expect(int(total / unit))
	var wg sync.WaitGroup
	errs := make([]error, len(d.inputs))
	next, done, read, failed := 0, 0, int64(0), false
	work := func() {
		for {
			d.mu.Lock()
			i := next
			if i == len(d.inputs) || failed {
				d.mu.Unlock()
				return
			}
			next++
			d.p.Done = int(read / unit)
			d.p.NextOf(0, "%s, %d of %d files done", what, done, len(d.inputs))
			d.mu.Unlock()
			err := do(d.inputs[i])
			d.mu.Lock()
			errs[i], failed = err, failed || err != nil
			done++
			read += d.inputs[i].info.Size()
			d.mu.Unlock()
		}
	}
	for range min(len(d.inputs), runtime.GOMAXPROCS(0)) {
		wg.Go(work)
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A saved is the JSON of the statistics of a file that is kept for the next run.
type saved struct {
	File     string         `json:"file"` // its absolute path
	Size     int64          `json:"size"`
	Inode    uint64         `json:"inode"`
	Changed  time.Time      `json:"changed"` // of the inode
	Options  string         `json:"options"`
	Warnings []string       `json:"warnings"`
	Partial  *score.Partial `json:"partial"` // nil if it is of another version
}

// savedIn returns what an earlier run saved in the file of that name, or nothing if there is
// no such file or an empty one. Any other file of that name is an error: it would be lost.
func savedIn(name string) (saved, error) {
	if there, err := isThere(name); !there {
		return saved{}, err
	}
	var s struct {
		saved
		Partial json.RawMessage `json:"partial"`
	}
	info, err := os.Lstat(name)
	switch {
	case err == nil && info.Mode().IsRegular() && info.Size() == 0:
		return saved{}, nil
	case readJSON(name, &s) != nil || s.File == "" || s.Options == "" || s.Partial == nil:
		return saved{}, fmt.Errorf("%s is there and has no statistics that an earlier run kept: it would be lost", printable.Text(name))
	}
	if p := new(score.Partial); json.Unmarshal(s.Partial, p) == nil {
		s.saved.Partial = p
	}
	return s.saved, nil
}

// state returns what saved statistics of the file are for, without the statistics. known
// is false if that does not tell whether the file has changed.
func (d *directory) state(in *input) (s saved, known bool, err error) {
	path, err := filepath.Abs(in.name)
	if err != nil {
		return s, false, err
	}
	open, err := json.Marshal(d.opt.Open)
	if err != nil {
		return s, false, err
	}
	inode, at, known := changed(in.info)
	s = saved{File: path, Size: in.info.Size(), Inode: inode, Changed: at.UTC(), Options: fmt.Sprintf("%v %s", d.opt.Score.ActFocus.Signal, open)}
	// A file that was changed within one tick of its clock can be changed again without a
	// trace.
	tick := 100 * time.Millisecond
	if at.Nanosecond() == 0 { // the file system may count whole seconds
		tick = 2 * time.Second
	}
	return s, known && in.looked.Sub(at) > tick, nil
}

// same reports whether both are the state of one file with one content.
func (s *saved) same(now *saved) bool {
	return s.File == now.File && s.Size == now.Size && s.Inode == now.Inode && s.Changed.Equal(now.Changed) && s.Options == now.Options
}

// read sets the statistics of the file: those of an earlier run, or else those that it
// makes and saves.
func (d *directory) read(in *input) error {
	if in.partial != nil {
		return nil
	}
	now, known, err := d.state(in)
	if err != nil {
		return err
	}
	before, err := savedIn(in.saved)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	if known && !in.stale && before.Partial != nil && before.same(&now) {
		in.partial, in.warnings, in.kept = before.Partial, before.Warnings, true
		return nil
	}
	var r rollout.Report
	if in.partial, r, err = Partial(d.opt, in.name); err != nil {
		return err
	}
	in.warnings = r.Warnings
	info, err := os.Stat(in.name)
	if err != nil {
		return nil // the second pass says what is wrong
	}
	in.info = info
	if after, _, err := d.state(in); err != nil || !known || !after.same(&now) {
		return nil
	}
	now.Warnings, now.Partial = r.Warnings, in.partial
	return atomicfile.Write(in.saved, func(w io.Writer) error { return json.NewEncoder(w).Encode(now) })
}

// score writes the scores of the file, unless they are there.
func (d *directory) score(in *input) error {
	about := d.opt.About(identity(in.partial), d.digest)
	m, err := metadataOf(in.output)
	if err != nil {
		return fmt.Errorf("-o: %w", err)
	}
	same := m != nil
	for key, value := range about {
		same = same && m[key] == value
	}
	if same {
		return nil
	}
	in.written = true
	err = Apply(d.opt, in.name, in.output, d.merged, about)
	if in.kept && errors.Is(err, score.ErrNotInBatch) {
		in.partial, in.kept, in.stale = nil, false, true
		return errStale
	}
	return err
}

// findOthers warns of scores in the directory that are of another batch: of an earlier run
// with more files.
func (d *directory) findOthers() error {
	mine := map[string]bool{}
	for _, in := range d.inputs {
		mine[in.output] = true
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return fmt.Errorf("-o: %s: %w", printable.Text(d.dir), atomicfile.Cause(err))
	}
	var others []string
	for _, e := range entries {
		name := filepath.Join(d.dir, e.Name())
		if mine[name] || !e.Type().IsRegular() || filepath.Ext(name) != ".safetensors" {
			continue
		}
		if m, err := metadataOf(name); err == nil && m[keyBatch] != d.digest {
			others = append(others, printable.Text(e.Name()))
		}
	}
	if len(others) > 0 {
		d.warnings = append(d.warnings, fmt.Sprintf("%s has scores of another batch: %s.", printable.Text(d.dir), cli.FirstOf(others)))
	}
	return nil
}

func (d *directory) summary() *Summary {
	t := d.merged.Totals()
	s := &Summary{
		Directory: d.dir, Files: len(d.inputs), Trajectories: t.Trajectories, Tokens: t.Tokens, Groups: t.Groups, Spans: t.Spans,
		Actions: t.Actions, Signal: d.opt.Score.ActFocus.Signal.String(), Mean: bench.Number(t.Mean), Deviation: bench.Number(t.Deviation),
		Estimates: []Estimate{}, Warnings: []string{},
	}
	for _, f := range d.merged.Files() {
		if f.Entropy != nil {
			s.Estimates = append(s.Estimates, Estimate{f.Name, found.NewOrigin(*f.Entropy)})
		}
	}
	warnings := map[string]bool{}
	for _, w := range d.warnings {
		warnings[w] = true
	}
	for _, in := range d.inputs {
		if in.written {
			s.Written++
		}
		for _, w := range in.warnings {
			warnings[w] = true
		}
	}
	s.Warnings = append(s.Warnings, slices.Sorted(maps.Keys(warnings))...)
	return s
}

// Write prints the summary for people.
func (s *Summary) Write(w io.Writer) error {
	n := func(i int64) string { return humanize.Comma(i) }
	fmt.Fprintf(w, "Scored as one batch: files %s, groups %s, trajectories %s, responses %s, tokens %s\n",
		n(int64(s.Files)), n(int64(s.Groups)), n(s.Trajectories), n(int64(s.Spans)), n(s.Tokens))
	fmt.Fprintf(w, "Action tokens: %s; their signal, %s: mean %s nats, standard deviation %s\n",
		n(s.Actions), s.Signal, cli.Small(float64(s.Mean)), cli.Small(float64(s.Deviation)))
	_, err := fmt.Fprintf(w, "Weights and advantages are in %s: files written %s, there before %s\n",
		printable.Text(s.Directory), n(int64(s.Written)), n(int64(s.Files-s.Written)))
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
