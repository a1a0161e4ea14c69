//! Reductions: over the dimensions named, or over all.

use super::infer::{reduced, to_float};
use super::promote::{self, Kind, Types};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Reduction,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    ..OpDef::BASE
};
const EXACT: OpDef = OpDef { accuracy: Accuracy::Exact, ..BASE };
/// Spelled otherwise in Core ATen.
const SUGAR: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };

const DIMS: &str = "(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor";
const WHOLE: &str = "(Tensor self, *, ScalarType? dtype=None) -> Tensor";

/// No dimensions named: all of them.
fn all() -> Arg {
    Arg::List(vec![])
}

/// The dimensions that a call reduces: all, if it names none.
pub(super) fn axes(c: &Call<'_>, rank: usize) -> Vec<usize> {
    let named = match c.op.schema.index("dim").map(|_| c.arg("dim")) {
        None | Some(Arg::None) => vec![],
        Some(Arg::List(_)) => c.ints("dim"),
        Some(_) => vec![c.int("dim")],
    };
    let named = named.into_iter().map(|d| c.wrap(d, rank)).collect::<Result<Vec<_>>>();
    named.map_or_else(
        |e| {
            c.b.fail(e);
            vec![]
        },
        |v| if v.is_empty() || rank == 0 { (0..rank).collect() } else { v },
    )
}

/// A prim over dimensions, computed in one type and given in another; reduced dimensions may stay with size 1.
pub(super) fn over<'b>(x: Value<'b>, prim: &str, axes: &[usize], more: &[Arg], keep: bool, types: Types) -> Value<'b> {
    let args = [&[axes.to_vec().into()], more].concat();
    let y = x.to(types.compute).op(prim, args);
    let shape = x.shape();
    if !keep || axes.is_empty() {
        return y.to(types.result);
    }
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
    let size = |(i, d): (usize, Dim)| if axes.contains(&i) { Dim::from(1i64) } else { d };
    let sizes: Vec<Dim> = shape.into_iter().enumerate().map(size).collect();
    y.op("prims.broadcast_in_dim", vec![sizes.into(), kept.into()]).to(types.result)
}

/// The call as a prim that gives this type if none is asked for.
fn lower<'b>(c: &Call<'b>, prim: &str, natural: fn(DType) -> DType) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let has = |n: &str| c.op.schema.index(n).is_some();
    let asked = if has("dtype") { c.opt_dtype("dtype") } else { None };
    let types = Kind::Default.of(asked.unwrap_or(natural(x.dtype())));
    vec![over(x, prim, &axes(c, x.rank()), &[], has("keepdim") && c.bool("keepdim"), types)]
}

/// The type in which sums and products are given.
fn summed(d: DType) -> DType {
    if d.is_float() { d } else { DType::I64 }
}

fn same(d: DType) -> DType {
    d
}

fn reduce(c: &Call<'_>, natural: fn(DType) -> DType) -> Result<Meta> {
    let m = c.meta("self")?;
    let asked = if c.op.schema.index("dtype").is_some() { c.opt_dtype("dtype") } else { None };
    let shape = reduced(c, &m.shape, c.opt_ints("dim").as_deref(), c.bool("keepdim"))?;
    Ok(Meta::tensor(asked.unwrap_or(natural(m.dtype)), shape))
}

