package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed621a2839/reweight/bench"
	"github.com/seed621a2839/reweight/cmd/benchgate/internal/gotest/worker"
	"github.com/seed621a2839/reweight/internal/cli"
)

// A version is one of the two that are compared of a module: the base, or the new one.
type version interface {
	// build makes the build of an order, if it is not there: of order 0 with functions where
	// the linker puts them, of any other with functions in a random order.
	build(ctx context.Context, group string, order int) error
	// start starts a fresh worker for the functions of a group, of the build of that order.
	start(ctx context.Context, group string, order int) (bencher, error)
	// profile takes a CPU profile of so many calls of a function, in a file.
	profile(ctx context.Context, f *function, calls int) (file string, err error)
}

// A bencher is a worker of a version: a process that runs benchmarks on request.
type bencher interface {
	run(q worker.Request) (reply, error)
	close()
}

// A sample is what a worker measures of a function in one go: of each unit the best of some
// blocks of calls.
type sample map[string]float64

// keep takes a value of a unit if it is better than the one of the sample.
func (s sample) keep(unit string, v float64) {
	old, has := s[unit]
	if !has || better(unit, v, old) {
		s[unit] = v
	}
}

// A function is a benchmark that is compared.
type function struct {
	Result
	group    string        // functions of a group are measured by the same worker
	calls    int           // in a block
	blocks   int           // in a sample
	short    int           // calls in a shorter block that is subtracted, 0 for none: see sizing
	cost     time.Duration // of a pair, as expected
	spent    time.Duration
	slower   float64 // the limit of its time
	runnable runnable
	units    []*Metric // that of time is the first

	flakes  int    // how often it failed
	flake   string // the last time, when it did not fail again
	dropped bool   // a note says why it is not compared
}

// nanoseconds is the unit of times, as in testing's results.
const nanoseconds = "ns/op"

// A comparison runs workers of two builds against each other.
type comparison struct {
	*gate
	versions  [2]version // the base, and the new build
	functions []*function
	rule      bench.Rule
	started   time.Time      // with the search for benchmarks
	deadline  time.Time      // no round begins that would end after it
	reserve   time.Duration  // before the deadline, for measureReordered
	rounds    map[string]int // of pairs, by group
	last      *workers       // of the last pair, which end while those of the next one start
	repeats   []float64      // ratios of the base to itself: see bench.TakePair
	rand      *rand.Rand
	late      bool     // time was up before all had a verdict
	broken    []string // what fails in both versions, and how
	mended    bool     // something fails in the base only
}

// open returns the functions that have no verdict.
func (c *comparison) open() []*function {
	return slices.DeleteFunc(slices.Clone(c.functions), func(f *function) bool {
		return f.Verdict != bench.Open || f.dropped
	})
}

