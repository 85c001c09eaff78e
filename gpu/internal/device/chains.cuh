// Sums over tokens in float64, by one CTA.
//
// Token i of a segment belongs to lane i mod 16, and each lane adds its terms one after
// another: a chain of n/16 additions that nothing can shorten. One warp therefore does
// nothing but add, from shared memory, while all others load the tokens that come next
// and make terms of them.
#pragma once

#include "tokens.cuh"

#define CHUNK 2048  // tokens between two barriers: the loads of one take less time than the additions of another
#define ADDERS WARP // threads: a half adds the terms, the other half their squares
#define LOADERS 512
#define CHAIN_THREADS (ADDERS + LOADERS)
#define PER_LOADER (CHUNK / LOADERS)
#define AHEAD 8 // terms of a lane that are read before those before them are added

static SHARED double terms[2][CHUNK]; // the chunk that is added, and the one that is made
static SHARED double totals[2];
static SHARED i64 counts[LOADERS / WARP];

struct Sums {
	double sum, squares;
	i64 count;
};

DEVICE void readTerms(double (&v)[AHEAD], const double *from) {
#pragma unroll
	for (int j = 0; j < AHEAD; j++) v[j] = from[j * LANES];
}

// addChunk returns acc with the terms of a lane added, or in the upper half of the
// warp with their squares added. Behind the tokens the terms are 0, which changes no
// sum: a sum that begins as +0 is never -0.
DEVICE double addChunk(double acc, const double *chunk, i64 tokens) {
	const double *mine = chunk + lane() % LANES;
	double next[AHEAD];
	readTerms(next, mine);
	for (i64 i = 0; i < tokens; i += AHEAD * LANES) {
		double v[AHEAD];
#pragma unroll
		for (int j = 0; j < AHEAD; j++) v[j] = next[j];
		if (i + AHEAD * LANES < tokens) readTerms(next, mine + i + AHEAD * LANES);
#pragma unroll
		for (int j = 0; j < AHEAD; j++) acc += lane() < LANES ? v[j] : v[j] * v[j];
	}
	return acc;
}

template <typename Terms> DEVICE void readTokens(typename Terms::Token (&tokens)[PER_LOADER], const Terms &of, i64 first, i64 end) {
#pragma unroll
	for (int j = 0; j < PER_LOADER; j++) {
		i64 i = first + j * LOADERS + (threadIndex() - ADDERS);
		tokens[j] = Terms::none();
		if (i < end) tokens[j] = of.read(i);
	}
}

// sumTokens adds the terms of tokens begin to end, and their squares, and counts the
// tokens that have a term. All threads of the CTA call it, and all get the result.
//
// Terms::read(i) loads token i, Terms::none() stands for no token, and term(token,
// &value) returns whether a token has a term and sets the value, to 0 if it has none.
template <typename Terms> DEVICE Sums sumTokens(const Terms &of, i64 begin, i64 end) {
	const bool adder = threadIndex() < ADDERS;
	const i64 n = end - begin, chunks = (n + CHUNK - 1) / CHUNK;
	typename Terms::Token tokens[PER_LOADER];
	double acc = 0;
	i64 count = 0;
	if (!adder) readTokens(tokens, of, begin, end);
	for (i64 c = 0; c <= chunks; c++) {
		if (adder) {
			if (c > 0) acc = addChunk(acc, terms[(c - 1) % 2], smaller<i64>(CHUNK, n - (c - 1) * CHUNK));
		} else if (c < chunks) {
#pragma unroll
			for (int j = 0; j < PER_LOADER; j++) {
				double value;
				count += of.term(tokens[j], value);
				terms[c % 2][j * LOADERS + threadIndex() - ADDERS] = value;
			}
			readTokens(tokens, of, begin + (c + 1) * CHUNK, end);
		}
		syncThreads();
	}
	if (adder) {
		double total = tree(acc);
		if (lane() % LANES == 0) totals[lane() / LANES] = total;
	} else {
		for (int h = WARP / 2; h > 0; h /= 2) count += shuffleXor(count, h);
		if (lane() == 0) counts[(threadIndex() - ADDERS) / WARP] = count;
	}
	syncThreads();
	// The next sum has a barrier before it writes to these.
	Sums s = {totals[0], totals[1], 0};
	for (int w = 0; w < LOADERS / WARP; w++) s.count += counts[w];
	return s;
}

// ---------------------------------------------------------------- masked moments

// What a term is made of two arrays a and b by.
enum { PLAIN, NEGATED, DIFFERENCE };

// Values are numbers of tokens: a, -a or a - b.
struct Values {
	const float *a, *b;
	u64 form;

	MEMBER float of(float x, float y) const { return form == DIFFERENCE ? x - y : form == NEGATED ? -x : x; }
	MEMBER float at(i64 i) const { return of(a[i], form == DIFFERENCE ? b[i] : 0); }
};

#define NO_TOKEN 0x100 // instead of a role

// Masked terms are value - shift of the tokens whose role is in a set; NaN for a role
// that there is not.
struct Masked {
	Values values;
	const u8 *role;
	u32 roles; // bit r stands for role r
	double shift;

	struct Token {
		float a, b;
		u32 role;
	};
	MEMBER static Token none() { return {0, 0, NO_TOKEN}; }
	MEMBER Token read(i64 i) const { return {values.a[i], values.form == DIFFERENCE ? values.b[i] : 0, role[i]}; }
	MEMBER bool term(const Token &t, double &value) const {
		bool in = t.role <= ACTION && (roles >> t.role & 1);
		value = in ? (double)values.of(t.a, t.b) - shift : t.role <= ACTION || t.role == NO_TOKEN ? 0 : NAN64;
		return in;
	}
};

// A Spread is what spread of kernels.go returns: the number of tokens, their mean, and
// the sum of squares about it; NaN if a value is not finite or a role is wrong.
struct Spread {
	i64 count;
	double mean, squares;
};

DEVICE Spread spread(Masked of, i64 n) {
	Sums m = sumTokens(of, 0, n);
	// A role that is wrong shows in the sum, even where no token counts.
	if (m.count == 0) return {0, m.sum, m.sum};
	Spread s = {m.count, m.sum / (double)m.count, 0};
	of.shift = s.mean;
	Sums d = sumTokens(of, 0, n);
	// The mean is rounded: what the sum about it is off from 0 is taken out.
	s.squares = d.squares - d.sum * d.sum / (double)d.count;
	if (s.squares < 0) s.squares = 0;
	return s;
}

// first returns the first of n tokens for which wrong.is(i) holds, or n. All threads
// of the CTA call it, and all get the result.
template <typename Wrong> DEVICE i64 first(const Wrong &wrong, i64 n) {
	for (i64 i = 0; i < n; i += WARP) {
		// Each warp looks for itself: this is not a path that must be fast.
		i64 t = i + lane();
		u32 found = ballot(t < n && wrong.is(t));
		if (found) return i + __builtin_ctz(found);
	}
	return n;
}

struct WrongRole {
	const u8 *role;
	MEMBER bool is(i64 i) const { return role[i] > ACTION; }
};

// reportRole reports the first role that is wrong, and returns whether there is one.
DEVICE bool reportRole(const u8 *role, i64 n, u32 argument, Status *status) {
	WrongRole wrong = {role};
	i64 t = first(wrong, n);
	if (t == n) return false;
	if (threadIndex() == 0) report(status, PROBLEM_ROLE, argument, t, role[t]);
	return true;
}

struct NotFinite {
	Values values;
	const u8 *role;
	u32 roles;
	MEMBER bool is(i64 i) const { return (roles >> role[i] & 1) && !finite(values.at(i)); }
};
