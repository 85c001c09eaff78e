// Rows of logits, each summed by one warp or by a team of four, in the one summation order
// of kernels_portable.go. token_stats.cuh and row_gradient.cuh are built on this file.
//
// # Who adds what
//
// The order has 16 lanes: element i belongs to lane i mod 16, and a lane's elements are
// added one after another, in groups of 8 and blocks of 64. The lanes of a block do not
// meet, so each is a chain of additions that one thread can own. A warp takes a row in
// chunks of 8 KiB: four blocks of 16-bit elements, of which 8 threads share each, two
// neighbouring lanes a thread, or two blocks of float32, of which 16 threads share
// each, one lane a thread. No thread needs another one until its block is summed.
//
// Then the order adds block after block in float64, each of 16 lanes of two sums (of
// 2^y and of y * 2^y). These are 32 chains, one for each thread of the warp: the sums of
// blocks change hands through shared memory. At the end of the row a butterfly of
// shuffles adds the lanes. Where the squares of 2^y are wanted, SQUARES, each half of the
// warp has the 16 chains of their sum, too.
//
// # Teams
//
// A CTA has one warp, or where there are few rows the TEAM warps of a team, which take a
// row in rounds: a chunk for each warp, in the order of the warps. Each sums the blocks of
// its own chunk, and then all of them add the sums of all blocks of the round, so that
// every warp knows what a warp alone would know. Where a block was not summed rightly
// (below), every warp sums all chunks of the round, as if it were alone.
//
// # How the elements come
//
// cp.async copies a chunk to shared memory while the chunk before it is summed: each
// warp has two buffers. The copies have 16 bytes at addresses that 16 divides. A row may
// begin anywhere, so what is copied begins up to 15 bytes before it; those bytes are
// never used. In shared memory a block is followed by 16 elements of room. There lie the
// bytes of a shifted block beyond its own size, and because of the room, the threads'
// loads of one step meet every bank of shared memory once.
//
// # The reference
//
// All exponents are relative to a reference c, which moves only when a block has an
// element above c + 8 in log2 units, and elements below -125 count as -125: tokenstats.go
// says why. A warp sums a chunk as if neither happened, with no clamp, and finds the
// largest and the smallest element of each block on the way. They tell, after the
// fact, which blocks were summed rightly. These are kept, and the chunk is summed again
// for the first block that was not, with a new reference or with the clamp. Rows with a
// NaN, with +Inf, or too large for log2 units in float32 are summed anew in float64.
#pragma once

#include "math.cuh"

// ---------------------------------------------------------------- sizes

#define GROUP_STEPS 8 // a step is one element for each lane
#define GROUPS 8      // of a block
#define GROUP (GROUP_STEPS * LANES)
#define BLOCK (GROUPS * GROUP)

#define CHUNK 8192           // bytes that a warp copies at a time
#define COPY 16              // bytes that a thread copies at a time
#define BUFFER (CHUNK + 128) // a chunk with the room after each block
#define MOST_BLOCKS 4        // of a chunk

// The sums of a block: 16 lanes of 2^y, of y * 2^y, and with SQUARES of the squares.
template <bool SQUARES> struct BlockSums { float of[SQUARES ? 3 * LANES : 2 * LANES]; };

// A warp's shared memory.
template <int BUFFERS, bool SQUARES = false> struct Slice {
	u8 buffers[BUFFERS][BUFFER];
	BlockSums<SQUARES> sums[MOST_BLOCKS];
	__attribute__((aligned(COPY))) u32 misfit; // in a team: a block of the chunk was not summed rightly
};

#define TEAM 4 // warps

// A CTA has one warp or a team: a multiprocessor has four schedulers, the warps of a CTA go
// to them in turn, and warps that have no row leave none idle if they are CTAs of their own.
// There are registers for at least twelve warps a multiprocessor, which are enough to keep
// all elements of a group under way at a time. Twelve warps of token_stats.cuh fill the shared
// memory of an H100's multiprocessor, 228 KiB; an A100's holds nine, and one of the 8.6 and
// 8.9 kind five.
#define ROW_KERNEL extern "C" __attribute__((global)) __attribute__((launch_bounds(TEAM * WARP, 12 / TEAM)))

// The warps that take a row together, and this one's number among them.
DEVICE int warps() { return (int)(threadCount() / WARP); }
DEVICE int warp() { return (int)(threadIndex() / WARP); }

