// Package problem is the table of what can be wrong with an argument. Package reweight
// and package gpu take their sentences from it. The C library and the kernels of the
// GPU, which write no text, return the number of a problem and the numbers in its
// sentence; `go generate ./...` writes the table for them and for Python.
package problem

import (
	"fmt"
	"math"
	"strings"
	"unicode"
)

// A Problem is one thing that can be wrong.
type Problem struct {
	// Name is what C and CUDA call it: "SPAN_ORDER". Problems of Go alone have none.
	Name string
	// Text is the rest of a sentence whose subject is the argument, with a verb of
	// package fmt for each value.
	Text string
	// Kinds says how C and CUDA pass each value in 64 bits: i is an integer, f a float32
	// and d a float64 by their bits, n the number of a name of the argument, and l the
	// names of the argument whose bits are set.
	Kinds string
}

// Says returns the text with its values.
func (p *Problem) Says(values ...any) string { return fmt.Sprintf(p.Text, values...) }

// Coded are the problems that the C library or a GPU finds. The code of each is its place,
// from 1 on.
var Coded []*Problem

// coded adds a problem to Coded.
func coded(name, text, kinds string) *Problem {
	p := &Problem{name, text, kinds}
	Coded = append(Coded, p)
	return p
}

// text is a problem of Go alone.
func text(text string) *Problem { return &Problem{Text: text} }

