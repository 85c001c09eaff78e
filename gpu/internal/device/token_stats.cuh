// Token statistics of rows of logits: tokenstats.go. rows.cuh says how a row is summed. Each
// format is a module of its own, and another one with SQUARES, so that a driver compiles
// what is used.

#pragma once

#include "rows.cuh"

// tokenstats.go fills in the same struct.
struct TokenStats {
	RowSums *exact;                 // 0, or where a test wants the float64 behind the results
	float *lse, *entropy, *logprob; // one for each row in memory; 0: not wanted
	float *logSumSqProbs;           // likewise, and wanted of kernels with SQUARES alone
	Rows rows;
};

// boundEntropy is that of tokenstats.go.
DEVICE double boundEntropy(double h, double most) { return h < 0x1p-100 ? 0 : h > most ? most : h; }

// write sets the statistics of a row.
template <int TYPE, bool SQUARES> DEVICE void write(const TokenStats &p, i64 row, const u8 *x, const RowSums &q) {
	i64 id = p.logprob ? idOf(p.rows, row) : 0;
	if (threadIndex() != 0) return;
	if (p.exact) p.exact[row] = q;
	if (p.lse) p.lse[row] = (float)(q.ref + q.logS);
	if (p.entropy) p.entropy[row] = (float)boundEntropy(q.entropy, log64((double)p.rows.vocab));
	if (SQUARES) p.logSumSqProbs[row] = (float)(0 - boundEntropy(q.squares, log64((double)p.rows.vocab)));
	if (p.logprob) p.logprob[row] = id < 0 ? NAN32 : (float)logprobOf(q, element<TYPE>(x + id * Format<TYPE>::SIZE), p.rows.temperature);
}

template <int TYPE, bool TEMPERED, bool SQUARES> DEVICE void tokenStats(const TokenStats &p) {
	typedef Format<TYPE> F;
	Slice<2, SQUARES> *slices = allSlices<2, SQUARES>();
	u8 (&mine)[2][BUFFER] = slices[warp()].buffers;
	const i64 bytes = (i64)p.rows.vocab * F::SIZE;
	i64 turn = blockIndex(), row = takeRow(p.rows, turn);
	if (row < 0) return;
	const u8 *x = rowAt(p.rows, row);
	Chunk round = firstChunk(x, bytes);
	load<TYPE>(mine[0], chunkAfter(round, warp()));
	endGroup();
	int now = 0; // the buffer with the chunk
	while (row >= 0) {
		const i64 next = takeRow(p.rows, turn);
		const u8 *nextX = next < 0 ? 0 : rowAt(p.rows, next);
		Sum sum = begin<TYPE, TEMPERED>(p.rows, x);
		bool last;
#pragma unroll 1
		do {
			last = isLast(round, warps());
			Chunk ahead = {0, 0, 0};
			if (!last) ahead = chunkAfter(round, warps());
			else if (next >= 0) ahead = firstChunk(nextX, bytes);
			load<TYPE>(mine[1 - now], chunkAfter(ahead, warp()));
			endGroup();
			awaitAllBut<1>();
			syncTeam();
			addRound<TYPE, TEMPERED>(sum, slices, now, round);
			round = ahead;
			now = 1 - now;
			syncTeam(); // all are done with the buffers and the sums, which are filled again now
		} while (!last);
		RowSums q = finish<TYPE, SQUARES>(sum, x, p.rows.vocab, p.rows.temperature);
		write<TYPE, SQUARES>(p, row, x, q);
		row = next;
		x = nextX;
	}
}
