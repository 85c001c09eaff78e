// What all kernels share: types, threads, shuffles, and the status word. It is CUDA
// C that clang compiles without a toolkit or any header; build.sh says with which
// flags.
#pragma once

#include "problems.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE static inline __attribute__((device, always_inline))
#define MEMBER __attribute__((device, always_inline)) // a function of a struct
#define SHARED __attribute__((shared))

// KERNEL(T) begins a kernel that is launched with T threads a CTA.
#define KERNEL(T) extern "C" __attribute__((global)) __attribute__((launch_bounds(T)))

// ---------------------------------------------------------------- threads

#define WARP 32

DEVICE u32 threadIndex() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 threadCount() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 blockIndex() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 blockCount() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE u32 lane() { return threadIndex() % WARP; }

// Of all threads of a launch: this one's number, and how many there are.
DEVICE i64 globalIndex() { return (i64)blockIndex() * threadCount() + threadIndex(); }
DEVICE i64 globalCount() { return (i64)blockCount() * threadCount(); }

// Of all warps of a launch: this one's number, and how many there are.
DEVICE i64 globalWarp() { return globalIndex() / WARP; }
DEVICE i64 globalWarps() { return globalCount() / WARP; }

// The barriers are assembly that clobbers memory: clang takes its own barriers to
// leave static shared memory alone, and moves loads across them.
DEVICE void syncWarp() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
DEVICE void syncThreads() { asm volatile("bar.sync 0;" ::: "memory"); }

// ---------------------------------------------------------------- bits

DEVICE u32 bitsOf(float f) { u32 u; __builtin_memcpy(&u, &f, 4); return u; }
DEVICE float floatOf(u32 u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
DEVICE u64 bitsOf(double f) { u64 u; __builtin_memcpy(&u, &f, 8); return u; }
DEVICE double doubleOf(u64 u) { double f; __builtin_memcpy(&f, &u, 8); return f; }

#define INF32 floatOf(0x7f800000u)
#define NAN32 floatOf(0x7fc00000u)
#define INF64 doubleOf(0x7ff0000000000000ull)
#define NAN64 doubleOf(0x7ff8000000000000ull)
#define MAXFLOAT 0x1.fffffep127f

template <typename T> DEVICE T smaller(T a, T b) { return a < b ? a : b; }

// The larger and the smaller of two numbers, NaN if one is NaN.
DEVICE float maxNaN(float a, float b) { float d; asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }
DEVICE float minNaN(float a, float b) { float d; asm("min.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b)); return d; }

DEVICE bool finite(float x) { return x - x == 0; }
DEVICE double squareRoot(double x) { return __nvvm_sqrt_rn_d(x); }

// ---------------------------------------------------------------- a warp's threads together

#define ALL_LANES 0xffffffffu

DEVICE u32 ballot(bool p) { return __nvvm_vote_ballot_sync(ALL_LANES, p); }
DEVICE bool any(bool p) { return __nvvm_vote_any_sync(ALL_LANES, p); }
DEVICE bool all(bool p) { return __nvvm_vote_all_sync(ALL_LANES, p); }

// shuffle returns v of lane src; shuffleXor returns v of the lane whose number
// differs from this one's in the bits of mask.
DEVICE u32 shuffle(u32 v, int src) { return __nvvm_shfl_sync_idx_i32(ALL_LANES, v, src, 31); }
DEVICE u32 shuffleXor(u32 v, int mask) { return __nvvm_shfl_sync_bfly_i32(ALL_LANES, v, mask, 31); }
DEVICE i32 shuffle(i32 v, int src) { return (i32)shuffle((u32)v, src); }
DEVICE i32 shuffleXor(i32 v, int mask) { return (i32)shuffleXor((u32)v, mask); }
DEVICE float shuffle(float v, int src) { return floatOf(shuffle(bitsOf(v), src)); }
DEVICE float shuffleXor(float v, int mask) { return floatOf(shuffleXor(bitsOf(v), mask)); }
DEVICE u64 shuffle(u64 v, int src) { return (u64)shuffle((u32)(v >> 32), src) << 32 | shuffle((u32)v, src); }
DEVICE u64 shuffleXor(u64 v, int mask) { return (u64)shuffleXor((u32)(v >> 32), mask) << 32 | shuffleXor((u32)v, mask); }
DEVICE i64 shuffle(i64 v, int src) { return (i64)shuffle((u64)v, src); }
DEVICE i64 shuffleXor(i64 v, int mask) { return (i64)shuffleXor((u64)v, mask); }
DEVICE double shuffle(double v, int src) { return doubleOf(shuffle(bitsOf(v), src)); }
DEVICE double shuffleXor(double v, int mask) { return doubleOf(shuffleXor(bitsOf(v), mask)); }

#define LANES 16 // of the one summation order: kernels_portable.go

// tree sums the 16 lanes of the summation order, which each half of the warp holds in
// its 16 threads, as tree of kernels_portable.go does. All threads of a half get its
// sum. A butterfly adds the same pairs, and which of a pair is added to which makes no
// difference.
DEVICE double tree(double v) {
	for (int h = LANES / 2; h > 0; h /= 2) v += shuffleXor(v, h);
	return v;
}

// ---------------------------------------------------------------- the status word

// A Status holds the first thing that was found wrong on the device: internal/problem
// says what the code and the argument mean.
struct Status {
	u32 code; // 0: nothing
	u32 argument;
	i64 index; // -1: the whole argument
	i64 values[5];
};

// report sets the status unless it is set already. A value that is a float is passed
// as its bits.
DEVICE void report(Status *s, u32 code, u32 argument, i64 index, i64 value, i64 second = 0, i64 third = 0) {
	u32 was;
	asm volatile("atom.global.cas.b32 %0, [%1], 0, %2;" : "=r"(was) : "l"(&s->code), "r"(code) : "memory");
	if (was) return;
	s->argument = argument;
	s->index = index;
	s->values[0] = value;
	s->values[1] = second;
	s->values[2] = third;
}

// Roles; batch.go of package reweight has the same.
enum { MASKED, REASONING, ACTION };
