//! What orders elements, or counts equal ones.

use super::infer::{ensure, reduced};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta, TensorMeta};
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, levels: Levels::ALL, ..OpDef::BASE };
const SUGAR: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };
/// Core ATen keeps it, though it is another op with other arguments.
const NAMED: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $base:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, schema: $schema, ..$base };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id),*]];
    };
}

const SORT_BASE: OpDef = OpDef { infer: Some(|c| found(c.meta("self")?, |_| Ok(()))), ..BASE };
const ALONG: OpDef = OpDef { class: Class::Reduction, infer: Some(along), ..BASE };
const CUMULATIVE: OpDef = OpDef {
    class: Class::Reduction,
    infer: Some(|c| {
        let m = c.meta("self")?;
        c.axis("dim", m.shape.len())?;
        found(m, |_| Ok(()))
    }),
    ..BASE
};
const WHOLE: OpDef =
    OpDef { class: Class::Reduction, infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, vec![]))), ..BASE };
const UNIQUE: OpDef = OpDef { class: Class::Reduction, infer: Some(unique), ..BASE };
const COUNT: OpDef = OpDef { class: Class::Reduction, ..BASE };

family! {
    /// Elements in order along a dimension, and where they were.
    SORT = "aten.sort.default", "(Tensor self, int dim=-1, bool descending=False) -> (Tensor, Tensor)", SORT_BASE;
    /// [`SORT`], equal elements in the order in which they were.
    SORT_STABLE = "aten.sort.stable",
        "(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor, Tensor)", SORT_BASE;
    /// Where the elements of [`SORT`] were.
    ARGSORT = "aten.argsort.default", "(Tensor self, int dim=-1, bool descending=False) -> Tensor", OpDef {
        rule: Some(|c| vec![c.b.getitem(c.b.call("aten.sort", c.args.to_vec()), 1)]),
        example: "f32[2, 3]! | f32[2, 3]!, 0, true",
        ..SUGAR
    };
    /// Where the elements of [`SORT_STABLE`] were.
    ARGSORT_STABLE = "aten.argsort.stable",
        "(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor", OpDef {
        rule: Some(|c| vec![c.b.getitem(c.b.call("aten.sort.stable", c.args.to_vec()), 1)]),
        example: "f32[2, 3]!, true | f32[2, 3]!, false, 0, true",
        ..SUGAR
    };
    /// The elements of [`SORT`] along the first dimension.
    MSORT = "aten.msort.default", "(Tensor self) -> Tensor", OpDef {
        rule: Some(|c| vec![c.b.getitem(c.tensor("self").op("aten.sort", vec![0i64.into()]), 0)]),
        example: "f32[3, 2]!",
        ..SUGAR
    };
    /// The greatest (or least) elements along a dimension, and where they were.
    TOPK = "aten.topk.default",
        "(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor, Tensor)", OpDef {
        infer: Some(|c| {
            let m = c.meta("self")?;
            let axis = c.axis("dim", m.shape.len())?;
            found(m, |shape| {
                if let Some(d) = shape.get_mut(axis) {
                    *d = c.dim("k");
                }
                Ok(())
            })
        }),
        ..BASE
    };
    /// The `k`-th least element along a dimension, and where it was.
    KTHVALUE = "aten.kthvalue.default",
        "(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)", ALONG;
    /// The most frequent element along a dimension, the least of several, and where it was last.
    MODE = "aten.mode.default", "(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor, Tensor)", ALONG;
    /// The middle element along a dimension, the lesser of two, and where it was.
    MEDIAN_DIM = "aten.median.dim", "(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", ALONG;
    /// [`MEDIAN_DIM`] of the elements that are numbers.
    NANMEDIAN_DIM = "aten.nanmedian.dim", "(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)", ALONG;
    /// The middle one of all elements.
    MEDIAN = "aten.median.default", "(Tensor self) -> Tensor", WHOLE;
    /// The middle one of all elements that are numbers.
    NANMEDIAN = "aten.nanmedian.default", "(Tensor self) -> Tensor", WHOLE;
    /// The greatest element so far along a dimension, and where it was last.
    CUMMAX = "aten.cummax.default", "(Tensor self, int dim) -> (Tensor, Tensor)", CUMULATIVE;
    /// The least element so far along a dimension, and where it was last.
    CUMMIN = "aten.cummin.default", "(Tensor self, int dim) -> (Tensor, Tensor)", CUMULATIVE;
    /// How many elements of a sorted row are less than (or, to the right of equal ones, not greater than) each.
    SEARCHSORTED = "aten.searchsorted.Tensor",
        "(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
        OpDef {
        infer: Some(|c| {
            let dtype = if c.bool("out_int32") { DType::I32 } else { DType::I64 };
            Ok(Meta::tensor(dtype, c.meta("self")?.shape))
        }),
        ..BASE
    };
    /// [`SEARCHSORTED`] of a number.
    SEARCHSORTED_SCALAR = "aten.searchsorted.Scalar",
        "(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
        OpDef {
        rule: Some(|c| search(c, c.tensor("sorted_sequence"), &["side", "sorter"])),
        example: "f32[1], 0.5",
        ..NAMED
    };
    /// [`SEARCHSORTED`] with the elements first.
    BUCKETIZE = "aten.bucketize.Tensor",
        "(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
        OpDef { rule: Some(|c| search(c, c.tensor("boundaries"), &[])), example: "f32[2, 3], f32[1]", ..NAMED };
    /// [`BUCKETIZE`] of a number.
    BUCKETIZE_SCALAR = "aten.bucketize.Scalar",
        "(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
        OpDef { rule: Some(|c| search(c, c.tensor("boundaries"), &[])), example: "0.5, f32[1]", ..NAMED };
    /// The different elements in order; for each element which of them it is; how often each is there.
    UNIQUE2 = "aten._unique2.default",
        "(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        UNIQUE;
    /// [`UNIQUE2`] of the parts along a dimension.
    UNIQUE_DIM = "aten.unique_dim.default",
        "(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
        UNIQUE;
    /// [`UNIQUE2`], or [`UNIQUE_DIM`], in which only neighbours count as equal.
    UNIQUE_CONSECUTIVE = "aten.unique_consecutive.default",
        "(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)",
        UNIQUE;
    /// [`UNIQUE_CONSECUTIVE`] along a dimension.
    UNIQUE_DIM_CONSECUTIVE = "aten.unique_dim_consecutive.default",
        "(Tensor self, int dim, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)", UNIQUE;
    /// How often (or with which sum of weights) each number is there, from 0 on.
    BINCOUNT = "aten.bincount.default", "(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor", OpDef {
        infer: Some(|c| {
            let m = c.meta("self")?;
            ensure(c, m.shape.len() == 1 && m.dtype.is_int(), || format!("{m:?}, expected one dimension of integers"))?;
            let dtype = match c.opt_tensor("weights").map(Value::dtype) {
                None => DType::I64,
                Some(DType::F32) => DType::F32,
                Some(_) => DType::F64,
            };
            Ok(Meta::tensor(dtype, vec![Dim::unknown(0)]))
        }),
        ..COUNT
    };
    /// Whether each element is among others.
    ISIN = "aten.isin.Tensor_Tensor",
        "(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", OpDef {
        rule: Some(|c| vec![among(c, c.tensor("elements"), c.tensor("test_elements"))]),
        example: "f32[2, 3], f32[2] | f32[2], f32[20], false, true",
        ..SUGAR
    };
    /// Whether each element is a number.
    ISIN_SCALAR = "aten.isin.Tensor_Scalar",
        "(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor", OpDef {
        rule: Some(|c| {
            let op = if c.bool("invert") { "aten.ne.Scalar" } else { "aten.eq.Scalar" };
            vec![c.tensor("elements").op(op, vec![c.arg("test_element").clone()])]
        }),
        example: "f32[2, 3], 1.0 | f32[2, 3], 1.0, false, true",
        ..SUGAR
    };
    /// Whether a number is among elements.
    ISIN_OF_SCALAR = "aten.isin.Scalar_Tensor",
        "(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor", OpDef {
        rule: Some(|c| {
            let element = c.b.call("aten.scalar_tensor", vec![c.arg("element").clone()]);
            vec![among(c, element, c.tensor("test_elements"))]
        }),
        example: "1.0, f32[2, 3] | 1.0, f32[3, 4]",
        ..SUGAR
    };
    /// Counts of elements in equal parts of a range, that of the elements if it is empty.
    HISTC = "aten.histc.default", "(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", OpDef {
        infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, vec![bins(c, c.int("bins"))?]))),
        ..COUNT
    };
    /// Counts of elements in equal parts of a range, and the parts' edges.
    HISTOGRAM = "aten.histogram.bin_ct",
        "(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor, Tensor)",
        OpDef {
        infer: Some(|c| {
            let (dtype, n) = (c.meta("self")?.dtype, bins(c, c.int("bins"))?);
            let edges = Meta::tensor(dtype, vec![n.clone() + Dim::from(1i64)]);
            Ok(Meta::Tuple(vec![Meta::tensor(dtype, vec![n]), edges]))
        }),
        ..COUNT
    };
    /// [`HISTOGRAM`] between these edges.
    HISTOGRAM_EDGES = "aten.histogram.bins_tensor",
        "(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor, Tensor)", OpDef {
        infer: Some(|c| {
            let (dtype, edges) = (c.meta("self")?.dtype, c.meta("bins")?);
            let count = edges.shape.iter().cloned().product::<Dim>() - Dim::from(1i64);
            Ok(Meta::Tuple(vec![Meta::tensor(dtype, vec![count]), Meta::Tensor(edges)]))
        }),
        ..COUNT
    };
    /// Counts of points, whose coordinates lie in the last dimension, and the edges of each coordinate.
    HISTOGRAMDD = "aten.histogramdd.default",
        "(Tensor self, int[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
        OpDef { rule: Some(|c| by_counts(c, c.arg("bins").clone())), example: "f32[3, 2], [2, 3]", ..SUGAR };
    /// [`HISTOGRAMDD`] with as many parts of each coordinate.
    HISTOGRAMDD_INT = "aten.histogramdd.int_bins",
        "(Tensor self, int bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
        OpDef {
        rule: Some(|c| {
            let n = c.tensor("self").shape().last().and_then(Dim::as_const).filter(|n| (0..64).contains(n));
            by_counts(c, vec![c.int("bins"); n.unwrap_or(0) as usize].into())
        }),
        example: "f32[3, 2], 2",
        ..SUGAR
    };
    /// [`HISTOGRAMDD`] between these edges.
    HISTOGRAMDD_EDGES = "aten.histogramdd.TensorList_bins",
        "(Tensor self, Tensor[] bins, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor[] bin_edges)",
        OpDef {
        infer: Some(|c| {
            let edges = c.metas("bins")?;
            let parts = |m: &TensorMeta| m.shape.iter().cloned().product::<Dim>() - Dim::from(1i64);
            let hist = Meta::tensor(c.meta("self")?.dtype, edges.iter().map(parts).collect());
            Ok(Meta::Tuple(vec![hist, Meta::Tuple(edges.into_iter().map(Meta::Tensor).collect())]))
        }),
        ..COUNT
    };
    /// The edges of [`HISTOGRAMDD`].
    HISTOGRAMDD_BIN_EDGES = "aten._histogramdd_bin_edges.default",
        "(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor[]", OpDef {
        infer: Some(|c| {
            let dtype = c.meta("self")?.dtype;
            let edges = |n: i64| Ok(Meta::tensor(dtype, vec![bins(c, n)? + Dim::from(1i64)]));
            Ok(Meta::Tuple(c.ints("bins").into_iter().map(edges).collect::<Result<_>>()?))
        }),
        ..COUNT
    };
    /// The counts of [`HISTOGRAMDD`].
    HISTOGRAMDD_COUNTS = "aten._histogramdd_from_bin_cts.default",
        "(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor", OpDef {
        infer: Some(|c| {
            let shape = c.ints("bins").into_iter().map(|n| bins(c, n)).collect::<Result<_>>()?;
            Ok(Meta::tensor(c.meta("self")?.dtype, shape))
        }),
        ..COUNT
    };
}