// The problems that have a code.
var (
	// Numbers and arrays.
	Count            = coded("COUNT", "is %v, want 0 to 2^48", "i")
	CountRange       = coded("COUNT_RANGE", "is %v, want 0 to %v", "ii")
	CountNotNegative = coded("COUNT_NOT_NEGATIVE", "is %v, want at least 0", "i")
	CountPositive    = coded("COUNT_POSITIVE", "is %v, want at least 1", "i")
	Range            = coded("RANGE", "is %v, want %v to %v", "ddd")
	NotNegative      = coded("NOT_NEGATIVE", "is %v, want at least 0", "d")
	NotNegative32    = coded("NOT_NEGATIVE_32", "is %v, want 0 to 3.4e38", "d")
	Finite           = coded("FINITE", "is %v, want a finite number", "d")
	Finite32         = coded("FINITE_32", "is %v, want a number that float32 can hold", "d")
	IDOrNone         = coded("ID_OR_NONE", "is %v, want -1 to %v, for rows of %v logits", "iii")
	DualClip         = coded("DUAL_CLIP", "is %v, want a finite number above 1, or 0 for none", "d")
	Name             = coded("NAME", "is %v, want 0 to %v: one of %v", "iil")
	Missing          = coded("MISSING", "is NULL, want %v elements", "i")
	Empty            = coded("EMPTY", "is empty, want at least 1 element", "")
	// The workspace.
	ISA              = coded("ISA", "is %v, want one of %v, which this machine and this library have", "nl")
	ScratchSize      = coded("SCRATCH_SIZE", "is %v, want %v for %v tokens, %v trajectories and %v spans", "iiiii")
	ScratchMissing   = coded("SCRATCH_MISSING", "is NULL, want %v bytes", "i")
	ScratchAlignment = coded("SCRATCH_ALIGNMENT", "is not aligned to 8 bytes", "")
	// Rows of logits.
	RowsMissing   = coded("ROWS_MISSING", "is NULL, want %v rows of %v logits", "ii")
	PerRowMissing = coded("PER_ROW_MISSING", "is NULL, want %v elements, one per row", "i")
	NoOutput      = coded("NO_OUTPUT", "has no output: lse, entropy, logprobs and log_sum_sq_probs are all NULL", "")
	NoVocab       = coded("NO_VOCAB", "has rows of %v logits, want at least 1", "i")
	VocabSize     = coded("VOCAB_SIZE", "has rows of %v logits, want at most %v", "ii")
	RowCount      = coded("ROW_COUNT", "has %v rows, want at least 0", "i")
	Stride        = coded("STRIDE", "has a stride of %v, want at least %v, the logits of a row", "ii")
	RowsSize      = coded("ROWS_SIZE", "has %v rows, %v elements apart, want at most 2^48 elements in all", "ii")
	DType         = coded("DTYPE", "has the dtype %v, want 0 to %v: one of %v", "iil")
	OtherRows     = coded("OTHER_ROWS", "has %v rows of %v logits, want %v rows", "iii")
	OtherVocab    = coded("OTHER_VOCAB", "has rows of %v logits, want %v like the logits", "ii")
	OtherDType    = coded("OTHER_DTYPE", "is %v, want %v like the logits", "nn")
	OtherStride   = coded("OTHER_STRIDE", "is logits with another stride, want the same", "")
	Float16       = coded("FLOAT16", "is float16, want float32 or bfloat16", "")
	ID            = coded("ID", "is %v, want 0 to %v, for rows of %v logits", "iii")
	RowIndex      = coded("ROW_INDEX", "is %v, want 0 to %v, for %v rows of logits", "iii")
	// Tokens.
	Role       = coded("ROLE", "is %v, want 0, 1 or 2", "i")
	AtResponse = coded("AT_RESPONSE", "is %v at a response token, want a finite number", "f")
	AtAction   = coded("AT_ACTION", "is %v at an action token, want a finite number", "f")
	Difference = coded("DIFFERENCE", "is %v, too far from the reference's log-probability for float32 to hold the difference", "f")
	// Trajectories and ranges.
	FirstOffset = coded("FIRST_OFFSET", "is %v, want 0", "i")
	Offset      = coded("OFFSET", "is %v, below the %v before it", "ii")
	LastOffset  = coded("LAST_OFFSET", "is %v, want %v, the number of tokens", "ii")
	RangeEnd    = coded("RANGE_END", "is %v, want at most %v, the elements of x", "ii")
	Reward      = coded("REWARD", "is %v, want a finite reward", "f")
	// Spans.
	SpanTokens = coded("SPAN_TOKENS", "has %v elements, want at most %v: tokens of spans are counted in 32 bits",
		"ii")
	SpanOrder      = coded("SPAN_ORDER", "is %v, want -1 to %v: spans are numbered from 0 in the order in which they appear", "ii")
	SpanTrajectory = coded("SPAN_TRAJECTORY",
		"is %v in trajectory %v, but that span began in an earlier trajectory", "ii")
	SpanMissing = coded("SPAN_MISSING", "is -1 at a response token (role %v), want its span", "i")
	SpanCount   = coded("SPAN_COUNT", "has %v spans, want at most %v, for which the workspace was made", "ii")
	SpanEmpty   = coded("SPAN_EMPTY", "has no response token in span %v, want at least one in each", "i")
	SpanMean    = coded("SPAN_MEAN", "is %v in span %v, want a finite number of at most 1e+30", "fi")
	// Options of a loss.
	Positive = coded("POSITIVE", "is %v, want a finite number above 0", "d")
	Spanless = coded("SPANLESS", "is %v, want %v: there are no spans here", "nn")
	// Options that nobody has set. C and Python have names of their own in these sentences.
	_ = coded("ZERO_ACTFOCUS", Zeros.Says("Beta", "DefaultActFocus"), "")
	_ = coded("ZERO_AEM", Zeros.Says("Guard", "DefaultAEM"), "")
	_ = coded("ZERO_GAE", Zeros.Says("Lambda", "DefaultGAE"), "")
	_ = coded("ZERO_LOSS", Zeros.Says("ClipHigh", "DefaultLoss"), "")
	_ = coded("ZERO_GSPO", Zeros.Says("ClipHigh", "DefaultGSPO"), "")
	_ = coded("ZERO_GRPO_S_LOSS", Zeros.Says("ClipHigh", "DefaultGRPOSLoss"), "")
	_ = coded("ZERO_CISPO", Zeros.Says("ClipHigh", "DefaultCISPO"), "")
	_ = coded("ZERO_DPPO_TV", Zeros.Says("ClipHigh", "DefaultDPPOTV"), "")
	_ = coded("ZERO_VESPO", Zeros.Says("DecayPos, PowerNeg and DecayNeg", "DefaultVESPO"), "")
	_ = coded("ABOVE_ZERO_VALUE_LOSS", AboveZero.Says("DefaultValueLoss"), "")
)

