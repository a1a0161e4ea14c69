//! The rules of raising, by theme. To add one, write its `RuleDef` and name it in the list.

mod attention;
mod bounds;
mod channels;
mod convolution;
mod core_forms;
mod gates;
mod gelu;
mod halves;
mod integer;
mod linear;
mod neutral;
mod norm;
mod reductions;

use super::RuleDef;

/// All rules, in the order in which they are tried.
pub static RULES: &[&RuleDef] = &[
    &neutral::TIMES_ONE,
    &neutral::PLUS_ZERO,
    &neutral::SAME_SIZES,
    &neutral::SAME_STRIDES,
    &bounds::RELU,
    &bounds::CLAMP_OF_RELU,
    &bounds::RELU_OF_CLAMP,
    &bounds::CLAMP_OF_CLAMP,
    &bounds::HARDTANH,
    &gates::HARDSIGMOID,
    &gates::HARDSWISH,
    &gates::SILU,
    &gelu::GELU,
    &gelu::GELU_TANH,
    &core_forms::CONV,
    &core_forms::BATCH_NORM,
    &core_forms::LAYER_NORM,
    &core_forms::MAX_POOL,
    &core_forms::AVG_POOL,
    &core_forms::GLOBAL_POOL,
    &core_forms::GLOBAL_POOL3D,
    &core_forms::SOFTMAX,
    &core_forms::LOG_SOFTMAX,
    &reductions::MEAN,
    &reductions::SOFTMAX,
    &reductions::LOG_SOFTMAX,
    &channels::GROUPS,
    &channels::GROUP_SCALE,
    &channels::GROUP_SHIFT,
    &channels::AFFINE,
    &norm::LAYER_NORM_MOMENTS,
    &norm::LAYER_NORM_SPELLED,
    &norm::LAYER_NORM_SCALE,
    &norm::LAYER_NORM_SHIFT,
    &norm::LAYER_NORM_VIEWS,
    &norm::RMS_NORM_SPELLED,
    &norm::RMS_NORM_SCALE,
    &attention::ATTENTION,
    &integer::LINEAR,
    &integer::CONV,
    &linear::MM,
    &linear::ADDMM,
    &linear::MATMUL,
    &linear::MATMUL_LEVELS,
    &halves::TRANSPOSED,
    &halves::PRODUCT,
    &halves::SUM,
    &linear::BIAS,
    &linear::VIEWS,
    &convolution::SCALE,
    &convolution::SHIFT,
];
