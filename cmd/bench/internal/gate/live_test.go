package gate

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/bench/internal/cli"
)

// A screen is a terminal that knows what the live table writes to it. It scrolls, and it
// fails the test if a line is longer than it is wide and would be wrapped.
type screen struct {
	t             *testing.T
	columns, rows int
	lines         [][]rune
	row, column   int
	noWrap        bool
}

func newScreen(t *testing.T, columns, rows int) *screen {
	return &screen{t: t, columns: columns, rows: rows, lines: make([][]rune, rows)}
}

func (s *screen) Write(b []byte) (int, error) {
	for text := string(b); text != ""; {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexAny(rest, "AKJhl")
			if end < 0 {
				s.t.Fatalf("an unknown sequence: %q", text)
			}
			s.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\r':
			s.column = 0
		case '\n':
			if s.row++; s.row == s.rows {
				s.lines, s.row = append(s.lines[1:], nil), s.rows-1
			}
		default:
			if s.column >= s.columns {
				if !s.noWrap {
					s.t.Fatalf("%q is wrapped", string(s.lines[s.row]))
				}
				continue
			}
			for len(s.lines[s.row]) <= s.column {
				s.lines[s.row] = append(s.lines[s.row], ' ')
			}
			s.lines[s.row][s.column] = r
			s.column++
		}
	}
	return len(b), nil
}

func (s *screen) control(number string, what byte) {
	switch {
	case what == 'A':
		n := 0
		if _, err := fmt.Sscan(number, &n); err != nil || n > s.row {
			s.t.Fatalf("up by %s from row %d", number, s.row)
		}
		s.row -= n
	case what == 'K' || what == 'J':
		s.lines[s.row] = s.lines[s.row][:min(s.column, len(s.lines[s.row]))]
		for i := s.row + 1; what == 'J' && i < s.rows; i++ {
			s.lines[i] = nil
		}
	case number == "?7":
		s.noWrap = what == 'l'
	default:
		s.t.Fatalf("an unknown sequence %s%c", number, what)
	}
}

func (s *screen) String() string {
	var lines []string
	for _, line := range s.lines {
		lines = append(lines, strings.TrimRight(string(line), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// TestLive: the table stands below the line of progress, is replaced, and is gone at the
// end, on whatever line of the terminal it begins.
func TestLive(t *testing.T) {
	for before := range 12 {
		s := newScreen(t, 70, 10)
		want := ""
		for i := range before {
			fmt.Fprintf(s, "before %d\r\n", i)
		}
		p := &cli.Progress{W: s}
		l := &live{terminal: s, limits: limits{1.05, 1.02, 0.01}, size: func() (int, int) { return 70, 10 }}
		c := comparison{rule: bench.NewRule(1, 0.01)}
		for i := range 10 {
			u := &unit{Metric: Metric{Unit: nanoseconds}}
			f := &function{Result: Result{Benchmark: fmt.Sprintf("BenchmarkOf/a_name_that_does_not_fit/%d", i), relative: "."}, units: []*unit{u}}
			c.functions = append(c.functions, f)
		}
		for round := range 15 {
			p.Next("round %d", round)
			for i, f := range c.functions[:max(1, 10-round)] {
				f.units[0].pairs = append(f.units[0].pairs, bench.Pair{Base: 1000, New: 1000 + 20*float64(i)})
				f.decide(c.rule)
			}
			for _, line := range l.lines(&c, 40, 8) {
				if twwidth.Width(line) > 40 {
					t.Errorf("40 columns: %q", line)
				}
			}
			l.show(&c)
			if text := s.String(); round == 0 && (!strings.Contains(text, "round 0\nbenchmark ") || !strings.HasSuffix(text, "\nand 4 more rows") ||
				!strings.Contains(text, "\nBenchmarkOf/a_nam...at_does_not_fit/9  open     1.179         -      1\n")) {
				t.Fatalf("after %d lines:\n%s", before, text)
			}
		}
		text := s.String()
		if !strings.Contains(text, "round 14\nbenchmark ") || strings.Count(text, "benchmark ") != 1 {
			t.Errorf("after %d lines:\n%s", before, text)
		}
		l.clear()
		for i := max(0, before-1); i < before; i++ { // those that have not scrolled away
			want += fmt.Sprintf("before %d\n", i)
		}
		if text := s.String(); strings.Contains(text, "enchmark") || strings.Contains(text, "round") || !strings.HasSuffix(text+"\n", want) {
			t.Errorf("after %d lines the end has\n%s\nwant\n%s", before, text, want)
		}
	}
	// A terminal that is too narrow cuts lines.
	s := newScreen(t, 40, 10)
	l := &live{terminal: s, limits: limits{}, size: func() (int, int) { return 40, 10 }}
	l.show(&comparison{functions: []*function{{Result: Result{Benchmark: "BenchmarkWithALongName", relative: "."}}}})
	if want := "\nbenchmark         verdict  ratio  interv\nBenchma...ngName  open         -"; s.String() != want {
		t.Errorf("%q, want %q", s.String(), want)
	}
	// A size that has no room, and none at all.
	var out bytes.Buffer
	for rows := range 4 {
		l := &live{terminal: &out, limits: limits{}, size: func() (int, int) { return 80, rows }}
		l.show(&comparison{functions: []*function{{Result: Result{Benchmark: "BenchmarkX"}}}})
		l.clear()
	}
	(&live{}).show(&comparison{})
	if out.Len() > 0 {
		t.Errorf("it writes %q", out.String())
	}
}

// TestLiveIsForTerminals: what is no terminal gets nothing.
func TestLiveIsForTerminals(t *testing.T) {
	g := gate{Options: Options{Progress: &cli.Progress{}}}
	if l := g.newLive(); l.terminal != nil {
		t.Error("a table without progress")
	}
	g.Progress.W = io.Discard
	if l := g.newLive(); l.terminal != nil {
		t.Error("a table on what is no file")
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		name string
		most int
		want string
	}{
		{"BenchmarkX", 10, "BenchmarkX"}, {"BenchmarkXY", 10, "Benc...kXY"}, {"BenchmarkLong/number=17", 16, "Benchma...ber=17"},
		{"日本語日本語日本語", 11, "日本...本語"}, {"BenchmarkX", 0, "..."},
	} {
		got := shorten(c.name, c.most)
		if got != c.want || twwidth.Width(got) > max(3, c.most) {
			t.Errorf("%q of at most %d: %q, want %q", c.name, c.most, got, c.want)
		}
	}
}
