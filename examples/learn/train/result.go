package train

import "github.com/seed621a2839/reweight/bench"

// A Run names one training run. Runs that differ in Scheme only begin with the
// same weights and meet the same episodes, so that they can be compared in pairs.
type Run struct {
	Game      string `json:"game"`      // one of env.Games
	Algorithm string `json:"algorithm"` // grpo or ppo
	Reasoning string `json:"reasoning"` // none, useful or noise
	Scheme    string `json:"scheme"`    // one of Schemes
	Seed      int    `json:"seed"`
}

// Correlations are those of the Action Bottleneck (reweight.Bottleneck), Spearman's rho.
type Correlations struct {
	All       bench.Number `json:"all"`
	Reasoning bench.Number `json:"reasoning"`
	Action    bench.Number `json:"action"`
}

// A Result is what a training run leaves. The curves have one element an
// iteration, which is one batch of episodes and the updates from it.
type Result struct {
	Run
	Perfect float64 `json:"perfect"` // success of a perfect player
	Start   float64 `json:"start"`   // success before training, on episodes kept for that
	Final   float64 `json:"final"`   // success after training, on the same episodes

	Success       []float64      `json:"success"`        // share of the batch's episodes
	Entropy       []float64      `json:"entropy"`        // mean of response tokens, nats
	ActionEntropy []float64      `json:"action_entropy"` // of action tokens
	Drift         []float64      `json:"drift"`          // reweight.EntropyDrift, with AEM's factors in the advantages and without weights
	ClipFraction  []float64      `json:"clip_fraction"`  // of response tokens, mean over the updates
	KL            []float64      `json:"kl"`             // k3 against the reference, nats a token, mean over the updates
	Bottleneck    []Correlations `json:"bottleneck"`     // of each third of the training, over all groups of its batches
	Weights       string         `json:"weights"`        // SHA-256 of the parameters at the end
	Seconds       float64        `json:"seconds"`
}
