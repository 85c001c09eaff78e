package gpu_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/testgpu"
	"github.com/seed621a2839/reweight/internal/raw"
	"github.com/seed621a2839/reweight/internal/test/must"
	"github.com/seed621a2839/reweight/kernels"
)

// temperatures are some for which log2(e) / tau is rounded up, down and not at all, and
// some that are beyond what log2 units serve.
var temperatures = []float64{1, 0.7, 1.3, log2E, 0.6, math.E, 0.01, 1e-7, 0x1p20}

// A machine is a device to test on, with a workspace.
type machine struct {
	*testing.T
	dev    *gpu.Device
	ws     *gpu.Workspace
	cpu    reweight.Workspace
	placed []*placed // of the case at hand
}

// newMachine returns a device with a workspace. On the interpreter it has room for few
// warps, so that each takes several rows in turn.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dev := testgpu.Device(t)
	ws := must.Get(dev.NewWorkspace(0, gpu.Size{}))
	m := &machine{T: t, dev: dev, ws: ws, cpu: reweight.Workspace{ISA: reweight.Portable, Workers: 1}}
	t.Cleanup(func() {
		if !t.Failed() {
			m.must(ws.Close())
		}
	})
	return m
}

func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// many returns how many rows are more than the device has room for at a time.
func (m *machine) many() int { return 14 * m.dev.Info().Multiprocessors }

// placed is an array on the device, amid bytes that no kernel may write.
type placed struct {
	gpu.Ptr
	memory gpu.Ptr
	image  []byte // of the memory before the kernel ran
	at, n  int    // where in it the array is
}

const (
	margin  = 256
	filling = 0xa5
)

// place puts an array so many bytes past a multiple of 256.
func (m *machine) place(x []byte, past int) *placed {
	m.Helper()
	p := &placed{image: bytes.Repeat([]byte{filling}, margin+past+len(x)+margin), at: margin + past, n: len(x)}
	copy(p.image[p.at:], x)
	var err error
	p.memory, err = m.dev.Alloc(len(p.image))
	m.must(err)
	m.must(gpu.Upload(m.dev, p.memory, p.image, 0))
	p.Ptr = p.memory + gpu.Ptr(p.at)
	m.placed = append(m.placed, p)
	return p
}

// output puts an array of n float32 that have not been set.
func (m *machine) output(n int) *placed { return m.place(bytes.Repeat([]byte{filling}, 4*n), 4) }

// read returns the array, and fails if a byte around it has been written.
func (m *machine) read(what string, p *placed) []byte {
	m.Helper()
	got := make([]byte, len(p.image))
	m.must(gpu.Download(m.dev, got, p.memory, 0))
	if !bytes.Equal(got[:p.at], p.image[:p.at]) || !bytes.Equal(got[p.at+p.n:], p.image[p.at+p.n:]) {
		m.Fatalf("%s: memory around the array has been written", what)
	}
	return got[p.at : p.at+p.n]
}

// free gives back the arrays of the case at hand.
func (m *machine) free() {
	for _, p := range m.placed {
		m.must(m.dev.Free(p.memory))
	}
	m.placed = m.placed[:0]
}

// rowCase is a call on rows of logits.
type rowCase struct {
	logits reweight.Logits
	ids    []int32
	tau    float64

	past   int   // logits between a multiple of 256 bytes and row 0
	gap    int   // logits between rows
	seq    int   // rows of a sequence; 0 means that they have none
	apart  int   // more logits between two sequences
	idGap  int   // ids between those of two sequences
	index  []int // nil means all rows
	wide   bool  // ids are int64
	within string
}

// String describes the case for a failure's message.
func (c *rowCase) String() string {
	return fmt.Sprintf(
		"%s %v, %d rows of %d, tau %v, %d past, %d between, sequences of %d, %d and ids %d between them, index %v",
		c.within, c.logits.DType(), c.logits.Rows(), c.logits.Vocab, c.tau, c.past, c.gap, c.seq, c.apart,
		c.idGap, c.index)
}

// wanted returns for each row whether it is.
func (c *rowCase) wanted() []bool {
	w := make([]bool, c.logits.Rows())
	for _, r := range c.index {
		w[r] = true
	}
	if c.index == nil {
		for r := range w {
			w[r] = true
		}
	}
	return w
}

// sequenceOf returns the number of the sequence that a row belongs to.
func (c *rowCase) sequenceOf(row int) int {
	if c.seq == 0 {
		return 0
	}
	return row / c.seq
}

// begin returns the logit at which a row begins that has so many between it and the next.
func (c *rowCase) begin(row, gap int) int {
	return row*(c.logits.Vocab+gap) + c.sequenceOf(row)*c.apart
}

// size returns how many bytes such rows take.
func (c *rowCase) size(gap int) int {
	if c.logits.Rows() == 0 {
		return 0
	}
	return (c.begin(c.logits.Rows()-1, gap) + c.logits.Vocab) * c.logits.DType().Size()
}

