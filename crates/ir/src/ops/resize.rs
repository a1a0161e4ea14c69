//! Images resized: elements picked or weighted by where a place of the output lies in the input.

use super::infer::{ensure, to_float};
use super::promote::Kind;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use crate::strides;
use cleave_numerics::DType;

const BASE: OpDef =
    OpDef { class: Class::Move, levels: Levels::TORCH.and(Levels::ATEN), infer: Some(resized), ..OpDef::BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);

/// A schema: sizes or scales as lists, or sizes and a scale for each dimension.
macro_rules! schema {
    (vec) => {
        "(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor"
    };
    (vec corners) => {
        "(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor"
    };
    (1) => {
        "(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor"
    };
    (2) => {
        "(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (3) => {
        "(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (1 corners) => {
        "(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor"
    };
    (2 corners) => {
        "(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (3 corners) => {
        "(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (1 back) => {
        "(Tensor grad_output, SymInt[1] output_size, SymInt[3] input_size, float? scales=None) -> Tensor"
    };
    (2 back) => {
        "(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (3 back) => {
        "(Tensor grad_output, SymInt[3] output_size, SymInt[5] input_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (1 corners back) => {
        "(Tensor grad_output, SymInt[1] output_size, SymInt[3] input_size, bool align_corners, float? scales=None) -> Tensor"
    };
    (2 corners back) => {
        "(Tensor grad_output, SymInt[2] output_size, SymInt[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
    (3 corners back) => {
        "(Tensor grad_output, SymInt[3] output_size, SymInt[5] input_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"
    };
}

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, [$($schema:tt)*], $example:literal, $base:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: schema!($($schema)*), example: $example, ..$base };)*
        static FORWARD: &[&OpDef] = &[$(&$id),*];
    };
}

const NEAREST: OpDef = OpDef { rule: Some(|c| nearest(c, 0.0)), ..BASE };
const EXACT: OpDef = OpDef { rule: Some(|c| nearest(c, 0.5)), ..BASE };
const LINEAR: OpDef = OpDef { accuracy: Accuracy::Approximate, rule: Some(linear), ..BASE };
const CUBIC: OpDef = OpDef { accuracy: Accuracy::Approximate, rule: Some(cubic), ..BASE };
/// With low-pass filtering where the output is smaller.
const SMOOTH: OpDef = OpDef { accuracy: Accuracy::Approximate, levels: Levels::ALL, ..BASE };
/// [`SMOOTH`] by lists.
const SMOOTH_VEC: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..SMOOTH };

