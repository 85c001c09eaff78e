package train

// Settings are the numbers of a training run that are to be chosen.
type Settings struct {
	Hidden int // width of the policy

	// The warm start: Demonstrations episodes of noisy play are imitated, a batch
	// of Batch at a time, with a learning rate that falls to a tenth.
	Demonstrations int
	Batch          int
	WarmRate       float64
	Starts         int     // warm starts of a game; the seeds take them in turn
	Mistakes       float64 // share of the demonstrations' turns with a mistake; 0 for that of the game

	// An iteration plays Groups times GroupSize episodes, and makes one update
	// from each of Minibatches parts of them, Epochs times.
	Iterations  int
	Groups      int
	GroupSize   int
	Minibatches int
	Epochs      int

	Warmup int // updates in which the rate rises to that of the run; 0 for none

	Penalty    float64 // taken from the reward of an episode with a response that has no answer between two tags
	FormatActs bool    // tags and such responses are actions and not reasoning
	Keep       float64 // share of the groups that are learned from: those with the most variance of rewards

	Evaluation int // episodes that measure a policy before and after
}

// Default is what the studies use: the settings of the papers and of verl, scaled to a policy of
// some ten thousand parameters.
var Default = Settings{
	Hidden:         32,
	Demonstrations: 25600,
	Batch:          8,
	WarmRate:       1e-2,
	Starts:         4,
	Iterations:     40,
	Groups:         8,
	GroupSize:      8,
	Minibatches:    4,
	Epochs:         1,
	Warmup:         8,
	Penalty:        0.1,
	Keep:           1,
	Evaluation:     256,
}
