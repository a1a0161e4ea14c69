//! Convolutions.

use super::infer::{ensure, window};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Strategic, accuracy: Accuracy::Approximate, ..OpDef::BASE };

macro_rules! conv {
    ($n:literal, $example:literal) => {
        OpDef {
            name: concat!("aten.conv", $n, "d.default"),
            schema: concat!(
                "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[",
                $n,
                "] stride=1, SymInt[",
                $n,
                "] padding=0, SymInt[",
                $n,
                "] dilation=1, SymInt groups=1) -> Tensor"
            ),
            weight_axis: Some(0),
            rule: Some(|c| vec![convolution(c, false)]),
            infer: Some(conv_meta),
            example: $example,
            ..BASE
        }
    };
}

macro_rules! conv_transpose {
    ($name:literal, $n:literal, $example:literal) => {
        OpDef {
            name: $name,
            schema: concat!(
                "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[",
                $n,
                "] stride=1, SymInt[",
                $n,
                "] padding=0, SymInt[",
                $n,
                "] output_padding=0, SymInt groups=1, SymInt[",
                $n,
                "] dilation=1) -> Tensor"
            ),
            weight_axis: Some(1),
            rule: Some(|c| vec![convolution(c, true)]),
            infer: Some(conv_meta),
            example: $example,
            ..BASE
        }
    };
}

/// Convolution over one dimension; weight `[out, in/groups, k]`.
pub static CONV1D: OpDef = conv!("1", "f32[2, 4, 6], f32[2, 2, 3], f32[2], [2], [1], [1], 2 | f32[2, 5], f32[3, 2, 2]");
/// Convolution over two dimensions; weight `[out, in/groups, kh, kw]`.
pub static CONV2D: OpDef = conv!(
    "2",
    "f32[1, 2, 5, 4], f32[3, 2, 3, 2], f32[3], [2, 1], [1, 0] | f32[2, 4, 4], f32[2, 1, 2, 2], none, [1, 1], [0, 0], [2, 1], 2"
);
/// Convolution over three dimensions.
pub static CONV3D: OpDef = conv!("3", "f32[1, 1, 3, 3, 3], f32[2, 1, 2, 2, 1]");
/// Transposed convolution over one dimension; weight `[in, out/groups, k]`.
pub static CONV_TRANSPOSE1D: OpDef = conv_transpose!(
    "aten.conv_transpose1d.default",
    "1",
    "f32[2, 4, 3], f32[4, 1, 3], f32[2], [2], [1], [1], 2 | f32[2, 3], f32[2, 3, 2]"
);
/// Transposed convolution over two dimensions; weight `[in, out/groups, kh, kw]`.
pub static CONV_TRANSPOSE2D: OpDef = conv_transpose!(
    "aten.conv_transpose2d.input",
    "2",
    "f32[1, 2, 3, 2], f32[2, 3, 2, 3], f32[3], [2, 1], [1, 0], [1, 0]"
);

/// Transposed convolution over three dimensions.
pub static CONV_TRANSPOSE3D: OpDef =
    conv_transpose!("aten.conv_transpose3d.input", "3", "f32[1, 1, 2, 2, 2], f32[1, 2, 2, 1, 2]");

macro_rules! conv_padding {
    ($n:literal, $example:literal) => {
        OpDef {
            name: concat!("aten.conv", $n, "d.padding"),
            schema: concat!(
                "(Tensor input, Tensor weight, Tensor? bias=None, SymInt[",
                $n,
                "] stride=1, str padding='valid', SymInt[",
                $n,
                "] dilation=1, SymInt groups=1) -> Tensor"
            ),
            weight_axis: Some(0),
            rule: Some(|c| vec![named_padding(c, concat!("aten.conv", $n, "d"))]),
            example: $example,
            ..BASE
        }
    };
}

