package jsonscan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed621a2839/reweight/internal/must"
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
var readers = [...]struct {
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
				must.Do(r.read(&t, line))
			}
		})
	}
}

// BenchmarkScanRatio reads a line with both in turn, and reports the median of the ratios
// of their times, and the median speed of each. The line is short, so that most readings
// are not interrupted on a busy machine.
func BenchmarkScanRatio(b *testing.B) {
	line := tokenData(256, ", ")
	var t trajectory
	var took [len(readers)][]float64 // seconds
	var ratios []float64
	for b.Loop() {
		for i, r := range readers {
			begin := time.Now()
			must.Do(r.read(&t, line))
			took[i] = append(took[i], time.Since(begin).Seconds())
		}
		n := len(took[0]) - 1
		ratios = append(ratios, took[1][n]/took[0][n])
	}
	for i, r := range readers {
		b.ReportMetric(float64(len(line))/median(took[i])/1e6, r.name+"-MB/s")
	}
	b.ReportMetric(median(ratios), "times-as-fast")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
