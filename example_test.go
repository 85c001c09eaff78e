package reweight_test

import (
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/testdata"
)

// Real rollouts, ActFocus and AEM on top of GRPO.
func Example() {
	f, err := rollout.Parse(testdata.FrozenLakeSmall) // or rollout.Open("my.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	batch, err := f.Batch()
	if err != nil {
		log.Fatal(err)
	}
	n := batch.Tokens()
	weights, grad := make([]float32, n), make([]float32, n)
	batch.Advantages = make([]float32, n)
	var ws reweight.Workspace
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	factors := make([]float32, n)
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
