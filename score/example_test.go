package score_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/seed621a2839/reweight/rollout"
	"github.com/seed621a2839/reweight/score"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Two files with one rollout each, of the same prompt: they are scored as one batch, and
// each could be read by another machine, which sends its partial as text (Partial.Encode).
func Example() {
	dir, err := os.MkdirTemp("", "score")
	check(err)
	defer os.RemoveAll(dir)
	files := []string{filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")}
	for i, line := range []string{
		`{"group_id": "maze 3", "reward": 1, "role": [0, 1, 2], "span_ids": [-1, 0, 0], "ref_energy": [0, -12, -30], "entropy": [0, 0.5, 0.2]}`,
		`{"group_id": "maze 3", "reward": 0, "role": [0, 1, 2], "span_ids": [-1, 0, 0], "ref_energy": [0, -10, -20], "entropy": [0, 1.1, 1]}`,
	} {
		check(os.WriteFile(files[i], []byte(line), 0o666))
	}

	var merger score.Merger
	for _, file := range files {
		source, err := rollout.Open(file)
		check(err)
		partial, err := score.Of(source, score.Default)
		check(err)
		check(source.Close())
		check(merger.Add(partial))
	}
	batch, err := merger.Merged()
	check(err)
	fmt.Printf("%d action tokens of mean energy %.0f\n", batch.Totals().Actions, batch.Totals().Mean)

	for _, file := range files {
		source, err := rollout.Open(file)
		check(err)
		check(score.Apply(source, batch, score.Default, func(s score.Scored) error {
			fmt.Printf("%s: weights %.2f, advantages %.2f\n", filepath.Base(file), s.Weights, s.Advantages)
			return nil
		}))
		check(source.Close())
	}
	// Output:
	// 2 action tokens of mean energy -25
	// a.jsonl: weights [0.00 0.10 1.13], advantages [0.00 1.03 1.03]
	// b.jsonl: weights [0.00 0.10 1.37], advantages [0.00 -0.38 -0.38]
}
