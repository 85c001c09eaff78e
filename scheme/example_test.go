package scheme_test

import (
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/scheme"
)

// twoTrajectories is a batch of two rollouts of one prompt: the first succeeded. In each
// the policy read a token, thought for two and acted with one.
func twoTrajectories() *reweight.Batch {
	const read, thought, acted = reweight.RoleMasked, reweight.RoleReasoning, reweight.RoleAction
	return &reweight.Batch{
		Role:       []reweight.Role{read, thought, thought, acted, read, thought, thought, acted},
		SeqOffsets: []int64{0, 4, 8}, // where each begins, and where the last ends
		GroupIDs:   []int32{0, 0},
		Rewards:    []float32{1, 0},
		SpanIDs:    []int32{-1, 0, 0, 0, -1, 1, 1, 1}, // the responses
		RefEnergy:  []float32{0, -12, -11, -30, 0, -10, -13, -20},
		Entropy:    []float32{0, 0.5, 0.3, 0.2, 0, 1.1, 0.9, 1},

		OldLogprobs: []float32{0, -0.7, -0.2, -0.1, 0, -1.5, -0.8, -0.9},
		Logprobs:    []float32{0, -0.6, -0.2, -0.1, 0, -1.6, -0.7, -0.9},
	}
}

// Weights and loss of arrays of your own, as in the README.
func Example_arrays() {
	batch := &reweight.Batch{ // two rollouts of one prompt: a token read, one thought, two of the action
		Role:       []reweight.Role{0, 1, 2, 2, 0, 1, 2, 2},
		SeqOffsets: []int64{0, 4, 8}, GroupIDs: []int32{0, 0}, Rewards: []float32{1, 0},
		RefEnergy:   []float32{0, -12, -30, -25, 0, -10, -28, -21}, // minus the logsumexp of the logits
		OldLogprobs: []float32{0, -0.7, -0.2, -0.1, 0, -1.5, -0.8, -0.9},
		Logprobs:    []float32{0, -0.6, -0.2, -0.1, 0, -1.6, -0.7, -0.9},
	}
	step, err := scheme.MustParse("actfocus").NewStep(new(reweight.Workspace), batch)
	if err != nil {
		log.Fatal(err)
	}
	loss, err := step.Run()
	fmt.Printf("loss %.4f, weights %.2f, %v\n", loss.Loss, step.Weights, err)
	// Output: loss 0.0388, weights [0.00 0.10 1.12 1.29 0.00 0.10 1.18 1.41], <nil>
}

// From a batch to the gradient of the loss, under ActFocus and AEM.
func Example() {
	s, err := scheme.Parse("actfocus+aem")
	if err != nil {
		panic(err)
	}
	var ws reweight.Workspace // scratch and settings that calls reuse
	step, err := s.NewStep(&ws, twoTrajectories())
	if err != nil {
		panic(err)
	}
	loss, err := step.Run()
	if err != nil {
		panic(err)
	}
	fmt.Printf("loss %.4f over %d response tokens\n", loss.Loss, loss.Tokens)
	fmt.Printf("advantages %.2f\n", step.Advantages)
	fmt.Printf("weights    %.2f\n", step.Weights)
	fmt.Printf("gradient   %.3f\n", step.Grad)
	// Output:
	// loss -0.2740 over 6 response tokens
	// advantages [0.00 1.03 1.03 1.03 0.00 -0.38 -0.38 -0.38]
	// weights    [0.00 0.10 0.10 1.13 0.00 0.10 0.10 1.37]
	// gradient   [0.000 -0.039 -0.036 -0.404 0.000 0.012 0.014 0.179]
}

// Options of the scheme may be changed before the step is made.
func ExampleScheme_NewStep() {
	s := scheme.MustParse("gspo")
	s.Options.Loss.Policy = reweight.GSPO{ClipLow: 0.2, ClipHigh: 0.2}
	b := twoTrajectories()
	step, err := s.NewStep(new(reweight.Workspace), b)
	if err != nil {
		panic(err)
	}
	loss, err := step.Run()
	fmt.Printf("loss %.4f, %v\n", loss.Loss, err)

	b.Logprobs[1] = -0.5 // the step reads the arrays anew
	loss, err = step.Run()
	fmt.Printf("loss %.4f, %v\n", loss.Loss, err)

	b.GroupIDs, b.Entropy = nil, nil
	_, err = scheme.MustParse("gtpo").NewStep(new(reweight.Workspace), b)
	fmt.Println(err)
	// Output:
	// loss -0.0120, <nil>
	// loss -0.0244, <nil>
	// gtpo needs entropy and group_ids
}

// Names of trainers are known, and an error says what cannot be combined.
func ExampleParse() {
	for _, names := range []string{"rloo+correction+cispo", "seq-mean-token-mean", "gspo+cispo", "actfocsu"} {
		s, err := scheme.Parse(names)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(s.Name)
	}
	// Output:
	// rloo+cispo+tis
	// seq_mean_token_mean
	// "gspo+cispo": gspo and cispo both are a loss, and a step has one
	// "actfocsu": no scheme has the name "actfocsu"; the nearest is "actfocus"
}

// What one entry of the catalogue computes, without a step.
func ExampleEntry_Compute() {
	e, err := scheme.Find("group_mean")
	if err != nil {
		panic(err)
	}
	b := twoTrajectories()
	advantages := make([]float32, b.Tokens())
	err = e.Compute(new(reweight.Workspace), advantages, b, e.Defaults())
	fmt.Println(e.Title, e.Reads, advantages, err)
	// Output:
	// Dr. GRPO [seq_offsets group_ids rewards] [0 0.5 0.5 0.5 0 -0.5 -0.5 -0.5] <nil>
}