family! {
    /// Nearest element over one dimension: source index `floor(i / scale)`.
    UPSAMPLE_NEAREST1D_VEC = "aten.upsample_nearest1d.vec", [vec],
        "f32[1, 2, 3], [5], none | f32[1, 2, 4], none, [0.6]", NEAREST;
    /// Nearest element over two dimensions.
    UPSAMPLE_NEAREST2D_VEC = "aten.upsample_nearest2d.vec", [vec],
        "f32[1, 2, 3, 2], [5, 3], none | f32[1, 2, 3, 2], none, [2.0, 1.5]",
        OpDef { levels: CORE, raisable: true, ..NEAREST };
    /// Nearest element over three dimensions.
    UPSAMPLE_NEAREST3D_VEC = "aten.upsample_nearest3d.vec", [vec], "f32[1, 1, 2, 2, 3], [3, 2, 5], none", NEAREST;
    /// [`UPSAMPLE_NEAREST1D_VEC`] of a size.
    UPSAMPLE_NEAREST1D = "aten.upsample_nearest1d.default", [1], "f32[1, 2, 3], [5]", OpDef { levels: CORE, ..NEAREST };
    /// [`UPSAMPLE_NEAREST2D_VEC`] of a size.
    UPSAMPLE_NEAREST2D = "aten.upsample_nearest2d.default", [2],
        "f32[1, 2, 3, 2], [5, 3]", OpDef { levels: CORE, ..NEAREST };
    /// [`UPSAMPLE_NEAREST3D_VEC`] of a size.
    UPSAMPLE_NEAREST3D = "aten.upsample_nearest3d.default", [3],
        "f32[1, 1, 2, 2, 3], [3, 2, 5]", OpDef { levels: CORE, ..NEAREST };
    /// Nearest element by the centres over one dimension: source index `floor((i + 0.5) / scale)`.
    UPSAMPLE_NEAREST_EXACT1D_VEC = "aten._upsample_nearest_exact1d.vec", [vec], "f32[1, 2, 3], [5], none", EXACT;
    /// Nearest element by the centres over two dimensions.
    UPSAMPLE_NEAREST_EXACT2D_VEC = "aten._upsample_nearest_exact2d.vec", [vec], "f32[1, 2, 3, 2], [5, 3], none", EXACT;
    /// Nearest element by the centres over three dimensions.
    UPSAMPLE_NEAREST_EXACT3D_VEC = "aten._upsample_nearest_exact3d.vec", [vec],
        "f32[1, 1, 2, 2, 3], [3, 2, 5], none", EXACT;
    /// [`UPSAMPLE_NEAREST_EXACT1D_VEC`] of a size.
    UPSAMPLE_NEAREST_EXACT1D = "aten._upsample_nearest_exact1d.default", [1],
        "f32[1, 2, 3], [5]", OpDef { levels: CORE, ..EXACT };
    /// [`UPSAMPLE_NEAREST_EXACT2D_VEC`] of a size.
    UPSAMPLE_NEAREST_EXACT2D = "aten._upsample_nearest_exact2d.default", [2],
        "f32[1, 2, 3, 2], [5, 3]", OpDef { levels: CORE, ..EXACT };
    /// [`UPSAMPLE_NEAREST_EXACT3D_VEC`] of a size.
    UPSAMPLE_NEAREST_EXACT3D = "aten._upsample_nearest_exact3d.default", [3],
        "f32[1, 1, 2, 2, 3], [3, 2, 5]", OpDef { levels: CORE, ..EXACT };
    /// Linear interpolation over one dimension.
    UPSAMPLE_LINEAR1D_VEC = "aten.upsample_linear1d.vec", [vec corners],
        "f32[1, 2, 3], [5], true, none | f32[1, 2, 3], none, false, [1.7]", LINEAR;
    /// Linear interpolation over two dimensions.
    UPSAMPLE_BILINEAR2D_VEC = "aten.upsample_bilinear2d.vec", [vec corners],
        "f32[1, 2, 3, 2], [5, 3], false, none | f32[1, 2, 3, 2], none, true, [2.0, 1.5]",
        OpDef { levels: CORE, ..LINEAR };
    /// Linear interpolation over three dimensions.
    UPSAMPLE_TRILINEAR3D_VEC = "aten.upsample_trilinear3d.vec", [vec corners],
        "f32[1, 1, 2, 2, 3], [3, 2, 5], false, none", LINEAR;
    /// [`UPSAMPLE_LINEAR1D_VEC`] to a size.
    UPSAMPLE_LINEAR1D = "aten.upsample_linear1d.default", [1 corners], "f32[1, 2, 3], [5], false", LINEAR;
    /// [`UPSAMPLE_BILINEAR2D_VEC`] to a size.
    UPSAMPLE_BILINEAR2D = "aten.upsample_bilinear2d.default", [2 corners],
        "f32[1, 2, 3, 2], [5, 3], false", OpDef { functional: Functional::Always, ..LINEAR };
    /// [`UPSAMPLE_TRILINEAR3D_VEC`] to a size.
    UPSAMPLE_TRILINEAR3D = "aten.upsample_trilinear3d.default", [3 corners],
        "f32[1, 1, 2, 2, 3], [3, 2, 5], true", OpDef { levels: CORE, ..LINEAR };
    /// Bicubic interpolation (a = -0.75).
    UPSAMPLE_BICUBIC2D_VEC = "aten.upsample_bicubic2d.vec", [vec corners],
        "f32[1, 1, 3, 2], [5, 3], false, none | f32[1, 1, 3, 2], none, true, [2.0, 1.5]", CUBIC;
    /// [`UPSAMPLE_BICUBIC2D_VEC`] to a size.
    UPSAMPLE_BICUBIC2D = "aten.upsample_bicubic2d.default", [2 corners],
        "f32[1, 1, 3, 2], [5, 3], false", OpDef { functional: Functional::Always, ..CUBIC };
    /// Bilinear interpolation, by a triangle as wide as an output element.
    UPSAMPLE_BILINEAR2D_AA = "aten._upsample_bilinear2d_aa.default", [2 corners], "", SMOOTH;
    /// [`UPSAMPLE_BILINEAR2D_AA`] by lists.
    UPSAMPLE_BILINEAR2D_AA_VEC = "aten._upsample_bilinear2d_aa.vec", [vec corners],
        "f32[1, 1, 4, 3], [2, 2], false, none",
        OpDef { rule: Some(|c| by_sizes(c, "aten._upsample_bilinear2d_aa")), ..SMOOTH_VEC };
    /// Bicubic interpolation (a = -0.5), by a kernel as wide as an output element.
    UPSAMPLE_BICUBIC2D_AA = "aten._upsample_bicubic2d_aa.default", [2 corners], "", SMOOTH;
    /// [`UPSAMPLE_BICUBIC2D_AA`] by lists.
    UPSAMPLE_BICUBIC2D_AA_VEC = "aten._upsample_bicubic2d_aa.vec", [vec corners],
        "f32[1, 1, 4, 3], [2, 2], false, none",
        OpDef { rule: Some(|c| by_sizes(c, "aten._upsample_bicubic2d_aa")), ..SMOOTH_VEC };
}

