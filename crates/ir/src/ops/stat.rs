//! Statistics: variances and quantiles.

use super::infer::{broadcast, ensure, reduced, to_float};
use super::promote::{Kind, Types};
use super::reduce::{axes, over};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Reduction, accuracy: Accuracy::Approximate, ..OpDef::BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);

/// Variance over dimensions; `correction` is taken from the count (1 if none is given).
pub static VAR: OpDef = OpDef {
    name: "aten.var.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    levels: CORE,
    infer: Some(spread),
    rule: Some(|c| {
        let x = c.tensor("self");
        let correction = c.opt_float("correction").unwrap_or(1.0);
        let types = Kind::Default.of(to_float(x.dtype()));
        vec![over(x, "prims.var", &axes(c, x.rank()), &[correction.into()], c.bool("keepdim"), types)]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], none, 0, true",
    ..BASE
};

/// Type and shape of a variance.
fn spread(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    let shape = reduced(c, &m.shape, c.opt_ints("dim").as_deref(), c.bool("keepdim"))?;
    Ok(Meta::tensor(to_float(m.dtype), shape))
}

fn spread_and_mean(c: &Call<'_>) -> Result<Meta> {
    let m = spread(c)?;
    Ok(Meta::Tuple(vec![m.clone(), m]))
}

/// [`VAR`] and mean.
pub static VAR_MEAN: OpDef = OpDef {
    name: "aten.var_mean.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
    levels: CORE,
    infer: Some(spread_and_mean),
    rule: Some(|c| {
        let x = c.tensor("self");
        let pick = |n: &str| c.arg(n).clone();
        let var = x.op("aten.var.correction", vec![pick("dim"), pick("correction"), pick("keepdim")]);
        vec![var, x.op("aten.mean.dim", vec![pick("dim"), pick("keepdim")])]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], none, 0, true",
    ..BASE
};

/// Square root of [`VAR`].
pub static STD: OpDef = OpDef {
    name: "aten.std.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    infer: Some(spread),
    rule: Some(|c| {
        let (x, types) = widened(c);
        vec![call_on(c, x, "aten.var.correction").sqrt().to(types.result)]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], none, 0, true",
    raisable: true,
    ..BASE
};

/// [`STD`] and mean.
pub static STD_MEAN: OpDef = OpDef {
    name: "aten.std_mean.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
    infer: Some(spread_and_mean),
    rule: Some(|c| {
        let (x, types) = widened(c);
        let both = call_on(c, x, "aten.var_mean.correction");
        vec![c.b.getitem(both, 0).sqrt().to(types.result), c.b.getitem(both, 1).to(types.result)]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], none, 0, true",
    ..BASE
};

/// The input in the type in which torch computes.
fn widened<'b>(c: &Call<'b>) -> (Value<'b>, Types) {
    let x = c.tensor("self");
    let types = Kind::Default.of(to_float(x.dtype()));
    (x.to(types.compute), types)
}

/// An op with the call's arguments on another tensor.
fn call_on<'b>(c: &Call<'b>, x: Value<'b>, op: &str) -> Value<'b> {
    x.op(op, c.args.get(1..).unwrap_or_default().to_vec())
}

macro_rules! unbiased {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $example:literal => $to:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: $schema,
            rule: Some(|c| corrected(c, $to)),
            example: $example,
            ..BASE
        };)*
        static UNBIASED: &[&OpDef] = &[$(&$id),*];
    };
}

unbiased! {
    /// [`VAR`] of all elements.
    VAR_ALL = "aten.var.default", "(Tensor self, bool unbiased=True) -> Tensor", "f32[2, 3]"
        => "aten.var.correction";
    /// [`VAR`] with or without a correction of 1.
    VAR_DIM = "aten.var.dim", "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
        "f32[2, 3], [1], false" => "aten.var.correction";
    /// [`STD`] of all elements.
    STD_ALL = "aten.std.default", "(Tensor self, bool unbiased=True) -> Tensor", "f32[2, 3]"
        => "aten.std.correction";
    /// [`STD`] with or without a correction of 1.
    STD_DIM = "aten.std.dim", "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor",
        "f32[2, 3], [1], false" => "aten.std.correction";
    /// [`VAR_MEAN`] of all elements.
    VAR_MEAN_ALL = "aten.var_mean.default", "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", "f32[2, 3]"
        => "aten.var_mean.correction";
    /// [`VAR_MEAN`] with or without a correction of 1.
    VAR_MEAN_DIM = "aten.var_mean.dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        "f32[2, 3], [1], false" => "aten.var_mean.correction";
    /// [`STD_MEAN`] of all elements.
    STD_MEAN_ALL = "aten.std_mean.default", "(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", "f32[2, 3]"
        => "aten.std_mean.correction";
    /// [`STD_MEAN`] with or without a correction of 1.
    STD_MEAN_DIM = "aten.std_mean.dim",
        "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        "f32[2, 3], [1], false" => "aten.std_mean.correction";
}

