//! Calls beside torch 2.15's own results. Numbers in inputs are `(i mod 7) - 3`, cast to the type; truth values
//! hold at every third place.

use crate::reference::run;
use cleave_ir::{Meta, Tensor, text};

/// (types and shapes of %x, %w and %b; call; type and shape of each result, and its elements)
type Recorded = (&'static str, &'static str, &'static [(&'static str, &'static [f64])]);

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

#[allow(clippy::approx_constant, reason = "recorded to six digits")]
#[rustfmt::skip]
const CASES: &[Recorded] = &[
    ("f32[2,3] f32[3]", "aten.remainder.Tensor(%x, %w)", &[("f32[2, 3]", &[0.0, 0.0, 0.0, 0.0, -1.0, 0.0])]),
    ("f32[7]", "aten.remainder.Scalar(%x, -2)", &[("f32[7]", &[-1.0, 0.0, -1.0, 0.0, -1.0, 0.0, -1.0])]),
    ("i64[7]", "aten.remainder.Scalar(%x, -2)", &[("i64[7]", &[-1.0, 0.0, -1.0, 0.0, -1.0, 0.0, -1.0])]),
    ("f32[7]", "aten.fmod.Scalar(%x, 2)", &[("f32[7]", &[-1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.0])]),
    ("i64[7]", "aten.fmod.Scalar(%x, 2)", &[("i64[7]", &[-1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.0])]),
    ("f32[7]", "aten.div.Tensor_mode(%x, 2, \"floor\")", &[("f32[7]", &[-2.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0])]),
    ("f32[7]", "aten.div.Tensor_mode(%x, -2, \"trunc\")", &[("f32[7]", &[1.0, 1.0, 0.0, 0.0, 0.0, -1.0, -1.0])]),
    ("i64[7]", "aten.div.Tensor_mode(%x, 2, \"floor\")", &[("i64[7]", &[-2.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0])]),
    ("i64[7]", "aten.div.Tensor_mode(%x, 2, \"trunc\")", &[("i64[7]", &[-1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0])]),
    ("i64[7]", "aten.div.Tensor_mode(%x, 2, none)", &[("f32[7]", &[-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5])]),
    ("f32[7]", "aten.div.Tensor_mode(%x, 0.0, \"floor\")", &[("f32[7]", &[-INF, -INF, -INF, NAN, INF, INF, INF])]),
    ("f32[7]", "aten.div.Scalar(%x, 0.3)", &[("f32[7]", &[-10.0, -6.666667, -3.333333, 0.0, 3.333333, 6.666667, 10.0])]),
    ("f32[7]", "aten.add.Scalar(%x, 2, 0.5)", &[("f32[7]", &[-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0])]),
    ("i64[7]", "aten.sub.Scalar(%x, 2, 3)", &[("i64[7]", &[-9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0])]),
    ("u8[7]", "aten.mul.Scalar(%x, 3)", &[("u8[7]", &[247.0, 250.0, 253.0, 0.0, 3.0, 6.0, 9.0])]),
    ("f32[7]", "aten.pow.Tensor_Scalar(%x, 0.5)", &[("f32[7]", &[NAN, NAN, NAN, 0.0, 1.0, 1.414214, 1.732051])]),
    ("i64[7]", "aten.pow.Tensor_Scalar(%x, 3)", &[("i64[7]", &[-27.0, -8.0, -1.0, 0.0, 1.0, 8.0, 27.0])]),
    ("i64[7] i64[7]", "aten.pow.Tensor_Tensor(%x, %w)", &[("i64[7]", &[0.0, 0.0, -1.0, 1.0, 1.0, 4.0, 27.0])]),
    ("f32[7]", "aten.pow.Scalar(2, %x)", &[("f32[7]", &[0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0])]),
    ("f32[7] f32[1]", "aten.atan2(%x, %w)", &[("f32[7]", &[-2.356194, -2.55359, -2.819842, 3.141593, 2.819842, 2.55359, 2.356194])]),
    ("f32[2,3] f32[3]", "aten.eq.Tensor(%x, %w)", &[("bool[2, 3]", &[1.0, 1.0, 1.0, 0.0, 0.0, 0.0])]),
    ("f32[7]", "aten.ne.Scalar(%x, 1)", &[("bool[7]", &[1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0])]),
    ("i64[7]", "aten.lt.Scalar(%x, 0.5)", &[("bool[7]", &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])]),
    ("i64[7] f32[7]", "aten.le.Tensor(%x, %w)", &[("bool[7]", &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])]),
    ("f32[7]", "aten.gt.Scalar(%x, 0)", &[("bool[7]", &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0])]),
    ("bool[4] bool[1]", "aten.ge.Tensor(%x, %w)", &[("bool[4]", &[1.0, 0.0, 0.0, 1.0])]),
    ("f32[7] bool[7]", "aten.logical_and(%x, %w)", &[("bool[7]", &[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])]),
    ("f32[7] bool[7]", "aten.logical_or(%x, %w)", &[("bool[7]", &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])]),
    ("f32[7] bool[7]", "aten.logical_xor(%x, %w)", &[("bool[7]", &[0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])]),
    ("i64[7] i64[1]", "aten.bitwise_and.Tensor(%x, %w)", &[("i64[7]", &[-3.0, -4.0, -3.0, 0.0, 1.0, 0.0, 1.0])]),
    ("i64[7] bool[7]", "aten.bitwise_or.Tensor(%x, %w)", &[("i64[7]", &[-3.0, -2.0, -1.0, 1.0, 1.0, 2.0, 3.0])]),
    ("u8[7] i8[7]", "aten.bitwise_xor.Tensor(%x, %w)", &[("i16[7]", &[-256.0, -256.0, -256.0, 0.0, 0.0, 0.0, 0.0])]),
    ("bool[2,1] f32[3] i64[2,1]", "aten.where.self(%x, %w, %b)", &[("f32[2, 3]", &[-3.0, -2.0, -1.0, -2.0, -2.0, -2.0])]),
    ("bool[4]", "aten.bitwise_not(%x)", &[("bool[4]", &[0.0, 1.0, 1.0, 0.0])]),
    ("u8[4]", "aten.bitwise_not(%x)", &[("u8[4]", &[2.0, 1.0, 0.0, 255.0])]),
    ("i64[4]", "aten.logical_not(%x)", &[("bool[4]", &[0.0, 0.0, 0.0, 1.0])]),
    ("f32[7]", "aten.trunc(%x)", &[("f32[7]", &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])]),
    ("f32[7]", "aten.sign(%x)", &[("f32[7]", &[-1.0, -1.0, -1.0, 0.0, 1.0, 1.0, 1.0])]),
    ("f32[3]", "aten.expm1(%x)", &[("f32[3]", &[-0.950213, -0.864665, -0.632121])]),
    ("i64[7]", "aten.log1p(%x)", &[("f32[7]", &[NAN, NAN, -INF, 0.0, 0.693147, 1.098612, 1.386294])]),
    ("f32[7]", "aten.log2(%x)", &[("f32[7]", &[NAN, NAN, NAN, -INF, 0.0, 1.0, 1.584962])]),
    ("f32[7]", "aten.log10(%x)", &[("f32[7]", &[NAN, NAN, NAN, -INF, 0.0, 0.30103, 0.477121])]),
    ("f32[7]", "aten.sin(%x)", &[("f32[7]", &[-0.14112, -0.909297, -0.841471, 0.0, 0.841471, 0.909297, 0.14112])]),
    ("i64[7]", "aten.cos(%x)", &[("f32[7]", &[-0.989992, -0.416147, 0.540302, 1.0, 0.540302, -0.416147, -0.989992])]),
    ("f32[7]", "aten.tan(%x)", &[("f32[7]", &[0.142547, 2.18504, -1.557408, 0.0, 1.557408, -2.18504, -0.142547])]),
    ("f32[7]", "aten.asin(%x)", &[("f32[7]", &[NAN, NAN, -1.570796, 0.0, 1.570796, NAN, NAN])]),
    ("f32[7]", "aten.acos(%x)", &[("f32[7]", &[NAN, NAN, 3.141593, 1.570796, 0.0, NAN, NAN])]),
    ("f32[7]", "aten.atan(%x)", &[("f32[7]", &[-1.249046, -1.107149, -0.785398, 0.0, 0.785398, 1.107149, 1.249046])]),
    ("f32[7]", "aten.sinh(%x)", &[("f32[7]", &[-10.017875, -3.62686, -1.175201, 0.0, 1.175201, 3.62686, 10.017875])]),
    ("f32[7]", "aten.cosh(%x)", &[("f32[7]", &[10.067662, 3.762196, 1.543081, 1.0, 1.543081, 3.762196, 10.067662])]),
    ("f32[7]", "aten.asinh(%x)", &[("f32[7]", &[-1.818447, -1.443635, -0.881374, 0.0, 0.881374, 1.443635, 1.818447])]),
    ("f32[7]", "aten.acosh(%x)", &[("f32[7]", &[NAN, NAN, NAN, NAN, 0.0, 1.316958, 1.762747])]),
    ("f32[7]", "aten.atanh(%x)", &[("f32[7]", &[NAN, NAN, -INF, 0.0, INF, NAN, NAN])]),
    ("f32[7]", "aten.rsqrt(%x)", &[("f32[7]", &[NAN, NAN, NAN, INF, 1.0, 0.707107, 0.57735])]),
    ("i64[7]", "aten.neg(%x)", &[("i64[7]", &[3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0])]),
    ("", "aten.arange.start_step(1, 8, 3)", &[("i64[3]", &[1.0, 4.0, 7.0])]),
    ("", "aten.arange.start_step(5, -4, -2, f32)", &[("f32[5]", &[5.0, 3.0, 1.0, -1.0, -3.0])]),
    ("", "aten.arange.start_step(0.5, 2.0, 0.25)", &[("f32[6]", &[0.5, 0.75, 1.0, 1.25, 1.5, 1.75])]),
    ("", "aten.full([2, 2], 1.5)", &[("f32[2, 2]", &[1.5, 1.5, 1.5, 1.5])]),
    ("", "aten.full([3], true)", &[("bool[3]", &[1.0, 1.0, 1.0])]),
    ("", "aten.scalar_tensor(3, i64)", &[("i64[]", &[3.0])]),
    ("u8[2,2]", "aten.full_like(%x, -1)", &[("u8[2, 2]", &[255.0, 255.0, 255.0, 255.0])]),
    ("f32[2,3] i64[3]", "aten.copy(%x, %w)", &[("f32[2, 3]", &[-3.0, -2.0, -1.0, -3.0, -2.0, -1.0])]),
    ("f32[7]", "aten._to_copy(%x, u8)", &[("u8[7]", &[253.0, 254.0, 255.0, 0.0, 1.0, 2.0, 3.0])]),
    ("i64[7]", "aten._to_copy(%x, bool)", &[("bool[7]", &[1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0])]),
    ("f32[2,5,4] i64[2,1] i64[2]", "aten.index.Tensor(%x, [none, %w, %b])", &[("f32[2, 2, 2]", &[-1.0, 0.0, 3.0, -3.0, -2.0, -1.0, 2.0, 3.0])]),
    ("f32[3,4,3] i64[2] i64[2]", "aten.index.Tensor(%x, [%w, none, %b])", &[("f32[2, 4]", &[-3.0, 0.0, 3.0, -1.0, 3.0, -1.0, 2.0, -2.0])]),
    ("f32[5,2] i64[3]", "aten.index.Tensor(%x, [%w])", &[("f32[3, 2]", &[1.0, 2.0, 3.0, -3.0, -2.0, -1.0])]),
    ("f32[2,3,2]", "aten.select.int(%x, 1, -1)", &[("f32[2, 2]", &[1.0, 2.0, 0.0, 1.0])]),
    ("f32[4,2] f32[2,2]", "aten.slice_scatter(%x, %w, 0, 1, -1)", &[("f32[4, 2]", &[-3.0, -2.0, -3.0, -2.0, -1.0, 0.0, 3.0, -3.0])]),
    ("f32[4,2] f32[2,2]", "aten.slice_scatter(%x, %w, 0, 0, 4, 2)", &[("f32[4, 2]", &[-3.0, -2.0, -1.0, 0.0, -1.0, 0.0, 3.0, -3.0])]),
    ("f32[4,2] f32[4]", "aten.select_scatter(%x, %w, 1, -1)", &[("f32[4, 2]", &[-3.0, -3.0, -1.0, -2.0, 1.0, -1.0, 3.0, 0.0])]),
    ("f32[3,4]", "aten.as_strided(%x, [2, 3], [1, 4], 1)", &[("f32[2, 3]", &[-2.0, 2.0, -1.0, -1.0, 3.0, 0.0])]),
    ("f32[2,4]", "aten.cumsum(%x, 1)", &[("f32[2, 4]", &[-3.0, -5.0, -6.0, -6.0, 1.0, 3.0, 6.0, 3.0])]),
    ("bool[5]", "aten.cumsum(%x, 0)", &[("i64[5]", &[1.0, 1.0, 1.0, 2.0, 2.0])]),
    ("f32[2,5]", "aten.topk(%x, 2)", &[("f32[2, 2]", &[1.0, 0.0, 3.0, 2.0]), ("i64[2, 2]", &[4.0, 3.0, 1.0, 0.0])]),
    ("i64[5,2]", "aten.topk(%x, 2, 0, false)", &[("i64[2, 2]", &[-3.0, -3.0, -2.0, -2.0]), ("i64[2, 2]", &[0.0, 3.0, 4.0, 0.0])]),
    ("f32[1,1,3,3]", "aten.reflection_pad2d(%x, [1, 2, 0, 1])", &[("f32[1, 1, 4, 6]", &[-2.0, -3.0, -2.0, -1.0, -2.0, -3.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0, -3.0, 3.0, -3.0, -2.0, -3.0, 3.0, 1.0, 0.0, 1.0, 2.0, 1.0, 0.0])]),
    ("f32[1,2,3]", "aten.replication_pad2d(%x, [2, -1, 1, 0])", &[("f32[1, 3, 4]", &[-3.0, -3.0, -3.0, -2.0, -3.0, -3.0, -3.0, -2.0, 0.0, 0.0, 0.0, 1.0])]),
    ("f32[2,3]", "aten.constant_pad_nd(%x, [1, -1, 1, 0], 9.5)", &[("f32[3, 3]", &[9.5, 9.5, 9.5, 9.5, -3.0, -2.0, 9.5, 0.0, 1.0])]),
    ("i64[2,3]", "aten.constant_pad_nd(%x, [0, 1], 4)", &[("i64[2, 4]", &[-3.0, -2.0, -1.0, 4.0, 0.0, 1.0, 2.0, 4.0])]),
    ("f32[2,3]", "aten.repeat(%x, [2, 1, 2])", &[("f32[2, 2, 6]", &[-3.0, -2.0, -1.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0, -3.0, -2.0, -1.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 0.0, 1.0, 2.0])]),
    ("i64[2,3]", "aten.flip(%x, [0, -1])", &[("i64[2, 3]", &[2.0, 1.0, 0.0, -1.0, -2.0, -3.0])]),
    ("f32[1,1,2,3]", "aten._upsample_nearest_exact2d.vec(%x, [3, 4], none)", &[("f32[1, 1, 3, 4]", &[-3.0, -2.0, -2.0, -1.0, 0.0, 1.0, 1.0, 2.0, 0.0, 1.0, 1.0, 2.0])]),
    ("f32[1,1,2,3]", "aten.upsample_bicubic2d.vec(%x, [3, 4], false, none)", &[("f32[1, 1, 3, 4]", &[-3.332195, -2.730632, -1.790202, -1.18864, -1.571777, -0.970215, -0.029785, 0.571777, 0.188639, 0.790201, 1.730631, 2.332194])]),
    ("f32[1,1,2,3]", "aten.upsample_bicubic2d.vec(%x, [4, 2], true, none)", &[("f32[1, 1, 4, 2]", &[-3.0, -1.0, -2.055555, -0.055556, -0.944445, 1.055555, 0.0, 2.0])]),
    ("f32[1,1,2,2]", "aten.upsample_bicubic2d.vec(%x, none, false, [1.5, 2.0])", &[("f32[1, 1, 3, 4]", &[-3.27908, -2.947049, -2.400174, -2.068143, -2.105469, -1.773438, -1.226562, -0.894531, -0.931858, -0.599827, -0.052952, 0.279079])]),
    ("f32[2,3] f32[3] f32[3]", "aten.native_layer_norm(%x, [3], %w, %b, 1e-05)", &[("f32[2, 3]", &[0.674207, -2.0, -2.224736, 0.674207, -2.0, -2.224736]), ("f32[2, 1]", &[-2.0, 1.0]), ("f32[2, 1]", &[1.224736, 1.224736])]),
    ("f32[1,4,2] f32[4] f32[4]", "aten.native_group_norm(%x, %w, %b, 1, 4, 2, 2, 1e-05)", &[("f32[1, 4, 2]", &[1.024907, -1.658364, -2.894424, -4.683271, -1.109764, -1.548821, 0.0, 0.0]), ("f32[1, 2]", &[-1.5, 0.75]), ("f32[1, 2]", &[0.894424, 0.439057])]),
    ("f32[1,1,3,3,3]", "aten.max_pool3d_with_indices(%x, [2, 2, 2], [1, 2, 1], [0, 1, 0])", &[("f32[1, 1, 2, 2, 2]", &[0.0, 1.0, 3.0, 3.0, 2.0, 3.0, 3.0, 3.0]), ("i64[1, 1, 2, 2, 2]", &[10.0, 11.0, 6.0, 13.0, 19.0, 20.0, 13.0, 13.0])]),
    ("f32[1,1,3,3,3]", "aten.avg_pool3d(%x, [2, 2, 2], [2, 2, 2], [1, 0, 1], true, false)", &[("f32[1, 1, 2, 2, 2]", &[-1.5, 0.0, 3.0, -2.5, -0.25, 0.375, -1.0, 0.5])]),
    ("f32[1,5]", "aten.adaptive_avg_pool1d(%x, [3])", &[("f32[1, 3]", &[-2.5, -1.0, 0.5])]),
    ("f32[1,1,3,3,3]", "aten._adaptive_avg_pool3d(%x, [2, 1, 2])", &[("f32[1, 1, 2, 1, 2]", &[-0.25, -0.416667, 0.0, 0.416667])]),
    ("f32[2,4]", "aten.any.dim(%x, 1)", &[("bool[2]", &[1.0, 1.0])]),
    ("f32[2,3]", "aten.all.dim(%x, 1, true)", &[("bool[2, 1]", &[1.0, 0.0])]),
    ("i64[2,3]", "aten.prod.dim_int(%x, 1)", &[("i64[2]", &[-6.0, 0.0])]),
    ("f32[3,4]", "aten.max.dim(%x, 0)", &[("f32[4]", &[1.0, 2.0, 3.0, 1.0]), ("i64[4]", &[1.0, 1.0, 1.0, 2.0])]),
    ("i64[3,4]", "aten.min.dim(%x, 1, true)", &[("i64[3, 1]", &[-3.0, -3.0, -2.0]), ("i64[3, 1]", &[0.0, 3.0, 0.0])]),
    ("f32[3,4]", "aten.argmax(%x)", &[("i64[]", &[6.0])]),
    ("f32[3,4]", "aten.argmin(%x, 1, true)", &[("i64[3, 1]", &[0.0, 3.0, 0.0])]),
    ("f32[3,4]", "aten.amax(%x, [0])", &[("f32[4]", &[1.0, 2.0, 3.0, 1.0])]),
    ("f32[3,4]", "aten.var.correction(%x, [1], 0, true)", &[("f32[3, 1]", &[1.25, 5.1875, 1.25])]),
    ("f32[3,4]", "aten.var.correction(%x)", &[("f32[]", &[3.719697])]),
    ("f32[2]", "aten.var.correction(%x, [0], 2)", &[("f32[]", &[INF])]),
    ("i64[2,3]", "aten.sum.dim_IntList(%x, [1])", &[("i64[2]", &[-6.0, 3.0])]),
    ("f32[2,2]", "aten.softmax.int(%x, 1, f64)", &[("f64[2, 2]", &[0.268941, 0.731059, 0.268941, 0.731059])]),
    ("i64[2,3]", "aten.mean.dim(%x, [1], false, f32)", &[("f32[2]", &[-2.0, 1.0])]),
];

