package reweight

import (
	"cmp"
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/seed621a2839/reweight/internal/problem"
)

// What calls refuse: checks of the data and of options that several schemes share. An option
// that one scheme alone has is checked beside its meaning.

// checkLen wants one element per unit: a token, a trajectory, a row.
func checkLen(arg string, got, want int, unit string) error {
	if got != want {
		return badInput(arg, problem.Length, got, want, unit)
	}
	return nil
}

// An array is an argument of numbers.
type array struct {
	arg string
	x   []float32
}

// checkLens wants one element per unit in each of the arrays.
func checkLens(want int, unit string, arrays ...array) error {
	for _, a := range arrays {
		if err := checkLen(a.arg, len(a.x), want, unit); err != nil {
			return err
		}
	}
	return nil
}

// checkOptional wants one element per unit, or nil.
func checkOptional(arg string, x []float32, want int, unit string) error {
	if x == nil {
		return nil
	}
	return checkLen(arg, len(x), want, unit)
}

// checkRange wants a number from low to high.
func checkRange(arg string, x, low, high float64) error {
	if !(x >= low && x <= high) {
		return badInput(arg, problem.Range, x, low, high)
	}
	return nil
}

// checkNotNegative wants a number of at least 0 that float32 can hold.
func checkNotNegative(arg string, x float64) error {
	if !(x >= 0 && x <= math.MaxFloat32) {
		return badInput(arg, problem.NotNegative32, x)
	}
	return nil
}

// checkPositive wants a number above 0, and none above most, which may be +Inf.
func checkPositive(arg string, x, most float64) error {
	switch {
	case x > 0 && x <= most:
		return nil
	case most == inf:
		return badInput(arg, problem.Above, x)
	}
	return badInput(arg, problem.Positive, x)
}

// checkShare wants a number above 0 and at most 1.
func checkShare(arg string, x float64) error {
	if !(x > 0 && x <= 1) {
		return badInput(arg, problem.Share, x)
	}
	return nil
}

// checkAtLeast wants a number that is no less than another argument.
func checkAtLeast[N int | float64](arg string, x, least N, other string) error {
	if !(x >= least) {
		return badInput(arg, problem.AtLeast, x, least, other)
	}
	return nil
}

// checkFinite64 wants a finite number, and checkFinite32 one that float32 can hold.
func checkFinite64(arg string, x float64) error {
	if x-x != 0 {
		return badInput(arg, problem.Finite, x)
	}
	return nil
}

func checkFinite32(arg string, x float64) error {
	if !(math.Abs(x) <= math.MaxFloat32) {
		return badInput(arg, problem.Finite32, x)
	}
	return nil
}

// checkCount wants a number of at least 0.
func checkCount(arg string, n int) error {
	if n < 0 {
		return badInput(arg, problem.CountNotNegative, n)
	}
	return nil
}

// checkSet wants another number than 0: nobody has set it. The defaults are those to begin with.
func checkSet(arg string, x float64, defaults string) error {
	if x == 0 {
		return badInput(arg, problem.AboveZero, defaults)
	}
	return nil
}

// checkEither wants one of two numbers to be another than 0.
func checkEither(arg string, x float64, other string, y float64, defaults string) error {
	if x == 0 && y == 0 {
		return badInput(arg, problem.Zeros, other, defaults)
	}
	return nil
}

// checkBounds wants 0 <= low <= high, of which high may be +Inf.
func checkBounds(low, high float64) error {
	return cmp.Or(checkNotNegative("Low", low), checkAtLeast("High", high, low, "Low"))
}

// checkTemperature wants one that leaves what is computed with it within float32.
func checkTemperature(arg string, tau float64) error { return checkRange(arg, tau, 1e-30, 1e30) }

// checkName wants a value that has a name.
func checkName[E ~uint8](arg string, value E, names []string) error {
	if int(value) >= len(names) {
		return badInput(arg, problem.Name, uint8(value), len(names)-1, names)
	}
	return nil
}

// checkKL wants a form that has a name, and a coefficient that float32 can hold.
func checkKL(form KLForm, coef float64) error {
	return cmp.Or(checkName("KL", form, klNames[:]), checkFinite32("KLCoef", coef))
}

func finite(f float32) bool { return f-f == 0 }

// firstNotFinite returns the first token of the roles whose x is not finite, or -1.
func firstNotFinite(x []float32, role []Role, roles RoleSet) int {
	for t, r := range role {
		if roles.Has(r) && !finite(x[t]) {
			return t
		}
	}
	return -1
}

// notFiniteResponse names the first response token whose x is not finite; there
// must be one.
func notFiniteResponse(arg string, x []float32, role []Role) error {
	t := firstNotFinite(x, role, Responses)
	return badElement(arg, t, problem.AtResponse, x[t])
}

// checkFinite wants finite values at response tokens. An array may be empty.
func (ws *Workspace) checkFinite(isa ISA, role []Role, arrays ...array) error {
	for _, a := range arrays {
		if sum := ws.moments(isa, a.x, role, Responses, 0).Sum; sum-sum != 0 {
			return notFiniteResponse(a.arg, a.x, role)
		}
	}
	return nil
}

// checkResponses wants one value per token, finite at response tokens.
func (ws *Workspace) checkResponses(isa ISA, role []Role, arrays ...array) error {
	for _, a := range arrays {
		if err := checkLen(a.arg, len(a.x), len(role), "token"); err != nil {
			return err
		}
		if err := ws.checkFinite(isa, role, a); err != nil {
			return err
		}
	}
	return nil
}