/// A number of parts.
fn bins(c: &Call<'_>, n: i64) -> Result<Dim> {
    ensure(c, (1..1 << 31).contains(&n), || format!("{n} bins"))?;
    Ok(Dim::from(n))
}

/// Elements of this tensor in another shape, and where they were.
fn found(mut m: TensorMeta, reshape: impl FnOnce(&mut Vec<Dim>) -> Result<()>) -> Result<Meta> {
    reshape(&mut m.shape)?;
    let index = Meta::tensor(DType::I64, m.shape.clone());
    Ok(Meta::Tuple(vec![Meta::Tensor(m), index]))
}

/// One element of each row.
fn along(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    found(m, |shape| {
        *shape = reduced(c, shape, Some(&[c.int("dim")]), c.bool("keepdim"))?;
        Ok(())
    })
}

fn unique(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    let has = |name: &str| c.op.schema.index(name).is_some() && c.bool(name);
    let dim = match c.op.schema.index("dim") {
        Some(_) => c.opt_int("dim").map(|d| c.wrap(d, m.shape.len())).transpose()?,
        None => None,
    };
    let (count, nothing) = (Dim::unknown(0), Dim::from(0i64));
    let mut shape = vec![count.clone()];
    let mut inverse = m.shape.clone();
    if let Some(axis) = dim {
        ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
        shape = m.shape.clone();
        shape[axis] = count.clone();
        inverse = vec![m.shape[axis].clone()];
    }
    let inverse = if has("return_inverse") || dim.is_some() { inverse } else { vec![nothing.clone()] };
    let counts = if has("return_counts") || dim.is_some() { count } else { nothing };
    let index = |shape| Meta::tensor(DType::I64, shape);
    Ok(Meta::Tuple(vec![Meta::tensor(m.dtype, shape), index(inverse), index(vec![counts])]))
}

