#include "token_stats.cuh"

ROW_KERNEL void token_stats_squares_bf16(TokenStats p) { tokenStats<BF16, false, true>(p); }
ROW_KERNEL void token_stats_squares_bf16_tempered(TokenStats p) { tokenStats<BF16, true, true>(p); }