macro_rules! backward {
    ($($(#[$doc:meta])* $id:ident = $name:literal, [$($schema:tt)*];)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, schema: schema!($($schema)*), ..BACKWARD };)*
        static GRADIENTS: &[&OpDef] = &[$(&$id),*];
    };
}

/// Gradient of the image.
const BACKWARD: OpDef = OpDef {
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(|c| Ok(Meta::tensor(c.meta("grad_output")?.dtype, c.dims("input_size")))),
    ..BASE
};

backward! {
    /// Gradient of [`UPSAMPLE_NEAREST1D`].
    UPSAMPLE_NEAREST1D_BACKWARD = "aten.upsample_nearest1d_backward.default", [1 back];
    /// Gradient of [`UPSAMPLE_NEAREST2D`].
    UPSAMPLE_NEAREST2D_BACKWARD = "aten.upsample_nearest2d_backward.default", [2 back];
    /// Gradient of [`UPSAMPLE_NEAREST3D`].
    UPSAMPLE_NEAREST3D_BACKWARD = "aten.upsample_nearest3d_backward.default", [3 back];
    /// Gradient of [`UPSAMPLE_NEAREST_EXACT1D`].
    UPSAMPLE_NEAREST_EXACT1D_BACKWARD = "aten._upsample_nearest_exact1d_backward.default", [1 back];
    /// Gradient of [`UPSAMPLE_NEAREST_EXACT2D`].
    UPSAMPLE_NEAREST_EXACT2D_BACKWARD = "aten._upsample_nearest_exact2d_backward.default", [2 back];
    /// Gradient of [`UPSAMPLE_NEAREST_EXACT3D`].
    UPSAMPLE_NEAREST_EXACT3D_BACKWARD = "aten._upsample_nearest_exact3d_backward.default", [3 back];
    /// Gradient of [`UPSAMPLE_LINEAR1D`].
    UPSAMPLE_LINEAR1D_BACKWARD = "aten.upsample_linear1d_backward.default", [1 corners back];
    /// Gradient of [`UPSAMPLE_BILINEAR2D`].
    UPSAMPLE_BILINEAR2D_BACKWARD = "aten.upsample_bilinear2d_backward.default", [2 corners back];
    /// Gradient of [`UPSAMPLE_TRILINEAR3D`].
    UPSAMPLE_TRILINEAR3D_BACKWARD = "aten.upsample_trilinear3d_backward.default", [3 corners back];
    /// Gradient of [`UPSAMPLE_BICUBIC2D`].
    UPSAMPLE_BICUBIC2D_BACKWARD = "aten.upsample_bicubic2d_backward.default", [2 corners back];
    /// Gradient of [`UPSAMPLE_BILINEAR2D_AA`].
    UPSAMPLE_BILINEAR2D_AA_BACKWARD = "aten._upsample_bilinear2d_aa_backward.default", [2 corners back];
    /// Gradient of [`UPSAMPLE_BICUBIC2D_AA`].
    UPSAMPLE_BICUBIC2D_AA_BACKWARD = "aten._upsample_bicubic2d_aa_backward.default", [2 corners back];
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[FORWARD, GRADIENTS];

/// What a call says of the output: sizes, and scales where they were given.
struct Target {
    sizes: Vec<Dim>,
    scales: Vec<Option<f64>>,
}

/// Name of the image's parameter.
fn image(c: &Call<'_>) -> &'static str {
    if c.op.schema.index("input").is_some() { "input" } else { "self" }
}

/// A scale that stands somewhere among the arguments.
fn number(c: &Call<'_>, a: &Arg) -> Result<Option<f64>> {
    let s = match a {
        Arg::None => return Ok(None),
        Arg::Float(f) => *f,
        Arg::Int(i) => *i as f64,
        other => return Err(c.err(&format!("scale {other:?}"))),
    };
    ensure(c, s.is_finite(), || format!("scale {s}"))?;
    Ok((s > 0.0).then_some(s))
}

/// `floor(n·s)`.
fn scaled(c: &Call<'_>, n: &Dim, s: f64) -> Result<Dim> {
    match n.as_const() {
        Some(n) => Ok(Dim::from((n as f64 * s) as i64)),
        None if s.fract() == 0.0 => Ok(n.clone() * Dim::from(s as i64)),
        None if (1.0 / s).fract() == 0.0 => Ok(n.floor_div(&Dim::from((1.0 / s) as i64))),
        None => Err(c.err(&format!("scale {s} of a size that is not known"))),
    }
}

fn target(c: &Call<'_>) -> Result<Target> {
    let shape = c.meta(image(c))?.shape;
    let n = shape.len().saturating_sub(2);
    let digit = c.op.base().bytes().find(u8::is_ascii_digit).map_or(0, |d| usize::from(d - b'0'));
    ensure(c, n == digit, || format!("rank {}, expected {}", shape.len(), digit + 2))?;
    let target = if c.op.schema.index("scale_factors").is_none() {
        let scales = c.op.schema.params.iter().filter(|p| p.name.starts_with("scales"));
        let scales = scales.map(|p| number(c, c.arg(&p.name))).collect::<Result<_>>()?;
        Target { sizes: c.dims("output_size"), scales }
    } else {
        match (c.arg("output_size"), c.arg("scale_factors")) {
            (Arg::List(_), _) => Target { sizes: c.dims("output_size"), scales: vec![None; n] },
            (_, Arg::List(scales)) => {
                let scales = scales.iter().map(|s| number(c, s)).collect::<Result<Vec<_>>>()?;
                let size = |(d, s): (&Dim, &Option<f64>)| match s {
                    Some(s) => scaled(c, d, *s),
                    None => Err(c.err("a scale that is not positive")),
                };
                Target { sizes: shape[2..].iter().zip(&scales).map(size).collect::<Result<_>>()?, scales }
            }
            _ => return Err(c.err("neither output_size nor scale_factors given")),
        }
    };
    ensure(c, target.sizes.len() == n && target.scales.len() == n, || format!("expected {n} sizes or scales"))?;
    let all = target.sizes.iter().chain(&shape[2..]);
    ensure(c, all.flat_map(Dim::as_const).all(|v| (1..1 << 31).contains(&v)), || {
        format!("{:?} to {:?}", &shape[2..], target.sizes)
    })?;
    Ok(target)
}

fn resized(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta(image(c))?;
    let sizes = target(c)?.sizes;
    Ok(Meta::tensor(m.dtype, [&m.shape[..2], &sizes].concat()))
}

/// The op that takes sizes and single scales.
fn by_sizes<'b>(c: &Call<'b>, op: &str) -> Vec<Value<'b>> {
    let x = c.tensor("input");
    let Some(t) = checked(c) else { return vec![x] };
    let mut args: Vec<Arg> = vec![t.sizes.into(), c.arg("align_corners").clone()];
    args.extend(t.scales.into_iter().map(Arg::from));
    vec![x.op(op, args)]
}

fn checked(c: &Call<'_>) -> Option<Target> {
    target(c).map_err(|e| c.b.fail(e)).ok()
}

/// `a / b` as an argument: a number, or where sizes are not known a tensor.
fn quotient(c: &Call<'_>, a: &Dim, b: &Dim, dtype: DType) -> Arg {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => Arg::Float(a as f64 / b as f64),
        _ if a == b => Arg::Float(1.0),
        _ if *b == a.clone() * Dim::from(2i64) => Arg::Float(0.5),
        _ => {
            let tensor = |d: &Dim| c.b.call("aten.scalar_tensor", vec![d.clone().into(), dtype.into()]);
            (tensor(a) / tensor(b)).into()
        }
    }
}

/// How many input elements an output element stands for. A scale that was given outweighs the sizes.
fn ratio(c: &Call<'_>, from: &Dim, to: &Dim, scale: Option<f64>, dtype: DType) -> Arg {
    let one = || Dim::from(1i64);
    let corners = c.op.schema.index("align_corners").is_some() && c.bool("align_corners");
    match scale {
        _ if corners && to.is(1) => Arg::Float(0.0),
        _ if corners => quotient(c, &(from.clone() - one()), &(to.clone() - one()), dtype),
        Some(s) => Arg::Float(1.0 / s),
        None => quotient(c, from, to, dtype),
    }
}

/// The result in the memory format that torch gives it: the image's.
fn laid<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    match strides::is_channels_last(&x.shape(), &x.strides()) {
        true if x.rank() == 5 => y.op("aten.clone", vec!["channels_last_3d".into()]),
        true => y.op("aten.clone", vec!["channels_last".into()]),
        false => y,
    }
}

