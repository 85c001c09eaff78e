package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

var inf = math.Inf(1)

// A Normalization says which shaped rewards are normalised together.
type Normalization uint8

const (
	NormalizeSeparate Normalization = iota // those of successes, and those of failures
	NormalizeJoint                         // all of the scope
	NormalizeNone                          // none
)

var normalizationNames = [...]string{"separate", "joint", "none"}

// String and MarshalText return the normalization's name, as flags and reports have it, and UnmarshalText takes it.
func (n Normalization) String() string               { return nameOf(n, normalizationNames[:]) }
func (n Normalization) MarshalText() ([]byte, error) { return []byte(n.String()), nil }
func (n *Normalization) UnmarshalText(name []byte) error {
	return parseName(n, "Normalization", name, normalizationNames[:])
}

// GTPOOptions are the options of GTPO and of GRPOS. Base and Bonus that are both 0 are an
// error, and so is an EntropyHigh of 0, which would make all entropies 0: nobody has set
// them. Base or Bonus may be 0, and so may Threshold and EntropyLow.
type GTPOOptions struct {
	Base          float64 // weight of the outcome: the paper's alpha 1, beta 1; at least 0
	Bonus         float64 // weight of the entropy's share: its alpha 2, beta 2; at least 0
	Threshold     float64 // a reward above it is a success
	EntropyLow    float64 // entropies are clamped to [EntropyLow, EntropyHigh] first, nats; at least 0
	EntropyHigh   float64 // at least EntropyLow, above 0; +Inf for no bound
	Normalization Normalization
	Scope         Scope // ScopeGroup or ScopeBatch: trajectories that are compared
}

// DefaultGTPO holds the paper's constants, DefaultGRPOS likewise.
var (
	DefaultGTPO  = GTPOOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: NormalizeSeparate, Scope: ScopeGroup}
	DefaultGRPOS = GTPOOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: NormalizeJoint, Scope: ScopeGroup}
)

// check says which option is out of range. defaults names the options with which all is well.
func (opt *GTPOOptions) check(defaults string) error {
	if err := cmp.Or(
		checkNotNegative("Base", opt.Base),
		checkNotNegative("Bonus", opt.Bonus),
		checkFinite64("Threshold", opt.Threshold),
		checkNotNegative("EntropyLow", opt.EntropyLow),
	); err != nil {
		return err
	}
	if !(opt.EntropyHigh >= opt.EntropyLow) {
		return badInput("EntropyHigh", problem.AtLeast, opt.EntropyHigh, opt.EntropyLow, "EntropyLow")
	}
	if err := cmp.Or(checkName("Normalization", opt.Normalization, normalizationNames[:]), checkName("Scope", opt.Scope, scopeNames[:])); err != nil {
		return err
	}
	if opt.Scope == ScopeTrajectory {
		return badInput("Scope", problem.GroupOrBatch, opt.Scope)
	}
	return cmp.Or(checkEither("Base", opt.Base, "Bonus", opt.Bonus, defaults), checkSet("EntropyHigh", opt.EntropyHigh, defaults))
}

// shapingEps is added to entropies that are divided by and to variances, and is the
// smallest sum of entropies that is divided by.
const shapingEps = 1e-8

// GTPO sets advantages from rewards that are shaped by the entropy of each token among
// the tokens at its position (arXiv 2508.04349). In each group, O+ are the trajectories
// with a reward r above Threshold and O- the others; H is Entropy clamped to
// [EntropyLow, EntropyHigh]; j numbers the response tokens of a trajectory, and d_j, h_j
// are the members of O+ and O- that have a j-th:
//
//	O+: u_ij = Base r_i + Bonus d_j H_ij / max(sum_{O+} H_.j, 1e-8)
//	O-: u_ij = -Base - Bonus h_j v_ij / max(sum_{O-} v_.j, 1e-8)    v = 1 / (H + 1e-8)
//	A = (u - mean) / sqrt(var + 1e-8)
//
// with mean and population variance over the tokens of O+ and of O- separately
// (NormalizeSeparate, the paper's equation 6), over both (NormalizeJoint), or A = u
// (NormalizeNone). Separately, the outcome's sign is lost: half of the tokens of
// successes get a negative advantage. A set of one token gets 0. With ScopeBatch the
// whole batch is one group. Masked tokens get 0.
//
// advantages, Role and Entropy have one element per token, Rewards one per trajectory,
// and GroupIDs too for ScopeGroup, which alone reads them. advantages may be Entropy. A
// wrong shape or option, or a reward or an entropy of a response token that is not
// finite, is an error, and advantages is not written.
func (ws *Workspace) GTPO(advantages []float32, b *Batch, opt GTPOOptions) error {
	return ws.shapedAdvantages(advantages, b, &opt, true)
}