/// Mean over dimensions.
pub static MEAN: OpDef = OpDef {
    name: "aten.mean.dim",
    schema: DIMS,
    infer: Some(|c| reduce(c, to_float)),
    rule: Some(|c| {
        let x = c.tensor("self");
        let types = Kind::Default.of(c.opt_dtype("dtype").unwrap_or(to_float(x.dtype())));
        let axes = axes(c, x.rank());
        let count: Dim = axes.iter().map(|i| x.shape()[*i].clone()).product();
        let total = over(x, "prims.sum", &axes, &[], c.bool("keepdim"), Types { result: types.compute, ..types });
        vec![total.op("aten.div.Tensor", vec![count.into()]).to(types.result)]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], [0, 1], true | f32[2, 3], none, false, f64",
    raisable: true,
    ..BASE
};

/// Mean of all elements.
pub static MEAN_ALL: OpDef = OpDef {
    name: "aten.mean.default",
    schema: WHOLE,
    rule: Some(|c| vec![c.tensor("self").op("aten.mean.dim", vec![all(), false.into(), c.arg("dtype").clone()])]),
    example: "f32[2, 3]",
    ..BASE
};

/// Sum over dimensions; integers are summed as i64.
pub static SUM: OpDef = OpDef {
    name: "aten.sum.dim_IntList",
    schema: DIMS,
    infer: Some(|c| reduce(c, summed)),
    rule: Some(|c| lower(c, "prims.sum", summed)),
    example: "f32[2, 3], [1] | f32[2, 3], [0, 1], true | f32[2, 3], none, false, f64",
    ..BASE
};

/// Sum of all elements.
pub static SUM_ALL: OpDef = OpDef {
    name: "aten.sum.default",
    schema: WHOLE,
    rule: Some(|c| {
        vec![c.tensor("self").op("aten.sum.dim_IntList", vec![all(), false.into(), c.arg("dtype").clone()])]
    }),
    example: "f32[2, 3]",
    ..SUGAR
};

/// Sum over those dimensions that a smaller shape lacks or has as 1.
pub static SUM_TO_SIZE: OpDef = OpDef {
    name: "aten.sum_to_size.default",
    schema: "(Tensor self, SymInt[] size) -> Tensor",
    rule: Some(|c| {
        let (x, size) = (c.tensor("self"), c.dims("size"));
        let shape = x.shape();
        if size.is_empty() {
            return vec![x.op("aten.sum", vec![])];
        }
        let Some(lead) = shape.len().checked_sub(size.len()) else {
            c.fail(&format!("{size:?} has more dimensions than {shape:?}"));
            return vec![x];
        };
        if (lead..shape.len()).any(|i| !size[i - lead].is(1) && size[i - lead] != shape[i]) {
            c.fail(&format!("{size:?} does not expand to {shape:?}"));
        }
        let lost = |i: &usize| *i < lead || size[i - lead].is(1) && !shape[*i].is(1);
        let axes: Vec<usize> = (0..shape.len()).filter(lost).collect();
        let y = if axes.is_empty() { x } else { x.op("aten.sum.dim_IntList", vec![axes.into(), true.into()]) };
        vec![if lead > 0 { y.view(size) } else { y }]
    }),
    example: "f32[2, 3, 2], [3, 1] | f32[2, 3], []",
    ..SUGAR
};

/// How many elements are not zero.
pub static COUNT_NONZERO: OpDef = OpDef {
    name: "aten.count_nonzero.default",
    schema: "(Tensor self, int? dim=None) -> Tensor",
    accuracy: Accuracy::Exact,
    rule: Some(|c| {
        let dims: Vec<i64> = c.opt_int("dim").into_iter().collect();
        vec![nonzero(c).op("aten.sum.dim_IntList", vec![dims.into()])]
    }),
    example: "f32[2, 3] | f32[2, 3], 1",
    ..SUGAR
};

/// [`COUNT_NONZERO`] over several dimensions.
pub static COUNT_NONZERO_DIMS: OpDef = OpDef {
    name: "aten.count_nonzero.dim_IntList",
    schema: "(Tensor self, int[] dim) -> Tensor",
    rule: Some(|c| vec![nonzero(c).op("aten.sum.dim_IntList", vec![c.arg("dim").clone()])]),
    example: "f32[2, 3], [0, 1]",
    ..COUNT_NONZERO
};

fn nonzero<'b>(c: &Call<'b>) -> Value<'b> {
    c.tensor("self").op("aten.ne.Scalar", vec![0i64.into()])
}

