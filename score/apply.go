package score

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/printable"
	"github.com/seed621a2839/reweight/rollout"
)

// A Scored is a trajectory and its scores, of which each has one element per token.
type Scored struct {
	*rollout.Trajectory
	Weights    []float32 // of ActFocus; 0 for masked tokens
	Advantages []float32 // from GRPO, or from the source, times the factors of AEM; 0 for masked tokens
}

// Apply scores the trajectories that src.Next has not returned yet as part of the batch
// that merged has the statistics of, and calls do with each, in their order. The scores
// are do's until it returns. do may read slices of the trajectory: Apply calls it within
// src.Guard. An error of do ends Apply, which returns it.
//
// Each file must be one of the batch, unchanged since its statistics were made, and opt
// must have the signal that they are of. What Of refuses is an error here too. That a file
// is none of the batch can turn out at its end, after do was called with all of its
// trajectories: what they gave is then of no use. The error wraps [ErrNotInBatch].
func Apply(src *rollout.Source, merged *Partial, opt Options, do func(Scored) error) error {
	err := apply(src, merged, opt, do)
	if errors.Is(err, ErrNotInBatch) {
		return merged.explain(err, describe(src.Options()))
	}
	return err
}

// explain adds to an error about a file that is not in p with which options files were
// opened, if none of p was opened with those of the file.
func (p *Partial) explain(err error, options string) error {
	if len(p.files) == 0 || slices.ContainsFunc(p.files, func(f *File) bool { return f.Options == options }) {
		return err
	}
	name := func(options string) string {
		if options == "" {
			return "no options"
		}
		return printable.Text(options)
	}
	return fmt.Errorf("%w: they were made with %s, but it is opened with %s", err, name(p.files[0].Options),
		name(options))
}

