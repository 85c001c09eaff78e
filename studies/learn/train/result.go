package train

// A Run names one training run. Runs that differ in Scheme only begin with the
// same weights and meet the same episodes, so that they can be compared in pairs.
type Run struct {
	Game      string // one of env.Games
	Algorithm string // grpo or ppo
	Reasoning string // none, useful or noise
	Scheme    string // as scheme.Parse takes it
	Seed      int

	Fluent int     // words of each response that mean nothing, and are easy to foretell
	Errors float64 // share of the demonstrator's mistakes that are made in the reasoning
	Rate   float64 // size of the steps; 0 for that of the settings
}

// Correlations are those of the Action Bottleneck (reweight.Bottleneck), Spearman's rho.
type Correlations struct{ All, Reasoning, Action float64 }

// A Result is what a training run leaves. The curves have one element an
// iteration, which is one batch of episodes and the updates from it.
type Result struct {
	Run
	Perfect float64 // success of a perfect player
	Start   float64 // success before training, on episodes kept for that
	Final   float64 // success after training, on the same episodes

	Decided   float64 // before training: see Settings.Decided
	Malformed float64 // share of all responses without an answer between two tags
	Actions   float64 // share of action tokens among those of responses, in the first batch

	Success       []float64       // share of the batch's episodes
	Entropy       []float64       // mean of response tokens, nats
	ActionEntropy []float64       // of action tokens
	Drift         []float64       // reweight.EntropyDrift, with AEM's factors in the advantages and without weights
	ClipFraction  []float64       // of response tokens, mean over the updates
	KL            []float64       // k3 against the reference, nats a token, mean over the updates
	Bottleneck    [3]Correlations // of each third of the training, over all groups of its batches
	Weights       string          // SHA-256 of the parameters at the end
	Seconds       float64
}
