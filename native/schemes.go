package native

import (
	"cmp"
	"slices"

	"github.com/seed621a2839/reweight"
)

// A Scheme is a function of reweight.h of the form
//
//	int reweight_NAME(ws, float *dst, const reweight_batch *batch, [const options *options,] error)
//
// whose declaration, struct, defaults and text `go generate ./gpu` writes, for C and for Python.
type Scheme struct {
	C      string // "rollout_correction"
	Method string // of *reweight.Workspace
	Dst    string // the name of what it writes
	Entry  string // of the catalogue

	Default any    // options; nil if there are none
	Struct  string // the options are those of another scheme
	None    bool   // there is no default

	PerTrajectory bool     // dst has one element per trajectory, not per token
	Doc           []string // old, new: what the text of C and Python says in another way than the method's
}

// OffPolicyMaskOptions are the argument of OffPolicyMask, which C and Python have in a struct
// like others.
type OffPolicyMaskOptions struct {
	Delta float64 // nats, finite; there is no default
}

// Schemes are the functions of that form.
var Schemes = []Scheme{
	{C: "rloo", Method: "RLOO", Dst: "advantages", Entry: "rloo"},
	{C: "reinforce_plus_plus", Method: "ReinforcePlusPlus", Dst: "advantages", Entry: "reinforce++", Default: reweight.DefaultReinforcePlusPlus,
		Doc: []string{
			"ReinforcePlusPlus sets returns to the discounted sums of TokenRewards, backwards over\nthe response tokens of each trajectory, and advantages to these, whitened\n",
			"ReinforcePlusPlus sets advantages to the discounted sums of TokenRewards, backwards\nover the response tokens of each trajectory, whitened\n",
			"set; returns may be nil. advantages or returns may be", "set. advantages may be",
			"nothing is written", "advantages is not written",
		}},
	{C: "reinforce_plus_plus_baseline", Method: "ReinforcePlusPlusBaseline", Dst: "advantages", Entry: "reinforce++_baseline"},
	{C: "gigpo", Method: "GiGPO", Dst: "advantages", Entry: "gigpo", Default: reweight.DefaultGiGPO},
	{C: "gtpo", Method: "GTPO", Dst: "advantages", Entry: "gtpo", Default: reweight.DefaultGTPO},
	{C: "grpo_s", Method: "GRPOS", Dst: "advantages", Entry: "grpo_s", Default: reweight.DefaultGRPOS, Struct: "gtpo"},
	{C: "empg", Method: "EMPG", Dst: "advantages", Entry: "empg", Default: reweight.DefaultEMPG},
	{C: "overlong_penalty", Method: "OverlongPenalty", Dst: "penalties", Entry: "overlong", Default: reweight.DefaultOverlongPenalty, PerTrajectory: true},
	{C: "group_filter", Method: "GroupFilter", Dst: "weights", Entry: "group_filter"},
	{C: "entropy_mask", Method: "EntropyMask", Dst: "mask", Entry: "entropy_mask", Default: reweight.DefaultEntropyMask,
		Doc: []string{
			" (arXiv 2506.01939), and returns the smallest entropy that is kept, in\nnats. Of", " (arXiv 2506.01939). Of",
			"Without\nresponse tokens mask and threshold are 0. ", "",
		}},
	{C: "rollout_correction", Method: "RolloutCorrection", Dst: "factors", Entry: "tis", Default: reweight.DefaultRolloutCorrection},
	{C: "reject", Method: "Reject", Dst: "weights", Entry: "reject", Default: reweight.DefaultReject},
	{C: "off_policy_mask", Method: "OffPolicyMask", Dst: "factors", Entry: "off_policy_mask", Default: OffPolicyMaskOptions{}, None: true},
	{C: "opo", Method: "OPO", Dst: "advantages", Entry: "opo"},
	{C: "pass_at_k", Method: "PassAtK", Dst: "advantages", Entry: "pass_at_k", Default: reweight.DefaultPassAtK},
	{C: "gpg_advantages", Method: "GPG", Dst: "advantages", Entry: "gpg_advantages",
		Doc: []string{" The loss of\nGPG is PolicyPG.", " Its loss is the policy\npg."}},
	{C: "fipo", Method: "FIPO", Dst: "factors", Entry: "fipo", Default: reweight.DefaultFIPO},
	{C: "rlsd", Method: "RLSD", Dst: "factors", Entry: "rlsd", Default: reweight.DefaultRLSD},
	{C: "otb", Method: "OTB", Dst: "advantages", Entry: "otb", Default: reweight.DefaultOTB},
	{C: "gdpo", Method: "GDPO", Dst: "advantages", Entry: "gdpo", Default: reweight.DefaultGDPO},
}

// SchemeOf returns the scheme with that name in C.
func SchemeOf(c string) *Scheme {
	i := slices.IndexFunc(Schemes, func(s Scheme) bool { return s.C == c })
	return &Schemes[i]
}

// Options returns what C calls the struct of the options, without reweight_ before it.
func (s *Scheme) Options() string { return cmp.Or(s.Struct, s.C) + "_options" }