func apply(src source, merged *Partial, opt Options, do func(Scored) error) error {
	a, err := newApplier(merged, opt)
	if err != nil {
		return err
	}
	var before *rollout.Trajectory
	var counted []*rollout.Trajectory // of a group that was made by counting
	var of *group                     // which they are
	for {
		t, err := src.Next()
		end := err == io.EOF
		if err != nil && !end {
			return err
		}
		if len(counted) > 0 && (end || t.File != before.File || t.Group != before.Group || !t.LocalGroup) {
			if err := src.Guard(func() error { return a.scoreCounted(counted, of, do) }); err != nil {
				return err
			}
			counted = counted[:0]
		}
		if before != nil && (end || t.File != before.File) {
			if _, ok := slices.BinarySearchFunc(merged.files, &File{SHA256: a.endFile()}, compareFiles); !ok {
				return notInBatch(before.File)
			}
			before = nil
		}
		if end {
			return nil
		}
		if before == nil {
			a.beginFile()
		}
		before = t
		err = src.Guard(func() error {
			if err := a.read(t); err != nil {
				return err
			}
			if !t.LocalGroup {
				return a.score(t, a.shared(keyOf(t.Group)), do)
			}
			if len(counted) == 0 {
				of = new(group)
			}
			of.add(a.reader)
			counted = append(counted, t)
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// ErrNotInBatch is what errors of Apply wrap about a file that the merged statistics are not
// of.
var ErrNotInBatch = errors.New("the merged statistics are not of this file, or it has changed since they were made")

func notInBatch(name string) error {
	return fmt.Errorf("%s: %w", printable.Text(name), ErrNotInBatch)
}

// An applier scores trajectories.
type applier struct {
	*reader
	merged      *Partial
	mean, sigma float64            // of the signal over the batch's action tokens
	groups      map[string]*scores // of merged, as far as they were met, by their keys
	all         *scope             // for reweight.ScopeBatch

	weights, scaled []float32
}

// scores are what the trajectories of a group share.
type scores struct {
	mean, std float64 // of the rewards
	scope     *scope  // for reweight.ScopeGroup
}

// A scope is spans that AEM compares with each other.
type scope struct {
	means   []float32 // of the entropies, sorted
	factors []float32 // of these spans; nil if all are 1
}

func newApplier(merged *Partial, opt Options) (*applier, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	if merged.signal != opt.ActFocus.Signal {
		return nil, fmt.Errorf("the merged statistics are of the signal %v, not of %v", merged.signal,
			opt.ActFocus.Signal)
	}
	a := &applier{reader: newReader(opt), merged: merged, groups: map[string]*scores{}}
	if n := merged.actions.N; n > 0 {
		a.mean = merged.actions.mean()
		a.sigma = math.Sqrt(merged.actions.variance(n) + opt.ActFocus.Eps)
	}
	if opt.AEM.Scope == reweight.ScopeBatch {
		a.all = a.newScope(merged.allSpans())
	}
	return a, nil
}

// scoreCounted scores the trajectories of a group that was made by counting. They are all of
// the group, and tell its statistics, which merged has under a key of the whole file.
func (a *applier) scoreCounted(all []*rollout.Trajectory, of *group, do func(Scored) error) error {
	of.sort()
	shared := a.scoresOf(of)
	for _, t := range all {
		if err := a.prepare(t); err != nil {
			return err
		}
		if err := a.score(t, shared, do); err != nil {
			return err
		}
	}
	return nil
}

// score scores the trajectory that was prepared last, and calls do. of is what its group shares,
// or nil.
func (a *applier) score(t *rollout.Trajectory, of *scores, do func(Scored) error) error {
	b := &a.batch
	if b.Tokens() == 0 {
		return do(Scored{Trajectory: t})
	}
	a.weights, a.scaled = resize(a.weights, b.Tokens()), resize(a.scaled, b.Tokens())
	mustCall(a.ws.ActFocusWeights(a.weights, a.signal, b.Role, a.mean, a.sigma, a.opt.ActFocus))
	if of == nil || a.advantages != a.merged.advantages {
		return notInBatch(t.File)
	}
	of.setAdvantages(a.scaled, b, a.advantages, a.opt.GRPO)
	if !a.scale(a.scaled, of.scope) {
		return notInBatch(t.File)
	}
	return do(Scored{t, a.weights, a.scaled})
}

// shared returns what the trajectories of the group of that key share, or nil if there is none.
func (a *applier) shared(key string) *scores {
	if a.groups[key] == nil {
		if g := a.merged.group(key); g != nil {
			a.groups[key] = a.scoresOf(g)
		}
	}
	return a.groups[key]
}

// scoresOf returns what the trajectories of the group share.
func (a *applier) scoresOf(g *group) *scores {
	of := &scores{std: 1}
	if n := len(g.rewards); n > 1 { // the mean of a group of one is 0
		var c collector
		c.add(g.rewards)
		rewards := c.total()
		of.mean, of.std = rewards.mean(), math.Sqrt(rewards.variance(int64(n-1)))
	}
	if a.opt.AEM.Scope == reweight.ScopeGroup {
		of.scope = a.newScope(g.spans)
	}
	return of
}

// newScope returns the scope of spans with these mean entropies, which are sorted, as
// reweight.Workspace.AEM computes it.
func (a *applier) newScope(means []float32) *scope {
	s := &scope{means: means}
	if len(means) == 0 {
		return s
	}
	lo := means[0]
	width := float64(means[len(means)-1]) - float64(lo)
	if width >= a.opt.AEM.Guard && a.opt.AEM.Lambda < width*math.MaxFloat32 {
		s.factors = make([]float32, len(means))
		mustCall(a.ws.ExpScale(s.factors, means, lo, a.opt.AEM.Lambda/width))
	}
	return s
}

// mustCall panics at an error of a kernel, whose arguments were checked.
func mustCall(err error) {
	if err != nil {
		panic(err)
	}
}

// setAdvantages sets the advantages of a trajectory of the group, before AEM: those of
// GRPO as reweight.Workspace.GRPO computes them, or those of the source.
func (of *scores) setAdvantages(advantages []float32, b *reweight.Batch, from origin, opt reweight.GRPOOptions) {
	var value float32
	if from == fromRewards {
		d := float64(b.Rewards[0]) - of.mean
		if opt.DivideByStd && d != 0 {
			d /= of.std + opt.Eps
		}
		value = float32(d)
	}
	for t, role := range b.Role {
		switch {
		case role == reweight.RoleMasked:
			advantages[t] = 0
		case from == givenAdvantages:
			advantages[t] = b.Advantages[t]
		default:
			advantages[t] = value
		}
	}
}

// scale multiplies the advantages of the trajectory by the factors of AEM. It reports
// false if a span is not in its scope.
func (a *applier) scale(advantages []float32, s *scope) bool {
	switch a.opt.AEM.Scope {
	case reweight.ScopeBatch:
		s = a.all
	case reweight.ScopeTrajectory:
		s = a.newScope(slices.Sorted(slices.Values(a.means)))
	}
	factors := a.means // each is looked up and replaced
	for i, m := range a.means {
		at, ok := slices.BinarySearch(s.means, m)
		if !ok {
			return false
		}
		factors[i] = 1
		if s.factors != nil {
			factors[i] = s.factors[at]
		}
	}
	for t, span := range a.batch.SpanIDs {
		if span >= 0 {
			advantages[t] *= factors[span]
		}
	}
	return true
}