// syncTeam waits for all warps that take a row together.
DEVICE void syncTeam() {
	if (warps() == 1) syncWarp();
	else syncThreads();
}

// allSlices returns the shared memory of the warps, by their numbers.
template <int BUFFERS, bool SQUARES = false> DEVICE Slice<BUFFERS, SQUARES> *allSlices() {
	extern SHARED __attribute__((aligned(COPY))) u8 slices[];
	return (Slice<BUFFERS, SQUARES> *)slices;
}

enum { F32, BF16, F16 };

template <int TYPE> struct Format {
	static const int SIZE = TYPE == F32 ? 4 : 2;
	static const int STEP = LANES * SIZE;
	static const int BLOCK_BYTES = BLOCK * SIZE;
	static const int ROOM = STEP;                        // after each block
	static const int CHUNK_BLOCKS = CHUNK / BLOCK_BYTES; // 2 or 4
	static const int THREADS = WARP / CHUNK_BLOCKS; // that share a block
	static const int OWN = LANES / THREADS;         // lanes of a thread: 1 or 2
};

// ---------------------------------------------------------------- elements

DEVICE float widenHalf(u32 h) {
	float d;
	asm("{.reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h;}" : "=f"(d) : "r"(h));
	return d;
}

template <int TYPE> DEVICE float element(const u8 *p) {
	if (TYPE == F32) return *(const float *)p;
	u32 h = *(const u16 *)p;
	return TYPE == BF16 ? floatOf(h << 16) : widenHalf(h);
}

// The elements of a word with two.
template <int TYPE> DEVICE float lowOf(u32 w) { return TYPE == BF16 ? floatOf(w << 16) : widenHalf(w & 0xffff); }
template <int TYPE> DEVICE float highOf(u32 w) { return TYPE == BF16 ? floatOf(w & 0xffff0000u) : widenHalf(w >> 16); }

// Two pairs' larger and smaller numbers, NaN where one is NaN.
template <int TYPE> DEVICE u32 maxPair(u32 a, u32 b) {
	u32 d;
	if (TYPE == BF16) asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
	else asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
	return d;
}
template <int TYPE> DEVICE u32 minPair(u32 a, u32 b) {
	u32 d;
	if (TYPE == BF16) asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
	else asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
	return d;
}

// ---------------------------------------------------------------- the rows of a call

// Rows are the rows of logits of a call, in sequences of some rows each; rows.go fills in
// the same struct.
struct Rows {
	const u8 *logits;
	i64 stride;       // bytes from one row to the next
	u64 sequence;     // rows of a sequence, at least 1
	i64 gap;          // bytes beyond stride from the last row of a sequence to the next row
	i64 count;        // rows in memory
	const i64 *index; // the rows that are wanted; 0: all
	i64 selected;     // how many
	const void *ids;  // i64 if wideIDs is set, else i32; one for each row in memory
	i64 idGap;        // ids between those of two sequences
	Status *status;
	double temperature;
	i32 vocab;
	u32 wideIDs;
};

// CTAs take rows in turn. Neighbouring rows go to different CTAs, so that the last turn,
// which not all have, is spread over the multiprocessors.

// takeRow returns the row of a turn, or of the first of this CTA's turns after it that
// has one, and moves turn behind it. It returns -1 if there is none.
DEVICE i64 takeRow(const Rows &rows, i64 &turn) {
	while (turn < rows.selected) {
		i64 at = turn, row = rows.index ? rows.index[at] : at;
		turn += blockCount();
		if (row >= 0 && row < rows.count) return row;
		if (threadIndex() == 0) report(rows.status, PROBLEM_ROW_INDEX, ARG_LOGITS_INDEX, at, row, rows.count - 1, rows.count);
	}
	return -1;
}

// sequenceOf returns the number of the sequence that the row belongs to.
DEVICE i64 sequenceOf(const Rows &rows, i64 row) { return (i64)((u64)row / rows.sequence); }

// rowAt returns where a row begins.
DEVICE const u8 *rowAt(const Rows &rows, i64 row) { return rows.logits + row * rows.stride + sequenceOf(rows, row) * rows.gap; }

// NO_ID is less than an id can be.
#define NO_ID (-2)

