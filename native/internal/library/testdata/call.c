/* Calls a function of Go's convention that changes everything that it may, and looks at
 * what C has to find unchanged. */
#include <stdio.h>
#include <unwind.h>

#include "../../../src/internal.h"

/* Reads 12 words, writes each plus 1, and changes every register. */
void change_everything(void);

/* Calls rw_call with known values in what belongs to the caller, and returns a mask of what
 * rw_call changed of it. */
uint64_t check_call(void (*function)(void), uint64_t *frame, int64_t words);

int main(void);

static int found_main;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *none) {
	(void)none;
	if (_Unwind_GetRegionStart(context) == (uintptr_t)main) found_main = 1;
	return _URC_NO_REASON;
}

/* Looks for main among its callers, as a debugger does. */
static void look_back(void) {
	_Unwind_Backtrace(visit, NULL);
}

int main(void) {
	for (int64_t words = 1; words <= 12; words++) {
		uint64_t frame[14];
		for (int i = 0; i < 14; i++) frame[i] = 1000 * words + i;
		uint64_t changed = check_call(change_everything, frame + 1, words);
		if (changed != 0) {
			printf("with %d words: changed registers %#llx\n", (int)words, (unsigned long long)changed);
			return 1;
		}
		for (int i = 0; i < 14; i++) {
			uint64_t want = 1000 * words + i + (i >= 1 && i <= words);
			if (frame[i] != want) {
				printf("with %d words: word %d is %d, want %d\n", (int)words, i - 1, (int)frame[i], (int)want);
				return 1;
			}
		}
	}
	uint64_t frame[3] = {0};
	rw_call(look_back, frame, 3);
	if (!found_main) {
		puts("there is no way from the function back to main");
		return 1;
	}
	puts("ok");
	return 0;
}
