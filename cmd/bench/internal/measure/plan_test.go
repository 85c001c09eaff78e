package measure

import (
	"math"
	"testing"

	"github.com/seed621a2839/reweight/kernels"
)

// TestShapes: without -rows, logits are streamed and tokens are not.
func TestShapes(t *testing.T) {
	for _, s := range Shapes(kernels.All(), Sizes{Vocabs: []int{1000}, Workers: []int{1}, Stream: 2 * StreamBytes}) {
		if bytes := s.Rows * s.Vocab * s.DType.Size(); s.Kernel.Rows &&
			(bytes < 2*StreamBytes || bytes > 2*StreamBytes+4000) {
			t.Errorf("%v: %d bytes", s, bytes)
		}
	}
	for _, s := range Shapes(kernels.All(), Sizes{Vocabs: []int{1000, 2000}, Workers: []int{1, 2}}) {
		if !s.Kernel.Rows {
			if s.Rows != TokenCount || s.Vocab != 0 || s.CheckSize() != s.Rows || len(s.Workers) != 1 {
				t.Errorf("%v: %+v", s, s)
			}
			continue
		}
		if s.Rows != RowsToStream(s.DType, s.Vocab, StreamBytes) || s.CheckSize() != s.Vocab || len(s.Workers) != 2 {
			t.Errorf("%v: %+v", s, s)
		}
	}
}

// TestStream: eight times the last cache, within bounds that are the same from
// run to run.
func TestStream(t *testing.T) {
	const MiB, GiB = 1 << 20, 1 << 30
	for _, c := range []struct{ cache, free, most, want int64 }{
		{0, 64 * GiB, 4 * GiB, 64 * MiB}, // unknown
		{4 * MiB, 64 * GiB, 4 * GiB, 64 * MiB},
		{32 * MiB, 64 * GiB, 4 * GiB, 256 * MiB},
		{24 * MiB, 64 * GiB, 256 * MiB, 192 * MiB},
		{300 * MiB, 64 * GiB, 256 * MiB, 256 * MiB},
		{300 * MiB, 5 * GiB, 4 * GiB, 512 * MiB},
		{300 * MiB, 7 * GiB, 4 * GiB, 512 * MiB}, // the same with a little more
		{32 * MiB, 1 * GiB, 4 * GiB, 128 * MiB},
		{32 * MiB, 1 * MiB, 4 * GiB, 64 * MiB},
		{32 * MiB, 0, 256 * MiB, 256 * MiB}, // unknown
	} {
		if c.want > math.MaxInt/8 || c.most > math.MaxInt/8 {
			continue
		}
		if got := stream(int(c.cache), c.free, int(c.most)); int64(got) != c.want {
			t.Errorf("stream(%d, %d, %d) = %d, want %d", c.cache, c.free, c.most, got, c.want)
		}
	}
}

// TestMeminfo: the memory that is available, and none where there is no line.
func TestMeminfo(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:  24684092 kB\nMemAvailable:   23979632 kB\nCached: 1 kB\n": 23979632 << 10,
		"MemTotal:  24684092 kB\n": 0,
		"MemAvailable: much\n":     0,
		"":                         0,
	} {
		if got := available([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
