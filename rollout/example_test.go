package rollout_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/rollout"
)

// Rollouts from a file: the entropy of the reference, which the file holds only
// as logits, chooses the weights of ActFocus, and the weights go to a new file.
func Example() {
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	source, err := rollout.Open("../testdata/large/frozenlake.safetensors")
	check(err)
	defer source.Close()
	batch, err := source.Batch()
	check(err)
	fmt.Println(batch.Trajectories(), "trajectories of", batch.Tokens(), "tokens")

	var ws reweight.Workspace
	check(rollout.Require(batch, "ref_entropy"))
	check(rollout.Derive(&ws, batch, "ref_entropy"))
	weights := make([]float32, batch.Tokens())
	opt := reweight.DefaultActFocus
	opt.Signal = reweight.SignalRefEntropy
	_, err = ws.ActFocus(weights, batch, opt)
	check(err)

	dir, err := os.MkdirTemp("", "rollout")
	check(err)
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "weights.safetensors")
	check(rollout.Write(path, []rollout.Tensor{
		{Name: "weights", Shape: []int64{int64(batch.Tokens())}, Data: weights},
		{Name: "ref_entropy", Shape: []int64{int64(batch.Tokens())}, Data: batch.RefEntropy},
	}, map[string]string{"signal": opt.Signal.String()}))

	written, err := rollout.OpenFile(path)
	check(err)
	defer written.Close()
	for _, t := range written.Tensors() {
		fmt.Printf("%q %s %d\n", t.Name, t.DType, t.Shape)
	}
	fmt.Printf("%q\n", written.Metadata())
	// Output:
	// 128 trajectories of 18308 tokens
	// "weights" F32 [18308]
	// "ref_entropy" F32 [18308]
	// map["signal":"ref_entropy"]
}
