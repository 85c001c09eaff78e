/* Which instruction sets this machine and this library have. */
#include "internal.h"

#ifdef __x86_64__
#include <cpuid.h>

/* Whether all bits of the mask are set. */
static int all(uint32_t bits, uint32_t mask) {
	return (bits & mask) == mask;
}
#endif

static const char names[][9] = {"auto", "portable", "avx2", "avx512", "neon"};

enum { KNOWN_ISAS = sizeof names / sizeof names[0] };

/* Asks the CPU, and the operating system for its registers. Bit i of the result says
 * whether there is instruction set i. */
static uint32_t detect(void) {
	uint32_t isas = 1u << REWEIGHT_PORTABLE;
#if defined(__x86_64__)
	unsigned eax, ebx, ecx, edx;
	unsigned fma = 1u << 12, popcnt = 1u << 23, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29;
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !all(ecx, fma | popcnt | osxsave | avx | f16c)) {
		return isas;
	}
	if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
		return isas;
	}
	/* What the system saves of each thread: XMM and YMM; the masks and all of ZMM. */
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	unsigned avx2 = 1u << 5, avx512f = 1u << 16, avx512dq = 1u << 17, avx512bw = 1u << 30, avx512vl = 1u << 31;
	if (all(low, 0x06) && all(ebx, avx2)) {
		isas |= 1u << REWEIGHT_AVX2;
		if (all(low, 0xe6) && all(ebx, avx512f | avx512dq | avx512bw | avx512vl)) {
			isas |= 1u << REWEIGHT_AVX512;
		}
	}
#elif defined(__aarch64__)
	isas |= 1u << REWEIGHT_NEON;
#endif
	return isas;
}

/* Returns what detect returns. CPUID takes microseconds in a virtual machine, so that the
 * answer is kept. It is the same for every thread: any of them may write it. */
static uint32_t available(void) {
	static uint32_t answer;
	uint32_t isas = __atomic_load_n(&answer, __ATOMIC_RELAXED);
	if (isas == 0) {
		isas = detect();
		__atomic_store_n(&answer, isas, __ATOMIC_RELAXED);
	}
	return isas;
}

static int has(uint32_t isas, int32_t isa) {
	return isa > REWEIGHT_AUTO && isa < KNOWN_ISAS && (isas >> isa & 1) != 0;
}

/* The best of them is the one with the largest number. */
static int32_t best(uint32_t isas) {
	return 31 - __builtin_clz(isas);
}

int rw_resolve(const reweight_workspace *ws, int32_t *isa, reweight_error *error) {
	uint32_t isas = available();
	*isa = ws->isa == REWEIGHT_AUTO ? best(isas) : ws->isa;
	if (*isa < 0 || *isa >= KNOWN_ISAS) {
		return BAD(error, COUNT_RANGE, REWEIGHT_ARG_ISA, -1, *isa, KNOWN_ISAS - 1);
	}
	if (!has(isas, *isa)) return BAD(error, ISA, REWEIGHT_ARG_ISA, -1, *isa, isas);
	int wrong = *isa == REWEIGHT_PORTABLE ? 0 : rw_wrong_kernel(*isa);
	if (wrong != 0) return BAD(error, ISA_WRONG, REWEIGHT_ARG_ISA, -1, *isa, wrong);
	return REWEIGHT_OK;
}

int32_t reweight_has_isa(int32_t isa) {
	return has(available(), isa);
}

int32_t reweight_best_isa(void) {
	return best(available());
}

const char *reweight_isa_name(int32_t isa) {
	return isa >= 0 && isa < KNOWN_ISAS ? names[isa] : "";
}

const char *reweight_version(void) {
	return REWEIGHT_VERSION;
}
