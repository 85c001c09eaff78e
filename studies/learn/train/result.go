package train

// A Run names one training run. Runs that differ in Scheme and Rate only begin with the same
// weights and meet the same episodes, so that they can be compared in pairs.
type Run struct {
	Arm       string  // what is changed of the settings: a name of Arms
	Game      string  // one of env.Games
	Algorithm string  // grpo or ppo
	Fluent    int     // words of each response that mean nothing, and are easy to foretell
	Errors    float64 // share of the demonstrator's mistakes that are made in the reasoning; with 0 it says nothing else
	Scheme    string  // as schemeNamed takes it
	Rate      float64 // size of the steps; 0 for that of the settings
	Seed      int
}

// A Result is what a training run leaves. Success has one element an iteration, which is one
// batch of episodes and the updates from it.
type Result struct {
	Run
	Start float64 // success before training, on episodes kept for that
	Final float64 // success after training, on the same episodes

	Decided   float64 // before training: see Settings.Decided
	Malformed float64 // share of all responses without an answer between two tags
	Actions   float64 // share of action tokens among those of responses, in the first batch

	Success []float64 // share of the batch's episodes
	Weights string    // SHA-256 of the parameters at the end
	Seconds float64
}