// spread returns the memory of the rows with the gaps between them, which are NaN.
func (c *rowCase) spread() []byte {
	size := c.logits.DType().Size()
	memory, row := raw.Logits(c.logits), c.logits.Vocab*size
	all := bytes.Repeat([]byte{0xff}, c.size(c.gap))
	for r := range c.logits.Rows() {
		copy(all[c.begin(r, c.gap)*size:], memory[r*row:(r+1)*row])
	}
	return all
}

// rows names rows with such gaps.
func (c *rowCase) rows(at gpu.Ptr, gap int) gpu.Rows {
	l := c.logits
	rows := gpu.Rows{Ptr: at, DType: l.DType(), Rows: l.Rows(), Vocab: l.Vocab, Stride: l.Vocab + gap, Sequence: c.seq}
	if c.seq > 0 {
		rows.SequenceStride = c.begin(c.seq, gap)
	}
	return rows
}

// spreadIDs returns the ids with the gaps between those of two sequences, which are none.
func spreadIDs[E int32 | int64](c *rowCase) []byte {
	var all []E
	for r, id := range c.ids {
		for r+c.sequenceOf(r)*c.idGap > len(all) {
			all = append(all, -1)
		}
		all = append(all, E(id))
	}
	return raw.Bytes(all)
}

// place puts the rows, their index and their ids on the device.
func (c *rowCase) place(m *machine) (logits *placed, rows gpu.Rows, ids gpu.IDs) {
	m.Helper()
	d := c.logits.DType()
	logits = m.place(c.spread(), c.past*d.Size())
	rows = c.rows(logits.Ptr, c.gap)
	if c.index != nil {
		wide := make([]int64, len(c.index))
		for i, r := range c.index {
			wide[i] = int64(r)
		}
		rows.Index = &gpu.Index{Ptr: m.place(raw.Bytes(wide), 8).Ptr, N: len(wide)}
	}
	if c.wide {
		ids = gpu.IDs{Ptr: m.place(spreadIDs[int64](c), 8).Ptr, Int64: true}
	} else {
		ids.Ptr = m.place(spreadIDs[int32](c), 4).Ptr
	}
	if c.seq > 0 {
		ids.SequenceStride = c.seq + c.idGap
	}
	return logits, rows, ids
}

// newLogits returns rows of zeros.
func newLogits(d reweight.DType, rows, vocab int) reweight.Logits {
	l := reweight.Logits{Vocab: vocab}
	switch d {
	case reweight.DTypeF32:
		l.F32 = make([]float32, rows*vocab)
	case reweight.DTypeBF16:
		l.BF16 = make([]reweight.BF16, rows*vocab)
	default:
		l.F16 = make([]reweight.F16, rows*vocab)
	}
	return l
}

// logitsOf returns rows with these values, rounded to the dtype.
func logitsOf(d reweight.DType, vocab int, x []float32) reweight.Logits {
	l := newLogits(d, len(x)/vocab, vocab)
	for i, v := range x {
		switch d {
		case reweight.DTypeF32:
			l.F32[i] = v
		case reweight.DTypeBF16:
			l.BF16[i] = reweight.ToBF16(v)
		default:
			l.F16[i] = kernels.ToF16(v)
		}
	}
	return l
}

// same reports whether two numbers have the same bits, every NaN counting as one.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// floatsOf returns the numbers of an array of float32.
func floatsOf(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return x
}

// untouched is the float32 that output leaves where nothing is written.
var untouched = math.Float32frombits(0xa5a5a5a5)

// A family fills x with a row. r is for what is random.
type family struct {
	name string
	fill func(x []float32, r *rand.Rand)
}

const (
	blockSize = 1024
	log2E     = 1 / math.Ln2
)

var inf = float32(math.Inf(1))

func each(f func(i int, r *rand.Rand) float64) func([]float32, *rand.Rand) {
	return func(x []float32, r *rand.Rand) {
		for i := range x {
			x[i] = float32(f(i, r))
		}
	}
}

func normal(r *rand.Rand) float64 { return 3 * r.NormFloat64() }

