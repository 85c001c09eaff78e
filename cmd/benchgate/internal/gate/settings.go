package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest"
	"github.com/seed621a2839/reweight/internal/printable"
)

// settingsName is the file of limits in the directory of the module.
const settingsName = ".benchgate"

// A setting is what a line of the file says about the benchmarks that its pattern matches.
type setting struct {
	pattern *regexp.Regexp
	slower  float64  // 0 if the line does not say
	metrics []string // the same, nil
}

// readSettings takes what the file of the module says into the options. Flags win. A line is
//
//	[PATTERN] [slower=1.2] [metrics=B/op,widgets] [cpu=4] [skip]
//
// Without a pattern it is about all benchmarks; cpu is always, and skip never. Of two lines
// about a benchmark the later one counts.
func (g *gate) readSettings(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, settingsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var skip []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", settingsName, n, printable.Line(fmt.Sprintf(format, args...)))
		}
		s, pattern := setting{}, ""
		if !strings.Contains(words[0], "=") && words[0] != "skip" {
			pattern, words = words[0], words[1:]
		}
		if err := gotest.CheckPattern(pattern); err != nil {
			return wrong("%v", err)
		}
		if s.pattern, err = regexp.Compile(pattern); err != nil {
			return wrong("%v", err)
		}
		if len(words) == 0 {
			return wrong("%q has no setting: want slower=, metrics= or skip after it", pattern)
		}
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "slower":
				if s.slower, err = strconv.ParseFloat(value, 64); err != nil || !(s.slower > 1 && s.slower <= 100) {
					return wrong("slower is %q, want a ratio above 1, such as 1.05", value)
				}
			case "metrics":
				s.metrics = []string{}
				if value != "none" {
					s.metrics = strings.Split(value, ",")
				}
			case "cpu":
				cpu, err := strconv.Atoi(value)
				if err != nil || cpu < 1 || cpu > 1024 {
					return wrong("cpu is %q, want 1 to 1024", value)
				}
				if pattern != "" {
					return wrong("cpu is of all benchmarks: it has a line without a pattern")
				}
				if !g.Given("cpu") {
					g.CPU = cpu
				}
			case "skip":
				if word != "skip" || pattern == "" {
					return wrong("want PATTERN skip")
				}
				skip = append(skip, pattern)
			default:
				return wrong("%q is no setting, want slower=, metrics=, cpu= or skip", word)
			}
		}
		if g.Given("slower") {
			s.slower = 0
		}
		if g.Given("metrics") {
			s.metrics = nil
		}
		g.settings = append(g.settings, s)
	}
	if !g.Given("skip") {
		g.Skip = strings.Join(skip, "|")
	}
	return nil
}

// limits returns the limit of a benchmark's time and its units.
func (o *Options) limits(benchmark string) (slower float64, metrics []string) {
	slower, metrics = o.Slower, o.Metrics
	for _, s := range o.settings {
		if !s.pattern.MatchString(benchmark) {
			continue
		}
		if s.slower > 0 {
			slower = s.slower
		}
		if s.metrics != nil {
			metrics = s.metrics
		}
	}
	return slower, metrics
}