// GRPOS sets advantages from rewards that are shaped by the mean entropy of each
// trajectory (GRPO-S, arXiv 2508.04349). In each group, O+ are the trajectories with a
// reward r above Threshold and O- the others, and Hbar_i is the mean over trajectory i
// of Entropy clamped to [EntropyLow, EntropyHigh]:
//
//	O+: u_i = Base r_i + Bonus |O+| Hbar_i / max(sum_{O+} Hbar, 1e-8)
//	O-: u_i = -Base - Bonus |O-| v_i / max(sum_{O-} v, 1e-8)    v = 1 / (Hbar + 1e-8)
//	A = (u - mean) / sqrt(var + 1e-8)
//
// with mean and population variance over the trajectories of O+ and O- together
// (NormalizeJoint), of each (NormalizeSeparate), or A = u (NormalizeNone). The response
// tokens of trajectory i get its A; a trajectory without any is in neither set. A set of
// one trajectory gets 0. Masked tokens get 0.
//
// The arguments are those of GTPO, with the same shapes, errors and aliasing.
func (ws *Workspace) GRPOS(advantages []float32, b *Batch, opt GTPOOptions) error {
	return ws.shapedAdvantages(advantages, b, &opt, false)
}

// shaping holds the values of trajectories, which are entropies, then shaped rewards, then
// advantages: one of each response token for GTPO, one for GRPOS of each trajectory with
// response tokens.
type shaping struct {
	values    []float64
	start     []int // [S+1] where each trajectory's values begin
	set       []int // [S] of each trajectory
	sets      []shapingSet
	positions []shapingPosition // of each set, as many as its longest trajectory has values
}

// A shapingSet is the successes of a scope, which have an even number, or its failures,
// which have the next one.
type shapingSet struct {
	longest, first int // number of positions, and the first of them

	// Of the shaped rewards that are normalised together, less one of them, so that
	// equal ones are exactly 0.
	n          int
	base, mean float64
	sum        [lanes]float64 // of these, then of their squares about the mean: value j of a trajectory in lane j mod 16
	scale      float64
}

// A shapingPosition is a set's values at one position.
type shapingPosition struct{ n, sum, share float64 }

// shapedAdvantages is GTPO if perToken, else GRPOS.
func (ws *Workspace) shapedAdvantages(advantages []float32, b *Batch, opt *GTPOOptions, perToken bool) error {
	defer ws.release(ws.taken)
	defaults := "DefaultGRPOS"
	if perToken {
		defaults = "DefaultGTPO"
	}
	isa, err := ws.ISA.resolve()
	if err = cmp.Or(err, opt.check(defaults), b.checkOutput("advantages", advantages), b.checkRewards()); err != nil {
		return err
	}
	if err := ws.checkResponses(isa, "Entropy", b.Entropy, b.Role); err != nil {
		return err
	}
	S := b.Trajectories()
	sc := shaping{values: take[float64](ws, b.Tokens()), start: take[int](ws, S+1), set: take[int](ws, S)}
	clear(sc.set)
	scopes := 1
	if opt.Scope == ScopeGroup {
		groups, err := ws.groupsOf(b)
		if err != nil {
			return err
		}
		scopes = len(groups)
		for q, id := range b.GroupIDs {
			sc.set[q] = 2 * groups.of(id)
		}
	}
	for q, r := range b.Rewards {
		if !(float64(r) > opt.Threshold) {
			sc.set[q]++
		}
	}
	sc.sets = take[shapingSet](ws, 2*scopes)
	clear(sc.sets)
	sc.collect(b, opt, perToken)
	sc.positions = take[shapingPosition](ws, sc.countPositions())
	sc.shape(b.Rewards, opt)
	switch opt.Normalization {
	case NormalizeSeparate:
		sc.normalize(1)
	case NormalizeJoint:
		sc.normalize(2)
	}
	for q := range b.Trajectories() {
		i := sc.start[q]
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if b.Role[t] == RoleMasked {
				advantages[t] = 0
				continue
			}
			advantages[t] = float32(sc.values[i])
			if perToken {
				i++
			}
		}
	}
	return nil
}

