#include "token_stats.cuh"

ROW_KERNEL void token_stats_bf16(TokenStats p) { tokenStats<BF16, false, false>(p); }
ROW_KERNEL void token_stats_bf16_tempered(TokenStats p) { tokenStats<BF16, true, false>(p); }
