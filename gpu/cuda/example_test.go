package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/cuda"
)

// A program takes rows of logits and ids that it holds on the GPU to log-probabilities
// and entropies there. Only the summary comes back.
func Example() {
	dev, err := cuda.Open(0)
	var none *cuda.UnavailableError
	if errors.As(err, &none) {
		log.Println("no GPU, so on the CPU:", none.Reason)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	const rows, vocab = 2, 4
	ws, err := dev.NewWorkspace(0, gpu.Size{})
	if err != nil {
		log.Fatal(err)
	}
	defer ws.Close()

	// Here the memory is the device's own. Any address on this GPU would do.
	logits, err := dev.Alloc(4 * rows * vocab)
	check(err)
	ids, err := dev.Alloc(4 * rows)
	check(err)
	stats, err := dev.Alloc(2 * 4 * rows)
	check(err)
	check(gpu.Upload(dev, logits, []float32{1, 2, 3, 4, 0, 0, 0, 0}, 0))
	check(gpu.Upload(dev, ids, []int32{3, 1}, 0))

	dst := gpu.Stats{Logprob: stats, Entropy: stats + 4*rows}
	x := gpu.Rows{Ptr: logits, DType: reweight.DTypeF32, Rows: rows, Vocab: vocab}
	check(ws.TokenStats(dst, x, gpu.IDs{Ptr: ids}, reweight.DefaultTokenStats)) // queued
	check(ws.Check())                                                           // waits

	out := make([]float32, 2*rows)
	check(gpu.Download(dev, out, stats, 0))
	fmt.Println("log-probabilities", out[:rows], "entropies", out[rows:])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
