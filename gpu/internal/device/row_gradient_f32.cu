#include "row_gradient.cuh"

ROW_KERNEL void row_gradient_f32(RowGradient p) { rowGradient<F32, false>(p); }
ROW_KERNEL void row_gradient_f32_tempered(RowGradient p) { rowGradient<F32, true>(p); }