// idOf returns the row's id. If it is not in the vocabulary, nor -1 where that is the lowest, it reports
// that and returns NO_ID.
DEVICE i64 idOf(const Rows &rows, i64 row, i64 lowest = 0) {
	const i64 at = row + sequenceOf(rows, row) * rows.idGap;
	i64 id = rows.wideIDs ? ((const i64 *)rows.ids)[at] : ((const i32 *)rows.ids)[at];
	if (id >= lowest && id < rows.vocab) return id;
	const u32 problem = lowest < 0 ? PROBLEM_ID_OR_NONE : PROBLEM_ID;
	if (threadIndex() == 0) report(rows.status, problem, ARG_IDS, row, id, rows.vocab - 1, rows.vocab);
	return NO_ID;
}

// ---------------------------------------------------------------- loading

// A Chunk is what is loaded at a time: at is an address that COPY divides, and left the
// bytes from there to the end of the row. The first shift bytes are not the row's: in
// its first chunk they lie before the row, in others they belong to the chunk before.
struct Chunk {
	const u8 *at;
	i64 left; // 0 or less: there is nothing to load
	int shift;
};

DEVICE Chunk firstChunk(const u8 *x, i64 bytes) {
	int shift = (int)((u64)x % COPY);
	Chunk c = {x - shift, shift + bytes, shift};
	return c;
}

// A round of some warps is named by its first chunk, and is that chunk if there is one warp.
// isLast reports whether the row has no round after it.
DEVICE bool isLast(const Chunk &round, int warps) { return round.left <= warps * CHUNK + round.shift; }

// chunkAfter returns the chunk that is n chunks after another one: the chunk of warp n, if that
// is a round, or the next round, if n is its warps.
DEVICE Chunk chunkAfter(const Chunk &c, int n) {
	Chunk after = {c.at + n * CHUNK, c.left - n * CHUNK, c.shift};
	return after;
}

// elementsOf returns how many elements of the row a chunk has; 0 or fewer if there is nothing
// to load.
template <int TYPE> DEVICE int elementsOf(const Chunk &c) {
	return (int)smaller(c.left - c.shift, (i64)CHUNK) / Format<TYPE>::SIZE;
}

DEVICE void copyAll(u32 to, const u8 *from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// copySome copies the first n of 16 bytes, at least 1, and sets the others to 0.
DEVICE void copySome(u32 to, const u8 *from, int n) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(smaller(n, COPY)) : "memory");
}

// Copies are awaited in groups: endGroup ends one, and awaitAllBut waits for all of this
// thread's but the last N. The other threads' are there after a syncWarp.
DEVICE void endGroup() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE void awaitAllBut() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

DEVICE u32 sharedAddress(const void *p) { return (u32)(u64)(const __attribute__((address_space(3))) u8 *)p; }

// load asks for a chunk: for its bytes, and for the 16 behind each block, which has some
// of its own there if the chunk is shifted.
template <int TYPE> DEVICE void load(u8 *buffer, const Chunk &c) {
	typedef Format<TYPE> F;
	const int stride = WARP * COPY, mine = lane() * COPY, end = (lane() + 1) * F::BLOCK_BYTES;
	const u32 to = sharedAddress(buffer);
	if (c.left >= CHUNK + COPY) {
#pragma unroll
		for (int i = 0; i < CHUNK; i += stride) copyAll(to + mine + i + i / F::BLOCK_BYTES * F::ROOM, c.at + mine + i);
		if (lane() < F::CHUNK_BLOCKS) copyAll(to + end + lane() * F::ROOM, c.at + end);
	} else {
		const int n = (int)c.left;
#pragma unroll 1
		for (int i = mine; i < n && i < CHUNK; i += stride) copySome(to + i + i / F::BLOCK_BYTES * F::ROOM, c.at + i, n - i);
		if (lane() < F::CHUNK_BLOCKS && end < n) copySome(to + end + lane() * F::ROOM, c.at + end, n - end);
	}
}

// ---------------------------------------------------------------- one block

#define HEADROOM 8.0f      // a block may exceed the reference by 2^8
#define LOWEST_Y -124.0f   // no element whose exact y is above this needs the clamp at MIN_Y
#define MOST_Y 1048576.0f  // log2 units of the reference beyond which a row is summed in float64
#define SQUARES_FROM 0x1p-100f // where a group's sum of squares begins: squaresFrom
#define SLOW_BELOW 0x1p-18 // the temperatures beyond which it is, too
#define SLOW_ABOVE 0x1p18

// A Scale is log2(e) / temperature, in two parts unless the temperature is 1.
struct Scale { float k, kLo; };