/// [`SEARCHSORTED`] of the first operand, which may be a number, with these options besides those that all have.
fn search<'b>(c: &Call<'b>, sorted: Value<'b>, options: &[&str]) -> Vec<Value<'b>> {
    let x = match c.arg("self") {
        Arg::Node(n) => c.b.value(*n),
        number => {
            let dtype = if matches!(number, Arg::Float(_)) { DType::F64 } else { DType::I64 };
            c.b.call("aten.scalar_tensor", vec![number.clone(), dtype.into()])
        }
    };
    let mut args = vec![x.into(), c.arg("out_int32").clone(), c.arg("right").clone()];
    args.extend(options.iter().map(|n| c.arg(n).clone()));
    vec![sorted.op("aten.searchsorted.Tensor", args)]
}

fn by_counts<'b>(c: &Call<'b>, bins: Arg) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let pick = |n: &str| c.arg(n).clone();
    let args = vec![bins, pick("range"), pick("weight"), pick("density")];
    let counts = x.op("aten._histogramdd_from_bin_cts", args.clone());
    vec![counts, x.op("aten._histogramdd_bin_edges", args)]
}

fn number_of(x: Value<'_>) -> Dim {
    x.shape().into_iter().product()
}

/// torch's choice: few others are compared one by one, many are sorted and searched.
fn among<'b>(c: &Call<'b>, x: Value<'b>, others: Value<'b>) -> Value<'b> {
    let invert = c.bool("invert");
    let not = |y: Value<'b>, op: &str| if invert { y.op(op, vec![]) } else { y };
    let (n, m) = (number_of(x), number_of(others));
    let few = n.as_const().zip(m.as_const()).is_some_and(|(n, m)| (m as f64) < 10.0 * (n as f64).powf(0.145));
    if few {
        if n.is(0) {
            return x.op("aten.empty_like", vec![DType::Bool.into()]);
        }
        let rank = others.rank();
        if rank == 0 {
            return not(x.op("aten.eq.Tensor", vec![others.into()]), "aten.bitwise_not");
        }
        let column = [x.shape(), vec![Dim::from(1i64); rank]].concat();
        let equal = x.view(column).op("aten.eq.Tensor", vec![others.into()]);
        let axes: Vec<i64> = (1..=rank as i64).map(|i| -i).collect();
        return not(equal.op("aten.any.dims", vec![axes.into()]), "aten.bitwise_not");
    }
    let flat = |x: Value<'b>| x.op("aten.flatten.using_ints", vec![]);
    let (row, others) = (flat(x), flat(others));
    if c.bool("assume_unique") {
        return doubled(x, row, others, &|y| not(y, "aten.logical_not"));
    }
    let sorted = c.b.getitem(others.op("aten.sort", vec![]), 0);
    let at = sorted.op("aten.searchsorted.Tensor", vec![row.into()]);
    let inside = at.op("aten.lt.Scalar", vec![m.into()]);
    let at = inside.op("aten.where.ScalarOther", vec![at.into(), 0i64.into()]);
    let equal = sorted.op("aten.index.Tensor", vec![vec![at].into()]).op("aten.eq.Tensor", vec![row.into()]);
    not(equal, "aten.logical_not").op("aten.reshape", vec![x.shape().into()])
}

/// Whether the elements of `row`, of which each is there once, are also in `others`: equal neighbours when sorted.
fn doubled<'b>(x: Value<'b>, row: Value<'b>, others: Value<'b>, not: &dyn Fn(Value<'b>) -> Value<'b>) -> Value<'b> {
    let b = x.builder();
    let slice = |x: Value<'b>, from: i64, to: Arg| x.op("aten.slice.Tensor", vec![0i64.into(), from.into(), to]);
    let all = b.call("aten.cat", vec![vec![row, others].into()]);
    let both = all.op("aten.sort.stable", vec![true.into()]);
    let (sorted, order) = (b.getitem(both, 0), b.getitem(both, 1));
    let next = slice(sorted, 1, i64::MAX.into());
    let equal = next.op("aten.eq.Tensor", vec![slice(sorted, 0, (-1i64).into()).into()]);
    let equal = not(equal.op("aten.constant_pad_nd", vec![vec![0i64, 1].into(), false.into()]));
    let blank = equal.op("aten.empty_like", vec![]);
    let back = blank.op("aten.index_copy", vec![0i64.into(), order.into(), equal.into()]);
    slice(back, 0, number_of(x).into()).op("aten.reshape", vec![x.shape().into()])
}
