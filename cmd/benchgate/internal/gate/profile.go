package gate

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/execx"
)

const (
	profileTime = 2 * time.Second // of a version
	profiled    = 5               // benchmarks at most, and functions of each
)

// profile finds in which functions the benchmarks, which fail by their time, have become
// slower: it takes a CPU profile of as many calls of either version. That is help, and no part
// of the verdict, so that an error is only a note.
func (c *comparison) profile(ctx context.Context) {
	suspects := c.suspects()
	for _, f := range suspects[:min(profiled, len(suspects))] {
		if ctx.Err() != nil {
			return
		}
		slower := max(f.units[0].Base, f.units[0].New)
		if takes := 2 * max(profileTime, time.Duration(slower)); takes > time.Until(c.deadline)+c.overtime() {
			c.note("%s has no profile: the time was up", f.name())
			continue
		}
		c.steps.phase("profiling %s", f.name())
		calls := max(1, int(float64(profileTime)/slower))
		var files [2]string
		var err error
		for i, s := range c.versions {
			if err == nil {
				files[i], err = s.profile(ctx, f, calls)
			}
		}
		var gained []string
		if err == nil {
			gained, err = gains(ctx, files)
		}
		switch {
		case err != nil:
			c.note("%s has no profile: %v", f.name(), err)
			continue
		case len(gained) > 0:
			f.Profile = strings.Join(gained, ", ")
		}
		if c.Profiles == "" {
			continue
		}
		name := regexp.MustCompile(`[^\w.-]+`).ReplaceAllString(f.name(), "_")
		for i, version := range [...]string{"base", "new"} {
			if err := copyFile(filepath.Join(c.Profiles, name+"."+version+".pprof"), files[i]); err != nil {
				c.note("%v", err)
			}
		}
	}
}

// profile runs a benchmark with a CPU profile, and returns the file that has it.
func (s *testVersion) profile(ctx context.Context, f *function, calls int) (file string, err error) {
	pkg := packageOf(f.group)
	file = filepath.Join(s.run, fmt.Sprintf("%d.pprof", s.starts))
	s.starts++
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := s.command(ctx, s.exe(pkg, 0), pkg, "-test.run=^$", "-test.bench="+exactly(f.runnable.full),
		fmt.Sprintf("-test.benchtime=%dx", calls), "-test.cpuprofile="+file, "-test.timeout=1m")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", s.name, err, short(strings.TrimSpace(string(out))))
	}
	return file, nil
}

// gains returns the functions that take more time in the second profile, the most first, with
// their share of all of the first.
func gains(ctx context.Context, files [2]string) ([]string, error) {
	dir := filepath.Dir(files[1])
	env := append(execx.Environ(), "PPROF_TMPDIR="+dir)
	text, err := execx.Run(ctx, dir, env, "go", "tool", "pprof", "-top", "-flat", "-nodecount=1000000", "-unit=ms",
		"-hide=^runtime.asyncPreempt", "-diff_base="+files[0], files[1])
	if err != nil {
		return nil, err
	}
	return parseGains(text), nil
}

// parseGains reads what go tool pprof -top prints of a difference.
func parseGains(text string) []string {
	type gain struct {
		function string
		share    float64
	}
	var all []gain
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasSuffix(fields[1], "%") {
			continue
		}
		share, err := strconv.ParseFloat(strings.TrimSuffix(fields[1], "%"), 64)
		if err != nil || share < 2 || strings.HasPrefix(fields[0], "-") {
			continue
		}
		name := strings.TrimSuffix(strings.Join(fields[5:], " "), " (inline)")
		all = append(all, gain{name[strings.LastIndex(name, "/")+1:], share})
	}
	slices.SortStableFunc(all, func(a, b gain) int { return int(100 * (b.share - a.share)) })
	var list []string
	for _, g := range all[:min(profiled, len(all))] {
		list = append(list, fmt.Sprintf("+%.0f%% in %s", g.share, g.function))
	}
	return list
}
