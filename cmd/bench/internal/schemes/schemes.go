// Package schemes has the one table of the schemes that the command line compares and
// measures. A scheme turns rollouts into a loss. Its parts say what is not as in uniform
// training, and schemes whose parts do not contradict each other can be joined.
package schemes

import "github.com/seed621a2839/reweight"

// Options are what the schemes share. All else has the constants of its paper.
type Options struct {
	ActFocus reweight.ActFocusOptions
	AEM      reweight.AEMOptions
	GRPO     reweight.GRPOOptions
	Delta    *float64                    // of the off-policy mask, which has no default
	TooWide  string                      // what the schemes that read the entropy need, "needs ...", if it is not good enough for them
	Loss     func(*reweight.LossOptions) // changes the options of every scheme's loss; nil leaves them
}

// Default returns the papers' options.
func Default() Options {
	return Options{ActFocus: reweight.DefaultActFocus, AEM: reweight.DefaultAEM, GRPO: reweight.DefaultGRPO}
}

// A call computes one of the arrays of a step into dst, from b.
type call func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error

// A part is what a name stands for. A step makes the calls of its parts in the order of
// the fields.
type part struct {
	name     string
	synonyms []string // of verl and TRL
	about    string
	arrays   []string // that it reads besides those of every step; "a|b" is one of the two

	penalty call                  // [S] added to the rewards that estimate reads
	advance call                  // [T] advantages, in place of those of GRPO
	reshape call                  // [T] advantages, from advantages
	factor  call                  // [T] factor of the advantages
	weight  call                  // [T] token weights of the loss
	loss    *reweight.LossOptions // in place of reweight.DefaultLoss

	perToken bool // whether it reads the entropy of single tokens, and not a mean only
	corrects bool // whether the factor is the ratio to the engine that sampled
}

// The losses that differ from the clipped surrogate in their aggregation only.
var (
	seqMeanLoss = reweight.LossOptions{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Aggregation: reweight.SeqMeanTokenMean}
	seqNormLoss = reweight.LossOptions{ClipLow: 0.2, ClipHigh: 0.28, DualClip: 3, Aggregation: reweight.SeqMeanTokenSumNorm}
)

