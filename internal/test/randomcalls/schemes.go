package randomcalls

import (
	"math"
	"reflect"
	"slices"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/internal/problem"
	"github.com/seed621a2839/reweight/native"
	"github.com/seed621a2839/reweight/scheme"
)

// A SchemeCaller is a Caller that has the functions of native.OfCatalogue.
type SchemeCaller interface {
	Scheme(e *scheme.Entry, dst []float32, b *reweight.Batch, opt any) error
}

// Schemes returns a trial of each of these functions.
func Schemes() (all []Trial) {
	for _, e := range native.OfCatalogue() {
		all = append(all, Trial{e.Method, func(d *Draws, c Caller) Outcome { return schemeTrial(d, c, e) }})
	}
	return all
}

// defaultOf returns the options of an entry, nil if it has none. A number that has no default is 0.
func defaultOf(e *scheme.Entry) any {
	opt := e.Defaults()
	opt.OffPolicyMask.Delta = 0
	part := e.Part(&opt)
	if part == nil {
		return nil
	}
	return reflect.ValueOf(part).Elem().Interface()
}

func schemeTrial(d *Draws, c Caller, e *scheme.Entry) Outcome {
	b := d.batch()
	if e.Method == "PassAtK" && d.IntN(8) > 0 { // which wants others in each group
		for q := range b.GroupIDs {
			b.GroupIDs[q] = int32(q % max(1, b.Trajectories()/2))
		}
	}
	if slices.Contains(e.Reads, "teacher_logprobs") {
		d.ofTeacher(b)
	}
	if slices.Contains(e.Reads, "sum_sq_probs") {
		d.ofSquares(b)
	}
	if slices.Contains(e.Reads, "entropy_drop") {
		d.ofDrops(b)
	}
	opt := d.options(defaultOf(e))
	if o, ok := opt.(reweight.GDPOOptions); ok {
		o.RewardWeights = d.ofParts(b, 1+d.IntN(4))
		opt = o
	}
	read := floatsOf(b, e.Reads)
	what := []int{ofRole}
	for name, kind := range map[string]int{"seq_offsets": ofOffsets, "span_ids": ofSpans, "rewards": ofRewards} {
		if slices.Contains(e.Reads, name) {
			what = append(what, kind)
		}
	}
	slices.Sort(what) // maps have no order
	var values []float32
	if len(read) > 0 {
		values = one(d, read...)
		what = append(what, ofValues)
	}
	d.spoil(b, values, what...)
	d.ofSpans(b)
	dst := d.output(len(b.Role))
	if e.PerTrajectory {
		dst = one(d, d.output(b.Trajectories()), b.Rewards)
	} else if d.IntN(2) == 0 {
		dst = b.Values // which none of them reads
		if !slices.Contains(e.Alias, scheme.Any) {
			dst = one(d, floatsOf(b, e.Alias)...)
		}
	}
	return Outcome{callScheme(c, e, dst, b, opt), dst}
}

func callScheme(c Caller, e *scheme.Entry, dst []float32, b *reweight.Batch, opt any) error {
	if c, ok := c.(SchemeCaller); ok {
		return c.Scheme(e, dst, b, opt)
	}
	all := e.Defaults()
	if opt != nil {
		reflect.ValueOf(e.Part(&all)).Elem().Set(reflect.ValueOf(opt))
	}
	return e.Compute(c.(*reweight.Workspace), dst, b, all)
}

// floatsOf returns the arrays per token of those names.
func floatsOf(b *reweight.Batch, names []string) (all [][]float32) {
	for field, v := range reflect.ValueOf(b).Elem().Fields() {
		x, ok := v.Interface().([]float32)
		name := problem.Snake(field.Name)
		if ok && len(x) == len(b.Role) && (slices.Contains(names, name) || name == "token_rewards" &&
			slices.Contains(names, "token_rewards|rewards")) {
			all = append(all, x)
		}
	}
	return all
}