// families are rows that are hard on what the kernels do and the CPU does not: jumping
// references, elements that need the clamp, first chunks of -Inf.
var families = []family{
	{"random", each(func(_ int, r *rand.Rand) float64 { return normal(r) })},
	{"wide", each(func(_ int, r *rand.Rand) float64 { return 30 * normal(r) })},
	{"huge", each(func(_ int, r *rand.Rand) float64 { return 1e6 * normal(r) })},
	{"tiny", each(func(_ int, r *rand.Rand) float64 {
		return float64(math.Float32frombits(r.Uint32N(1<<23))) * float64(1-2*r.IntN(2))
	})},
	{"ascending blocks", each(func(i int, r *rand.Rand) float64 { return float64(i/blockSize)*7 + normal(r) })},
	{"descending blocks", each(func(i int, r *rand.Rand) float64 { return -float64(i/blockSize)*7 + normal(r) })},
	{"steep blocks", each(func(i int, r *rand.Rand) float64 { return float64(i/blockSize)*120 + normal(r) })},
	{"falling steeply", each(func(i int, r *rand.Rand) float64 { return -float64(i/blockSize)*60 + normal(r) })},
	{"ramp", each(func(i int, r *rand.Rand) float64 { return float64(i)/50 + normal(r) })},
	{"all masked", each(func(int, *rand.Rand) float64 { return math.Inf(-1) })},
	{"some masked", each(func(_ int, r *rand.Rand) float64 {
		if r.IntN(3) == 0 {
			return math.Inf(-1)
		}
		return normal(r)
	})},
	{"masked with a number", each(func(_ int, r *rand.Rand) float64 {
		if r.IntN(3) == 0 {
			return -1e9
		}
		return normal(r)
	})},
	{"jumps", func(x []float32, r *rand.Rand) {
		level := 0.0
		for i := range x {
			if r.IntN(700) == 0 {
				level += 20 * r.NormFloat64()
			}
			x[i] = float32(level + normal(r))
		}
	}},
	{"masked blocks", func(x []float32, r *rand.Rand) {
		first, step := r.IntN(6), 2+r.IntN(3)
		for i := range x {
			if x[i] = float32(normal(r)); i/blockSize < first || i/blockSize%step == 1 {
				x[i] = -inf
			}
		}
	}},
	// Elements at and beside the threshold of the first block's reference, those where
	// the clamp begins, and those whose power of 2 would wrap around.
	{"edges", func(x []float32, r *rand.Rand) {
		m := -inf
		for i := range x {
			if x[i] = float32(normal(r)); i < blockSize {
				m = max(m, x[i])
			}
		}
		for range 1 + len(x)/blockSize {
			y := []float64{8, 8.5, 7.5, 64, 128, 129, 130, 160, 190, 220, 249, 250, 251, -123.9, -124, -124.1, -125,
				-125.1, -126, -129, -160, -220, -250}[r.IntN(23)]
			v := m + float32(y/log2E)
			if y == 8 || y == -124 || y == -125 {
				c := m * float32(log2E)
				v = (c + float32(y)) / float32(log2E)
				v = []float32{v, math.Nextafter32(v, inf), math.Nextafter32(v, -inf)}[r.IntN(3)]
			}
			x[r.IntN(len(x))] = v
		}
	}},
	{"one above", func(x []float32, r *rand.Rand) {
		for i := range x {
			x[i] = float32(normal(r)) - 40
		}
		x[r.IntN(len(x))] = float32(20 * r.Float64())
	}},
	{"special", func(x []float32, r *rand.Rand) {
		for i := range x {
			x[i] = float32(normal(r))
		}
		for range 1 + r.IntN(2) {
			x[r.IntN(len(x))] = []float32{inf, -inf, float32(math.NaN())}[r.IntN(3)]
		}
	}},
}

// fill returns rows of the family.
func (f family) rows(d reweight.DType, rows, vocab int, r *rand.Rand) reweight.Logits {
	x := make([]float32, rows*vocab)
	for i := range rows {
		f.fill(x[i*vocab:(i+1)*vocab], r)
	}
	return logitsOf(d, vocab, x)
}

// someIDs returns an id for each row; about half are among the largest elements.
func someIDs(l reweight.Logits, r *rand.Rand) []int32 {
	ids := make([]int32, l.Rows())
	for i := range ids {
		ids[i] = int32(r.IntN(l.Vocab))
		if r.IntN(2) == 0 {
			for range 50 {
				if v := r.IntN(l.Vocab); at(l, i*l.Vocab+v) > at(l, i*l.Vocab+int(ids[i])) {
					ids[i] = int32(v)
				}
			}
		}
	}
	return ids
}

// at returns element i of all rows.
func at(l reweight.Logits, i int) float32 {
	switch l.DType() {
	case reweight.DTypeF32:
		return l.F32[i]
	case reweight.DTypeBF16:
		return l.BF16[i].Float32()
	}
	return l.F16[i].Float32()
}

// anyCase returns a case with everything drawn at random.
func anyCase(l reweight.Logits, within string, r *rand.Rand) *rowCase {
	c := &rowCase{logits: l, ids: someIDs(l, r), tau: temperatures[r.IntN(len(temperatures))], wide: r.IntN(2) == 0,
		within: within}
	if r.IntN(2) == 0 {
		c.tau = 1
	}
	if r.IntN(2) == 0 {
		c.past = r.IntN(20)
	}
	if r.IntN(2) == 0 {
		c.gap = r.IntN(20)
	}
	if r.IntN(2) == 0 {
		c.seq, c.apart, c.idGap = 1+r.IntN(l.Rows()), r.IntN(40), r.IntN(3)
	}
	if r.IntN(3) == 0 {
		c.index = r.Perm(l.Rows())[:r.IntN(l.Rows()+1)]
	}
	return c
}

// teamVocab returns a vocabulary whose rows take a team one round or several: the last one has
// a chunk for few of its warps, for all, or nearly.
func teamVocab(d reweight.DType, r *rand.Rand) int {
	return (1+r.IntN(10))*8192/d.Size() + []int{-700, -1, 0, 1, 700}[r.IntN(5)]
}