// scaleOf is splitScale of tokenstats.go.
template <bool TEMPERED> DEVICE Scale scaleOf(double temperature) {
	Scale s = {LOG2E32, 0};
	if (TEMPERED) {
		double exact = LOG2E / temperature;
		s.k = (float)exact;
		if ((double)s.k >= exact) s.k = floatOf(bitsOf(s.k) - 1);
		s.kLo = (float)(exact - (double)s.k);
	}
	return s;
}

template <bool TEMPERED> DEVICE bool slowTemperature(double t) { return TEMPERED && (t < SLOW_BELOW || t > SLOW_ABOVE); }

// A Reference is c, and the range of elements that it serves without a clamp.
struct Reference { float c, low, high; };

// setReference takes m, the largest element of a block, as the reference, and reports
// whether it is finite and small enough for log2 units in float32.
DEVICE bool setReference(Reference &r, const Scale &s, float m) {
	r.c = m * s.k;
	r.high = (r.c + HEADROOM) / s.k;
	r.low = (r.c + LOWEST_Y) / s.k;
	return r.c > -MOST_Y && r.c < MOST_Y;
}

template <bool TEMPERED> DEVICE float logOf(const Scale &s, float c, float x) {
	float y = fma32(x, s.k, -c);
	return TEMPERED ? fma32(x, s.kLo, y) : y;
}

// clamped is atLeast(MIN_Y, y) in one instruction. It takes a NaN to MIN_Y, which does no
// harm: a row with a NaN is summed by slowRow.
DEVICE float clamped(float y) { return __builtin_fmaxf(MIN_Y, y); }

// What a thread finds in its lanes of a block.
struct Found {
	float s[2], t[2], q[2]; // the sums of 2^y, of y * 2^y and of the squares of 2^y
	float low, high;        // the smallest element, if it matters, and the largest
};

// addBlock sums this thread's lanes of a block of which the row has left elements. own is
// the first of them. The sums mean something if no element is above r.high and, unless
// CAREFUL is set, none is below r.low and own is aligned to the thread's lanes together.
template <int TYPE, bool TEMPERED, bool SQUARES, bool CAREFUL> DEVICE Found addBlock(const Scale &scale, const Reference &r, const u8 *own, int left) {
	typedef Format<TYPE> F;
	const bool PAIRS = TYPE != F32 && !CAREFUL;
	Found f = {{0, 0}, {0, 0}, {0, 0}, INF32, -INF32};
	u32 low = TYPE == BF16 ? 0x7f807f80u : 0x7c007c00u, high = low | 0x80008000u; // +Inf, -Inf
	left = left < 0 ? 0 : left;
	int groups = smaller(left / GROUP, GROUPS);
#pragma unroll 1
	for (int g = 0; g < groups; g++, own += GROUP_STEPS * F::STEP) {
		float x[GROUP_STEPS][2];
#pragma unroll
		for (int j = 0; j < GROUP_STEPS; j++) {
			if (PAIRS) {
				u32 w = *(const u32 *)(own + j * F::STEP);
				low = minPair<TYPE>(low, w);
				high = maxPair<TYPE>(high, w);
				x[j][0] = lowOf<TYPE>(w);
				x[j][1] = highOf<TYPE>(w);
				continue;
			}
#pragma unroll
			for (int l = 0; l < F::OWN; l++) {
				x[j][l] = element<TYPE>(own + j * F::STEP + l * F::SIZE);
				f.high = maxNaN(f.high, x[j][l]);
				if (!CAREFUL) f.low = minNaN(f.low, x[j][l]);
			}
		}
		float s[2], t[2], q[2] = {SQUARES_FROM, SQUARES_FROM};
#pragma unroll
		for (int j = 0; j < GROUP_STEPS; j++) {
#pragma unroll
			for (int l = 0; l < F::OWN; l++) {
				float y = logOf<TEMPERED>(scale, r.c, x[j][l]);
				if (CAREFUL) y = clamped(y);
				float e = exp2OfNumber(y);
				s[l] = j == 0 ? e : s[l] + e;
				t[l] = j == 0 ? y * e : fma32(y, e, t[l]);
				if (SQUARES) q[l] = fma32(e, e, q[l]);
			}
		}
#pragma unroll
		for (int l = 0; l < F::OWN; l++) {
			f.s[l] += s[l];
			f.t[l] += t[l];
			if (SQUARES) f.q[l] += q[l];
		}
	}
	if (PAIRS) {
		f.low = minNaN(lowOf<TYPE>(low), highOf<TYPE>(low));
		f.high = maxNaN(lowOf<TYPE>(high), highOf<TYPE>(high));
	}
	if (left >= BLOCK) return f;

	// The group that the row does not fill, with -Inf up to a whole step, and the clamp.
	left -= groups * GROUP;
	float s[2] = {0, 0}, t[2] = {0, 0}, q[2] = {SQUARES_FROM, SQUARES_FROM};
#pragma unroll 1
	for (int i = lane() % F::THREADS * F::OWN; i - i % LANES < left; i += LANES, own += F::STEP) {
#pragma unroll
		for (int l = 0; l < F::OWN; l++) {
			float x = i + l < left ? element<TYPE>(own + l * F::SIZE) : -INF32;
			f.high = maxNaN(f.high, x);
			float y = clamped(logOf<TEMPERED>(scale, r.c, x)), e = exp2OfNumber(y);
			s[l] += e;
			t[l] = fma32(y, e, t[l]);
			if (SQUARES) q[l] = fma32(e, e, q[l]);
		}
	}
#pragma unroll
	for (int l = 0; l < F::OWN; l++) {
		f.s[l] += s[l];
		f.t[l] += t[l];
		if (SQUARES && left > 0) f.q[l] += q[l];
	}
	return f;
}

