//go:build cgo && linux

package native

// #include "reweight.h"
import "C"

import "reflect"

// Structs returns the structs of reweight.h, as the C compiler lays them out; none without
// cgo. The file is in the folder of the header so that Go compiles it again when that changes.
func Structs() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[C.reweight_error](),
		reflect.TypeFor[C.reweight_workspace](),
		reflect.TypeFor[C.reweight_rows](),
		reflect.TypeFor[C.reweight_ids](),
		reflect.TypeFor[C.reweight_stats](),
		reflect.TypeFor[C.reweight_row_gradient_options](),
		reflect.TypeFor[C.reweight_batch](),
		reflect.TypeFor[C.reweight_actfocus_options](),
		reflect.TypeFor[C.reweight_actfocus_result](),
		reflect.TypeFor[C.reweight_aem_options](),
		reflect.TypeFor[C.reweight_grpo_options](),
		reflect.TypeFor[C.reweight_gae_options](),
		reflect.TypeFor[C.reweight_kl_rewards_options](),
		reflect.TypeFor[C.reweight_loss_options](),
		reflect.TypeFor[C.reweight_loss_result](),
		reflect.TypeFor[C.reweight_value_loss_options](),
		reflect.TypeFor[C.reweight_value_loss_result](),
		reflect.TypeFor[C.reweight_moments](),
		reflect.TypeFor[C.reweight_surrogate_sums](),
	}
}
