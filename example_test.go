package reweight_test

import (
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

// Real rollouts, ActFocus and AEM on top of GRPO.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	f, err := rollout.Open("testdata/frozenlake-small.safetensors")
	check(err)
	batch, err := f.Batch()
	check(err)
	n := batch.Tokens()
	batch.Advantages = make([]float32, n)
	weights, factors, grad := make([]float32, n), make([]float32, n), make([]float32, n)
	var ws reweight.Workspace // scratch that calls reuse: after the first, nothing is allocated
	check(ws.GRPO(batch.Advantages, batch, reweight.DefaultGRPO))
	check(ws.AEM(factors, batch, reweight.DefaultAEM))
	check(ws.Multiply(batch.Advantages, batch.Advantages, factors))
	_, err = ws.ActFocus(weights, batch, reweight.DefaultActFocus)
	check(err)
	loss, err := ws.Loss(grad, weights, batch, reweight.DefaultLoss) // grad is dL/dlogprob
	check(err)
	fmt.Printf("loss %.4f over %d response tokens\n", loss.Loss, loss.Tokens)
	// Output: loss 0.0846 over 3302 response tokens
}