// collect sets values to the clamped entropies H of response tokens or to the mean of
// each trajectory's, and to v = 1 / (H + 1e-8) for failures.
func (sc *shaping) collect(b *Batch, opt *GTPOOptions, perToken bool) {
	n := 0
	for q := range b.Trajectories() {
		first := n
		var sum [lanes]float64
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if b.Role[t] != RoleMasked {
				h := min(max(float64(b.Entropy[t]), opt.EntropyLow), opt.EntropyHigh)
				sc.values[n] = h
				sum[(n-first)%lanes] += h
				n++
			}
		}
		if !perToken && n > first {
			sc.values[first] = tree(&sum) / float64(n-first)
			n = first + 1
		}
		if sc.set[q]%2 != 0 {
			for i, h := range sc.values[first:n] {
				sc.values[first+i] = 1 / (h + shapingEps)
			}
		}
		sc.start[q], sc.start[q+1] = first, n
	}
}

// of returns the values of trajectory q.
func (sc *shaping) of(q int) []float64 { return sc.values[sc.start[q]:sc.start[q+1]] }

// countPositions sets the positions of each set and returns their number.
func (sc *shaping) countPositions() int {
	for q, s := range sc.set {
		sc.sets[s].longest = max(sc.sets[s].longest, len(sc.of(q)))
	}
	n := 0
	for s := range sc.sets {
		sc.sets[s].first = n
		n += sc.sets[s].longest
	}
	return n
}

// shape turns values into shaped rewards.
func (sc *shaping) shape(rewards []float32, opt *GTPOOptions) {
	clear(sc.positions)
	for q, s := range sc.set {
		positions := sc.positions[sc.sets[s].first:]
		for j, v := range sc.of(q) {
			positions[j].n++
			positions[j].sum += v
		}
	}
	for j := range sc.positions {
		p := &sc.positions[j]
		p.share = opt.Bonus * p.n / max(p.sum, shapingEps)
	}
	for q, s := range sc.set {
		positions, values := sc.positions[sc.sets[s].first:], sc.of(q)
		base, sign := float64(opt.Base*float64(rewards[q])), 1.0
		if s%2 != 0 {
			base, sign = -opt.Base, -1
		}
		for j, v := range values {
			values[j] = base + float64(sign*positions[j].share*v)
		}
	}
}

// normalize turns shaped rewards into advantages, within as many sets that follow each
// other as together says.
func (sc *shaping) normalize(together int) {
	for q, s := range sc.set {
		set := &sc.sets[s/together*together]
		for j, u := range sc.of(q) {
			if set.n == 0 {
				set.base = u
			}
			set.n++
			set.sum[j%lanes] += u - set.base
		}
	}
	for s := range sc.sets {
		set := &sc.sets[s]
		set.mean = tree(&set.sum) / float64(set.n)
		clear(set.sum[:])
	}
	for q, s := range sc.set {
		set, values := &sc.sets[s/together*together], sc.of(q)
		for j, u := range values {
			d := u - set.base - set.mean
			set.sum[j%lanes] += float64(d * d)
			values[j] = d
		}
	}
	for s := range sc.sets {
		set := &sc.sets[s]
		set.scale = 1 / math.Sqrt(tree(&set.sum)/float64(set.n)+shapingEps)
	}
	for q, s := range sc.set {
		values, scale := sc.of(q), sc.sets[s/together*together].scale
		for j := range values {
			values[j] *= scale
		}
	}
}
