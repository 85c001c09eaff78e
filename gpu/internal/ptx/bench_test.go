package ptx

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/seed621a2839/reweight/gpu/internal/device"
	"github.com/seed621a2839/reweight/internal/test/must"
)

// TestModules sees that every module of the project is one that the package knows.
func TestModules(t *testing.T) {
	modules := must.Get(device.PTX())
	d := must.Get(Open(modules, Options{}))
	t.Logf("%d kernels in %d modules", len(d.kernels), len(modules))
}

// BenchmarkLaunch runs a kernel that has a mix of instructions as the rows of logits
// have them: a chunk comes through shared memory, and each lane sums a polynomial of
// its numbers.
func BenchmarkLaunch(b *testing.B) {
	d := open(b, `.visible .entry k(.param .u64 in, .param .u64 out) { .shared .align 16 .b8 chunk[2048];
.reg .b32 %t, %s, %at, %i; .reg .b64 %in, %out, %x; .reg .f32 %f<6>; .reg .f64 %sum, %d; .reg .pred %p;
mov.u32 %t, %tid.x; mov.u32 %s, chunk; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mul.wide.u32 %x, %t, 16; add.s64 %in, %in, %x; shl.b32 %at, %t, 4; add.s32 %at, %s, %at; mov.f64 %sum, 0d0000000000000000; mov.u32 %i, 0;
AGAIN:
cp.async.cg.shared.global [%at], [%in], 16;
cp.async.commit_group;
cp.async.wait_group 0;
bar.warp.sync -1;
mov.f32 %f4, 0f00000000;
`+strings.Repeat(step, 8)+`
cvt.f64.f32 %d, %f4;
add.rn.f64 %sum, %sum, %d;
bar.warp.sync -1;
add.s32 %i, %i, 1;
setp.lt.s32 %p, %i, 100;
@%p bra AGAIN;
mul.wide.u32 %x, %t, 8; add.s64 %out, %out, %x; st.global.f64 [%out], %sum; ret; }
`, 1)
	params := [2]uint64{uint64(upload(b, d, make([]byte, 2048))), uint64(upload(b, d, make([]byte, 1024)))}
	f, _, err := d.Function("k", 128, 0)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		must.Do(d.Launch(f, 4, 128, 0, unsafe.Pointer(&params), 16, 0))
	}
	must.Do(d.Synchronize(0))
	b.ReportMetric(float64(d.steps)/1e6/b.Elapsed().Seconds(), "M/s")
}

// step is one of the eight that BenchmarkLaunch has in a turn.
const step = `ld.shared.f32 %f0, [%at];
max.NaN.f32 %f5, %f5, %f0;
add.rn.f32 %f1, %f0, 0f4B400000;
sub.rn.f32 %f2, %f1, 0f4B400000;
sub.rn.f32 %f2, %f0, %f2;
fma.rn.f32 %f3, 0f3AADFB33, %f2, 0f3C1E7690;
fma.rn.f32 %f3, %f3, %f2, 0f3D635B62;
fma.rn.f32 %f3, %f3, %f2, 0f3E75FCDA;
fma.rn.f32 %f3, %f3, %f2, 0f3F317215;
fma.rn.f32 %f3, %f3, %f2, 0f3F800000;
mov.b32 %i, %i;
add.rn.f32 %f4, %f4, %f3;
`
