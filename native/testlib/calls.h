/* How Go calls the library: a function for each of reweight.h, through the address that
 * dlsym has for it. Structs are passed by value and have an address here only, so that no
 * Go memory that C sees holds a Go pointer. */
#include <dlfcn.h>
#include <stdlib.h>
#include "reweight.h"

#define FUNCTIONS(f) \
	f(scratch_size) f(version) f(has_isa) f(best_isa) f(isa_name) \
	f(token_stats) f(row_gradient) \
	f(actfocus) f(aem) f(grpo) f(gae) f(whiten) f(kl_rewards) f(loss) f(value_loss) \
	f(masked_moments) f(actfocus_weights) f(span_means) f(min_max) f(exp_scale) f(multiply) f(surrogate)

#define FIELD(name) __typeof__(reweight_##name) *name;

typedef struct library {
	void *handle;
	FUNCTIONS(FIELD)
} library;

/* Loads the library at path and looks its functions up. Returns what is wrong, or NULL. */
static inline const char *library_open(library *l, const char *path) {
	void *handle = l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL)
		return dlerror();
#define LOOK_UP(name) \
	if ((*(void **)&l->name = dlsym(handle, "reweight_" #name)) == NULL) \
		return dlerror();
	FUNCTIONS(LOOK_UP)
	return NULL;
}

static inline int64_t call_scratch_size(const library *l, int64_t tokens, int64_t trajectories, int64_t spans) {
	return l->scratch_size(tokens, trajectories, spans);
}

static inline const char *call_version(const library *l) {
	return l->version();
}

static inline int32_t call_has_isa(const library *l, int32_t isa) {
	return l->has_isa(isa);
}

static inline int32_t call_best_isa(const library *l) {
	return l->best_isa();
}

static inline const char *call_isa_name(const library *l, int32_t isa) {
	return l->isa_name(isa);
}

/* Leaves 1 in all of XMM15, which is 0 wherever Go calls the kernels, but not where C does. */
static inline void leave_junk(void) {
#ifdef __x86_64__
	__asm__ volatile("pcmpeqd %%xmm15, %%xmm15; psrld $25, %%xmm15; pslld $23, %%xmm15" ::: "xmm15");
#endif
}

/* data NULL stands for an argument that is NULL itself, here and below. */
static inline int call_token_stats(const library *l, reweight_workspace ws, reweight_stats dst,
                                   reweight_rows logits, reweight_ids ids, double temperature, reweight_error *e) {
	return l->token_stats(&ws, &dst, &logits, ids.data ? &ids : NULL, temperature, e);
}

static inline int call_row_gradient(const library *l, reweight_workspace ws, reweight_rows dst,
                                    reweight_rows logits, reweight_ids ids, const float *logprobs,
                                    const float *entropy, const float *grad, const float *grad_entropy,
                                    const float *lse, reweight_row_gradient_options opt, reweight_error *e) {
	return l->row_gradient(&ws, &dst, &logits, &ids, logprobs, entropy, grad, grad_entropy, lse, &opt, e);
}

static inline int call_actfocus(const library *l, reweight_workspace ws, reweight_actfocus_result *result,
                                float *weights, reweight_batch batch, reweight_actfocus_options opt,
                                reweight_error *e) {
	return l->actfocus(&ws, result, weights, &batch, &opt, e);
}

static inline int call_aem(const library *l, reweight_workspace ws, float *factors, reweight_batch batch,
                           reweight_aem_options opt, reweight_error *e) {
	return l->aem(&ws, factors, &batch, &opt, e);
}

static inline int call_grpo(const library *l, reweight_workspace ws, float *advantages, reweight_batch batch,
                            reweight_grpo_options opt, reweight_error *e) {
	return l->grpo(&ws, advantages, &batch, &opt, e);
}

static inline int call_gae(const library *l, reweight_workspace ws, float *advantages, float *returns,
                           const float *rewards, reweight_batch batch, reweight_gae_options opt,
                           reweight_error *e) {
	return l->gae(&ws, advantages, returns, rewards, &batch, &opt, e);
}

static inline int call_whiten(const library *l, reweight_workspace ws, float *dst, const float *x,
                              const uint8_t *role, int64_t tokens, reweight_error *e) {
	return l->whiten(&ws, dst, x, role, tokens, e);
}

static inline int call_kl_rewards(const library *l, reweight_workspace ws, float *rewards, reweight_batch batch,
                                  reweight_kl_rewards_options opt, reweight_error *e) {
	return l->kl_rewards(&ws, rewards, &batch, &opt, e);
}

static inline int call_value_loss(const library *l, reweight_workspace ws, reweight_value_loss_result *result,
                                  float *grad, reweight_batch batch, reweight_value_loss_options opt,
                                  reweight_error *e) {
	return l->value_loss(&ws, result, grad, &batch, &opt, e);
}

static inline int call_loss(const library *l, reweight_workspace ws, reweight_loss_result *result, float *grad,
                            const float *weights, reweight_batch batch, reweight_loss_options opt,
                            reweight_error *e) {
	return l->loss(&ws, result, grad, weights, &batch, &opt, e);
}

static inline int call_masked_moments(const library *l, reweight_workspace ws, reweight_moments *result,
                                      const float *x, const uint8_t *role, int64_t n, uint32_t roles, double shift,
                                      reweight_error *e) {
	leave_junk();
	return l->masked_moments(&ws, result, x, role, n, roles, shift, e);
}

static inline int call_actfocus_weights(const library *l, reweight_workspace ws, float *dst, const float *signal,
                                        const uint8_t *role, int64_t n, double mean, double sigma,
                                        reweight_actfocus_options opt, reweight_error *e) {
	return l->actfocus_weights(&ws, dst, signal, role, n, mean, sigma, &opt, e);
}

static inline int call_span_means(const library *l, reweight_workspace ws, float *dst, int64_t spans,
                                  const float *x, int64_t n, const int32_t *offsets, reweight_error *e) {
	leave_junk();
	return l->span_means(&ws, dst, spans, x, n, offsets, e);
}

static inline int call_min_max(const library *l, reweight_workspace ws, float *lo, float *hi, int64_t groups,
                               const float *x, int64_t n, const int32_t *offsets, reweight_error *e) {
	leave_junk();
	return l->min_max(&ws, lo, hi, groups, x, n, offsets, e);
}

static inline int call_exp_scale(const library *l, reweight_workspace ws, float *dst, const float *x, int64_t n,
                                 float lo, double rate, reweight_error *e) {
	leave_junk();
	return l->exp_scale(&ws, dst, x, n, lo, rate, e);
}

static inline int call_multiply(const library *l, reweight_workspace ws, float *dst, const float *a, const float *b,
                                int64_t n, reweight_error *e) {
	leave_junk();
	return l->multiply(&ws, dst, a, b, n, e);
}

static inline int call_surrogate(const library *l, reweight_workspace ws, reweight_surrogate_sums *result,
                                 float *grad, const float *logprobs, const float *old_logprobs,
                                 const float *advantages, const float *weights, const uint8_t *role, int64_t n,
                                 double scale, reweight_loss_options opt, reweight_error *e) {
	leave_junk();
	return l->surrogate(&ws, result, grad, logprobs, old_logprobs, advantages, weights, role, n, scale, &opt, e);
}

/* Calls the scheme of that name, whose options are at opt, NULL for none. */
static inline int call_scheme(const library *l, const char *name, reweight_workspace ws, float *dst,
                              reweight_batch batch, const void *opt, reweight_error *e) {
	void *f = dlsym(l->handle, name);
	if (f == NULL) abort();
	if (opt == NULL)
		return ((int (*)(const reweight_workspace *, float *, const reweight_batch *, reweight_error *))f)(&ws, dst, &batch, e);
	return ((int (*)(const reweight_workspace *, float *, const reweight_batch *, const void *, reweight_error *))f)(
		&ws, dst, &batch, opt, e);
}