fn unsqueezed(mut x: Value<'_>, times: usize) -> Value<'_> {
    for _ in 0..times {
        x = x.op("aten.unsqueeze", vec![(-1i64).into()]);
    }
    x
}

/// The image at these places, one tensor of them for each dimension of space.
fn pick<'b>(x: Value<'b>, places: &[Value<'b>]) -> Value<'b> {
    let mut indices = vec![Arg::None, Arg::None];
    indices.extend(places.iter().map(|p| Arg::from(*p)));
    x.op("aten._unsafe_index.Tensor", vec![Arg::List(indices)])
}

fn nearest<'b>(c: &Call<'b>, offset: f64) -> Vec<Value<'b>> {
    let input = c.tensor(image(c));
    let types = Kind::Default.of(input.dtype());
    let x = input.to(types.compute);
    let Some(t) = checked(c) else { return vec![x] };
    let shape = x.shape();
    let n = t.sizes.len();
    let mut places = vec![];
    for (i, (to, scale)) in t.sizes.iter().zip(&t.scales).enumerate() {
        let at = c.b.call("aten.arange.default", vec![to.clone().into(), DType::F32.into()]) + offset;
        let from = &shape[i + 2];
        // torch looks at the sizes alone where they are equal or one is twice the other.
        let plain = offset == 0.0 && (to == from || *to == from.clone() * Dim::from(2i64));
        let scale = scale.filter(|_| !plain);
        let at = at.op("aten.mul.Tensor", vec![ratio(c, from, to, scale, DType::F32)]).to(DType::I64);
        places.push(unsqueezed(at, n - 1 - i));
    }
    vec![laid(x, pick(x, &places)).to(types.result)]
}

