// Step does one training step on the responses of a file, up to the gradient that goes
// into the model: it finds the actions, makes advantages and weights under ActFocus and
// AEM, and computes the loss. step.py does the same in Python.
//
//	go run ./examples/step examples/step/responses.jsonl
//
// The file has a JSON object per response: docs/formats.md says which fields there are.
// These are answers of SmolLM2-135M-Instruct to two questions, and its own numbers.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/scheme"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: step RESPONSES.jsonl")
	}
	if err := step(os.Stdout, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func step(w io.Writer, path string) error {
	// Roles: what stands between the tags is the action, and the rest is reasoning.
	source, err := rollout.Options{ActionTags: [][2]string{{"<answer>", "</answer>"}}}.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	batch, err := source.Batch()
	if err != nil {
		return err
	}
	// batch.Logprobs are those of the current policy. The file has one set, that of the
	// policy that sampled, which is the current one until the first update. A training loop
	// sets them anew for each update and calls Run again.

	// Advantages by GRPO times the factors of AEM, weights by ActFocus, the loss of PPO.
	var ws reweight.Workspace
	credit, err := scheme.MustParse("actfocus+aem").NewStep(&ws, batch)
	if err != nil {
		return err // names the arrays that the file lacks
	}
	loss, err := credit.Run()
	if err != nil {
		return err
	}

	fmt.Fprintf(w, "%d responses of %d tokens, loss %.6f\n", batch.Trajectories(), batch.Tokens(), loss.Loss)
	fmt.Fprintln(w, "reward  tokens  actions  their weight  advantage  gradient of actions, of reasoning")
	for i := range batch.Trajectories() {
		begin, end := batch.SeqOffsets[i], batch.SeqOffsets[i+1]
		var actions int
		var weight, all float64
		var gradient [3]float64 // by role
		for t := begin; t < end; t++ {
			if batch.Role[t] == reweight.RoleAction {
				actions++
				weight += float64(credit.Weights[t])
			}
			all += float64(credit.Weights[t])
			gradient[batch.Role[t]] += float64(credit.Grad[t]) // dL/dlogprob: the model's backward pass begins with it
		}
		fmt.Fprintf(w, "%6.0f %7d %8d %12.1f%% %10.4f %20.6f %13.6f\n", batch.Rewards[i], end-begin, actions,
			100*weight/all, credit.Advantages[begin], gradient[reweight.RoleAction], gradient[reweight.RoleReasoning])
	}
	return nil
}