/// A graph of one call whose results are all its outputs.
fn graph(decls: &str, call: &str, results: usize) -> cleave_ir::Graph {
    let params: Vec<_> = ["x", "w", "b"].iter().zip(decls.split(' ')).filter(|(_, d)| !d.is_empty()).collect();
    let params: Vec<_> = params.iter().map(|(n, d)| format!("%{n}: {d}")).collect();
    let items: String = (0..results).map(|i| format!(" %y{i} = getitem(%y, {i})\n")).collect();
    let names: Vec<_> = (0..results).map(|i| format!("%y{i}")).collect();
    let (items, names) = if results == 1 { (String::new(), "%y".into()) } else { (items, names.join(", ")) };
    text::parse(&format!("graph({}) {{\n %y = {call}\n{items} return {names}\n}}", params.join(", "))).expect(call)
}

fn inputs(g: &cleave_ir::Graph) -> Vec<Tensor> {
    let input = |id| {
        let meta = g.tensor_meta(id).unwrap();
        let shape: Vec<usize> = meta.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let n = shape.iter().product::<usize>();
        if meta.dtype == cleave_numerics::DType::Bool {
            return Tensor::from_bools(&shape, &(0..n).map(|i| i % 3 == 0).collect::<Vec<_>>());
        }
        let ramp = Tensor::new(&shape, (0..n).map(|i| (i % 7) as i64 - 3).collect());
        super::super::Array::from_tensor(&ramp).cast(meta.dtype).to_tensor().unwrap()
    };
    g.placeholders().into_iter().map(input).collect()
}

