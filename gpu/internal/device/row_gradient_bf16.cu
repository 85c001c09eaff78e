#include "row_gradient.cuh"

ROW_KERNEL void row_gradient_bf16(RowGradient p) { rowGradient<BF16, false>(p); }
ROW_KERNEL void row_gradient_bf16_tempered(RowGradient p) { rowGradient<BF16, true>(p); }
