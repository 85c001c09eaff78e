package gpu_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight"
	"github.com/seed621a2839/reweight/gpu"
	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/gpu/internal/ptx"
)

// openDevice returns a device that interprets the kernels.
func openDevice(t *testing.T) *gpu.Device {
	t.Helper()
	modules, err := device.PTX()
	if err != nil {
		t.Fatal(err)
	}
	drv, err := ptx.Open(modules, ptx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := gpu.NewDevice(drv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// newWorkspace returns a workspace that the test closes.
func newWorkspace(t *testing.T, dev *gpu.Device, size gpu.Size) *gpu.Workspace {
	t.Helper()
	ws, err := dev.NewWorkspace(0, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	return ws
}

// testRounds returns how many random cases a test runs.
func testRounds(n int) int {
	if testing.Short() {
		return n / 8
	}
	return n
}

// portable returns the workspace whose bits all others must have.
func portable() *reweight.Workspace { return &reweight.Workspace{ISA: reweight.Portable} }

// A memory places arrays on a device for one test, with bytes around them that no
// kernel may change.
type memory struct {
	t      *testing.T
	dev    *gpu.Device
	r      *rand.Rand
	blocks []block
}

type block struct {
	base gpu.Ptr
	all  []byte // as it was placed
	from int    // where the array begins
	size int
	out  bool
}

const (
	canary      = 0xa5
	canaryBytes = 64
)

// place copies x to an address that is a multiple of its elements' size only.
func place[E any](m *memory, x []E, out bool) gpu.Ptr {
	m.t.Helper()
	var e E
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(e)))
	b := block{from: canaryBytes + m.r.IntN(8)*int(unsafe.Sizeof(e)), size: len(bytes), out: out}
	b.all = slices.Repeat([]byte{canary}, b.from+b.size+canaryBytes)
	copy(b.all[b.from:], bytes)
	var err error
	if b.base, err = m.dev.Alloc(len(b.all)); err != nil {
		m.t.Fatal(err)
	}
	if err := gpu.Upload(m.dev, b.base, b.all, 0); err != nil {
		m.t.Fatal(err)
	}
	m.blocks = append(m.blocks, b)
	return b.base + gpu.Ptr(b.from)
}

// read returns n elements from p on.
func read[E any](m *memory, p gpu.Ptr, n int) []E {
	m.t.Helper()
	x := make([]E, n)
	if err := gpu.Download(m.dev, x, p, 0); err != nil {
		m.t.Fatal(err)
	}
	return x
}

// release checks that inputs and canaries are as they were, and frees everything.
func (m *memory) release() {
	m.t.Helper()
	for _, b := range m.blocks {
		now := read[byte](m, b.base, len(b.all))
		for i := range now {
			if b.out && i >= b.from && i < b.from+b.size {
				continue
			}
			if now[i] != b.all[i] {
				m.t.Errorf("byte %d of an array of %d bytes, output %v, has changed", i-b.from, b.size, b.out)
				break
			}
		}
		if err := m.dev.Free(b.base); err != nil {
			m.t.Fatal(err)
		}
	}
	m.blocks = nil
}

// placeBatch copies the arrays that are set. The array out, if any, is an output too.
func placeBatch(m *memory, b *reweight.Batch, out []float32) *gpu.Batch {
	m.t.Helper()
	floats := func(x []float32) gpu.Ptr {
		if x == nil {
			return 0
		}
		return place(m, x, len(out) > 0 && &x[0] == &out[0])
	}
	d := &gpu.Batch{
		Tokens: b.Tokens(), Trajectories: b.Trajectories(),
		Role: place(m, b.Role, false), SeqOffsets: place(m, b.SeqOffsets, false),
		Entropy: floats(b.Entropy), Rewards: floats(b.Rewards), Values: floats(b.Values),
	}
	if b.GroupIDs != nil {
		d.GroupIDs = place(m, b.GroupIDs, false)
	}
	if b.SpanIDs != nil {
		d.SpanIDs = place(m, b.SpanIDs, false)
	}
	return d
}

// A maker makes random batches.
type maker struct{ *rand.Rand }

// pick returns one of x.
func pick[E any](r maker, x ...E) E { return x[r.IntN(len(x))] }

// size returns how many tokens and trajectories a batch is to have.
func (r maker) size() (tokens, trajectories int) {
	return 1 + r.IntN(pick(r, 20, 200, 200, 4000)), 1 + r.IntN(pick(r, 1, 5, 40, 40, 200))
}

// batch returns a batch with valid spans, of about so many tokens.
func (r maker) batch(tokens, trajectories int) *reweight.Batch {
	b := &reweight.Batch{SeqOffsets: r.offsets(tokens, trajectories)}
	b.Role = make([]reweight.Role, tokens)
	masked := pick(r, 0, 0.1, 0.5, 0.95)
	for t := range b.Role {
		if r.Float64() >= masked {
			b.Role[t] = reweight.Role(1 + r.IntN(2))
		}
	}
	r.groups(b)
	r.spans(b)
	b.Entropy = r.entropies(tokens)
	for t, s := range b.SpanIDs { // what no span counts does not matter
		if (s < 0 || b.Role[t] == reweight.RoleMasked) && r.IntN(4) == 0 {
			b.Entropy[t] = pick(r, float32(math.NaN()), float32(math.Inf(-1)), 1e38)
		}
	}
	b.Rewards = r.rewards(trajectories)
	return b
}

// offsets cuts tokens into trajectories, some of them empty.
func (r maker) offsets(tokens, trajectories int) []int64 {
	off := make([]int64, trajectories+1)
	for q := range off {
		off[q] = int64(r.IntN(tokens + 1))
		if q > 1 && r.IntN(8) == 0 {
			off[q] = off[q-1]
		}
	}
	off[0], off[trajectories] = 0, int64(tokens)
	slices.Sort(off)
	return off
}

// groups numbers groups in order or anyhow.
func (r maker) groups(b *reweight.Batch) {
	b.GroupIDs = make([]int32, b.Trajectories())
	size := pick(r, 1, 2, 8, 50)
	scattered := r.IntN(2) == 0
	ids := []int32{0, math.MinInt32, math.MaxInt32, -1, 1}
	for len(ids) <= len(b.GroupIDs) {
		ids = append(ids, int32(r.Uint32()))
	}
	for q := range b.GroupIDs {
		g := q / size
		if scattered {
			g = r.IntN(1 + len(b.GroupIDs)/size)
		}
		b.GroupIDs[q] = ids[g]
	}
}

// spans numbers spans: one after another or interleaved, none, or one for all tokens
// of a trajectory.
func (r maker) spans(b *reweight.Batch) {
	b.SpanIDs = slices.Repeat([]int32{-1}, b.Tokens())
	length := pick(r, 1, 3, 20, 100, 1500)
	open := pick(r, 1, 1, 1, 2, 5, 40) // spans that a token may belong to
	outside := pick(r, 0, 0.2, 1)      // share of masked tokens that are in no span
	if r.IntN(10) == 0 {
		for t := range b.Role {
			b.Role[t] = reweight.RoleMasked
		}
		outside = 1
	}
	next := int32(0)
	for q := range b.Trajectories() {
		first := next
		for t := b.SeqOffsets[q]; t < b.SeqOffsets[q+1]; t++ {
			if b.Role[t] == reweight.RoleMasked && r.Float64() < outside {
				continue
			}
			s := max(first, next-1-int32(r.IntN(open)))
			if next == first || r.IntN(length) == 0 {
				s = next
				next++
			}
			b.SpanIDs[t] = s
		}
	}
	has := make([]bool, next)
	for t, s := range b.SpanIDs {
		if s >= 0 && b.Role[t] != reweight.RoleMasked {
			has[s] = true
		}
	}
	for t := len(b.Role) - 1; t >= 0; t-- { // each has a response token, somewhere
		if s := b.SpanIDs[t]; s >= 0 && !has[s] {
			b.Role[t] = reweight.RoleAction
			has[s] = true
		}
	}
}

// largestEntropy is the largest float32 that AEM takes: 1e30 rounds up.
var largestEntropy = math.Nextafter32(1e30, 0)

func (r maker) entropies(n int) []float32 {
	x := make([]float32, n)
	kind, scale := r.IntN(6), pick[float32](r, 1e-42, 3e-39, 3e-37)
	for t := range x {
		v := float32(math.Abs(r.NormFloat64()))
		switch kind {
		case 0:
			v = 0.75
		case 1:
			v *= 2e29
		case 2:
			v *= scale
		case 3:
			v = pick(r, v, -v, 0, float32(math.Copysign(0, -1)), largestEntropy, -largestEntropy)
		}
		x[t] = v
	}
	return x
}

// rewards returns rewards of usual sizes, equal ones, whose mean must be the same
// again, or some of which the sum of a group depends on its order.
func (r maker) rewards(n int) []float32 {
	x := make([]float32, n)
	kind, scale := r.IntN(3), pick[float32](r, 1, 1, 1e30, 1e-40, 0)
	for q := range x {
		switch kind {
		case 0:
			x[q] = scale * pick(r, float32(r.NormFloat64()), float32(r.IntN(2)))
		case 1:
			x[q] = 0.7
		case 2:
			x[q] = pick(r, 1e30, -1e30, 1e10, -1e10, 1, float32(r.NormFloat64()))
		}
	}
	return x
}

// floats returns numbers, and NaN and infinities among them if special is set.
func (r maker) floats(n int, special bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		if special && r.IntN(100) == 0 {
			x[i] = pick(r, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1)))
		}
	}
	return x
}

// wantBits wants the same bits, any NaN for a NaN.
func wantBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Errorf("%s[%d] is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// wantNaN wants nothing but NaN.
func wantNaN(t *testing.T, what string, got []float32) {
	t.Helper()
	for i, v := range got {
		if v == v {
			t.Errorf("%s[%d] is %v after an error, want NaN", what, i, v)
			return
		}
	}
}