// measure takes pairs until each function has its verdict, or time is up.
//
// Two processes of one build may differ by several percent for as long as they
// live, by where their memory happens to lie. So every pair has two processes of
// its own, which makes such luck part of the noise between pairs, and a coin says
// which of them begins: with no difference between the builds, a pair is as
// likely to be above 1 as below, whatever the machine does meanwhile. Functions
// take turns, so that a bad moment hits few pairs of each, and get equal time: cheap
// ones have their verdicts first.
func (c *comparison) measure(ctx context.Context, orders int) error {
	c.rounds, c.last = map[string]int{}, new(workers)
	defer func() { c.last.close() }()
	for open := c.open(); len(open) > 0; open = c.open() {
		due := c.due(open)
		if len(due) == 0 {
			c.giveUp(open)
			break
		}
		var names []string
		for _, f := range open {
			names = append(names, f.name())
		}
		c.steps.next("still open: %d of %d, %v left: %s", len(open), len(c.functions),
			max(0, c.left()).Round(time.Second),
			cli.FirstOf(names))
		err := c.round(ctx, due, orders)
		if errors.Is(err, errTimeUp) {
			c.giveUp(c.open())
			break
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errTimeUp is the error of what takes longer than the budget allows.
var errTimeUp = errors.New("the time is up")

// left is the time until the deadline.
func (c *comparison) left() time.Duration {
	left := time.Until(c.deadline)
	if len(c.suspects()) > 0 {
		left -= c.reserve
	}
	return left
}

// pairCost is how long a pair takes, as far as is known.
func (f *function) pairCost() time.Duration {
	if n := len(f.units[0].pairs); n > 0 {
		return f.spent / time.Duration(n)
	}
	return max(1, f.cost)
}

// due are those of the open functions whose turn it is: that a pair fits into the time for,
// and that have had no more time than others.
func (c *comparison) due(open []*function) []*function {
	left := c.left()
	open = slices.DeleteFunc(slices.Clone(open), func(f *function) bool { return f.pairCost() > left })
	least, cheapest := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, f := range open {
		least, cheapest = min(least, f.spent), min(cheapest, f.pairCost())
	}
	return slices.DeleteFunc(open, func(f *function) bool { return f.spent-least >= cheapest })
}

// giveUp makes what is still open inconclusive, and says what more time would do.
func (c *comparison) giveUp(open []*function) {
	c.late = true
	for _, f := range open {
		f.Verdict = bench.Inconclusive
		f.Message = "not measured before the time was up"
		u := f.units[slices.IndexFunc(f.units, func(u *Metric) bool { return u.Verdict == bench.Open })]
		if n := len(u.pairs); n > 0 {
			f.Message = fmt.Sprintf("%s, open after %d pairs, when the time was up", u.finding(), n)
		}
	}
	c.advise(open)
}

// advise notes which budget would decide all functions that are open, which of them to leave out
// to fit the present budget, and which of them no budget would decide.
func (c *comparison) advise(open []*function) {
	needs := map[*function]time.Duration{} // 0 if no time would do
	var soon, never []string
	all := time.Since(c.started)
	for _, f := range open {
		if n := f.wanted(c.ruleOf(f)); n > 0 {
			needs[f] = f.pairCost() * time.Duration(max(1, n-len(f.units[0].pairs)))
			soon = append(soon, f.name())
			all += needs[f]
		} else {
			never = append(never, f.name())
		}
	}
	if len(soon) > 0 {
		c.note("With -budget %s, %s would probably be decided", budget(all), cli.FirstOf(soon))
		dear := slices.DeleteFunc(slices.Clone(open), func(f *function) bool { return needs[f] == 0 })
		slices.SortStableFunc(dear, func(a, b *function) int { return cmp.Compare(needs[b]+b.spent, needs[a]+a.spent) })
		var without []string
		for all > c.deadline.Sub(c.started) && len(without) < len(dear)-1 {
			f := dear[len(without)]
			all -= needs[f] + f.spent
			without = append(without, f.name())
		}
		if len(without) > 0 && all <= c.deadline.Sub(c.started) {
			c.note("The present budget would probably do without %s", strings.Join(without, ", "))
		}
	}
	if len(never) > 0 {
		c.note("More time would hardly decide %s: too near to the limit, or too noisy", cli.FirstOf(never))
	}
}

// budget prints a time with a third in reserve, as a value of -budget: regressions are
// measured once more.
func budget(d time.Duration) string {
	d += d / 3
	if d < 2*time.Minute {
		return fmt.Sprintf("%ds", 10*(d/(10*time.Second)+1))
	}
	return fmt.Sprintf("%dm", d/time.Minute+1)
}

// wanted estimates at how many pairs the function will have its verdict, 0 if at no
// number of them.
func (f *function) wanted(rule bench.Rule) int {
	wanted := 0
	for _, u := range f.units {
		if u.Verdict != bench.Open {
			continue
		}
		n := u.wanted(rule)
		if n == 0 {
			return 0
		}
		wanted = max(wanted, n)
	}
	return wanted
}

// round takes a pair of each of these functions, group by group.
func (c *comparison) round(ctx context.Context, open []*function, orders int) error {
	groups := map[string][]*function{}
	var names []string
	for _, i := range c.rand.Perm(len(open)) { // no function is always the first of its process
		f := open[i]
		if groups[f.group] == nil {
			names = append(names, f.group)
		}
		groups[f.group] = append(groups[f.group], f)
	}
	for _, name := range names {
		if err := c.pairsOf(ctx, name, groups[name], orders); err != nil {
			return err
		}
	}
	return nil
}

// pairsOf takes a pair of each function of a group, in two fresh processes. With
// orders, these have one of that many random orders of functions.
func (c *comparison) pairsOf(ctx context.Context, group string, functions []*function, orders int) error {
	var order [2]int
	if n := c.rounds[group]; n < orders { // each has its turn before one is drawn again
		order = [2]int{1 + n, 1 + n}
	} else if orders > 0 {
		order = [2]int{1 + c.rand.IntN(orders), 1 + c.rand.IntN(orders)}
	}
	if orders > 0 {
		err := both(func(version int) error { return c.versions[version].build(ctx, group, order[version]) })
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	c.rounds[group]++
	w := &workers{c: c, group: group, order: order}
	begin := time.Now()
	var ending sync.WaitGroup
	ending.Go(c.last.close)
	err := w.start(ctx)
	ending.Wait()
	c.last = w
	started := time.Since(begin) / time.Duration(len(functions))
	for _, f := range functions {
		if len(f.units[0].pairs) > 0 && c.left() < 0 {
			return nil
		}
		begin := time.Now()
		if err == nil {
			err = c.pair(ctx, f, w)
		}
		f.spent += started + time.Since(begin)
		why, blame, other := w.judge(ctx, err, func(b bencher) error { // a sample has many more chances to fail
			_, _, err := runBlocks(b, f.runnable, f.calls, 1)
			return err
		})
		if other != nil {
			return other
		}
		if why != nil {
			c.blamed(f, blame, why)
			w.close() // others begin in fresh processes
			err = nil
		}
	}
	return nil
}

// pair takes a pair of the function.
func (c *comparison) pair(ctx context.Context, f *function, w *workers) error {
	best := [2]sample{{}, {}}
	one := func(version int) func() ([]float64, error) {
		return func() (ns []float64, err error) {
			err = w.run(ctx, version, func(b bencher) error {
				t, err := takeSample(b, f)
				for unit, v := range t {
					best[version].keep(unit, v)
				}
				ns = []float64{t[f.units[0].Unit]}
				return err
			})
			return ns, err
		}
	}
	_, repeat, err := bench.TakePair(c.rand, one(0), one(1))
	if err != nil {
		return err
	}
	c.repeats = append(c.repeats, repeat)
	for _, u := range f.units {
		u.pairs = append(u.pairs, bench.Pair{Base: best[0][u.Unit], New: best[1][u.Unit]})
	}
	f.decide(c.ruleOf(f))
	return nil
}

// workers are processes of both versions for the functions of a group. One that fails is ended,
// and another one takes its place.
type workers struct {
	c     *comparison
	group string
	order [2]int
	procs [2]bencher
}

// start starts those that do not run.
func (w *workers) start(ctx context.Context) error {
	return both(func(version int) error { return w.run(ctx, version, func(bencher) error { return nil }) })
}

// both does something for either version, at the same time.
func both(do func(version int) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for version := range errs {
		wg.Go(func() { errs[version] = do(version) })
	}
	wg.Wait()
	return cmp.Or(errs[0], errs[1])
}

// run asks the process of a version. A *failure tells that it failed.
func (w *workers) run(ctx context.Context, version int, ask func(bencher) error) (err error) {
	if w.procs[version] == nil {
		w.procs[version], err = w.c.versions[version].start(ctx, w.group, w.order[version])
	}
	if err == nil {
		err = ask(w.procs[version])
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if why, ok := errors.AsType[*failure](err); ok {
		why.version = version
		w.end(version)
	}
	return err
}

// left is after how many requests a process had more goroutines than before.
func (w *workers) left() (most int) {
	for _, p := range w.procs {
		if t, ok := p.(*testWorker); ok {
			most = max(most, t.left)
		}
	}
	return most
}

// end ends the process of a version, if one runs.
func (w *workers) end(version int) {
	if p := w.procs[version]; p != nil {
		p.close()
		w.procs[version] = nil
	}
}

func (w *workers) close() {
	both(func(version int) error { w.end(version); return nil })
}

// ruleOf is the rule for a function.
func (c *comparison) ruleOf(f *function) bench.Rule {
	rule := c.rule
	rule.Slower, rule.Surely = f.slower, surely(f.slower)
	return rule
}

// decide sets the result from the pairs so far.
func (f *function) decide(rule bench.Rule) {
	for _, u := range f.units {
		u.decide(rule)
	}
	f.conclude()
}

// conclude sets the verdict of the function to the worst verdict of its units, and the message
// to those of the units that have this verdict; more is what their rows of the table do not say.
func (f *function) conclude() {
	f.Verdict = bench.Pass
	for _, u := range f.units {
		if severity[u.Verdict] > severity[f.Verdict] {
			f.Verdict = u.Verdict
		}
	}
	var messages, more []string
	for _, u := range f.units {
		if u.Verdict == f.Verdict && u.message != "" {
			messages, more = append(append(messages, u.message), u.more...), append(more, u.more...)
		}
	}
	f.Message, f.more = strings.Join(messages, "; "), strings.Join(more, "; ")
}

// result is what is known of the function.
func (f *function) result() Result {
	r, time := f.Result, f.units[0]
	r.Time, r.Ratio, r.BaseNs, r.NewNs, r.Pairs = time.Verdict, time.Ratio, time.Base, time.New, time.pairs
	r.Calls, r.Short, r.Seconds = f.calls, f.short, f.spent.Seconds()
	if f.runnable.untimed {
		r.Pairs = nil
	}
	for _, u := range f.units[1:] {
		if len(u.pairs) > 0 {
			r.Metrics = append(r.Metrics, *u)
		}
	}
	return r
}

// severity orders verdicts.
var severity = [...]int{bench.Pass: 0, bench.Open: 1, bench.Inconclusive: 2, bench.Regression: 3}

type unitKind int

const (
	lower  unitKind = iota // less is better, and the ratio is judged
	higher                 // more is better, and the ratio is judged
	count                  // equal or less, whatever the ratio
)

// kindOf returns that of a unit.
func kindOf(unit string) unitKind {
	switch {
	case unit == "B/op" || unit == "allocs/op":
		return count
	case strings.HasSuffix(unit, "/s"): // a rate, such as MB/s
		return higher
	}
	return lower
}

// better reports whether a value of the unit is better than another one.
func better(unit string, v, other float64) bool {
	if kindOf(unit) == higher {
		return v > other
	}
	return v < other
}

// judged returns the pairs as the rule takes them, and whether they are counts.
func (u *Metric) judged() (pairs []bench.Pair, counts bool) {
	pairs = slices.Clone(u.pairs)
	kind := kindOf(u.Unit)
	for i, p := range pairs {
		if kind == higher { // less of a rate is what more of a time is
			pairs[i] = bench.Pair{Base: p.New, New: p.Base}
		}
		counts = counts || !(p.Base > 0 && p.New > 0) // there may be no ratio
	}
	return pairs, counts || kind == count
}

// wanted estimates at how many pairs an open unit will have its verdict, 0 if at no
// number of them. Counts that vary are decided at any look, and before the first look
// little is known.
func (u *Metric) wanted(rule bench.Rule) int {
	pairs, counts := u.judged()
	if !counts && len(pairs) > 0 {
		if n := u.rule(rule).Wanted(pairs); n > 0 || len(pairs) >= rule.Looks[0] {
			return n
		}
	}
	for _, look := range rule.Looks {
		if look > len(pairs) {
			return look
		}
	}
	return 0
}

// rule returns the one of the unit.
func (u *Metric) rule(rule bench.Rule) bench.Rule {
	if u.Unit != nanoseconds {
		rule.Floor = 0
	}
	return rule
}

// decide sets the verdict, which stays when it is one.
func (u *Metric) decide(rule bench.Rule) {
	if u.Verdict != bench.Open {
		return
	}
	rule = u.rule(rule)
	u.Base, u.New = medians(u.pairs)
	pairs, counts := u.judged()
	if counts {
		u.Verdict, _ = rule.DecideCounts(pairs)
		u.Ratio = nil
	} else {
		verdict, ratio := rule.Decide(pairs)
		u.Verdict, u.Ratio = verdict, &ratio
	}
	switch u.Verdict {
	case bench.Pass:
		if e := u.Ratio; e != nil && e.Lo > 1 && e.Median > rule.Surely {
			u.message = fmt.Sprintf("%s, %d pairs", u.finding(), len(pairs))
			u.more = []string{fmt.Sprintf("%.1f%% %s, %s the limit of %.3g%%", 100*(e.Median-1), worse(u.Unit),
				map[bool]string{true: "just below", false: "below"}[e.Median-1 > 0.8*(rule.Slower-1)],
				100*(rule.Slower-1))}
		}
	case bench.Regression:
		u.message = fmt.Sprintf("%s, %d pairs", u.finding(), len(pairs))
	case bench.Inconclusive:
		u.message = fmt.Sprintf("%s, open after %d pairs", u.finding(), len(pairs))
	}
}

// worse says what more of a unit that is judged by its ratio is.
func worse(unit string) string {
	switch {
	case unit == nanoseconds:
		return "slower"
	case kindOf(unit) == higher:
		return "fewer " + unit
	}
	return "more " + unit
}

// finding says what the pairs show.
func (u *Metric) finding() string {
	e := u.Ratio
	if e == nil {
		return fmt.Sprintf("%s %s, base %s", quantity(u.New), u.Unit, quantity(u.Base))
	}
	what := fmt.Sprintf("has %.3f times as many %s as the base", e.Median, u.Unit)
	switch {
	case u.Unit == nanoseconds:
		what = fmt.Sprintf("takes %.3f times as long as the base", e.Median)
	case kindOf(u.Unit) == higher:
		what = fmt.Sprintf("the base has %.3f times as many %s", e.Median, u.Unit)
	}
	if in := interval(*e); in != "-" { // there are too few pairs
		what += " (" + in + ")"
	}
	return what
}

// medians returns those of the two versions.
func medians(pairs []bench.Pair) (base, now float64) {
	var versions bench.Samples = make([][]float64, 2)
	for _, p := range pairs {
		versions[0], versions[1] = append(versions[0], p.Base), append(versions[1], p.New)
	}
	return versions.Median(0).Median, versions.Median(1).Median
}

// newComparison returns a comparison of two versions.
func (g *gate) newComparison(base, now version) comparison {
	begin := time.Now()
	return comparison{gate: g, versions: [2]version{base, now}, started: begin, deadline: begin.Add(g.Budget),
		reserve: g.Budget / 4,
		rand:    rand.New(rand.NewPCG(rand.Uint64(), 0))}
}

// compare decides about each function, and adds the results to the report. With an
// error, they are those that there are by then.
func (c *comparison) compare(ctx context.Context) error {
	defer c.take()
	timed, cancel := context.WithDeadlineCause(ctx, c.deadline.Add(c.overtime()), errTimeUp)
	defer cancel()
	units := 0
	for _, f := range c.functions {
		units += len(f.units)
	}
	c.rule = bench.NewRule(units, c.Alpha)
	if err := c.measure(timed, 0); err != nil {
		return err
	}
	if err := c.measureReordered(timed); err != nil {
		return err
	}
	if err := c.countInstructions(timed); err != nil {
		return err
	}
	c.profile(ctx)
	return nil
}

// inTree returns a place in the git working tree, with slashes; none of a file elsewhere.
func (g *gate) inTree(at place) (file string, line int) {
	rel, err := filepath.Rel(g.top, at.file)
	if g.top == "" || err != nil || !filepath.IsLocal(rel) {
		return "", 0
	}
	return filepath.ToSlash(rel), at.line
}

// overtime is how much longer than the budget a run may take: what has begun ends by
// then, and so do the second witness and profiles.
func (c *comparison) overtime() time.Duration { return c.Budget / 10 }

// take adds what was found to the report.
func (c *comparison) take() {
	c.report.broken = len(c.broken)
	for _, f := range c.functions {
		if f.dropped {
			continue
		}
		if f.flake != "" && !f.failed {
			c.note("%s failed %s in %s: the %s", f.name(),
				cli.Counted(f.flakes, "time"), cli.Counted(len(f.units[0].pairs), "pair"), f.flake)
		}
		c.report.Results = append(c.report.Results, f.result())
	}
	if len(c.repeats) > 0 {
		null := bench.Samples{c.repeats}.Median(0)
		c.report.Null = &null
	}
}

// suspects are the functions that fail by their time.
func (c *comparison) suspects() []*function {
	return slices.DeleteFunc(slices.Clone(c.functions), func(f *function) bool {
		return f.units[0].Verdict != bench.Regression || f.failed || f.dropped
	})
}

// randomOrders is how many random orders of functions a version is built in at most. Pairs
// of one build are not independent: with half as many, a function that is a little
// slower would fail more often than Alpha says (TestGateRule simulates it).
const randomOrders = 24

// measureReordered measures what would fail by its time once more, in builds with
// functions in random orders. Where the linker puts functions moves some of them by
// several percent, and no number of pairs of one build would show it. What is slower by
// itself stays slower; what is not passes, with a message.
func (c *comparison) measureReordered(ctx context.Context) error {
	suspects := c.suspects()
	if len(suspects) == 0 {
		return nil
	}
	err := both(func(version int) error { return c.versions[version].build(ctx, suspects[0].group, 1) })
	if err != nil && ctx.Err() == nil { // the linker of Go 1.21 cannot
		for _, f := range suspects {
			f.units[0].more = append(f.units[0].more,
				"this may be only by where the linker puts functions, as there is no build in random orders: "+err.Error())
			f.conclude()
		}
		return nil
	}
	second := c.fresh(suspects, nanoseconds)
	if err = context.Cause(ctx); err == nil {
		err = second.measure(ctx, randomOrders)
	} else if err == errTimeUp {
		err, second.late = nil, true
	}
	for i, f := range suspects {
		f.reordered(second.functions[i], second.late)
	}
	return err
}

// fresh returns a comparison of the same builds, of some of the functions by one unit. Nothing
// is measured of them yet.
func (c *comparison) fresh(functions []*function, unit string) comparison {
	second := comparison{gate: c.gate, versions: c.versions, rule: bench.NewRule(len(functions), c.Alpha),
		started: c.started, deadline: c.deadline, rand: c.rand}
	for _, f := range functions {
		g := *f
		g.Verdict, g.Message, g.spent = bench.Open, "", 0
		g.units = []*Metric{{Unit: unit}}
		second.functions = append(second.functions, &g)
	}
	return second
}

// reordered takes the verdict on the same function with random orders of functions. What
// was not measured to the end changes nothing.
func (f *function) reordered(second *function, late bool) {
	f.spent += second.spent
	if second.failed && second.Verdict == bench.Regression {
		f.Message, f.failed = second.Message, true
		return
	}
	ratio := second.units[0].Ratio
	f.Reordered = ratio
	if second.Verdict == bench.Open || second.failed || late && second.Verdict == bench.Inconclusive {
		f.units[0].more = append(f.units[0].more, "not measured to the end with functions in random orders")
		f.conclude()
		return
	}
	in := fmt.Sprintf("%.3f times (%s), %d pairs, with functions in random orders", ratio.Median,
		interval(*ratio), ratio.N)
	switch time := f.units[0]; second.Verdict {
	case bench.Regression:
		time.more = append(time.more, in)
	case bench.Pass:
		time.Verdict = bench.Pass
		what := "only by where the linker puts functions"
		if ratio.Lo > 1 {
			what = "below the limit in random orders of functions"
		}
		time.more = append(time.more, what+": "+in)
	default:
		time.Verdict = bench.Inconclusive
		time.more = append(time.more, "not decided: "+in)
	}
	f.conclude()
}