/// The call with `unbiased` as a correction.
fn corrected<'b>(c: &Call<'b>, op: &str) -> Vec<Value<'b>> {
    let given = |n: &str| if c.op.schema.index(n).is_some() { c.arg(n).clone() } else { Arg::None };
    let keep = if given("keepdim") == Arg::None { Arg::Bool(false) } else { given("keepdim") };
    let args = vec![given("dim"), i64::from(c.bool("unbiased")).into(), keep];
    let y = c.tensor("self").op(op, args);
    match y.meta() {
        Meta::Tuple(_) => vec![c.b.getitem(y, 0), c.b.getitem(y, 1)],
        _ => vec![y],
    }
}

const QUANTILE: OpDef = OpDef { accuracy: Accuracy::Rounding, ..BASE };

macro_rules! quantiles {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $q:literal, $example:literal, $nan:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: concat!(
                "(Tensor self, ", $q, " q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor"
            ),
            rule: Some(|c| quantile(c, $nan)),
            example: $example,
            ..QUANTILE
        };)*
        static QUANTILES: &[&OpDef] = &[$(&$id),*];
    };
}

quantiles! {
    /// Elements at shares `q` of the way from the least to the greatest, along a dimension or of all.
    QUANTILE_TENSOR = "aten.quantile.default", "Tensor", "f32[2, 3]!, f32[2]>0<1", false;
    /// The element at a share `q` of the way from the least to the greatest.
    QUANTILE_SCALAR = "aten.quantile.scalar", "float",
        "f32[2, 3]!, 0.3 | f32[2, 3]!, 0.3, 1 | f32[2, 3]!, 0.3, 0, true, \"midpoint\"", false;
    /// [`QUANTILE_TENSOR`] of those elements that are numbers.
    NANQUANTILE_TENSOR = "aten.nanquantile.default", "Tensor", "f32[2, 3]!, f32[2]>0<1", true;
    /// [`QUANTILE_SCALAR`] of those elements that are numbers.
    NANQUANTILE_SCALAR = "aten.nanquantile.scalar", "float",
        "f32[2, 3]!, 0.3 | f32[2, 3]!, 0.3, 1 | f32[2, 3]!, 0.3, 0, true, \"nearest\"", true;
}

