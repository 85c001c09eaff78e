package rollout

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/rollout/internal/jsonscan"
)

// BenchmarkLines reads the small rollouts as JSONL, many times over. parse is all of it;
// split is only to find where the lines' objects end, which one goroutine does for all.
// encoding_json parses with that package, to compare.
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
		{"encoding_json", func(s *jsonscan.Scanner, _ int) ([]*record, error) {
			var r struct {
				Role        []int32   `json:"role"`
				SpanIDs     []int32   `json:"span_ids"`
				TokenIDs    []int32   `json:"token_ids"`
				RefEnergy   []float32 `json:"ref_energy"`
				Entropy     []float32 `json:"entropy"`
				OldLogprobs []float32 `json:"old_logprobs"`
				Logprobs    []float32 `json:"logprobs"`
				RefLogprobs []float32 `json:"ref_logprobs"`
			}
			return nil, json.Unmarshal(must.Get(s.Raw()), &r)
		}},
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