// checkPolicies wants advantages, and log-probabilities of the old and the current policy.
func (ws *Workspace) checkPolicies(isa ISA, b *Batch) error {
	return ws.checkResponses(isa, b.Role,
		array{"Advantages", b.Advantages}, array{"OldLogprobs", b.OldLogprobs}, array{"Logprobs", b.Logprobs})
}

// checkRoles wants every role to be one of the three.
func checkRoles(arg string, role []Role) error {
	rest := unsafe.Slice((*byte)(unsafe.SliceData(role)), len(role))
	for ; len(rest) >= 32; rest = rest[32:] {
		a, b := binary.LittleEndian.Uint64(rest), binary.LittleEndian.Uint64(rest[8:])
		c, d := binary.LittleEndian.Uint64(rest[16:]), binary.LittleEndian.Uint64(rest[24:])
		// Of each byte no bit above the lowest two, and not both of these.
		high := (a | b | c | d) & 0xfcfcfcfcfcfcfcfc
		both := (a&(a>>1) | b&(b>>1) | c&(c>>1) | d&(d>>1)) & 0x0101010101010101
		if high|both != 0 {
			break
		}
	}
	for t := len(role) - len(rest); t < len(role); t++ {
		if r := role[t]; r > RoleAction {
			return badElement(arg, t, problem.Role, uint8(r))
		}
	}
	return nil
}

// checkLayout wants roles, and trajectories that cover the tokens.
func (b *Batch) checkLayout() error {
	return cmp.Or(checkRoles("Role", b.Role), checkOffsets(b.SeqOffsets, b.Tokens()))
}

// checkOutput wants one element of an output per token, and a sound layout.
func (b *Batch) checkOutput(arg string, dst []float32) error {
	return cmp.Or(checkLen(arg, len(dst), b.Tokens(), "token"), b.checkLayout())
}

// checkOffsets wants trajectories that cover the tokens.
func checkOffsets(off []int64, tokens int) error {
	if len(off) < 2 {
		return badInput("SeqOffsets", problem.Boundaries, len(off))
	}
	if off[0] != 0 {
		return badElement("SeqOffsets", 0, problem.FirstOffset, off[0])
	}
	for s := 1; s < len(off); s++ {
		if off[s] < off[s-1] {
			return badElement("SeqOffsets", s, problem.Offset, off[s], off[s-1])
		}
	}
	if last := off[len(off)-1]; last != int64(tokens) {
		return badElement("SeqOffsets", len(off)-1, problem.LastOffset, last, tokens)
	}
	return nil
}

// checkRewards wants a finite reward for each trajectory.
func (b *Batch) checkRewards() error {
	return cmp.Or(checkLen("Rewards", len(b.Rewards), b.Trajectories(), "trajectory"),
		checkRewards("Rewards", b.Rewards))
}

// parts returns K, the number of the parts of each trajectory's reward.
func (b *Batch) parts() int { return len(b.RewardParts) / b.Trajectories() }

// checkParts wants as many parts for each trajectory, all of them finite.
func (b *Batch) checkParts() error {
	if n, S := len(b.RewardParts), b.Trajectories(); n == 0 || n%S != 0 {
		return badInput("RewardParts", problem.Parts, n, S)
	}
	return checkRewards("RewardParts", b.RewardParts)
}

// checkRewards wants finite rewards.
func checkRewards(arg string, rewards []float32) error {
	for i, r := range rewards {
		if !finite(r) {
			return badElement(arg, i, problem.Reward, r)
		}
	}
	return nil
}

// checkTokenCount wants no more tokens than spans can count.
func checkTokenCount(tokens int) error {
	if tokens > math.MaxInt32 {
		return badInput("SpanIDs", problem.SpanTokens, tokens, math.MaxInt32)
	}
	return nil
}

// checkSpans wants spans numbered 0, 1, 2, ... in the order in which they
// first appear, each within one trajectory, and every response token in one.
func checkSpans(span []int32, role []Role, off []int64) error {
	next, first := int32(0), int32(0) // spans seen so far; those seen before this trajectory
	s := 0
	for t, id := range span {
		for int64(t) >= off[s+1] {
			s, first = s+1, next
		}
		switch {
		case id < -1 || id > next:
			return badElement("SpanIDs", t, problem.SpanOrder, id, next)
		case id >= 0 && id < first:
			return badElement("SpanIDs", t, problem.SpanTrajectory, id, s)
		case id == -1 && role[t] != RoleMasked:
			return badElement("SpanIDs", t, problem.SpanMissing, uint8(role[t]))
		case id == next:
			next++
		}
	}
	return nil
}

// checkRanges wants offsets to cut n ranges out of size elements.
func checkRanges(name string, n, size int, offsets []int32) error {
	if len(offsets) != n+1 {
		return badInput("offsets", problem.OneMore, len(offsets), n+1, name)
	}
	if offsets[0] < 0 {
		return badElement("offsets", 0, problem.CountNotNegative, offsets[0])
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] < offsets[i-1] {
			return badElement("offsets", i, problem.Offset, offsets[i], offsets[i-1])
		}
	}
	if last := offsets[n]; int(last) > size {
		return badElement("offsets", n, problem.RangeEnd, last, size)
	}
	return nil
}

// checkIDs wants every id to be in the vocabulary, or -1 if that is the lowest.
func checkIDs(arg string, ids []int32, lowest, vocab int) error {
	for r, id := range ids {
		if int(id) < lowest || int(id) >= vocab {
			p := problem.ID
			if lowest < 0 {
				p = problem.IDOrNone
			}
			return badElement(arg, r, p, id, vocab-1, vocab)
		}
	}
	return nil
}
