//! Ops through which no gradient flows though their results are floats, and those that have no derivative.

use crate::derivative::Derivative;

const STEPS: &str = "constant between its steps";
const FORM: &str = "only the shape and type of its argument count";
const CUT: &str = "made to hold gradients back";
const WHOLE: &str = "its results are whole numbers or truth values";
const COUNTS: &str = "it counts elements";
const BITS: &str = "it reads the bits of elements";
const EQUAL: &str = "elements that are equal give one result";
const UNKNOWN: &str = "torch has no derivative of it";
const LEVELS: &str = "gradients do not pass through integer levels; take them of the float model";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::zero("aten.floor.default", STEPS),
    Derivative::zero("aten.ceil.default", STEPS),
    Derivative::zero("aten.round.default", STEPS),
    Derivative::zero("aten.round.decimals", STEPS),
    Derivative::zero("aten.trunc.default", STEPS),
    Derivative::zero("aten.sign.default", STEPS),
    Derivative::zero("aten.sgn.default", STEPS),
    Derivative::zero("aten.floor_divide.default", STEPS),
    Derivative::zero("aten.full_like.default", FORM),
    Derivative::zero("aten.empty_like.default", FORM),
    Derivative::zero("aten.new_empty.default", FORM),
    Derivative::zero("aten.detach.default", CUT),
    Derivative::zero("aten.argmax.default", WHOLE),
    Derivative::zero("aten.argmin.default", WHOLE),
    Derivative::zero("aten.any.dim", WHOLE),
    Derivative::zero("aten.all.dim", WHOLE),
    Derivative::zero("aten.searchsorted.Tensor", WHOLE),
    Derivative::zero("onnx.NonMaxSuppression", WHOLE),
    Derivative::zero("prims.bitwise_not.default", WHOLE),
    Derivative::zero("prims.bitwise_and.default", WHOLE),
    Derivative::zero("prims.bitwise_or.default", WHOLE),
    Derivative::zero("prims.bitwise_xor.default", WHOLE),
    Derivative::zero("prims.gcd.default", WHOLE),
    Derivative::zero("prims.shift_left.default", WHOLE),
    Derivative::zero("prims.shift_right_arithmetic.default", WHOLE),
    Derivative::zero("prims.signbit.default", WHOLE),
    Derivative::zero("prims.isfinite.default", WHOLE),
    Derivative::zero("prims.eq.default", WHOLE),
    Derivative::zero("prims.ge.default", WHOLE),
    Derivative::zero("prims.gt.default", WHOLE),
    Derivative::zero("prims.le.default", WHOLE),
    Derivative::zero("prims.lt.default", WHOLE),
    Derivative::zero("prims.ne.default", WHOLE),
    Derivative::zero("prims.item.default", WHOLE),
    Derivative::zero("prims.xor_sum.default", WHOLE),
    Derivative::refused("aten.histc.default", COUNTS),
    Derivative::refused("aten.histogram.bin_ct", COUNTS),
    Derivative::refused("aten.histogram.bins_tensor", COUNTS),
    Derivative::refused("aten.histogramdd.TensorList_bins", COUNTS),
    Derivative::refused("aten._histogramdd_from_bin_cts.default", COUNTS),
    Derivative::refused("aten._histogramdd_bin_edges.default", COUNTS),
    Derivative::refused("aten.special_zeta.other_scalar", "there is no derivative of zeta by its first argument"),
    Derivative::refused("aten.special_airy_ai.default", UNKNOWN),
    Derivative::refused("aten._unique2.default", EQUAL),
    Derivative::refused("aten.unique_dim.default", EQUAL),
    Derivative::refused("aten.unique_consecutive.default", EQUAL),
    Derivative::refused("aten.unique_dim_consecutive.default", EQUAL),
    Derivative::refused("quantized_decomposed.quantize_per_tensor.default", LEVELS),
    Derivative::refused("quantized_decomposed.quantize_per_channel.default", LEVELS),
    Derivative::refused("quantized_decomposed.dequantize_per_tensor.default", LEVELS),
    Derivative::refused("quantized_decomposed.dequantize_per_channel.default", LEVELS),
    Derivative::refused("quantized_decomposed.quantize_per_tensor.tensor", LEVELS),
    Derivative::refused("quantized_decomposed.quantize_per_tensor.tensor2", LEVELS),
    Derivative::refused("quantized_decomposed.dequantize_per_tensor.tensor", LEVELS),
    Derivative::refused("quantized_decomposed.dequantize_per_tensor.tensor2", LEVELS),
    Derivative::refused("quantized_decomposed.choose_qparams.tensor", LEVELS),
    Derivative::refused("quantized_decomposed.choose_qparams_symmetric.tensor", LEVELS),
    Derivative::zero("aten.detach_copy.default", CUT),
    Derivative::zero("aten.nonzero.default", WHOLE),
    Derivative::zero("aten.nonzero_static.default", WHOLE),
    Derivative::zero("aten._local_scalar_dense.default", WHOLE),
    Derivative::zero("aten.repeat_interleave.Tensor", WHOLE),
    Derivative::zero("aten.sym_storage_offset.default", WHOLE),
    Derivative::refused("aten.view.dtype", BITS),
];

/// The three overloads of each orthogonal polynomial.
macro_rules! polynomials {
    ($($name:literal),* $(,)?) => {
        pub(super) static POLYNOMIALS: &[Derivative] = &[$(
            Derivative::refused(concat!("aten.special_", $name, ".default"), UNKNOWN),
            Derivative::refused(concat!("aten.special_", $name, ".x_scalar"), UNKNOWN),
            Derivative::refused(concat!("aten.special_", $name, ".n_scalar"), UNKNOWN),
        )*];
    };
}

polynomials! {
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
}
