package rollout

import (
	"bytes"
	"io"
	"testing"

	"github.com/seed621a2839/reweight/internal/must"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// BenchmarkLines reads the small rollouts as JSONL, many times over. parse is all of it;
// split is only to find where the lines' objects end, which one goroutine does for all.
func BenchmarkLines(b *testing.B) {
	f := must.Get(OpenFile("../testdata/frozenlake-small.safetensors"))
	defer f.Close()
	batch := must.Get(f.Batch())
	var text bytes.Buffer
	for range 8 {
		for _, t := range trajectories(batch) {
			must.Do(WriteJSONL(&text, t))
		}
	}
	for _, c := range []struct {
		name  string
		parse parser
	}{
		{"parse", parseJSONL},
		{"split", func(*jsonscan.Scanner, int) ([]*record, error) { return nil, nil }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			b.ReportAllocs()
			for b.Loop() {
				r := newLines(bytes.NewReader(text.Bytes()), "f", c.parse)
				for {
					if _, err := r.next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