/// torch's `quantile_compute`: shares become places in the sorted rows, between two places is interpolated.
fn quantile<'b>(c: &Call<'b>, ignore_nan: bool) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let q = match c.opt_tensor("q") {
        Some(q) => q,
        None => c.b.call("aten.scalar_tensor", vec![c.arg("q").clone(), x.dtype().into()]),
    };
    let (shape, rank) = (x.shape(), x.rank());
    let fits = ensure(c, q.rank() <= 1 && x.dtype().is_float() && q.dtype() == x.dtype(), || {
        format!("shares {}{:?} of {}{shape:?}", q.dtype(), q.shape(), x.dtype())
    });
    let axis = c.opt_int("dim").map(|d| c.wrap(d, rank));
    let axis = match (fits, axis) {
        (Err(e), _) | (_, Some(Err(e))) => {
            c.b.fail(e);
            return vec![x];
        }
        (_, axis) => axis.and_then(Result::ok),
    };
    let sized = |x: Value<'b>| {
        let sorted = x.op("aten.sort", vec![]);
        (c.b.getitem(sorted, 0), x.shape().last().cloned().unwrap_or(Dim::from(1i64)))
    };
    let (sorted, size) = match axis {
        None => sized(reshape(x, vec![shape.iter().cloned().product()])),
        Some(a) if a + 1 >= rank => sized(x),
        Some(a) => {
            let wide = x.op("aten.unsqueeze", vec![(-1i64).into()]);
            sized(wide.op("aten.transpose.int", vec![a.into(), (-1i64).into()]))
        }
    };
    // The result's shape with one more dimension behind it, for the shares.
    let keep = c.bool("keepdim");
    let mut rows: Vec<Dim> = match axis {
        None if keep => vec![Dim::from(1i64); rank],
        None => vec![],
        Some(a) if keep => {
            shape.iter().enumerate().map(|(i, d)| if i == a { 1i64.into() } else { d.clone() }).collect()
        }
        Some(a) => shape.iter().enumerate().filter(|(i, _)| *i != a).map(|(_, d)| d.clone()).collect(),
    };
    rows.push(size.clone());
    let sorted = sorted.view(rows);
    let ranks = places(c, q, sorted, size, ignore_nan);
    let ranks = match c.str("interpolation") {
        "lower" => ranks.op("aten.floor", vec![]),
        "higher" => ranks.op("aten.ceil", vec![]),
        "nearest" => ranks.op("aten.round", vec![]),
        "linear" | "midpoint" => ranks,
        other => {
            c.fail(&format!("interpolation '{other}'"));
            ranks
        }
    };
    let y = between(c, ranks, sorted);
    if q.rank() == 0 {
        return vec![y.op("aten.squeeze.dims", vec![vec![-1i64].into()])];
    }
    let lead = y.op("aten.unsqueeze", vec![0i64.into()]).op("aten.transpose.int", vec![0i64.into(), (-1i64).into()]);
    vec![lead.op("aten.squeeze.dims", vec![vec![-1i64].into()])]
}

/// Shares as places in rows, in f64: of rows that are not all numbers, the last place, or places among the numbers.
fn places<'b>(c: &Call<'b>, q: Value<'b>, sorted: Value<'b>, size: Dim, ignore_nan: bool) -> Value<'b> {
    let q = q.to(DType::F64);
    let nan = sorted.op("aten.isnan", vec![]);
    let number = |v: Arg| c.b.call("aten.scalar_tensor", vec![v, DType::F64.into()]);
    if ignore_nan {
        let numbers = nan.op("aten.logical_not", vec![]);
        let count = numbers.op("aten.sum.dim_IntList", vec![vec![-1i64].into(), true.into()]);
        let ranks = q * count.op("aten.sub.Scalar", vec![1i64.into()]);
        let below = ranks.op("aten.lt.Scalar", vec![0i64.into()]);
        return below.op("aten.where.self", vec![number(0i64.into()).into(), ranks.into()]);
    }
    let last = size - Dim::from(1i64);
    let ranks = q.op("aten.mul.Scalar", vec![last.clone().into()]);
    let any = nan.op("aten.any.dim", vec![(-1i64).into(), true.into()]);
    let shape = broadcast(&[&ranks.shape(), &any.shape()]).unwrap_or_default();
    let [ranks, any] = [ranks, any].map(|v| match v.shape() == shape {
        true => v,
        false => v.op("aten.expand", vec![shape.clone().into()]),
    });
    any.op("aten.where.self", vec![number(last.into()).into(), ranks.into()])
}

/// Elements of sorted rows at places between whole ones.
fn between<'b>(c: &Call<'b>, ranks: Value<'b>, sorted: Value<'b>) -> Value<'b> {
    let at = |r: Value<'b>| {
        let place = r.to(DType::I64);
        (place, sorted.op("aten.gather", vec![(-1i64).into(), place.into()]))
    };
    let (below, low) = at(ranks);
    let weights = match c.str("interpolation") {
        "linear" => (ranks - below).to(sorted.dtype()),
        "midpoint" => ranks.op("aten.full_like", vec![0.5f64.into(), sorted.dtype().into()]),
        _ => return low,
    };
    let (_, high) = at(ranks.op("aten.ceil", vec![]));
    low.op("aten.lerp.Tensor", vec![high.into(), weights.into()])
}

static PLAIN: &[&OpDef] = &[&VAR, &VAR_MEAN, &STD, &STD_MEAN];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, UNBIASED, QUANTILES];
