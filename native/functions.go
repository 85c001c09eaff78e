package native

import (
	"slices"

	"github.com/seed621a2839/reweight/scheme"
)

// A Function is a function of reweight.h whose text and options are written there by hand:
//
//	int reweight_NAME(const reweight_workspace *ws, [arguments,] reweight_error *error)
//
// `go generate ./...` writes its declaration. Those of
// OfCatalogue follow from Go alone.
type Function struct {
	C         string   // "token_stats"
	Arguments []string // between the workspace and the error, as C declares them
}

// OfCatalogue returns an entry of the catalogue for each function of reweight.h that Functions does
// not have. Their form is
//
//	int reweight_NAME(ws, float *dst, const reweight_batch *batch, [const options *options,] error)
func OfCatalogue() (all []*scheme.Entry) {
	for _, e := range scheme.Entries() {
		if e.Kind != scheme.Several && !ByHand(e.C) && !slices.ContainsFunc(all, func(other *scheme.Entry) bool {
			return other.C == e.C
		}) {
			all = append(all, e)
		}
	}
	return all
}

// ByHand reports whether Functions has the function of that name.
func ByHand(c string) bool {
	return slices.ContainsFunc(Functions, func(f Function) bool { return f.C == c })
}

// Functions are these functions.
var Functions = []Function{
	{"token_stats", []string{"const reweight_stats *dst", "const reweight_rows *logits", "const reweight_ids *ids", "double temperature"}},
	{"row_gradient", []string{
		"const reweight_rows *dst", "const reweight_rows *logits", "const reweight_ids *ids", "const float *logprobs", "const float *entropy",
		"const float *grad", "const float *grad_entropy", "const float *lse", "const reweight_row_gradient_options *options",
	}},
	{"actfocus", []string{
		"reweight_actfocus_result *result", "float *weights", "const reweight_batch *batch", "const reweight_actfocus_options *options",
	}},
	{"aem", []string{"float *factors", "const reweight_batch *batch", "const reweight_aem_options *options"}},
	{"grpo", []string{"float *advantages", "const reweight_batch *batch", "const reweight_grpo_options *options"}},
	{"gae", []string{
		"float *advantages", "float *returns", "const float *rewards", "const reweight_batch *batch", "const reweight_gae_options *options",
	}},
	{"whiten", []string{"float *dst", "const float *x", "const uint8_t *role", "int64_t tokens"}},
	{"kl_rewards", []string{"float *rewards", "const reweight_batch *batch", "const reweight_kl_rewards_options *options"}},
	{"loss", []string{
		"reweight_loss_result *result", "float *grad", "const float *weights", "const reweight_batch *batch",
		"const reweight_loss_options *options",
	}},
	{"value_loss", []string{
		"reweight_value_loss_result *result", "float *grad", "const reweight_batch *batch", "const reweight_value_loss_options *options",
	}},
	{"masked_moments", []string{
		"reweight_moments *result", "const float *x", "const uint8_t *role", "int64_t n", "uint32_t roles", "double shift",
	}},
	{"actfocus_weights", []string{
		"float *dst", "const float *signal", "const uint8_t *role", "int64_t n", "double mean", "double sigma",
		"const reweight_actfocus_options *options",
	}},
	{"span_means", []string{"float *dst", "int64_t spans", "const float *x", "int64_t n", "const int32_t *offsets"}},
	{"min_max", []string{"float *lo", "float *hi", "int64_t groups", "const float *x", "int64_t n", "const int32_t *offsets"}},
	{"exp_scale", []string{"float *dst", "const float *x", "int64_t n", "float lo", "double rate"}},
	{"multiply", []string{"float *dst", "const float *a", "const float *b", "int64_t n"}},
	{"surrogate", []string{
		"reweight_surrogate_sums *result", "float *grad", "const float *logprobs", "const float *old_logprobs", "const float *advantages",
		"const float *weights", "const uint8_t *role", "int64_t n", "double scale", "const reweight_loss_options *options",
	}},
}