/// Where the output's places lie in the input, in its elements.
fn source<'b>(c: &Call<'b>, from: &Dim, to: &Dim, scale: Option<f64>, dtype: DType) -> Value<'b> {
    let at = c.b.call("aten.arange.default", vec![to.clone().into()]).to(dtype);
    let ratio = ratio(c, from, to, scale, dtype);
    if c.bool("align_corners") {
        at.op("aten.mul.Tensor", vec![ratio])
    } else {
        (at + 0.5).op("aten.mul.Tensor", vec![ratio]) - 0.5
    }
}

/// Elements held between 0 and `n - 1`, or below `n` alone.
fn inside<'b>(x: Value<'b>, n: &Dim, min: Option<i64>) -> Value<'b> {
    x.op("aten.clamp", vec![min.into(), (n.clone() - Dim::from(1i64)).into()])
}

fn linear<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let input = c.tensor(image(c));
    let types = Kind::Default.of(input.dtype());
    let (x, dtype) = (input.to(types.compute), to_float(types.compute));
    let Some(t) = checked(c) else { return vec![x] };
    let shape = x.shape();
    let n = t.sizes.len();
    let (mut at, mut low, mut high) = (vec![], vec![], vec![]);
    for (i, (to, scale)) in t.sizes.iter().zip(&t.scales).enumerate() {
        let from = &shape[i + 2];
        let mut column = vec![to.clone()];
        column.resize(n - i, Dim::from(1i64));
        let place = source(c, from, to, *scale, dtype).clamp(Some(0.0), None).view(column);
        let whole = place.to(DType::I64);
        at.push(place);
        low.push(whole);
        high.push(inside(whole + 1i64, from, None));
    }
    let corner = |k: usize| {
        let side = |i: usize| if k >> (n - 1 - i) & 1 == 0 { low[i] } else { high[i] };
        pick(x, &(0..n).map(side).collect::<Vec<_>>()).to(dtype)
    };
    let mut values: Vec<Value<'b>> = (0..1 << n).map(corner).collect();
    for i in (0..n).rev() {
        let weight = (at[i] - low[i]).clamp(Some(0.0), Some(1.0));
        values = values.chunks(2).map(|v| v[0] + (v[1] - v[0]) * weight).collect();
    }
    let Some(y) = values.first().copied() else { return vec![x] };
    let y = laid(x, y);
    let y = if input.dtype().is_float() { y } else { y.op("aten.round", vec![]) };
    vec![y.to(types.result)]
}

