// A false CUDA driver for the tests of package cuda. It offers the entries of libcuda
// that the package uses and keeps books: on contexts, modules, memory, launches. It
// runs no kernel. Device memory is memory of the process, so copies and fills do what
// they should; they happen late, when the stream is waited for, as on a device.
//
// What a program does wrong is written to a report: an address that is no device
// memory, a second free, a pop of somebody else's context. false_report adds what was
// not given back. The functions false_... are for the tests, which order failures
// with them. All state is in this library: a copy of the file is another driver.
//
// An entry that is ordered to fail does nothing, with one exception: one that waits, or
// gives something back (free, release, unload, unmap, pop), does so and fails then. The
// real driver does that when it reports the failure of an earlier kernel.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef uint64_t CUdeviceptr;
typedef uint64_t handle; // of a context, a module, a function, a stream, memory

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
};

static const struct {
	CUresult code;
	const char *name, *text;
} errors[] = {
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
	{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

enum { MAX_DEVICES = 4, MAX_ENTRIES = 64, MAX_MODULES = 64, MAX_FUNCTIONS = 1024, MAX_BLOCKS = 4096, MAX_STACK = 16, MAX_PARAMS = 1024 };
enum { GRANULARITY = 2 << 20, PLAIN_SHARED = 48 << 10, MAX_SHARED = 227 << 10, POISON = 0xa5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---------------------------------------------------------------- the report

static char report[1 << 16];

static void complain(const char *format, ...) {
	size_t used = strlen(report);
	va_list args;
	va_start(args, format);
	vsnprintf(report + used, sizeof report - used, format, args);
	va_end(args);
	strncat(report, "\n", sizeof report - strlen(report) - 1);
}

// ---------------------------------------------------------------- calls and ordered failures

static struct entry {
	char name[64];
	int calls, fail_at;
	CUresult code;
} entries[MAX_ENTRIES];

static CUresult fault; // what the context is lost with after the next launch
static CUresult lost;  // what it is lost with
static int initialized, version = 12040;

static struct entry *find_entry(const char *name) {
	for (struct entry *e = entries; e < entries + MAX_ENTRIES; e++) {
		if (!e->name[0]) strncpy(e->name, name, sizeof e->name - 1);
		if (!strcmp(e->name, name)) return e;
	}
	abort();
}

// begin takes the lock, counts the call and returns the failure that is ordered for it.
static CUresult begin(const char *name) {
	pthread_mutex_lock(&lock);
	struct entry *e = find_entry(name);
	return ++e->calls == e->fail_at ? e->code : SUCCESS;
}

static CUresult end(CUresult r) {
	pthread_mutex_unlock(&lock);
	return r;
}

// BEGIN_FREE starts an entry that may be called before cuInit, BEGIN any other, and
// BEGIN_WORK one that fails once the context is lost.
#define BEGIN_FREE() \
	CUresult ordered = begin(__func__); \
	if (ordered) return end(ordered)
#define BEGIN() \
	BEGIN_FREE(); \
	if (!initialized) return end(NOT_INITIALIZED)
#define BEGIN_WORK() \
	BEGIN(); \
	if (lost) return end(lost)
// BEGIN_LATE starts an entry that fails, if so ordered, at its end: END_LATE.
#define BEGIN_LATE() \
	CUresult ordered = begin(__func__); \
	if (!initialized) return end(NOT_INITIALIZED)
#define END_LATE() return end(ordered)

// ---------------------------------------------------------------- devices and contexts

static struct {
	char name[64];
	int major, minor;
	int references; // to the primary context
} devices[MAX_DEVICES] = {{"False H100", 9, 0, 0}};
static int device_count = 1;

static handle primary(CUdevice d) { return 0xc0de0000 + d; }

// The stack of contexts of a thread. Those that a test pushed are somebody else's.
static __thread struct {
	handle context;
	int foreign;
} stack[MAX_STACK];
static __thread int depth;
static int pushed; // by cuCtxPushCurrent_v2 on all threads, and not popped

static handle current(void) { return depth ? stack[depth - 1].context : 0; }
// current_device returns the device whose primary context is current, or -1.
static int current_device(void) {
	for (int d = 0; d < device_count; d++)
		if (devices[d].references && current() == primary(d)) return d;
	return -1;
}

#define CHECK_CONTEXT() if (current_device() < 0) return end(INVALID_CONTEXT)

// DESCRIBE is the body of an entry that gives a field of errors.
#define DESCRIBE(field) \
	BEGIN_FREE(); \
	*out = NULL; \
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) \
		if (errors[i].code == code) *out = errors[i].field; \
	return end(*out ? SUCCESS : INVALID_VALUE)

CUresult cuGetErrorName(CUresult code, const char **out) { DESCRIBE(name); }
CUresult cuGetErrorString(CUresult code, const char **out) { DESCRIBE(text); }

CUresult cuDriverGetVersion(int *v) {
	BEGIN_FREE();
	*v = version;
	return end(SUCCESS);
}

CUresult cuInit(unsigned flags) {
	BEGIN_FREE();
	if (flags) return end(INVALID_VALUE);
	if (!device_count) return end(NO_DEVICE);
	initialized = 1;
	return end(SUCCESS);
}

CUresult cuDeviceGetCount(int *n) {
	BEGIN();
	*n = device_count;
	return end(SUCCESS);
}

CUresult cuDeviceGet(CUdevice *d, int ordinal) {
	BEGIN();
	if (ordinal < 0 || ordinal >= device_count) return end(INVALID_DEVICE);
	*d = ordinal;
	return end(SUCCESS);
}

#define CHECK_DEVICE() if (d < 0 || d >= device_count) return end(INVALID_DEVICE)

CUresult cuDeviceGetName(char *name, int size, CUdevice d) {
	BEGIN();
	CHECK_DEVICE();
	snprintf(name, size, "%s", devices[d].name);
	return end(SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
	BEGIN();
	CHECK_DEVICE();
	*bytes = (size_t)80 << 30;
	return end(SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
	BEGIN();
	CHECK_DEVICE();
	switch (attribute) {
	case 16: *value = 132; break;     // multiprocessors
	case 75: *value = devices[d].major; break;
	case 76: *value = devices[d].minor; break;
	default: return end(INVALID_VALUE);
	}
	return end(SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(handle *context, CUdevice d) {
	BEGIN_WORK();
	CHECK_DEVICE();
	devices[d].references++;
	*context = primary(d);
	return end(SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	BEGIN_LATE();
	CHECK_DEVICE();
	if (devices[d].references-- <= 0) complain("the primary context of device %d is released more often than retained", d);
	END_LATE();
}

CUresult cuCtxPushCurrent_v2(handle context) {
	BEGIN();
	if (depth == MAX_STACK) return complain("a thread has %d contexts", depth), end(INVALID_VALUE);
	stack[depth].context = context;
	stack[depth].foreign = 0;
	depth++;
	if (current_device() < 0) return depth--, complain("a context is pushed that is not there"), end(INVALID_CONTEXT);
	pushed++;
	return end(SUCCESS);
}

CUresult cuCtxPopCurrent_v2(handle *context) {
	BEGIN_LATE();
	if (!depth) return complain("a context is popped where none is"), end(INVALID_CONTEXT);
	if (stack[depth - 1].foreign) return complain("somebody else's context is popped"), end(INVALID_CONTEXT);
	*context = stack[--depth].context;
	pushed--;
	END_LATE();
}

// ---------------------------------------------------------------- modules and functions

static struct module {
	int live, device;
	char *text;
} modules[MAX_MODULES];
static int module_count;

static struct function {
	struct module *module;
	char name[64];
	unsigned params; // bytes, as the module's text declares them
	int shared;      // dynamic shared memory that it may have
} functions[MAX_FUNCTIONS];
static int function_count;

static char jit_log[512]; // of the next cuModuleLoadDataEx, which fails if there is one

CUresult cuModuleLoadDataEx(handle *out, const char *image, unsigned count, int *options, void **values) {
	BEGIN_WORK();
	int device = current_device();
	if (device < 0) return end(INVALID_CONTEXT);
	char *log = NULL;
	size_t size = 0;
	for (unsigned i = 0; i < count; i++) {
		if (options[i] == 5) log = values[i];
		else if (options[i] == 6) size = (size_t)values[i];
		else return complain("JIT option %d", options[i]), end(INVALID_VALUE);
	}
	if (jit_log[0]) {
		if (log) snprintf(log, size, "%s", jit_log);
		jit_log[0] = 0;
		return end(INVALID_PTX);
	}
	if (!strstr(image, ".version")) return end(INVALID_PTX);
	if (module_count == MAX_MODULES) abort();
	struct module *m = &modules[module_count++];
	m->live = 1;
	m->device = device;
	m->text = strdup(image);
	*out = (handle)(uintptr_t)m;
	return end(SUCCESS);
}

static struct module *find_module(handle h) {
	for (int i = 0; i < module_count; i++)
		if (h == (handle)(uintptr_t)&modules[i] && modules[i].live) return &modules[i];
	complain("a module that is not there");
	return NULL;
}

CUresult cuModuleUnload(handle h) {
	BEGIN_LATE();
	if (lost) return end(lost);
	struct module *m = find_module(h);
	if (!m) return end(INVALID_HANDLE);
	if (m->device != current_device()) return complain("a module is unloaded in another context"), end(INVALID_CONTEXT);
	m->live = 0;
	END_LATE();
}

CUresult cuModuleGetFunction(handle *out, handle h, const char *name) {
	BEGIN_WORK();
	struct module *m = find_module(h);
	if (!m) return end(INVALID_HANDLE);
	if (m->device != current_device()) return end(INVALID_CONTEXT);
	// The text of a kernel starts with: .entry name( .param .align 8 .b8 name_param_0[32] )
	char want[80];
	snprintf(want, sizeof want, ".entry %s(", name);
	char *at = strstr(m->text, want);
	if (!at) return end(NOT_FOUND);
	struct function *f = functions;
	while (f < functions + function_count && (f->module != m || strcmp(f->name, name))) f++;
	if (f == functions + function_count) {
		if (function_count++ == MAX_FUNCTIONS) abort();
		f->module = m;
		f->shared = PLAIN_SHARED;
		snprintf(f->name, sizeof f->name, "%s", name);
		char *size = strchr(at, '[');
		f->params = size ? strtoul(size + 1, NULL, 10) : 0;
	}
	*out = (handle)(uintptr_t)f;
	return end(SUCCESS);
}

static struct function *find_function(handle h) {
	for (int i = 0; i < function_count; i++)
		if (h == (handle)(uintptr_t)&functions[i] && functions[i].module->live) return &functions[i];
	complain("a function that is not there");
	return NULL;
}

#define FIND_FUNCTION() \
	struct function *f = find_function(h); \
	if (!f) return end(INVALID_HANDLE); \
	if (f->module->device != current_device()) return end(INVALID_CONTEXT)

CUresult cuFuncSetAttribute(handle h, int attribute, int value) {
	BEGIN_WORK();
	FIND_FUNCTION();
	if (attribute != 8 || value < 0 || value > MAX_SHARED) return end(INVALID_VALUE); // 8: dynamic shared memory
	f->shared = value;
	return end(SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, handle h, int threads, size_t shared) {
	BEGIN_WORK();
	FIND_FUNCTION();
	if (threads < 1 || threads > 1024) return end(INVALID_VALUE);
	*blocks = shared > (size_t)f->shared ? 0 : 2048 / threads;
	if (shared && *blocks > (int)(MAX_SHARED / shared)) *blocks = MAX_SHARED / shared;
	return end(SUCCESS);
}

// ---------------------------------------------------------------- memory

// A block is device memory that can be read and written: of cuMemAlloc_v2, or a
// mapping in a reservation. Freed ones stay in the list, so that a second free shows.
static struct block {
	CUdeviceptr at;
	size_t size;
	int live; // -1: mapped, but nothing may access it yet
	int mapping;
} blocks[MAX_BLOCKS];
static int block_count;
static size_t memory_limit = (size_t)1 << 40, memory_used;

static int is_memory(CUdeviceptr p, size_t n) {
	if (!n) return complain("work on no bytes"), 0;
	for (struct block *b = blocks; b < blocks + block_count; b++)
		if (b->live > 0 && p >= b->at && n <= b->size && p - b->at <= b->size - n) return 1;
	complain("%zu bytes at %#lx are no device memory", n, (unsigned long)p);
	return 0;
}

static void add_block(CUdeviceptr at, size_t size, int mapping) {
	if (block_count == MAX_BLOCKS) abort();
	blocks[block_count++] = (struct block){at, size, mapping ? -1 : 1, mapping};
	memset((void *)at, POISON, size);
}

static struct block *find_block(CUdeviceptr at, int mapping) {
	int was = 0;
	for (struct block *b = blocks; b < blocks + block_count; b++)
		if (b->at == at && b->mapping == mapping) {
			if (b->live) return b;
			was = 1;
		}
	complain("%#lx is given back %s", (unsigned long)at, was ? "twice" : "but never was memory");
	return NULL;
}

// Work that is queued on a stream: a copy, or a fill where src is NULL.
static struct work {
	handle stream;
	void *dst;
	const void *src;
	int value;
	size_t n;
} queue[MAX_BLOCKS];
static int queued;

static void enqueue(struct work w) {
	if (queued == MAX_BLOCKS) abort();
	queue[queued++] = w;
}

// run does the work of a stream, or of all of them.
static void run(handle stream, int all) {
	int kept = 0;
	for (int i = 0; i < queued; i++) {
		struct work w = queue[i];
		if (!all && w.stream != stream) queue[kept++] = w;
		else if (w.src) memcpy(w.dst, w.src, w.n);
		else memset(w.dst, w.value, w.n);
	}
	queued = kept;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t n) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (!n) return end(INVALID_VALUE);
	if (n > memory_limit - memory_used) return end(OUT_OF_MEMORY);
	void *p = aligned_alloc(256, (n + 255) / 256 * 256);
	if (!p) return end(OUT_OF_MEMORY);
	memory_used += n;
	add_block(*out = (CUdeviceptr)p, n, 0);
	return end(SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr p) {
	BEGIN_LATE();
	if (lost) return end(lost);
	CHECK_CONTEXT();
	run(0, 1);
	struct block *b = find_block(p, 0);
	if (!b) return end(INVALID_VALUE);
	b->live = 0;
	memory_used -= b->size;
	free((void *)p);
	END_LATE();
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, handle stream) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (!is_memory(dst, n)) return end(INVALID_VALUE);
	enqueue((struct work){stream, (void *)dst, src, 0, n});
	return end(SUCCESS);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, handle stream) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (!is_memory(src, n)) return end(INVALID_VALUE);
	enqueue((struct work){stream, dst, (void *)src, 0, n});
	return end(SUCCESS);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, handle stream) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (!is_memory(dst, n) || !is_memory(src, n)) return end(INVALID_VALUE);
	enqueue((struct work){stream, (void *)dst, (void *)src, 0, n});
	return end(SUCCESS);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, handle stream) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (!is_memory(dst, n)) return end(INVALID_VALUE);
	enqueue((struct work){stream, (void *)dst, NULL, value, n});
	return end(SUCCESS);
}

CUresult cuStreamSynchronize(handle stream) {
	usleep(100); // waiting takes a while, so Go's scheduler turns to others meanwhile
	BEGIN_LATE();
	if (lost) return end(lost);
	CHECK_CONTEXT();
	run(stream, 0);
	END_LATE();
}

static handle captured; // the stream that is, 0: none

CUresult cuStreamIsCapturing(handle stream, int *status) {
	BEGIN_WORK();
	CHECK_CONTEXT();
	if (captured && !stream) return end(906); // STREAM_CAPTURE_IMPLICIT
	*status = captured && captured == stream;
	return end(SUCCESS);
}

CUresult cuCtxSynchronize(void) {
	BEGIN_LATE();
	if (lost) return end(lost);
	CHECK_CONTEXT();
	run(0, 1);
	END_LATE();
}

// ---------------------------------------------------------------- launches

static struct launch {
	char name[64];
	unsigned grid[3], threads[3], shared, size;
	handle stream;
	unsigned char params[MAX_PARAMS];
} last; // the last launch
static int launches;

CUresult cuLaunchKernel(handle h, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, handle stream, void **params, void **extra) {
	BEGIN_WORK();
	FIND_FUNCTION();
	if (!gx || gx > 0x7fffffff || !bx || bx > 1024 || gy != 1 || gz != 1 || by != 1 || bz != 1) return end(INVALID_VALUE);
	if (shared > (unsigned)f->shared) return end(INVALID_VALUE);
	if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return complain("%s: bad parameters", f->name), end(INVALID_VALUE);
	size_t size = *(size_t *)extra[3];
	if (size != f->params || size > MAX_PARAMS) return complain("%s: %zu bytes of parameters, want %u", f->name, size, f->params), end(INVALID_VALUE);
	last = (struct launch){.grid = {gx, gy, gz}, .threads = {bx, by, bz}, .shared = shared, .size = size, .stream = stream};
	memcpy(last.name, f->name, sizeof last.name);
	memcpy(last.params, extra[1], size);
	launches++;
	lost = fault;
	return end(SUCCESS);
}

// ---------------------------------------------------------------- virtual memory

struct property { // CUmemAllocationProp
	int type, handles, location, device;
	void *windows;
	unsigned char flags[8];
};

struct access { // CUmemAccessDesc
	int location, device, flags;
};

static struct reservation {
	CUdeviceptr at;
	size_t size;
	int live;
} reservations[MAX_BLOCKS];
static int reservation_count;

static struct physical {
	size_t size;
	int released, mapped;
} physicals[MAX_BLOCKS];
static int physical_count;

static int good_property(const struct property *p) {
	return p->type == 1 && !p->handles && p->location == 1 && p->device >= 0 && p->device < device_count && !p->windows && !memcmp(p->flags, "\0\0\0\0\0\0\0", 8);
}

static struct physical *find_physical(handle h) {
	if (h < 1 || h > (handle)physical_count || physicals[h - 1].released) return complain("memory that is not there"), NULL;
	return &physicals[h - 1];
}

CUresult cuMemGetAllocationGranularity(size_t *out, const struct property *p, int option) {
	BEGIN_WORK();
	if (!good_property(p) || option) return end(INVALID_VALUE);
	*out = GRANULARITY;
	return end(SUCCESS);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr at, unsigned long long flags) {
	BEGIN_WORK();
	if (!size || size % GRANULARITY || align || at || flags) return end(INVALID_VALUE);
	void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED || reservation_count == MAX_BLOCKS) return end(OUT_OF_MEMORY);
	reservations[reservation_count++] = (struct reservation){*out = (CUdeviceptr)p, size, 1};
	return end(SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr at, size_t size) {
	BEGIN_LATE();
	for (struct block *b = blocks; b < blocks + block_count; b++)
		if (b->live && b->at >= at && b->at < at + size) complain("addresses are freed that are mapped");
	for (struct reservation *r = reservations; r < reservations + reservation_count; r++) {
		if (!r->live || r->at != at || r->size != size) continue;
		r->live = 0;
		munmap((void *)at, size);
		END_LATE();
	}
	complain("addresses are freed that are not reserved");
	return end(INVALID_VALUE);
}

CUresult cuMemCreate(handle *out, size_t size, const struct property *p, unsigned long long flags) {
	BEGIN_WORK();
	if (!size || size % GRANULARITY || !good_property(p) || flags) return end(INVALID_VALUE);
	if (size > memory_limit - memory_used || physical_count == MAX_BLOCKS) return end(OUT_OF_MEMORY);
	physicals[physical_count++] = (struct physical){size, 0, 0};
	*out = physical_count;
	return end(SUCCESS);
}

CUresult cuMemRelease(handle h) {
	BEGIN_LATE();
	struct physical *m = find_physical(h);
	if (!m) return end(INVALID_VALUE);
	m->released = 1;
	END_LATE();
}

CUresult cuMemMap(CUdeviceptr at, size_t size, size_t offset, handle h, unsigned long long flags) {
	BEGIN_WORK();
	struct physical *m = find_physical(h);
	if (!m || offset || flags || size != m->size || m->mapped) return end(INVALID_VALUE);
	for (struct reservation *r = reservations; r < reservations + reservation_count; r++) {
		// Strictly inside: unmapped addresses on both sides are what it is for.
		if (!r->live || at <= r->at || at + size >= r->at + r->size) continue;
		m->mapped = 1;
		mprotect((void *)at, size, PROT_READ | PROT_WRITE);
		add_block(at, size, 1);
		return end(SUCCESS);
	}
	return end(INVALID_VALUE);
}

CUresult cuMemSetAccess(CUdeviceptr at, size_t size, const struct access *a, size_t count) {
	BEGIN_WORK();
	if (count != 1 || a->location != 1 || a->device < 0 || a->device >= device_count || a->flags != 3) return end(INVALID_VALUE);
	struct block *b = find_block(at, 1);
	if (!b || b->size != size) return end(INVALID_VALUE);
	b->live = 1;
	return end(SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr at, size_t size) {
	BEGIN_LATE();
	run(0, 1);
	struct block *b = find_block(at, 1);
	if (!b || b->size != size) return end(INVALID_VALUE);
	b->live = 0;
	mprotect((void *)at, size, PROT_NONE);
	END_LATE();
}

// ---------------------------------------------------------------- for the tests, while no entry runs

// false_fail orders that the nth call of an entry from now on fails.
void false_fail(const char *name, int nth, CUresult code) {
	struct entry *e = find_entry(name);
	e->fail_at = e->calls + nth;
	e->code = code;
}

// false_calls returns how often an entry was called.
int false_calls(const char *name) {
	return find_entry(name)->calls;
}

// The next launch succeeds and its kernel fails; the next module does not compile.
void false_fault(CUresult code) { fault = code; }
void false_jit(const char *log) { snprintf(jit_log, sizeof jit_log, "%s", log); }

// This stream is captured from now on, or none if it is 0.
void false_capture(handle stream) { captured = stream; }

// The version of CUDA, the bytes of a device, the number of devices, what one of them is.
void false_version(int v) { version = v; }
void false_memory(size_t n) { memory_limit = n; }
void false_devices(int n) { device_count = n; }
void false_device(int ordinal, const char *name, int major, int minor) {
	snprintf(devices[ordinal].name, sizeof devices[ordinal].name, "%s", name);
	devices[ordinal].major = major;
	devices[ordinal].minor = minor;
}

// false_push makes a context of somebody else current on this thread.
void false_push(handle context) {
	stack[depth].context = context;
	stack[depth++].foreign = 1;
}

// false_pop undoes false_push. It returns the context that was current, or 0 if there
// were more of them or none.
handle false_pop(void) {
	handle h = depth == 1 && stack[0].foreign ? current() : 0;
	depth = 0;
	return h;
}

// false_launch gives the last launch and returns how many there were.
int false_launch(struct launch *out) {
	*out = last;
	return launches;
}

// false_report returns what went wrong so far and what is not given back, or "".
const char *false_report(void) {
	for (int d = 0; d < device_count; d++)
		if (devices[d].references) complain("the primary context of device %d has %d references", d, devices[d].references);
	for (int i = 0; i < module_count; i++)
		if (modules[i].live) complain("module %d is not unloaded", i);
	for (int i = 0; i < block_count; i++)
		if (blocks[i].live) complain("%zu bytes of memory are not freed", blocks[i].size);
	for (int i = 0; i < reservation_count; i++)
		if (reservations[i].live) complain("%zu addresses are not freed", reservations[i].size);
	for (int i = 0; i < physical_count; i++)
		if (!physicals[i].released) complain("%zu bytes of physical memory are not released", physicals[i].size);
	if (pushed) complain("%d contexts are not popped", pushed);
	return report;
}