// ---------------------------------------------------------------- one row

// A Sum is the state of a row that is being summed.
struct Sum {
	Scale scale;
	Reference r;
	bool started; // has a reference: an element that is not -Inf was seen
	bool slow;    // slowRow must sum the row
	bool careful; // an element that needs the clamp was seen, or elements are not aligned in pairs
	double lane;  // of thread t: lane t%16 of the sum of 2^y (t < 16) or of y * 2^y
	double total; // of these two, what was summed with earlier references
	double squareLane, squareTotal; // the same of the squares, in both halves of the warp
};

// begin begins a row. It has no reference yet, so any block with more than -Inf asks for
// one.
template <int TYPE, bool TEMPERED> DEVICE Sum begin(const Rows &rows, const u8 *x) {
	Sum s = {scaleOf<TEMPERED>(rows.temperature), {0, -INF32, -INF32}};
	s.started = false;
	s.slow = slowTemperature<TEMPERED>(rows.temperature);
	s.careful = TYPE != F32 && (u64)x % 4 != 0;
	s.lane = s.total = s.squareLane = s.squareTotal = 0;
	return s;
}

// maxOver returns the largest v of n threads, a power of 2, at a multiple of n; NaN if one is.
DEVICE float maxOver(int n, float v) {
#pragma unroll 1
	for (int h = n / 2; h > 0; h /= 2) v = maxNaN(v, shuffleXor(v, h));
	return v;
}

// firstReference takes the largest element of the chunk's first block as the reference,
// unless it is -Inf. Without it addChunk would have to sum the chunk to find that out.
template <int TYPE> DEVICE void firstReference(Sum &sum, const u8 *block, int n) {
	float m = -INF32;
	n = smaller(n, BLOCK);
	for (int i = lane(); i < n; i += WARP) m = maxNaN(m, element<TYPE>(block + i * Format<TYPE>::SIZE));
	m = maxOver(WARP, m);
	if (m < -MAXFLOAT) return;
	sum.started = true;
	sum.slow = !setReference(sum.r, sum.scale, m);
}

// moveReference takes m as the reference from here on. What was summed is the sum of
// 2^y and y * 2^y; with d the step back to the new reference it becomes that of 2^(y+d)
// and (y+d) * 2^(y+d).
template <bool SQUARES> DEVICE void moveReference(Sum &sum, float m) {
	float c = sum.r.c;
	if (!setReference(sum.r, sum.scale, m)) {
		sum.slow = true;
		return;
	}
	if (sum.started) {
		sum.total += tree(sum.lane);
		sum.lane = 0;
		double d = (double)c - (double)sum.r.c, scale = exp64(d * LN2);
		double S = shuffle(sum.total, 0), T = shuffle(sum.total, LANES);
		sum.total = (lane() < LANES ? S : T + d * S) * scale;
		if (SQUARES) {
			sum.squareTotal = (sum.squareTotal + tree(sum.squareLane)) * (scale * scale);
			sum.squareLane = 0;
		}
	}
	sum.started = true;
}