/// Keys' cubic convolution at the four elements around a place that lies `t` behind the second.
pub(super) fn cubic_weights(t: Value<'_>) -> [Value<'_>; 4] {
    const A: f64 = -0.75;
    let from = |x: Value<'_>, n: f64| x.op("aten.rsub.Scalar", vec![n.into()]).id();
    let b = t.builder();
    let both = |p, q| b.call("aten.stack", vec![vec![p, q].into()]);
    let (near, far) = (both(t.id(), from(t, 1.0)), both((t + 1.0).id(), from(t, 2.0)));
    let far = ((far * A - 5.0 * A) * far + 8.0 * A) * far - 4.0 * A;
    let near = (near * (A + 2.0) - (A + 3.0)) * near * near + 1.0;
    let (far, near) = (far.op("aten.unbind.int", vec![]), near.op("aten.unbind.int", vec![]));
    [b.getitem(far, 0), b.getitem(near, 0), b.getitem(near, 1), b.getitem(far, 1)]
}

/// `Σ values·weights`.
pub(super) fn weighted<'b>(values: [Value<'b>; 4], weights: &[Value<'b>; 4]) -> Value<'b> {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i| values[i] * weights[i]);
    a + b + c + d
}

fn cubic<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let input = c.tensor(image(c));
    let types = Kind::Default.of(input.dtype());
    let (x, dtype) = (input.to(types.compute), to_float(types.compute));
    let Some(t) = checked(c) else { return vec![x] };
    let shape = x.shape();
    let (rows, columns) = (&shape[2], &shape[3]);
    let down = unsqueezed(source(c, rows, &t.sizes[0], t.scales[0], dtype), 1);
    let across = source(c, columns, &t.sizes[1], t.scales[1], dtype);
    let around = |at: Value<'b>| {
        let whole = at.op("aten.floor", vec![]);
        let part = (at - whole).clamp(Some(0.0), Some(1.0));
        let i = whole.to(DType::I64);
        ([i - 1i64, i, i + 1i64, i + 2i64], part)
    };
    let ((ys, down), (xs, across)) = (around(down), around(across));
    let (wx, wy) = (cubic_weights(across), cubic_weights(down));
    let row = |y: Value<'b>| {
        let at = |i: Value<'b>| pick(x, &[inside(y, rows, Some(0)), inside(i, columns, Some(0))]);
        weighted(xs.map(at), &wx)
    };
    let y = laid(x, weighted(ys.map(row), &wy));
    vec![y.to(types.result)]
}
