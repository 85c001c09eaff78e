package score

import (
	"bytes"
	"crypto/sha256"
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
	Advantages []float32 // those of GRPO, or of the source, times the factors of AEM; 0 for masked tokens
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
	return fmt.Errorf("%w: they were made with %s, but it is opened with %s", err, name(p.files[0].Options), name(options))
}

func apply(src source, merged *Partial, opt Options, do func(Scored) error) error {
	a, err := newApplier(merged, opt)
	if err != nil {
		return err
	}
	var before *rollout.Trajectory
	var local []*rollout.Trajectory // those of a group that was made by counting
	for {
		t, err := src.Next()
		if len(local) > 0 && (err == io.EOF || err == nil && (t.File != before.File || t.Group != before.Group || !t.LocalGroup)) {
			if err := src.Guard(func() error { return a.scoreLocal(local, do) }); err != nil {
				return err
			}
			local = local[:0]
		}
		if before != nil && (err == io.EOF || err == nil && t.File != before.File) {
			if !merged.has(a.endFile()) {
				return notInBatch(before.File)
			}
			before = nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if before == nil {
			a.beginFile()
		}
		before = t
		err = src.Guard(func() error {
			if err := a.read(t); err != nil {
				return err
			}
			if slices.ContainsFunc(a.actions(), notFinite) {
				return a.at(t, a.signalNotFinite())
			}
			if t.LocalGroup {
				local = append(local, t)
				return nil
			}
			of, err := a.shared(keyOf(t.Group))
			if err != nil {
				return a.at(t, err)
			}
			s, err := a.score(t, of)
			if err != nil {
				return err
			}
			return do(s)
		})
		if err != nil {
			return err
		}
	}
}

// has reports whether a file of that identity is in p.
func (p *Partial) has(sum [sha256.Size]byte) bool {
	_, ok := p.index(sum)
	return ok
}

// index returns which of the files has that identity.
func (p *Partial) index(sum [sha256.Size]byte) (int, bool) {
	return slices.BinarySearchFunc(p.files, sum, func(f *File, sum [sha256.Size]byte) int { return bytes.Compare(f.SHA256[:], sum[:]) })
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
	groups      map[string]*scores // those met so far, by their keys; nil if merged has none
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
		return nil, fmt.Errorf("the merged statistics are of the signal %v, not of %v", merged.signal, opt.ActFocus.Signal)
	}
	a := &applier{reader: newReader(opt), merged: merged, groups: map[string]*scores{}}
	if n := merged.actions.n; n > 0 {
		a.mean = merged.actions.mean()
		a.sigma = math.Sqrt(merged.actions.variance(n) + opt.ActFocus.Eps)
	}
	if opt.AEM.Scope == reweight.ScopeBatch {
		var err error
		if a.all, err = a.newScope(merged.allSpans()); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// scoreLocal scores the trajectories of a group that was made by counting. They are all of
// the group, and tell its statistics, which merged has under a key of the whole file.
func (a *applier) scoreLocal(of []*rollout.Trajectory, do func(Scored) error) error {
	g := &group{}
	for _, t := range of {
		if err := a.prepareAgain(t); err != nil {
			return err
		}
		if a.advantages == fromRewards {
			g.rewards.add(a.batch.Rewards[0])
		}
		g.spans = append(g.spans, a.means...)
	}
	slices.Sort(g.spans)
	shared, err := a.scoresOf(g)
	if err != nil {
		return a.at(of[0], err)
	}
	for _, t := range of {
		if err := a.prepareAgain(t); err != nil {
			return err
		}
		s, err := a.score(t, shared)
		if err != nil {
			return err
		}
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

// score scores the trajectory that was prepared last. of is what its group shares, or nil.
func (a *applier) score(t *rollout.Trajectory, of *scores) (Scored, error) {
	b := &a.batch
	if b.Tokens() == 0 {
		return Scored{Trajectory: t}, nil
	}
	a.weights, a.scaled = resize(a.weights, b.Tokens()), resize(a.scaled, b.Tokens())
	if err := a.ws.ActFocusWeights(a.weights, a.signal, b.Role, a.mean, a.sigma, a.opt.ActFocus); err != nil {
		return Scored{}, a.at(t, err)
	}
	if of == nil || a.advantages != a.merged.advantages {
		return Scored{}, notInBatch(t.File)
	}
	of.setAdvantages(a.scaled, b, a.advantages, a.opt.GRPO)
	if !a.scale(a.scaled, of.scope) {
		return Scored{}, notInBatch(t.File)
	}
	return Scored{t, a.weights, a.scaled}, nil
}

// shared returns what the trajectories of the group of that key share, or nil if there is none.
func (a *applier) shared(key string) (*scores, error) {
	of, known := a.groups[key]
	if known {
		return of, nil
	}
	if g := a.merged.group(key); g != nil {
		var err error
		if of, err = a.scoresOf(g); err != nil {
			return nil, err
		}
	}
	a.groups[key] = of
	return of, nil
}

// scoresOf returns what the trajectories of the group share.
func (a *applier) scoresOf(g *group) (*scores, error) {
	of := &scores{std: 1}
	if n := g.rewards.n; n > 1 { // the mean of a group of one is 0
		of.mean, of.std = g.rewards.mean(), math.Sqrt(g.rewards.variance(n-1))
	}
	if a.opt.AEM.Scope == reweight.ScopeGroup {
		var err error
		if of.scope, err = a.newScope(g.spans); err != nil {
			return nil, err
		}
	}
	return of, nil
}

// newScope returns the scope of spans with these mean entropies, which are sorted, as
// reweight.Workspace.AEM computes it.
func (a *applier) newScope(means []float32) (*scope, error) {
	s := &scope{means: means}
	if len(means) == 0 {
		return s, nil
	}
	lo := means[0]
	width := float64(means[len(means)-1]) - float64(lo)
	if width < a.opt.AEM.Guard || a.opt.AEM.Lambda >= width*math.MaxFloat32 {
		return s, nil
	}
	s.factors = make([]float32, len(means))
	return s, a.ws.ExpScale(s.factors, means, lo, a.opt.AEM.Lambda/width)
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
		var err error
		if s, err = a.newScope(slices.Sorted(slices.Values(a.means))); err != nil {
			return false
		}
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