/// Sum over dimensions, not a number counted as 0.
pub static NANSUM: OpDef = OpDef {
    name: "aten.nansum.default",
    schema: "(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("self");
        let zero = c.b.call("aten.scalar_tensor", vec![0i64.into(), x.dtype().into()]);
        let numbers = x.op("aten.isnan", vec![]).op("aten.where.self", vec![zero.into(), x.into()]);
        let rest = ["dim", "keepdim", "dtype"].map(|n| c.arg(n).clone());
        vec![numbers.op("aten.sum.dim_IntList", rest.to_vec())]
    }),
    example: "f32[2, 3] | f32[2, 3], [1], true",
    ..SUGAR
};

/// Mean over dimensions of what is a number.
pub static NANMEAN: OpDef = OpDef {
    name: "aten.nanmean.default",
    schema: "(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("self");
        let own = x.op("aten.alias", vec![]);
        let numbers = own.op("aten.ne.Tensor", vec![own.into()]).op("aten.logical_not", vec![]);
        let [dim, keep, dtype] = ["dim", "keepdim", "dtype"].map(|n| c.arg(n).clone());
        let count = numbers.op("aten.sum.dim_IntList", vec![dim.clone(), keep.clone()]);
        vec![x.op("aten.nansum", vec![dim, keep, dtype]) / count]
    }),
    example: "f32[2, 3] | f32[2, 3], [1], true",
    ..SUGAR
};

/// Product along a dimension.
pub static PROD: OpDef = OpDef {
    name: "aten.prod.dim_int",
    schema: "(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        along(c, Some(c.opt_dtype("dtype").unwrap_or(summed(m.dtype))))
    }),
    rule: Some(|c| lower(c, "prims.prod", summed)),
    example: "f32[2, 3]>0, 1 | f32[2, 3]>0, 0, true",
    ..BASE
};

/// Product of all elements.
pub static PROD_ALL: OpDef = OpDef {
    name: "aten.prod.default",
    schema: WHOLE,
    rule: Some(|c| {
        let x = c.tensor("self");
        let flat = reshape(x, vec![x.shape().into_iter().product()]);
        vec![flat.op("aten.prod.dim_int", vec![0i64.into(), false.into(), c.arg("dtype").clone()])]
    }),
    example: "f32[2, 3]>0",
    ..BASE
};

/// Greatest elements over dimensions.
pub static AMAX: OpDef = OpDef {
    name: "aten.amax.default",
    schema: "(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    infer: Some(|c| reduce(c, same)),
    rule: Some(|c| lower(c, "prims.amax", same)),
    example: "f32[2, 3]!, [1] | f32[2, 3]!, [], true",
    ..EXACT
};

/// Least elements over dimensions.
pub static AMIN: OpDef = OpDef { name: "aten.amin.default", rule: Some(|c| lower(c, "prims.amin", same)), ..AMAX };

/// The least and the greatest elements, along a dimension or of all.
pub static AMINMAX: OpDef = OpDef {
    name: "aten.aminmax.default",
    schema: "(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor, Tensor)",
    accuracy: Accuracy::Exact,
    rule: Some(|c| {
        let dims: Vec<i64> = c.opt_int("dim").into_iter().collect();
        let args = vec![dims.into(), c.arg("keepdim").clone()];
        vec![c.tensor("self").op("aten.amin", args.clone()), c.tensor("self").op("aten.amax", args)]
    }),
    example: "f32[2, 3]! | f32[2, 3]!, 1, true",
    ..SUGAR
};

/// The greatest of all elements.
pub static MAX_ALL: OpDef = OpDef {
    name: "aten.max.default",
    schema: "(Tensor self) -> Tensor",
    rule: Some(|c| vec![c.tensor("self").op("aten.amax", vec![])]),
    example: "f32[2, 3]!",
    ..EXACT
};

/// The least of all elements.
pub static MIN_ALL: OpDef =
    OpDef { name: "aten.min.default", rule: Some(|c| vec![c.tensor("self").op("aten.amin", vec![])]), ..MAX_ALL };

/// The greatest elements along a dimension, and where they were.
pub static MAX_DIM: OpDef = OpDef {
    name: "aten.max.dim",
    schema: "(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)",
    infer: Some(|c| Ok(Meta::Tuple(vec![along(c, None)?, along(c, Some(DType::I64))?]))),
    rule: Some(|c| extreme(c, "aten.argmax")),
    example: "f32[2, 3]!, 1 | f32[2, 3]!, 0, true",
    ..EXACT
};

