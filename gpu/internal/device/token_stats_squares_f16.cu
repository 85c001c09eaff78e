#include "token_stats.cuh"

ROW_KERNEL void token_stats_squares_f16(TokenStats p) { tokenStats<F16, false, true>(p); }
ROW_KERNEL void token_stats_squares_f16_tempered(TokenStats p) { tokenStats<F16, true, true>(p); }
