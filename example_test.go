package reweight_test

import (
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/diagnose"
	"github.com/seed621a2839/reweight/rollout"
)

// The weights of ActFocus on real rollouts.
func Example() {
	file, err := rollout.Open("testdata/frozenlake-small.safetensors")
	check(err)
	batch, err := file.Batch()
	check(err)
	var ws reweight.Workspace // scratch and settings that calls reuse
	weights := make([]float32, batch.Tokens())
	focus, err := ws.ActFocus(weights, batch, reweight.DefaultActFocus)
	check(err)
	before, err := diagnose.WeightMass(nil, batch.Role)
	check(err)
	after, err := diagnose.WeightMass(weights, batch.Role)
	check(err)
	fmt.Printf("%d action tokens: %.1f%% of the weight before, %.1f%% after\n", focus.Actions, 100*before, 100*after)
	// Output: 134 action tokens: 4.1% of the weight before, 34.4% after
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A whole step: advantages of GRPO, scaled by AEM, and the loss with ActFocus's
// weights. grad is the gradient with respect to each token's log-
// probability.
func ExampleWorkspace_Loss() {
	file, err := rollout.Open("testdata/frozenlake-small.safetensors")
	check(err)
	batch, err := file.Batch()
	check(err)
	n := batch.Tokens()
	batch.Advantages = make([]float32, n)
	weights, factors, grad := make([]float32, n), make([]float32, n), make([]float32, n)
	var ws reweight.Workspace
	check(ws.GRPO(batch.Advantages, batch, reweight.DefaultGRPO))
	check(ws.AEM(factors, batch, reweight.DefaultAEM))
	check(ws.Multiply(batch.Advantages, batch.Advantages, factors))
	_, err = ws.ActFocus(weights, batch, reweight.DefaultActFocus)
	check(err)
	loss, err := ws.Loss(grad, weights, batch, reweight.DefaultLoss)
	check(err)
	fmt.Printf("loss %.4f over %d response tokens\n", loss.Loss, loss.Tokens)
	// Output: loss 0.0846 over 3302 response tokens
}

// Another policy loss: GSPO's ratio of the sequence, here of each turn, and the
// divergence from the reference beside it.
func ExampleLossOptions() {
	file, err := rollout.Open("testdata/frozenlake-small.safetensors")
	check(err)
	batch, err := file.Batch()
	check(err)
	batch.Advantages = make([]float32, batch.Tokens())
	grad := make([]float32, batch.Tokens())
	var ws reweight.Workspace
	check(ws.GRPO(batch.Advantages, batch, reweight.DefaultGRPO))
	opt := reweight.LossOptions{
		Policy:      reweight.GSPO{ClipLow: 3e-4, ClipHigh: 4e-4, Sequence: reweight.SequenceSpan},
		Aggregation: reweight.SeqMeanTokenMean,
		KL:          reweight.KLK3, KLCoef: 0.001,
	}
	loss, err := ws.Loss(grad, nil, batch, opt)
	check(err)
	fmt.Printf("%v: loss %.4f, of which the divergence is %.6f; %.1f%% of the tokens clipped\n", opt.Policy, loss.Loss, loss.KLLoss, 100*loss.ClipFraction)
	// Output: gspo: loss 0.0021, of which the divergence is 0.000379; 48.1% of the tokens clipped
}

// Energies, entropies and log-probabilities of two rows of logits over a
// vocabulary of three, in one pass.
func ExampleWorkspace_TokenStats() {
	logits := reweight.Logits{Vocab: 3, F32: []float32{
		1, 1, 1,
		4, 0, 0,
	}}
	ids := []int32{2, 0} // the tokens that were sampled
	stats := reweight.Stats{LSE: make([]float32, 2), Entropy: make([]float32, 2), Logprob: make([]float32, 2)}
	var ws reweight.Workspace
	check(ws.TokenStats(stats, logits, ids, reweight.DefaultTokenStats))
	for row := range ids {
		fmt.Printf("energy %.4f, entropy %.4f, log-probability %.4f\n", -stats.LSE[row], stats.Entropy[row],
			stats.Logprob[row])
	}
	// Output:
	// energy -2.0986, entropy 1.0986, log-probability -1.0986
	// energy -4.0360, entropy 0.1773, log-probability -0.0360
}

// From the gradient with respect to a log-probability to that with respect to the
// logits, in place of the logits.
func ExampleWorkspace_RowGradient() {
	logits := reweight.Logits{Vocab: 3, F32: []float32{4, 0, 0}}
	ids, logprobs := []int32{0}, make([]float32, 1)
	var ws reweight.Workspace
	check(ws.TokenStats(reweight.Stats{Logprob: logprobs}, logits, ids, reweight.DefaultTokenStats))
	grad := []float32{-1} // with respect to the log-probability: it should grow
	check(ws.RowGradient(logits, logits, ids, reweight.RowGradientInput{Logprobs: logprobs, Grad: grad},
		reweight.DefaultRowGradient))
	fmt.Printf("%.4f\n", logits.F32)
	// Output: [-0.0353 0.0177 0.0177]
}

// An error says which argument is wrong, where and how.
func ExampleInputError() {
	batch := reweight.Batch{Role: []reweight.Role{1, 2}, SeqOffsets: []int64{0, 2}, Rewards: []float32{1, 2}}
	err := batch.Validate()
	fmt.Println(err)
	input := err.(*reweight.InputError)
	fmt.Println(input.Sentence("the column \"reward\" of my table"))
	// Output:
	// reweight: Rewards has 2 elements, want 1, one per trajectory
	// the column "reward" of my table has 2 elements, want 1, one per trajectory
}

// Rows that lie apart, such as the logits of a server's answers in bfloat16: one call for
// each, with a slice of the results. The bits are the same as of one call on all rows.
func ExampleBF16s() {
	answers := [][]uint16{ // two rows of two logits, and one row
		{0x3f80, 0x3f80, 0x4080, 0},
		{0, 0x4040},
	}
	ids := []int32{0, 0, 1}
	logprobs := make([]float32, len(ids))
	var ws reweight.Workspace // one for all calls: the second allocates nothing
	first := 0
	for _, answer := range answers {
		logits := reweight.Logits{Vocab: 2, BF16: reweight.BF16s(answer)} // of bytes: reweight.LogitsOf
		end := first + logits.Rows()
		check(ws.TokenStats(reweight.Stats{Logprob: logprobs[first:end]}, logits, ids[first:end],
			reweight.DefaultTokenStats))
		first = end
	}
	fmt.Printf("%.4f\n", logprobs)
	// Output: [-0.6931 -0.0181 -0.0486]
}

// Advantages of a critic's estimates: of each token, and what the critic is to predict.
func ExampleWorkspace_GAE() {
	const prompt, thought, acted = reweight.RoleMasked, reweight.RoleReasoning, reweight.RoleAction
	batch := &reweight.Batch{
		Role:       []reweight.Role{prompt, thought, acted, prompt, acted},
		SeqOffsets: []int64{0, 3, 5}, // two trajectories
		Values:     []float32{0, 0.5, 0.75, 0, 0.25},
	}
	rewards := []float32{0, 0, 1, 0, 0} // of each token: the outcome, at the last one
	advantages, returns := make([]float32, batch.Tokens()), make([]float32, batch.Tokens())
	var ws reweight.Workspace
	check(ws.GAE(advantages, returns, rewards, batch, reweight.GAEOptions{Gamma: 1, Lambda: 0.5}))
	fmt.Println(advantages)
	fmt.Println(returns)
	// Output:
	// [0 0.375 0.25 0 -0.25]
	// [0 0.875 1 0 0]
}

// Two trajectories of one prompt that begin in the same state, 7: their first responses are
// compared with each other too, and not only the outcomes.
func ExampleWorkspace_GiGPO() {
	const read, acted = reweight.RoleMasked, reweight.RoleAction
	batch := &reweight.Batch{
		Role:        []reweight.Role{read, acted, read, acted, read, acted},
		SeqOffsets:  []int64{0, 4, 6},
		GroupIDs:    []int32{0, 0},
		Rewards:     []float32{1, 0},
		SpanIDs:     []int32{-1, 0, -1, 1, -1, 2}, // the responses
		Anchors:     []int32{7, 8, 7},             // the state before each
		SpanRewards: []float32{0, 1, 0},
	}
	advantages := make([]float32, batch.Tokens())
	var ws reweight.Workspace
	check(ws.GiGPO(advantages, batch, reweight.DefaultGiGPO))
	fmt.Printf("%.3f\n", advantages)
	// Output: [0.000 0.975 0.000 0.500 0.000 -0.975]
}
