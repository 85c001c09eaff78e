package reweight

import (
	"cmp"
	"math"

	"github.com/seed621a2839/reweight/internal/problem"
)

// A Normalization says which shaped rewards are normalised together.
type Normalization uint8

const (
	NormalizeSeparate Normalization = iota // successes, and failures
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

// GTPOOptions are the options of [Workspace.GTPO] and of [Workspace.GRPOS]. Base and Bonus that are both 0 are an
// error, and so is an EntropyHigh of 0, which would make all entropies 0: nobody has set
// them. Base or Bonus may be 0, and so may Threshold and EntropyLow.
type GTPOOptions struct {
	Base          float64 // weight of the reward: the paper's alpha 1, beta 1; at least 0
	Bonus         float64 // weight of the entropy's share: its alpha 2, beta 2; at least 0
	Threshold     float64 // a reward above it is a success
	EntropyLow    float64 // entropies are clamped to [EntropyLow, EntropyHigh] first, nats; at least 0
	EntropyHigh   float64 // at least EntropyLow, above 0; +Inf for no bound
	Normalization Normalization
	Scope         Scope // ScopeGroup or ScopeBatch: trajectories that are compared
}

// DefaultGTPO holds the paper's constants, DefaultGRPOS likewise.
var (
	DefaultGTPO = GTPOOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: NormalizeSeparate,
		Scope: ScopeGroup}
	DefaultGRPOS = GTPOOptions{Base: 1, Bonus: 0.1, Threshold: 0.5, EntropyHigh: inf, Normalization: NormalizeJoint,
		Scope: ScopeGroup}
)

// check says which option is out of range. defaults names the options with which all is well.
func (opt *GTPOOptions) check(defaults string) error {
	if err := cmp.Or(
		checkNotNegative("Base", opt.Base),
		checkNotNegative("Bonus", opt.Bonus),
		checkFinite64("Threshold", opt.Threshold),
		checkNotNegative("EntropyLow", opt.EntropyLow),
		checkAtLeast("EntropyHigh", opt.EntropyHigh, opt.EntropyLow, "EntropyLow"),
		checkName("Normalization", opt.Normalization, normalizationNames[:]),
		checkName("Scope", opt.Scope, scopeNames[:]),
	); err != nil {
		return err
	}
	if opt.Scope == ScopeTrajectory {
		return badInput("Scope", problem.GroupOrBatch, opt.Scope)
	}
	return cmp.Or(checkEither("Base", opt.Base, "Bonus", opt.Bonus, defaults),
		checkSet("EntropyHigh", opt.EntropyHigh, defaults))
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
// The arguments are as in GTPO, with the same shapes, errors and aliasing.
func (ws *Workspace) GRPOS(advantages []float32, b *Batch, opt GTPOOptions) error {
	return ws.shapedAdvantages(advantages, b, &opt, false)
}

// shaping holds the values of trajectories, which are entropies, then shaped rewards, then
// advantages: one of each response token for GTPO, one for GRPOS of each trajectory with
// response tokens.
type shaping struct {
	values    []float64
	start     []int             // [S+1] where each trajectory's values begin
	positions []shapingPosition // of the trajectories at hand, as many as the longest has values
}

// A shapingPosition sums the values that some trajectories have at one position.
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
	if err := ws.checkResponses(isa, b.Role, array{"Entropy", b.Entropy}); err != nil {
		return err
	}
	groups, err := ws.compared(b, opt.Scope)
	if err != nil {
		return err
	}
	T, S := b.Tokens(), b.Trajectories()
	sc := shaping{take[float64](ws, T), take[int](ws, S+1), take[shapingPosition](ws, T)}
	sc.collect(b, opt, perToken)
	sets := [2][]int{take[int](ws, S), take[int](ws, S)}
	for group := range groups.each {
		successes, failures := sets[0][:0], sets[1][:0]
		for _, q := range group {
			if float64(b.Rewards[q]) > opt.Threshold {
				successes = append(successes, q)
			} else {
				failures = append(failures, q)
			}
		}
		sc.shape(successes, b.Rewards, opt, false)
		sc.shape(failures, b.Rewards, opt, true)
		switch opt.Normalization {
		case NormalizeSeparate:
			sc.normalize(successes)
			sc.normalize(failures)
		case NormalizeJoint:
			sc.normalize(group)
		}
	}
	for q := range S {
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

// collect sets values to the clamped entropies of response tokens, or to the mean of each
// trajectory's.
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
		sc.start[q], sc.start[q+1] = first, n
	}
}

// of returns the values of trajectory q.
func (sc *shaping) of(q int) []float64 { return sc.values[sc.start[q]:sc.start[q+1]] }

// shape turns the entropies of trajectories into shaped rewards. They are the successes of a
// group, or its failures, whose entropies H become 1 / (H + 1e-8) first.
func (sc *shaping) shape(trajectories []int, rewards []float32, opt *GTPOOptions, failed bool) {
	at := sc.positions[:0]
	for _, q := range trajectories {
		values := sc.of(q)
		for j, v := range values {
			if failed {
				v = 1 / (v + shapingEps)
				values[j] = v
			}
			if j == len(at) {
				at = append(at, shapingPosition{})
			}
			at[j].n++
			at[j].sum += v
		}
	}
	for j, p := range at {
		at[j].share = opt.Bonus * p.n / max(p.sum, shapingEps)
	}
	for _, q := range trajectories {
		values := sc.of(q)
		base, sign := float64(opt.Base*float64(rewards[q])), 1.0
		if failed {
			base, sign = -opt.Base, -1
		}
		for j, v := range values {
			values[j] = base + float64(sign*at[j].share*v)
		}
	}
}

// normalize turns the shaped rewards of trajectories into advantages. Value j of each is in
// lane j mod 16 of the sums.
func (sc *shaping) normalize(trajectories []int) {
	var sum, squares [lanes]float64
	n, base := 0, 0.0 // less the first of them, equal ones are exactly 0
	for _, q := range trajectories {
		for j, u := range sc.of(q) {
			if n == 0 {
				base = u
			}
			n++
			sum[j%lanes] += u - base
		}
	}
	mean := tree(&sum) / float64(n)
	for _, q := range trajectories {
		values := sc.of(q)
		for j, u := range values {
			d := u - base - mean
			squares[j%lanes] += float64(d * d)
			values[j] = d
		}
	}
	scale := 1 / math.Sqrt(tree(&squares)/float64(n)+shapingEps)
	for _, q := range trajectories {
		values := sc.of(q)
		for j := range values {
			values[j] *= scale
		}
	}
}