// ofSpans draws what there is one of for each span. Their number is at most that of tokens,
// also where the ids are wrong.
func (d *Draws) ofSpans(b *reweight.Batch) {
	spans := 0
	for _, s := range b.SpanIDs {
		spans = max(spans, min(int(s)+1, len(b.Role)))
	}
	b.Anchors, b.SpanRewards = array[int32](d, spans), d.output(spans)
	anchors := 1 + d.IntN(max(1, one(d, 1, 3, spans)))
	for s := range spans {
		b.Anchors[s] = int32(d.IntN(anchors) - 1)
		b.SpanRewards[s] = one(d, 0, 1, float32(d.NormFloat64()))
	}
	if spans > 0 && d.IntN(4) == 0 && d.err() {
		b.SpanRewards[d.IntN(spans)] = float32(math.NaN())
	}
}

// ofTeacher draws what a teacher says of the tokens. Some trajectories have none.
func (d *Draws) ofTeacher(b *reweight.Batch) {
	b.TeacherLogprobs = d.output(len(b.Role))
	for q := range b.Trajectories() {
		taught := d.IntN(4) > 0
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			x := &b.TeacherLogprobs[t]
			switch {
			case b.Role[t] == reweight.RoleMasked:
				*x = edge(d.Rand)
			case taught:
				*x = b.OldLogprobs[t] + one[float32](d, 0, 0.1, -0.1, 1.5, -1.5, 30, -30)
			default:
				*x = float32(math.NaN())
			}
		}
	}
}

// ofSquares draws sums of squared probabilities.
func (d *Draws) ofSquares(b *reweight.Batch) {
	b.SumSqProbs = d.output(len(b.Role))
	for t := range b.SumSqProbs {
		b.SumSqProbs[t] = edge(d.Rand)
		if b.Role[t] != reweight.RoleMasked {
			b.SumSqProbs[t] = one(d, 1, d.Float32(), 1e-6)
		}
	}
}

// ofDrops draws what tokens of the vocabulary would do to the entropy, some of them far from others.
func (d *Draws) ofDrops(b *reweight.Batch) {
	b.EntropyDrop = d.output(len(b.Role))
	for t := range b.EntropyDrop {
		b.EntropyDrop[t] = edge(d.Rand)
		if b.Role[t] != reweight.RoleMasked {
			b.EntropyDrop[t] = one(d, 0, d.Float32(), 40, 40)
		}
	}
}

// ofParts draws n parts of each reward, and their weights or none.
func (d *Draws) ofParts(b *reweight.Batch, n int) (weights []float64) {
	b.RewardParts = array[float32](d, n*b.Trajectories())
	for i := range b.RewardParts {
		b.RewardParts[i] = one(d, 0, 1, float32(d.NormFloat64()))
	}
	if d.IntN(8) == 0 && d.err() {
		b.RewardParts[d.IntN(len(b.RewardParts))] = one(d, float32(math.NaN()), float32(math.Inf(1)))
	}
	if d.IntN(2) == 0 {
		return nil
	}
	for range n {
		weights = append(weights, d.number(1))
	}
	return weights
}

// options draws options like these; nil has none.
func (d *Draws) options(like any) any {
	if like == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(like)).Elem()
	v.Set(reflect.ValueOf(like))
	for field, f := range v.Fields() {
		switch f.Kind() {
		case reflect.Float64:
			f.SetFloat(d.number(f.Float()))
		case reflect.Int:
			f.SetInt(one(d, f.Int(), f.Int(), 1, 10, 100, 1000))
		case reflect.Bool:
			f.SetBool(d.IntN(2) == 0)
		case reflect.Uint8:
			names := native.Names(problem.Argument{C: problem.Snake(field.Name)})
			n := d.IntN(len(names))
			if n == int(reweight.ScopeTrajectory) && f.Type() == reflect.TypeFor[reweight.Scope]() {
				n = int(reweight.ScopeBatch)
			}
			f.SetUint(uint64(n))
		}
	}
	return v.Interface()
}
