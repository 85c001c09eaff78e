#include "token_stats.cuh"

ROW_KERNEL void token_stats_f32(TokenStats p) { tokenStats<F32, false, false>(p); }
ROW_KERNEL void token_stats_f32_tempered(TokenStats p) { tokenStats<F32, true, false>(p); }