// The problems of Go alone.
var (
	AboveZero        = text("is 0, want above 0, as in %v")
	Address          = text("is 0, want an address in device memory")
	Addresses        = text("has %d rows, each %d logits after the one before: their addresses have more than 64 bits")
	Aligned          = text("is %#x, want a multiple of %d, the size of its elements")
	AtLeast          = text("is %v, want at least the %v of %s")
	AtMost           = text("is %d, want 0 to %d, for which the workspace was made")
	Boundaries       = text("has %d elements, want at least 2, for one trajectory")
	CapturedMemory   = text("is being captured: allocate before the capture begins")
	CapturedCompiler = text("is being captured: call Prepare before the capture begins, because the driver has to compile kernels")
	CapturedWait     = text("is being captured: nothing can wait for it before the capture has ended")
	Formats          = text("has %d formats set, want one")
	ISALeft          = text("is %v, want one of %v, which this machine, this build and REWEIGHT_ISA leave")
	ISAWrong         = text("is %v, which computes other bits than portable on this CPU (%s): use REWEIGHT_ISA=portable")
	Length           = text("has %d elements, want %d, one per %s")
	Multiple         = text("is %d, want a multiple of %d")
	NoFormat         = text("is %v, want f32, bf16 or f16")
	NoKL             = text("is %v, want 0: the GPU adds no divergence to the loss yet")
	NoLoss           = text("is %v, want %v: the GPU has no other loss yet")
	NoPolicy         = text("is %v, want the loss of a policy, such as the one of %s")
	NoMethod         = text("is %q, want a method of Workspace that queues work")
	NoSpans          = text("has %d elements, want none for tokens without span ids")
	NoStats          = text("has no output: LSE, Entropy, Logprob and LogSumSqProbs are all %s")
	NoTokens         = text("is empty, want at least 1 token")
	OneMore          = text("has %d elements, want %d, one more than %s")
	Parts            = text("has %d elements, want a multiple of %d, as many for each trajectory")
	ShortStride      = text("is %d, want at least %d, the logits of a row")
	StrideInDst      = text("is %d, want %d like the stride of the logits, which have the same address")
	Unaligned        = text("begins at an address that is not a multiple of %d, the bytes of a logit")
	UnknownName      = text("is %q, want one of %v")
	ViewIndex        = text("has %d elements, want 0 to %d, the rows in memory")
	WholeBytes       = text("has %d bytes, want whole rows of logits of %d bytes, %d in a row")
	WholeRows        = text("has %d logits, want a multiple of its vocabulary of %d")
	Zeros            = text("is 0 like %v, want one that is not 0, as in %v")
)

// The problems of what no GPU computes. They are behind the others, whose numbers the kernels
// of the GPU have.
var (
	_ = coded("ZERO_GIGPO", Zeros.Says("Omega", "DefaultGiGPO"), "")
	_ = coded("ZERO_GTPO", Zeros.Says("Bonus", "DefaultGTPO"), "")
	_ = coded("ZERO_GRPO_S", Zeros.Says("Bonus", "DefaultGRPOS"), "")
	_ = coded("ZERO_EMPG", Zeros.Says("KFuture and Zeta", "DefaultEMPG"), "")
	_ = coded("ABOVE_ZERO_REINFORCE_PLUS_PLUS", AboveZero.Says("DefaultReinforcePlusPlus"), "")
	_ = coded("ABOVE_ZERO_GTPO", AboveZero.Says("DefaultGTPO"), "")
	_ = coded("ABOVE_ZERO_GRPO_S", AboveZero.Says("DefaultGRPOS"), "")
	_ = coded("ABOVE_ZERO_ROLLOUT_CORRECTION", AboveZero.Says("DefaultRolloutCorrection"), "")
	_ = coded("ABOVE_ZERO_REJECT", AboveZero.Says("DefaultReject"), "")
	_ = coded("AT_LEAST_LOW", atLeast("Low"), "dd")
	// Options besides.
	_            = coded("AT_LEAST_ENTROPY_LOW", atLeast("EntropyLow"), "dd")
	_            = coded("AT_LEAST_BUFFER", atLeast("Buffer"), "ii")
	Share        = coded("SHARE", "is %v, want above 0 and at most 1", "d")
	GroupOrBatch = coded("GROUP_OR_BATCH", "is %v, want group or batch", "n")
	Lonely       = coded("LONELY", "is %v, which no other trajectory has, want at least 2 in each group", "i")
	_            = coded("ABOVE_ZERO_FIPO", AboveZero.Says("DefaultFIPO"), "")
	_            = coded("ABOVE_ZERO_RLSD", AboveZero.Says("DefaultRLSD"), "")
	_            = coded("AT_LEAST_COV_LOW", atLeast("CovLow"), "dd")
	_            = coded("ZERO_DPPO_KL", Zeros.Says("ClipHigh", "DefaultDPPOKL"), "")
	_            = coded("ZERO_GMPO", Zeros.Says("ClipHigh", "DefaultGMPO"), "")
	_            = coded("ZERO_CLIP_COV", Zeros.Says("ClipHigh", "DefaultClipCov"), "")
	Above        = coded("ABOVE", "is %v, want a number above 0, or +Inf", "d")
	NoWeights    = coded("NO_WEIGHTS", "is given, want none: this policy has no weights of tokens", "")
	// At the end, so that the numbers of the others stay.
	_ = coded("ISA_WRONG", "is %v, whose kernel %v computes other bits than portable on this CPU: use portable", "ni")
)

// atLeast returns the text of AtLeast about the other argument.
func atLeast(other string) string { return strings.Replace(AtLeast.Text, "%s", other, 1) }