// addSums adds the sums of a block.
template <bool SQUARES> DEVICE void addSums(Sum &sum, const BlockSums<SQUARES> &b) {
	sum.lane += (double)b.of[lane()];
	if (SQUARES) sum.squareLane += (double)b.of[2 * LANES + lane() % LANES];
}

// addAllSums adds those of a chunk.
template <int TYPE, bool SQUARES> DEVICE void addAllSums(Sum &sum, const BlockSums<SQUARES> *sums) {
#pragma unroll
	for (int b = 0; b < Format<TYPE>::CHUNK_BLOCKS; b++) addSums<SQUARES>(sum, sums[b]);
}

// sumBlocks sums the blocks of a chunk of which the row has left elements, with the
// reference as it is. What it returns is of this thread's block.
template <int TYPE, bool TEMPERED, bool SQUARES> DEVICE Found sumBlocks(const Sum &sum, const u8 *chunk, int left, BlockSums<SQUARES> *sums) {
	typedef Format<TYPE> F;
	const int block = lane() / F::THREADS, firstLane = lane() % F::THREADS * F::OWN;
	const u8 *own = chunk + block * (F::BLOCK_BYTES + F::ROOM) + firstLane * F::SIZE;
	Found f = sum.careful ? addBlock<TYPE, TEMPERED, SQUARES, true>(sum.scale, sum.r, own, left - block * BLOCK)
	                      : addBlock<TYPE, TEMPERED, SQUARES, false>(sum.scale, sum.r, own, left - block * BLOCK);
#pragma unroll
	for (int l = 0; l < F::OWN; l++) {
		sums[block].of[firstLane + l] = f.s[l];
		sums[block].of[LANES + firstLane + l] = f.t[l];
		if (SQUARES) sums[block].of[2 * LANES + firstLane + l] = f.q[l];
	}
	return f;
}

// fits reports whether a block was summed rightly.
DEVICE bool fits(const Sum &sum, const Found &f) { return f.high <= sum.r.high && f.low >= sum.r.low; }

// addChunk adds a chunk of which the row has left elements; chunk is the first of them.
// All of the warp's threads must have seen its copies end.
template <int TYPE, bool TEMPERED, bool SQUARES> DEVICE void addChunk(Sum &sum, const u8 *chunk, int left, BlockSums<SQUARES> *sums) {
	typedef Format<TYPE> F;
	const int block = lane() / F::THREADS;
	int first = 0; // the first block that is not added yet
#pragma unroll 1
	for (;;) {
		Found f = sumBlocks<TYPE, TEMPERED, SQUARES>(sum, chunk, left, sums);
		u32 misfits = ballot(block >= first && !fits(sum, f));
		syncWarp();
		if (misfits == 0 && first == 0) { // most chunks
			if (sum.started) addAllSums<TYPE, SQUARES>(sum, sums);
			return;
		}
		int stop = misfits ? __builtin_ctz(misfits) / F::THREADS : F::CHUNK_BLOCKS;
		if (sum.started)
#pragma unroll 1
			for (int b = first; b < stop; b++) addSums<SQUARES>(sum, sums[b]);
		if (stop == F::CHUNK_BLOCKS) return;

		// Block stop needs another reference, or the clamp.
		first = stop;
		float m = shuffle(maxOver(F::THREADS, f.high), stop * F::THREADS);
		if (m <= sum.r.high) sum.careful = true;
		else moveReference<SQUARES>(sum, m);
		if (sum.slow) return;
		syncWarp(); // all have read the sums
	}
}

// addNext adds a chunk that is in the buffer.
template <int TYPE, bool TEMPERED, bool SQUARES = false> DEVICE void addNext(Sum &sum, const u8 *buffer, const Chunk &c, BlockSums<SQUARES> *sums) {
	const u8 *chunk = buffer + c.shift;
	const int left = elementsOf<TYPE>(c);
	if (!sum.started && !sum.slow) firstReference<TYPE>(sum, chunk, left);
	if (!sum.slow) addChunk<TYPE, TEMPERED, SQUARES>(sum, chunk, left, sums);
}

