#include "token_stats.cuh"

ROW_KERNEL void token_stats_f16(TokenStats p) { tokenStats<F16, false, false>(p); }
ROW_KERNEL void token_stats_f16_tempered(TokenStats p) { tokenStats<F16, true, false>(p); }
