package jsonscan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// trajectory is a line of token data as trainers write it.
type trajectory struct {
	TokenIDs []int32   `json:"token_ids"`
	Mask     []int32   `json:"mask"`
	Old      []float32 `json:"old_logprobs"` // 8 or 9 digits
	Advs     []float32 `json:"logprobs"`     // 17 digits, as Python writes a float32
}

func (t *trajectory) scan(s *Scanner) error {
	return s.Object(func(name []byte) (err error) {
		switch string(name) {
		case "token_ids":
			t.TokenIDs, err = s.Int32s(t.TokenIDs[:0])
		case "mask":
			t.Mask, err = s.Int32s(t.Mask[:0])
		case "old_logprobs":
			t.Old, err = s.Floats(t.Old[:0])
		case "logprobs":
			t.Advs, err = s.Floats(t.Advs[:0])
		}
		return err
	})
}

// tokenData returns a line of n tokens.
func tokenData(n int, comma string) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	line := []byte("{")
	array := func(name string, element func()) {
		if len(line) > 1 {
			line = append(line, comma...)
		}
		line = fmt.Appendf(line, "%q:[", name)
		for i := range n {
			if i > 0 {
				line = append(line, comma...)
			}
			element()
		}
		line = append(line, ']')
	}
	logprob := func() float32 { return -float32(r.ExpFloat64()) * r.Float32() }
	array("token_ids", func() { line = strconv.AppendInt(line, int64(r.IntN(151936)), 10) })
	array("mask", func() { line = strconv.AppendInt(line, int64(r.IntN(2)), 10) })
	array("old_logprobs", func() { line = AppendFloat(line, logprob()) })
	array("logprobs", func() { line = strconv.AppendFloat(line, float64(logprob()), 'g', -1, 64) })
	return append(line, '}')
}

// readers are the two that BenchmarkScan and BenchmarkScanRatio compare.
var readers = []struct {
	name string
	read func(*trajectory, []byte) error
}{
	{"jsonscan", func(t *trajectory, line []byte) error {
		var s Scanner
		s.Reset(line)
		return t.scan(&s)
	}},
	{"encoding_json", func(t *trajectory, line []byte) error { return json.Unmarshal(line, t) }},
}

func BenchmarkScan(b *testing.B) {
	line := tokenData(4096, ", ")
	for _, r := range readers {
		b.Run(r.name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			var t trajectory
			for b.Loop() {
				if err := r.read(&t, line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScanRatio reads the same line with both in turn, and reports the median of the
// ratios of their times: a machine that becomes slower meanwhile does that to both.
func BenchmarkScanRatio(b *testing.B) {
	line := tokenData(4096, ", ")
	var ratios []float64
	var t trajectory
	for b.Loop() {
		var took [2]time.Duration
		for i, r := range readers {
			begin := time.Now()
			if err := r.read(&t, line); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(begin)
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "times-as-fast")
}