// An Argument is what the C library or a GPU finds something wrong with.
type Argument struct {
	Go string // the name of package reweight: a field, or a parameter
	C  string // that of reweight.h and of Python
}

// Arguments are all of them. The number of each is its place, from 1 on. A parameter has
// the number of the field with the same name in C, but for the last one.
var Arguments = arguments(
	// Fields of a batch.
	"Tokens", "Trajectories", "Role", "SeqOffsets", "GroupIDs", "Rewards", "SpanIDs", "RefEnergy", "Entropy",
	"OldLogprobs", "Logprobs", "RefLogprobs", "RefEntropy", "Advantages", "Values",
	// Fields of options and of a workspace.
	"Aggregation", "Alpha", "Beta", "ClipHigh", "ClipLow", "DualClip", "EntropyBonus", "Eps", "Gamma", "Guard",
	"ISA", "Lambda", "NormLength", "Scope", "scratch", "scratch_size", "Signal", "Temperature", "workers",
	// Parameters.
	"a", "b", "dst", "factors", "grad", "groups", "hi", "ids", "lo", "logits", "logits.Index", "mean", "n",
	"offsets", "rate", "scale", "shift", "sigma", "spans", "weights", "x",
	"role", // of a GPU's kernels that take no batch
	// What the schemes have besides.
	"TokenRewards", "Anchors", "SpanRewards", "Base", "Bonus", "Buffer", "EntropyHigh", "EntropyLow", "K", "KFuture",
	"Maximum", "Normalization", "Omega", "Penalty", "Rho", "Threshold", "Zeta", "mask", "penalties",
	// What the losses have besides.
	"Returns", "NewValues", "Clip", "DecayNeg", "DecayPos", "KL", "KLCoef", "Policy", "PowerNeg", "PowerPos",
	"RatioCap", "Sequence", "TauNeg", "TauPos", "old", "RolloutLogprobs", "delta", "High", "Level", "Low",
	"Statistic", "TeacherLogprobs", "Filter", "HalfLife", "Safety", "SumSqProbs", "RewardParts", "Parts",
	"RewardWeights", "CovCoef", "CovHigh", "CovLow", "CovShare", "Mu",
	"EntropyDrop", "MaxShare",
)

// arguments returns the arguments of these names in Go.
func arguments(names ...string) (all []Argument) {
	for _, name := range names {
		c := Snake(name)
		if name == "old" { // a parameter that C has in full
			c = "old_logprobs"
		}
		all = append(all, Argument{name, c})
	}
	return all
}

// Snake returns the name of Go in the way of C: SpanIDs is span_ids.
func Snake(name string) string {
	name = asWords.Replace(name)
	lower := func(i int) bool { return i < len(name) && !unicode.IsUpper(rune(name[i])) }
	var out strings.Builder
	for i, c := range name {
		if i > 0 && !lower(i) && (lower(i-1) || i == 1 && lower(2)) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(c))
	}
	return out.String()
}

var asWords = strings.NewReplacer("IDs", "Ids", "KL", "Kl", ".", "")

// Number returns the number of the argument of that name in Go, which must be there.
func Number(name string) int {
	for i, a := range Arguments {
		if a.Go == name {
			return i + 1
		}
	}
	panic("problem: no argument " + name)
}

// A Report is what C and a GPU say of a problem: reweight_error, and Status of
// common.cuh.
type Report struct {
	Code     uint32
	Argument uint32
	Index    int64 // the element that is wrong, or -1 if it is the whole argument
	Values   [5]int64
}

// Read returns the argument of a report, and its text. names are those that a value of
// the argument may have, by their numbers. It is false of numbers that nobody reports.
func (r *Report) Read(names func(Argument) []string) (Argument, string, bool) {
	code, argument := int(r.Code)-1, int(r.Argument)-1
	if code < 0 || code >= len(Coded) || argument < 0 || argument >= len(Arguments) {
		return Argument{}, "", false
	}
	p, a := Coded[code], Arguments[argument]
	values := make([]any, len(p.Kinds))
	for i, kind := range p.Kinds {
		v := r.Values[i]
		switch kind {
		case 'i':
			values[i] = v
		case 'f':
			values[i] = math.Float32frombits(uint32(v))
		case 'd':
			values[i] = math.Float64frombits(uint64(v))
		case 'n':
			values[i] = names(a)[v]
		case 'l':
			var list []string
			for bit, name := range names(a) {
				if v>>bit&1 != 0 {
					list = append(list, name)
				}
			}
			values[i] = list
		}
	}
	return a, p.Says(values...), true
}