/// [`CONV1D`] with padding `"valid"` (none) or `"same"` (the input's size).
pub static CONV1D_PADDING: OpDef = conv_padding!(
    "1",
    "f32[1, 2, 5], f32[2, 2, 3], f32[2], [1], \"same\" | f32[2, 5], f32[2, 2, 2], none, [1], \"same\""
);
/// [`CONV2D`] with padding `"valid"` (none) or `"same"` (the input's size).
pub static CONV2D_PADDING: OpDef = conv_padding!(
    "2",
    "f32[1, 2, 4, 4], f32[2, 2, 3, 2], none, [1, 1], \"same\" | f32[1, 2, 4, 4], f32[2, 2, 3, 2], none, [2, 1], \"valid\""
);
/// [`CONV3D`] with padding `"valid"` (none) or `"same"` (the input's size).
pub static CONV3D_PADDING: OpDef =
    conv_padding!("3", "f32[1, 1, 3, 3, 3], f32[1, 1, 2, 3, 2], none, [1, 1, 1], \"same\"");

/// Padding `"same"` puts `dilation·(k - 1)` elements around, the odd one behind.
fn named_padding<'b>(c: &Call<'b>, op: &str) -> Value<'b> {
    let (mut x, dilation) = (c.tensor("input"), c.ints("dilation"));
    let kernel: Vec<i64> = c.tensor("weight").shape().iter().skip(2).filter_map(Dim::as_const).collect();
    let total: Vec<i64> = match c.str("padding") {
        "same" => dilation.iter().zip(&kernel).map(|(d, k)| d * (k - 1)).collect(),
        "valid" => vec![0; dilation.len()],
        other => {
            c.fail(&format!("padding '{other}'"));
            vec![0; dilation.len()]
        }
    };
    if total.iter().any(|t| t % 2 != 0) {
        let pads: Vec<i64> = total.iter().rev().flat_map(|t| [0, t % 2]).collect();
        x = x.op("aten.constant_pad_nd", vec![pads.into()]);
    }
    let padding: Vec<i64> = total.iter().map(|t| t / 2).collect();
    let pick = |n: &str| c.arg(n).clone();
    x.op(op, vec![pick("weight"), pick("bias"), pick("stride"), padding.into(), pick("dilation"), pick("groups")])
}

/// Any of the above, as Core ATen has them.
pub static CONVOLUTION: OpDef = OpDef {
    name: "aten.convolution.default",
    schema: "(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    levels: Levels::ALL,
    infer: Some(conv_meta),
    ..BASE
};

/// Gradients of [`CONVOLUTION`]'s input, weight and bias; those that the mask does not ask for are nothing.
pub static CONVOLUTION_BACKWARD: OpDef = OpDef {
    name: "aten.convolution_backward.default",
    schema: "(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    levels: Levels::ALL,
    infer: Some(|c| {
        let (x, w) = (c.meta("input")?, c.meta("weight")?);
        let channels = match (c.bool("transposed"), w.shape.get(..2)) {
            (false, Some([out, _])) => out.clone(),
            (true, Some([_, out])) => out.clone() * c.dim("groups"),
            _ => return Err(c.err(&format!("weight of shape {:?}", w.shape))),
        };
        let bias = Meta::tensor(w.dtype, vec![channels]);
        let Arg::List(mask) = c.arg("output_mask") else { return Err(c.err("expected three bools")) };
        ensure(c, mask.len() == 3, || format!("{} bools, expected 3", mask.len()))?;
        let asked = |(m, wanted): (Meta, &Arg)| if *wanted == Arg::Bool(true) { m } else { Meta::None };
        Ok(Meta::Tuple([Meta::Tensor(x), Meta::Tensor(w), bias].into_iter().zip(mask).map(asked).collect()))
    }),
    ..BASE
};

fn convolution<'b>(c: &Call<'b>, transposed: bool) -> Value<'b> {
    let x = c.tensor("input");
    let zeros = vec![0i64; c.ints("stride").len()];
    let output_padding = if transposed { c.arg("output_padding").clone() } else { zeros.into() };
    let pick = |n: &str| c.arg(n).clone();
    // An input without a batch is a batch of one on the way.
    let single = x.rank() + 1 == c.tensor("weight").rank();
    let x = if single { x.op("aten.unsqueeze", vec![0i64.into()]) } else { x };
    let y = x.op(
        "aten.convolution",
        vec![
            pick("weight"),
            pick("bias"),
            pick("stride"),
            pick("padding"),
            pick("dilation"),
            Arg::Bool(transposed),
            output_padding,
            pick("groups"),
        ],
    );
    if single { y.op("aten.squeeze.dims", vec![vec![0i64].into()]) } else { y }
}

