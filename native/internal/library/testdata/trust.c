/* Opens the library that is named, and says whether AVX2 is right in it. */
#include <dlfcn.h>
#include <stdio.h>

#include "reweight.h"

int main(int argc, char **argv) {
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (library == NULL) return puts(dlerror()), 1;
	int32_t (*has_isa)(int32_t);
	int (*multiply)(const reweight_workspace *, float *, const float *, const float *, int64_t, reweight_error *);
	*(void **)&has_isa = dlsym(library, "reweight_has_isa");
	*(void **)&multiply = dlsym(library, "reweight_multiply");
	if (!has_isa(REWEIGHT_AVX2)) return puts("there is no avx2"), 0;
	float x = 7, two = 2;
	for (int isa = REWEIGHT_AVX2; isa >= REWEIGHT_PORTABLE; isa--) {
		reweight_workspace ws = {.isa = isa};
		reweight_error error = {0};
		if (multiply(&ws, &x, &x, &two, 1, &error) == REWEIGHT_OK) continue;
		if (error.code == REWEIGHT_PROBLEM_ISA_WRONG && error.argument == REWEIGHT_ARG_ISA && x == 7) {
			printf("kernel %d of %s is wrong\n", (int)error.values[1], isa == REWEIGHT_AVX2 ? "avx2" : "portable");
			return 0;
		}
		return puts("another error"), 1;
	}
	return puts(x == 28 ? "right" : "a wrong product"), 0;
}
