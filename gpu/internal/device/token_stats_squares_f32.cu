#include "token_stats.cuh"

ROW_KERNEL void token_stats_squares_f32(TokenStats p) { tokenStats<F32, false, true>(p); }
ROW_KERNEL void token_stats_squares_f32_tempered(TokenStats p) { tokenStats<F32, true, true>(p); }