// table has every name, in the order of reports.
var table = [...]part{
	{
		name: uniform, synonyms: []string{"vanilla", "ppo", "bnpo"}, loss: &reweight.DefaultLoss,
		about: "GRPO advantages, the clipped surrogate, the mean over tokens",
	},
	{
		name: "actfocus", about: "weights of ActFocus", // arrays: those of the signal
		weight: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			_, err := ws.ActFocus(dst, b, opt.ActFocus)
			return err
		},
	},
	{
		name: "aem", about: "advantages times the factors of AEM", arrays: []string{"entropy", "span_ids", "group_ids"},
		factor: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.AEM(dst, b, opt.AEM)
		},
	},
	{
		name: "grpo", synonyms: []string{"grpo_vectorized"}, about: "uniform with the mean over trajectories of the mean over tokens", arrays: []string{"rewards", "group_ids"},
		advance: grpo, loss: &seqMeanLoss,
	},
	{
		name: "dr_grpo", about: "Dr. GRPO: no standard deviation, and sums over one length", arrays: []string{"rewards", "group_ids"},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			dr := opt.GRPO
			dr.DivideByStd = false
			return ws.GRPO(dst, b, dr)
		},
		loss: &seqNormLoss,
	},
	{
		name: "dapo", about: "uniform with the overlong penalty and without groups of equal rewards", arrays: []string{"rewards", "group_ids"},
		penalty: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.OverlongPenalty(dst, b, reweight.DefaultOverlong)
		},
		weight: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.GroupFilter(dst, b)
		},
		loss: &reweight.DefaultLoss,
	},
	{
		name: "rloo", synonyms: []string{"rloo_vectorized"}, about: "advantages: the reward less the mean of the others", arrays: []string{"rewards", "group_ids"},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.RLOO(dst, b)
		},
	},
	{
		name: "reinforce++", synonyms: []string{"reinforce_plus_plus"}, about: "advantages: whitened discounted sums of token rewards",
		arrays: []string{tokenRewards},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.ReinforcePlusPlus(dst, nil, b, reweight.DefaultReinforcePlusPlus)
		},
	},
	{
		name: "reinforce++_baseline", synonyms: []string{"reinforce_plus_plus_baseline"}, about: "advantages: rewards less their group's mean, whitened",
		arrays: []string{"rewards", "group_ids"},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.ReinforcePlusPlusBaseline(dst, b)
		},
	},
	{
		name: "gigpo", about: "advantages of trajectories, and of spans that begin in one state",
		arrays: []string{"rewards", "group_ids", "span_ids", "anchors", "span_rewards"},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.GiGPO(dst, b, reweight.DefaultGiGPO)
		},
	},
	{
		name: "gtpo", about: "advantages: rewards shaped by the entropy of tokens", arrays: []string{"rewards", "group_ids", "entropy"}, perToken: true,
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.GTPO(dst, b, reweight.DefaultGTPO)
		},
	},
	{
		name: "grpo_s", about: "advantages: rewards shaped by the mean entropy of trajectories", arrays: []string{"rewards", "group_ids", "entropy"},
		advance: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.GRPOS(dst, b, reweight.DefaultGRPOS)
		},
	},
	{
		name: "empg", about: "advantages scaled by the entropy of spans, with a bonus for the next", arrays: []string{"entropy", "span_ids"},
		reshape: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.EMPG(dst, b, reweight.DefaultEMPG)
		},
	},
	{
		name: "entropy_mask", about: "weights: the fifth of the tokens with the highest entropies", arrays: []string{"entropy"}, perToken: true,
		weight: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			_, err := ws.EntropyMask(dst, b, reweight.DefaultEntropyMask)
			return err
		},
	},
	{name: "gspo", about: "loss: the ratio of the sequence", loss: &reweight.DefaultGSPO},
	{name: "luspo", about: "loss: GSPO with sums over tokens", loss: &reweight.DefaultLUSPO},
	{name: "grpo_s_ratio", about: "loss: the mean ratio of the sequence, the other half of GRPO-S", loss: &reweight.DefaultGRPOSLoss},
	{name: "cispo", about: "loss: a clipped ratio that is a constant", loss: &reweight.DefaultCISPO},
	{name: "sapo", about: "loss: a soft gate in place of the clip", loss: &reweight.DefaultSAPO},
	{name: "pg", synonyms: []string{"gpg"}, about: "loss: the policy gradient without a ratio", loss: &reweight.DefaultPG},
	{name: "dppo_tv", about: "loss: tokens whose probability has moved too far are left out", loss: &reweight.DefaultDPPOTV},
	{name: "vespo", about: "loss: a gate on the trajectory's ratio", loss: &reweight.DefaultVESPO},
	{
		name: "tis", corrects: true, about: "rollout correction: advantages times the truncated ratio", arrays: []string{"rollout_logprobs"},
		factor: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.RolloutCorrection(dst, b, reweight.DefaultCorrection)
		},
	},
	{
		name: "icepop", corrects: true, about: "rollout correction: advantages times the ratio, 0 outside its bounds", arrays: []string{"rollout_logprobs"},
		factor: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.RolloutCorrection(dst, b, reweight.DefaultIcePop)
		},
	},
	{
		name: "reject", about: "weights: 0 for tokens whose rollout ratio is outside its bounds", arrays: []string{"rollout_logprobs"},
		weight: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.Reject(dst, b, reweight.DefaultRejection)
		},
	},
	{
		name: offPolicyMask, about: "advantages below 0 are 0 in trajectories whose policy has moved",
		factor: func(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
			return ws.OffPolicyMask(dst, b, *opt.Delta)
		},
	},
}

// leftOut has the names of verl that no part has.
var leftOut = [...]string{
	"dppo_kl", "clip_cov", "kl_cov", "geo_mean", "dro", "bypass_mode", // losses
	"gae", "opo", "remax", "gdpo", "grpo_passk", "optimal_token_baseline", "tir_optimal_token_baseline", // advantages
}

const (
	uniform       = "uniform"
	actFocus      = "actfocus"
	offPolicyMask = "off_policy_mask"
	tokenRewards  = "token_rewards|rewards" // of the tokens, or the outcome at the last of them
)

func grpo(ws *reweight.Workspace, dst []float32, b *reweight.Batch, opt *Options) error {
	return ws.GRPO(dst, b, opt.GRPO)
}
