package reweight_test

import (
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
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
	before, err := reweight.WeightMass(nil, batch.Role)
	check(err)
	after, err := reweight.WeightMass(weights, batch.Role)
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
	opt := reweight.DefaultGSPO
	opt.Sequence = reweight.SequenceSpan
	opt.KL, opt.KLCoef = reweight.KLK3, 0.001
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
		fmt.Printf("energy %.4f, entropy %.4f, log-probability %.4f\n", -stats.LSE[row], stats.Entropy[row], stats.Logprob[row])
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
	check(ws.RowGradient(logits, logits, ids, reweight.RowGradientInput{Logprobs: logprobs, Grad: grad}, reweight.DefaultRowGradient))
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