// addTogether adds a round by the whole team, unless a block was not summed rightly, and
// reports whether it did.
template <int TYPE, bool TEMPERED, bool SQUARES, int BUFFERS>
DEVICE bool addTogether(Sum &sum, Slice<BUFFERS, SQUARES> *slices, int buffer, const Chunk &round) {
	if (!sum.started && !sum.slow) firstReference<TYPE>(sum, slices[0].buffers[buffer] + round.shift, elementsOf<TYPE>(round));
	if (!sum.started || sum.slow) return sum.slow;
	Slice<BUFFERS, SQUARES> &mine = slices[warp()];
	const Chunk c = chunkAfter(round, warp());
	Found f = sumBlocks<TYPE, TEMPERED, SQUARES>(sum, mine.buffers[buffer] + c.shift, elementsOf<TYPE>(c), mine.sums);
	const bool misfit = any(!fits(sum, f));
	if (lane() == 0) mine.misfit = misfit;
	syncThreads();
	if (any(slices[lane() % TEAM].misfit)) return false;
#pragma unroll 1
	for (int w = 0; w < TEAM; w++) addAllSums<TYPE, SQUARES>(sum, slices[w].sums);
	return true;
}

// addRound adds a round whose chunks are in the buffers of that number. All threads of the
// warps must have seen the copies end.
template <int TYPE, bool TEMPERED, bool SQUARES, int BUFFERS>
DEVICE void addRound(Sum &sum, Slice<BUFFERS, SQUARES> *slices, int buffer, const Chunk &round) {
	if (warps() > 1 && addTogether<TYPE, TEMPERED>(sum, slices, buffer, round)) return;
#pragma unroll 1
	for (int w = 0; w < warps(); w++) {
		addNext<TYPE, TEMPERED, SQUARES>(sum, slices[w].buffers[buffer], chunkAfter(round, w), slices[warp()].sums);
		syncWarp(); // all have read the sums
	}
}

// RowSums are what rowSums of tokenstats.go is: sum_v exp(x_v / temperature) is
// exp(ref / temperature + logS).
struct RowSums { double ref, logS, entropy, squares; };

// slowRow is sumRowSlow. The elements are added in the order of the row, each by all
// threads.
template <int TYPE, bool SQUARES = false> DEVICE RowSums slowRow(const u8 *x, i64 n, double temperature) {
	const int SIZE = Format<TYPE>::SIZE;
	float m = -INF32;
#pragma unroll 1
	for (i64 i = lane(); i < n; i += WARP) m = maxNaN(m, element<TYPE>(x + i * SIZE));
	m = maxOver(WARP, m);
	if (m - m != 0) {
		RowSums nothing = {m, m != m ? NAN64 : 0, NAN64, NAN64};
		return nothing;
	}
	double S = 0, T = 0, Q = 0;
#pragma unroll 1
	for (i64 i = lane(); i - lane() < n; i += WARP) {
		double z = i < n ? ((double)element<TYPE>(x + i * SIZE) - (double)m) / temperature : -INF64;
		double p = exp64(z), zp = z * p;
#pragma unroll 1
		for (u32 some = ballot(p > 0); some; some &= some - 1) {
			int src = __builtin_ctz(some);
			S += shuffle(p, src);
			T += shuffle(zp, src);
			if (SQUARES) Q += shuffle(p * p, src);
		}
	}
	double logS = log64(S);
	RowSums q = {m, logS, logS - T / S, SQUARES ? 2 * logS - log64(Q) : 0};
	return q;
}

// finish is the end of sumRow of tokenstats.go; rows that are all -Inf go the slow way.
template <int TYPE, bool SQUARES = false> DEVICE RowSums finish(Sum &sum, const u8 *x, i64 n, double temperature) {
	if (sum.slow || !sum.started) return slowRow<TYPE, SQUARES>(x, n, temperature);
	sum.total += tree(sum.lane);
	double S = shuffle(sum.total, 0), T = shuffle(sum.total, LANES);
	double logS = log64(S);
	RowSums q = {(double)sum.r.c / ((double)sum.scale.k + (double)sum.scale.kLo), logS, logS - LN2 * (T / S), 0};
	if (SQUARES) q.squares = 2 * logS - log64(shuffle(sum.squareTotal + tree(sum.squareLane), 0));
	return q;
}

// logprobOf returns the log-probability of an element x of a row with these sums.
DEVICE double logprobOf(const RowSums &q, float x, double temperature) {
	if (q.ref - q.ref != 0) return NAN64; // all -Inf, or +Inf somewhere
	double l = ((double)x - q.ref) / temperature - q.logS;
	return l > 0 ? 0 : l;
}