/// The least elements along a dimension, and where they were.
pub static MIN_DIM: OpDef = OpDef { name: "aten.min.dim", rule: Some(|c| extreme(c, "aten.argmin")), ..MAX_DIM };

/// The elements at the places that an op finds along the dimension, and the places.
fn extreme<'b>(c: &Call<'b>, find: &str) -> Vec<Value<'b>> {
    let (x, dim) = (c.tensor("self"), c.arg("dim").clone());
    let places = x.op(find, vec![dim.clone(), true.into()]);
    let best = x.op("aten.gather", vec![dim.clone(), places.into()]);
    let given = |v: Value<'b>| {
        if c.bool("keepdim") { v } else { v.op("aten.squeeze.dims", vec![Arg::List(vec![dim.clone()])]) }
    };
    vec![given(best), given(places)]
}

fn along(c: &Call<'_>, dtype: Option<DType>) -> Result<Meta> {
    let m = c.meta("self")?;
    let shape = reduced(c, &m.shape, Some(&[c.int("dim")]), c.bool("keepdim"))?;
    Ok(Meta::tensor(dtype.unwrap_or(m.dtype), shape))
}

/// Where the greatest element is, along a dimension or in the flattened tensor.
pub static ARGMAX: OpDef = OpDef {
    name: "aten.argmax.default",
    schema: "(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| {
        let m = c.meta("self")?;
        let dims = c.opt_int("dim").map(|d| vec![d]);
        Ok(Meta::tensor(DType::I64, reduced(c, &m.shape, dims.as_deref(), c.bool("keepdim"))?))
    }),
    ..EXACT
};

/// Where the least element is, along a dimension or in the flattened tensor.
pub static ARGMIN: OpDef = OpDef { name: "aten.argmin.default", ..ARGMAX };

/// Whether any element along a dimension is true.
pub static ANY: OpDef = OpDef {
    name: "aten.any.dim",
    schema: "(Tensor self, int dim, bool keepdim=False) -> Tensor",
    infer: Some(truth),
    rule: Some(any),
    example: "f32[2, 3], 1 | f32[2, 3], 0, true",
    ..EXACT
};

/// Whether any element over dimensions is true; over none, each for itself.
pub static ANY_DIMS: OpDef = OpDef {
    name: "aten.any.dims",
    schema: "(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
    example: "f32[2, 3], [0, 1] | f32[2, 3], [], true | f32[2, 3]",
    ..ANY
};

/// Whether any element is true.
pub static ANY_ALL: OpDef =
    OpDef { name: "aten.any.default", schema: "(Tensor self) -> Tensor", example: "f32[2, 3]", ..ANY };

/// Whether all elements along a dimension are true.
pub static ALL: OpDef = OpDef { name: "aten.all.dim", levels: SUGAR.levels, rule: Some(every), ..ANY };

/// Whether all elements over dimensions are true; over none, each for itself.
pub static ALL_DIMS: OpDef = OpDef { name: "aten.all.dims", levels: SUGAR.levels, rule: Some(every), ..ANY_DIMS };

/// Whether all elements are true.
pub static ALL_ALL: OpDef = OpDef { name: "aten.all.default", levels: SUGAR.levels, rule: Some(every), ..ANY_ALL };

/// A call's dimensions and whether they stay; dimensions are none where all are meant.
fn scope(c: &Call<'_>) -> (Option<Vec<i64>>, bool) {
    let dims = match c.op.schema.index("dim").map(|_| c.arg("dim")) {
        None | Some(Arg::None) => None,
        Some(Arg::List(_)) => Some(c.ints("dim")),
        Some(_) => Some(vec![c.int("dim")]),
    };
    (dims, c.op.schema.index("keepdim").is_some() && c.bool("keepdim"))
}

