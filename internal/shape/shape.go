// Package shape says which kernels the GPU has, and how they are launched: what package gpu,
// the host of Python and the code of the device have to agree on.
package shape

import (
	"slices"

	"github.com/seed621a2839/reweight"
)

// A Kernel says how a kernel is launched.
type Kernel struct {
	Name    string
	Module  string // the file of package device without its ending
	Threads int    // of a CTA
	Shared  int    // bytes of dynamic shared memory of a CTA

	// How many times as many threads and bytes the CTAs have where all that a call needs
	// can run at a time; 0: they always have the same.
	Team int
}

// The threads of a CTA, and what it takes at a time.
const (
	PassThreads    = 256 // of the kernels that pass over arrays
	PassPack       = 4   // tokens that a thread of theirs takes at a time: tokens.cuh
	ChainThreads   = 544 // of those with sums in float64: chains.cuh
	SpanThreads    = 128 // of the kernels that give a warp to each of n things
	GroupThreads   = 256 // of those that give half a warp to each group of tokens
	GroupTokens    = 128 // tokens of a group: surrogate.cuh
	SegmentThreads = 128 // of loss_segments: a warp sums a segment
	MemoryThreads  = 256 // of those that read or copy memory
)

// The shapes of the kernels on rows; rows.cuh has the same.
const (
	rowBuffer  = 8192 + 128 // bytes of shared memory for a chunk of a row
	rowSums    = 4 * 16 * 4 // bytes of shared memory for one of the sums of its blocks
	rowMisfit  = 16         // bytes of shared memory for what a warp of a team finds
	RowThreads = 32         // a warp takes a row at a time
	RowTeam    = 4          // or so many warps together, where the device can run as many teams as there are rows
)

// The kernels on rows: one for each DType, at temperature 1 and at any other. A warp of
// token_stats fills one buffer while it sums what is in the other. token_stats_squares is
// what computes LogSumSqProbs.
var (
	Stats    = ofDTypes("token_stats_", reweight.DTypeF16)
	Squares  = ofDTypes("token_stats_squares_", reweight.DTypeF16)
	Gradient = ofDTypes("row_gradient_", reweight.DTypeBF16)
)

// ofDTypes returns the names of kernels for each DType up to last.
func ofDTypes(prefix string, last reweight.DType) (names [][2]string) {
	for d := range last + 1 {
		name := prefix + d.String()
		names = append(names, [2]string{name, name + "_tempered"})
	}
	return names
}

// onRows lists kernels whose warps want so many bytes of shared memory. A pair is a module.
func onRows(names [][2]string, shared int) (list []Kernel) {
	for _, n := range names {
		list = append(list, Kernel{n[0], n[0], RowThreads, shared, RowTeam},
			Kernel{n[1], n[0], RowThreads, shared, RowTeam})
	}
	return list
}

// Kernels has every kernel.
var Kernels = slices.Concat(
	onRows(Stats, 2*rowBuffer+2*rowSums+rowMisfit),
	onRows(Squares, 2*rowBuffer+3*rowSums+rowMisfit),
	onRows(Gradient, rowBuffer+2*rowSums+rowMisfit),
	[]Kernel{
		{Name: "read_memory", Module: "memory", Threads: MemoryThreads},
		{Name: "copy_memory", Module: "memory", Threads: MemoryThreads},

		{Name: "multiply", Module: "multiply", Threads: PassThreads},
		{Name: "masked_moments", Module: "moments", Threads: ChainThreads},
		{Name: "actfocus_spread", Module: "actfocus", Threads: ChainThreads},
		{Name: "actfocus_weights", Module: "actfocus", Threads: PassThreads},
		{Name: "whiten_spread", Module: "whiten", Threads: ChainThreads},
		{Name: "whiten", Module: "whiten", Threads: PassThreads},
		{Name: "surrogate", Module: "surrogate", Threads: GroupThreads},
		{Name: "surrogate_total", Module: "surrogate", Threads: 32},
		{Name: "loss_check", Module: "loss", Threads: GroupThreads},
		{Name: "loss_weights", Module: "loss", Threads: ChainThreads},
		{Name: "loss_tokens", Module: "loss", Threads: GroupThreads},
		{Name: "loss_segments", Module: "loss", Threads: SegmentThreads},
		{Name: "loss_total", Module: "loss", Threads: 256},

		{Name: "span_means", Module: "spans", Threads: SpanThreads},
		{Name: "min_max", Module: "spans", Threads: SpanThreads},
		{Name: "exp_scale", Module: "spans", Threads: 128},
		{Name: "check_layout", Module: "layout", Threads: 256},
		{Name: "aem_tops", Module: "aem", Threads: SpanThreads},
		{Name: "aem_spans", Module: "aem", Threads: SpanThreads},
		{Name: "aem_sort", Module: "aem", Threads: SpanThreads},
		{Name: "aem_scopes", Module: "aem", Threads: 128},
		{Name: "aem_factors", Module: "aem", Threads: 256},
		{Name: "grpo_scores", Module: "advantage", Threads: SpanThreads},
		{Name: "grpo_advantages", Module: "advantage", Threads: 256},
		{Name: "gae", Module: "advantage", Threads: SpanThreads},
	})

// KernelsOf has the kernels that the methods of a Workspace launch, but for those on rows
// of logits, which KernelsOfRows has.
var KernelsOf = map[string][]string{
	"ActFocus":        {"actfocus_spread", "actfocus_weights"},
	"ActFocusWeights": {"actfocus_weights"},
	"AEM":             {"check_layout", "aem_tops", "aem_spans", "aem_sort", "aem_scopes", "aem_factors"},
	"CopyMemory":      {"copy_memory"},
	"ExpScale":        {"exp_scale"},
	"GAE":             {"check_layout", "gae"},
	"GRPO":            {"check_layout", "grpo_scores", "grpo_advantages"},
	"Loss":            {"loss_check", "loss_weights", "loss_tokens", "loss_segments", "loss_total"},
	"MaskedMoments":   {"masked_moments"},
	"MinMax":          {"min_max"},
	"Multiply":        {"multiply"},
	"ReadMemory":      {"read_memory"},
	"SpanMeans":       {"span_means"},
	"Surrogate":       {"surrogate", "surrogate_total"},
	"Whiten":          {"whiten_spread", "whiten"},
}

// KernelsOfRows has for each DType the kernels at temperature 1 and at any other, one pair
// after another.
var KernelsOfRows = map[string][][]string{
	"TokenStats":  pairs(Stats, Squares),
	"RowGradient": pairs(Gradient),
}

// pairs joins lists of pairs, one for each DType.
func pairs(lists ...[][2]string) [][]string {
	all := make([][]string, len(lists[0]))
	for _, list := range lists {
		for dtype, pair := range list {
			all[dtype] = append(all[dtype], pair[:]...)
		}
	}
	return all
}

// The forms of a signal; chains.cuh has the same.
const (
	Plain      = iota // a
	Negated           // -a
	Difference        // a - b
)

// SegmentState and LossState are those of loss.cu, in scratch memory.
type (
	SegmentState struct {
		responses    int64
		sum, squares float64
		sums         reweight.SurrogateSums
	}
	LossState struct {
		wrong, sequences uint32
		longest          uint64
		k3               float64
	}
)
