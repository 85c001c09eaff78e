// Plain reading and plain copying of memory, as fast as it goes: what a bench compares
// kernels with that do hardly more than read, or read and write, each element once.

#include "common.cuh"

#define THREADS 256
#define AT_ONCE 8 // vectors that a thread has under way

// A Vector is what a thread reads or writes at a time, and a tile what a CTA does.
typedef u32 Vector __attribute__((ext_vector_type(4)));
#define TILE (THREADS * AT_ONCE)

// memory.go fills in the same struct.
struct Memory {
	Vector *dst;
	const Vector *src;
	i64 n; // vectors
};

// read loads this thread's vectors of a tile: left is how many there are from the first
// of them on. Those that are not there are 0.
DEVICE void read(Vector v[AT_ONCE], const Vector *src, i64 left) {
#pragma unroll
	for (int j = 0; j < AT_ONCE; j++) {
		if (j * THREADS < left) v[j] = src[j * THREADS];
		else v[j] = 0;
	}
}

// read_memory reads n vectors. dst is 0; that the compiler does not know it keeps it
// from leaving the loads out.
KERNEL(THREADS) void read_memory(Memory p) {
	Vector sum = 0;
#pragma unroll 1
	for (i64 i = (i64)blockIndex() * TILE + threadIndex(); i < p.n; i += (i64)blockCount() * TILE) {
		Vector v[AT_ONCE];
		read(v, p.src + i, p.n - i);
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++) sum ^= v[j];
	}
	if (p.dst) *p.dst = sum;
}

KERNEL(THREADS) void copy_memory(Memory p) {
#pragma unroll 1
	for (i64 i = (i64)blockIndex() * TILE + threadIndex(); i < p.n; i += (i64)blockCount() * TILE) {
		Vector v[AT_ONCE];
		read(v, p.src + i, p.n - i);
#pragma unroll
		for (int j = 0; j < AT_ONCE; j++)
			if (j * THREADS < p.n - i) p.dst[i + j * THREADS] = v[j];
	}
}