/// Output type and shape of every op in this file.
fn conv_meta(c: &Call<'_>) -> Result<Meta> {
    let (x, w) = (c.meta("input")?, c.meta("weight")?);
    let (stride, padding, dilation, groups) =
        (c.ints("stride"), c.ints("padding"), c.ints("dilation"), c.int("groups"));
    let transposed = match c.op.schema.index("transposed") {
        Some(_) => c.bool("transposed"),
        None => c.op.base().starts_with("conv_transpose"),
    };
    let n = w.shape.len().saturating_sub(2);
    let spread = |v: &[i64]| if v.len() == 1 { vec![v[0]; n] } else { v.to_vec() };
    let (stride, padding, dilation) = (spread(&stride), spread(&padding), spread(&dilation));
    ensure(c, n >= 1 && [&stride, &padding, &dilation].iter().all(|v| v.len() == n), || {
        format!("weight of rank {} with {} strides", n + 2, stride.len())
    })?;
    ensure(c, x.shape.len() == n + 2 || x.shape.len() == n + 1, || {
        format!("input of rank {}, expected {}", x.shape.len(), n + 2)
    })?;
    ensure(
        c,
        stride.iter().chain(&dilation).all(|v| (1..1 << 20).contains(v))
            && padding.iter().all(|v| (-(1 << 20)..1 << 20).contains(v))
            && (1..1 << 31).contains(&groups),
        || "stride, dilation and groups must be positive".into(),
    )?;
    let k =
        w.shape.iter().map(Dim::as_const).collect::<Option<Vec<_>>>().ok_or_else(|| c.err("weight of unknown size"))?;
    ensure(c, k.iter().all(|v| (0..1 << 31).contains(v)), || format!("weight of shape {k:?}"))?;
    let batched = x.shape.len() == n + 2;
    let lead = usize::from(batched);
    let (c_in, c_out) = if transposed { (k[0], k[1] * groups) } else { (k[1] * groups, k[0]) };
    let fits = x.shape[lead].as_const().is_none_or(|v| v == c_in) && c_out % groups == 0 && c_in % groups == 0;
    ensure(c, fits, || format!("input of {} channels, weight {k:?}, groups {groups}", x.shape[lead]))?;
    if let Some(b) = c.opt_tensor("bias") {
        ensure(c, b.shape() == [Dim::from(c_out)], || format!("bias of shape {:?} for {c_out} channels", b.shape()))?;
    }
    let mut shape = x.shape[..lead].to_vec();
    shape.push(c_out.into());
    let extra = if transposed { spread(&c.ints("output_padding")) } else { vec![0; n] };
    ensure(c, extra.len() == n && extra.iter().all(|v| (0..1 << 20).contains(v)), || {
        format!("output padding {extra:?}")
    })?;
    for i in 0..n {
        let d = &x.shape[lead + 1 + i];
        let out = if transposed {
            (d.clone() - 1i64.into()) * stride[i].into()
                + (dilation[i] * (k[i + 2] - 1) + 1 + extra[i] - 2 * padding[i]).into()
        } else {
            window(d, 2 * padding[i], k[i + 2], stride[i], dilation[i])
        };
        ensure(c, out.as_const().is_none_or(|v| v > 0), || {
            format!("kernel {:?} does not fit into {:?}", &k[2..], &x.shape)
        })?;
        shape.push(out);
    }
    Ok(Meta::tensor(x.dtype, shape))
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &CONV1D,
    &CONV2D,
    &CONV3D,
    &CONV1D_PADDING,
    &CONV2D_PADDING,
    &CONV3D_PADDING,
    &CONV_TRANSPOSE1D,
    &CONV_TRANSPOSE2D,
    &CONV_TRANSPOSE3D,
    &CONVOLUTION,
    &CONVOLUTION_BACKWARD,
]];
