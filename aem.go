package reweight

import (
	"fmt"
	"math"
)

// A Scope says which spans AEM compares with each other.
type Scope uint8

const (
	ScopeGroup      Scope = iota // all spans of all rollouts of a prompt
	ScopeTrajectory              // all spans of a rollout
	ScopeBatch                   // all spans
)

// AEMOptions are the options of AEM.
type AEMOptions struct {
	Lambda float64 // strength, 0 to 80
	Guard  float64 // a scope whose span entropies differ by less, in nats, is left alone; at least 0
	Scope  Scope
}

// DefaultAEM holds the paper's constants.
var DefaultAEM = AEMOptions{Lambda: 1, Guard: 0.1, Scope: ScopeGroup}

// spanScratch is what AEM needs per span and per scope.
type spanScratch struct {
	tokens  []float32 // entropies of response tokens, span by span
	start   []int32   // [spans+1] of tokens
	count   []int32   // response tokens of each span
	scope   []int32   // scope of each span
	place   []int32   // place of each span when ordered by scope
	offsets []int32   // [scopes+1] of places
	means   []float32 // by place
	alphas  []float32 // first the means by span, then the factors by place
	lo, hi  []float32 // per scope
}

// AEM sets factor[t] to the number that the advantage of token t is to be
// multiplied by (arXiv 2605.00425). With Hbar_s the mean entropy of the
// response tokens of span s, and minimum, maximum and mean over the spans of
// s's scope:
//
//	Htil_s = (Hbar_s - min) / (max - min)
//	factor = exp(-Lambda Htil_s) / mean exp(-Lambda Htil)
//
// factor is 1 for tokens outside spans and masked ones, and in scopes where
// max - min is below Guard (or so small that Lambda over it is infinite). Its mean over the spans of a scope is 1, and
// it is positive: no advantage changes its sign. factor, Role, SpanIDs and
// Entropy have one element per token, GroupIDs one per trajectory; factor may
// be Entropy. A span needs at least one response token. Wrong shapes, spans or
// options, or a NaN or infinite entropy in a span, is an error, and factor is
// not written.
func (ws *Workspace) AEM(factor []float32, b *Batch, opt AEMOptions) error {
	if _, err := ws.Path.resolve(); err != nil {
		return err
	}
	if !(opt.Lambda >= 0 && opt.Lambda <= 80) {
		return fmt.Errorf("reweight: Lambda = %v, want 0 to 80", opt.Lambda)
	}
	if !(opt.Guard >= 0) {
		return fmt.Errorf("reweight: Guard = %v, want at least 0", opt.Guard)
	}
	if opt.Scope > ScopeBatch {
		return fmt.Errorf("reweight: Scope = %d, want %d to %d", opt.Scope, ScopeGroup, ScopeBatch)
	}
	T := b.Tokens()
	if err := need("factor", len(factor), T); err != nil {
		return err
	}
	if err := need("Entropy", len(b.Entropy), T); err != nil {
		return err
	}
	if err := ws.splitSpans(b, opt.Scope); err != nil {
		return err
	}
	sc := &ws.spans
	if err := sc.gather(b.Entropy, b); err != nil {
		return err
	}
	if err := ws.SpanMeans(sc.alphas, sc.tokens, sc.start); err != nil {
		return err
	}
	for s, p := range sc.place {
		sc.means[p] = sc.alphas[s]
	}
	if err := ws.MinMax(sc.lo, sc.hi, sc.means, sc.offsets); err != nil {
		return err
	}
	for g, lo := range sc.lo {
		alphas := sc.alphas[sc.offsets[g]:sc.offsets[g+1]]
		width := float64(sc.hi[g]) - float64(lo)
		if width < opt.Guard || opt.Lambda >= width*math.MaxFloat32 {
			for i := range alphas {
				alphas[i] = 1
			}
			continue
		}
		if err := ws.ExpScale(alphas, sc.means[sc.offsets[g]:sc.offsets[g+1]], lo, opt.Lambda/width); err != nil {
			return err
		}
	}
	for t, s := range b.SpanIDs {
		factor[t] = 1
		if s >= 0 && b.Role[t] != RoleMasked {
			factor[t] = sc.alphas[sc.place[s]]
		}
	}
	return nil
}

// splitSpans checks the batch's spans, counts their response tokens and orders
// them by scope, a counting sort.
func (ws *Workspace) splitSpans(b *Batch, scope Scope) error {
	sc := &ws.spans
	T := b.Tokens()
	if err := need("SpanIDs", len(b.SpanIDs), T); err != nil {
		return err
	}
	if err := checkRoles(b.Role); err != nil {
		return err
	}
	if err := checkOffsets(b.SeqOffsets, T); err != nil {
		return err
	}
	if err := checkSpans(b.SpanIDs, b.Role, b.SeqOffsets); err != nil {
		return err
	}
	spans := 0
	for _, s := range b.SpanIDs {
		spans = max(spans, int(s)+1)
	}
	scopes := 1
	var groups groupIndex
	switch scope {
	case ScopeGroup:
		var err error
		if groups, err = ws.groupsOf(b); err != nil {
			return err
		}
		scopes = len(groups)
	case ScopeTrajectory:
		scopes = b.Trajectories()
	}

	sc.count = grow(sc.count, spans)
	sc.scope = grow(sc.scope, spans)
	sc.place = grow(sc.place, spans)
	sc.means = grow(sc.means, spans)
	sc.alphas = grow(sc.alphas, spans)
	sc.start = grow(sc.start, spans+1)
	sc.offsets = grow(sc.offsets, scopes+1)
	sc.lo, sc.hi = grow(sc.lo, scopes), grow(sc.hi, scopes)
	clear(sc.count)
	clear(sc.offsets)

	for q := range b.Trajectories() {
		g := 0
		switch scope {
		case ScopeGroup:
			g = groups.of(b.GroupIDs[q])
		case ScopeTrajectory:
			g = q
		}
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if s := b.SpanIDs[t]; s >= 0 {
				sc.scope[s] = int32(g)
				if b.Role[t] != RoleMasked {
					sc.count[s]++
				}
			}
		}
	}
	sc.start[0] = 0
	for s, n := range sc.count {
		if n == 0 {
			return fmt.Errorf("reweight: span %d has no response token", s)
		}
		sc.start[s+1] = sc.start[s] + n
		sc.offsets[sc.scope[s]+1]++
	}
	for g := range scopes {
		sc.offsets[g+1] += sc.offsets[g]
	}
	for s, g := range sc.scope {
		sc.place[s] = sc.offsets[g]
		sc.offsets[g]++
	}
	copy(sc.offsets[1:], sc.offsets) // undo the counting up
	sc.offsets[0] = 0
	return nil
}

// gather packs the entropies of response tokens span by span.
func (sc *spanScratch) gather(entropy []float32, b *Batch) error {
	spans := len(sc.count)
	sc.tokens = grow(sc.tokens, int(sc.start[spans]))
	for t, s := range b.SpanIDs {
		if s < 0 || b.Role[t] == RoleMasked {
			continue
		}
		if !finite(entropy[t]) {
			return fmt.Errorf("reweight: Entropy[%d] = %v in span %d, want a finite number", t, entropy[t], s)
		}
		sc.tokens[sc.start[s]] = entropy[t]
		sc.start[s]++
	}
	copy(sc.start[1:], sc.start[:spans]) // undo the counting up
	sc.start[0] = 0
	return nil
}