#[test]
fn calls_give_torchs_values() {
    for (decls, call, want) in CASES {
        let g = graph(decls, call, want.len());
        let got = run(&g, &inputs(&g)).expect(call);
        assert_eq!(got.len(), want.len(), "{call}");
        for ((got, id), (kind, want)) in got.iter().zip(g.results()).zip(*want) {
            let said = |dtype: &dyn std::fmt::Display, shape: &dyn std::fmt::Debug| format!("{dtype}{shape:?}");
            assert_eq!(said(&got.dtype(), &got.shape()), *kind, "{call}");
            let Meta::Tensor(meta) = &g.node(id).meta else { panic!("{call}: {:?}", g.node(id).meta) };
            assert_eq!(said(&meta.dtype, &meta.shape), *kind, "inferred for {call}");
            let values = got.to_f64();
            let near = |(a, b): (&f64, &f64)| (a == b) || (a - b).abs() <= 2e-6 || (a.is_nan() && b.is_nan());
            assert!(values.len() == want.len() && values.iter().zip(*want).all(near), "{decls} {call}: {values:?}");
        }
    }
}

#[test]
fn bad_arguments_are_refused() {
    for (decls, call, why) in [
        ("i64[3]", "aten.remainder.Scalar(%x, 0)", "an integer divided by zero"),
        ("i64[3]", "aten.pow.Tensor_Scalar(%x, -1)", "an integer to a negative power"),
        ("f32[2,2] i64[1]", "aten.gather(%x, 0, %w)", "an index of shape [1] along dimension 0 of [2, 2]"),
        ("f32[2,2] i64[1]", "aten.index_select(%x, 0, %w)", "index -3 of 2"),
        ("f32[2,2] i64[1]", "aten.embedding(%x, %w)", "index -3 of 2"),
        ("f32[2] i64[1]", "aten.index.Tensor(%x, [%w])", "index -1 of 2"),
        ("f32[3]", "aten.topk(%x, 4)", "4 of 3 elements"),
        ("f32[4]", "aten.as_strided(%x, [2, 2], [3, 1])", "an element outside of the 4 stored"),
        ("f32[1]", "aten.repeat(%x, [4294967296, 4294967296])", "too large"),
        ("f32[1]", "aten.expand(%x, [4294967296, 1073741824])", "too large"),
        ("f32[1,1,2,2]", "aten.reflection_pad2d(%x, [2, 0, 0, 0])", "padding of [1, 1, 2, 2]"),
        ("f32[0]", "aten.amax(%x, [0])", "no elements to choose from in shape [0]"),
        ("f32[2]", "aten.bitwise_not(%x)", "bits of f32"),
    ] {
        let g = graph(decls, call, 1);
        let said = run(&g, &inputs(&g)).unwrap_err().to_string();
        assert!(said.contains(why), "{call}: {said}");
    }
}