/// Truth values: bool, but u8 for u8.
fn truth(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    let shape = match scope(c) {
        (Some(d), _) if d.is_empty() => m.shape,
        (d, keep) => reduced(c, &m.shape, d.as_deref(), keep)?,
    };
    Ok(Meta::tensor(if m.dtype == DType::U8 { DType::U8 } else { DType::Bool }, shape))
}

fn any<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let own = x.to(DType::Bool);
    let y = match scope(c) {
        (Some(d), _) if d.is_empty() => own,
        (d, keep) => {
            let count = own.op("aten.sum.dim_IntList", vec![d.into(), keep.into()]);
            count.op("aten.ne.Scalar", vec![0i64.into()])
        }
    };
    vec![if x.dtype() == DType::U8 { y.to(DType::U8) } else { y }]
}

fn every<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let not = x.op("aten.logical_not", vec![]);
    let (dims, keep) = scope(c);
    let any = match (dims.as_deref(), c.op.name) {
        (Some([d]), "aten.all.dim") => not.op("aten.any.dim", vec![(*d).into(), keep.into()]),
        _ => not.op("aten.any.dims", vec![dims.into(), keep.into()]),
    };
    let y = any.op("aten.logical_not", vec![]);
    vec![if x.dtype() == DType::U8 { y.to(DType::U8) } else { y }]
}

/// `log Σ exp(x)` over dimensions, without overflow.
pub static LOGSUMEXP: OpDef = OpDef {
    name: "aten.logsumexp.default",
    schema: "(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
    rule: Some(|c| {
        let (x, types) = promote::tensors(c, &["self"], Kind::IntToFloat);
        let (x, dim, keep) = (x[0], c.arg("dim").clone(), c.bool("keepdim"));
        if x.shape().iter().any(|d| d.is(0)) {
            let total = x.exp().op("aten.sum.dim_IntList", vec![dim, keep.into()]);
            return vec![total.op("aten.log", vec![]).to(types.result)];
        }
        let top = x.op("aten.amax", vec![dim.clone(), true.into()]);
        let endless = top.abs().op("aten.eq.Scalar", vec![f64::INFINITY.into()]);
        let top = top.op("aten.masked_fill.Scalar", vec![endless.into(), 0i64.into()]);
        let total = (x - top).exp().op("aten.sum.dim_IntList", vec![dim.clone(), keep.into()]);
        let base = if keep { top } else { squeezed(c, top, x.rank()) };
        vec![(total.op("aten.log", vec![]) + base).to(types.result)]
    }),
    example: "f32[2, 3], [1] | f32[2, 3], [0, 1], true",
    raisable: true,
    ..SUGAR
};

/// The value without the dimensions that the call reduces.
fn squeezed<'b>(c: &Call<'b>, x: Value<'b>, rank: usize) -> Value<'b> {
    let dims = if c.ints("dim").is_empty() { (0..rank).collect::<Vec<_>>().into() } else { c.arg("dim").clone() };
    x.op("aten.squeeze.dims", vec![dims])
}

/// [`LOGSUMEXP`].
pub static SPECIAL_LOGSUMEXP: OpDef = OpDef {
    name: "aten.special_logsumexp.default",
    rule: Some(|c| vec![c.b.call("aten.logsumexp", c.args.to_vec())]),
    ..LOGSUMEXP
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &MEAN,
    &MEAN_ALL,
    &SUM,
    &SUM_ALL,
    &SUM_TO_SIZE,
    &COUNT_NONZERO,
    &COUNT_NONZERO_DIMS,
    &NANSUM,
    &NANMEAN,
    &PROD,
    &PROD_ALL,
    &AMAX,
    &AMIN,
    &AMINMAX,
    &MAX_ALL,
    &MIN_ALL,
    &MAX_DIM,
    &MIN_DIM,
    &ARGMAX,
    &ARGMIN,
    &ANY,
    &ANY_DIMS,
    &ANY_ALL,
    &ALL,
    &ALL_DIMS,
    &ALL_ALL,
    &LOGSUMEXP,
    &SPECIAL_LOGSUMEXP,
]];
