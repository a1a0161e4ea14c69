//! Elements put where indices and masks say.

use super::index::clamped;
use super::infer::{ensure, same};
use super::view::{contiguous, reshape};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, levels: Levels::ALL, infer: Some(same), ..OpDef::BASE };
const CORE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };
const SPELLED: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };

/// Elements of `src` put where the indices say.
pub static SCATTER: OpDef =
    OpDef { name: "aten.scatter.src", schema: "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", ..BASE };

/// A number put where the indices say.
pub static SCATTER_VALUE: OpDef = OpDef {
    name: "aten.scatter.value",
    schema: "(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
    rule: Some(|c| with_source(c, "aten.scatter.src", vec![])),
    example: "f32[3, 2], 0, i64[2, 2]<3, 0.5",
    ..CORE
};

/// An op that puts a tensor, with the number `value` everywhere in it.
fn with_source<'b>(c: &Call<'b>, op: &str, rest: Vec<Arg>) -> Vec<Value<'b>> {
    let (x, index) = (c.tensor("self"), c.tensor("index"));
    let src = c.b.call("aten.full", vec![index.shape().into(), c.arg("value").clone(), x.dtype().into()]);
    vec![x.op(op, [vec![c.arg("dim").clone(), index.into(), src.into()], rest].concat())]
}

/// The reduction of [`SCATTER_REDUCE`] that goes by another name here.
fn reduction(c: &Call<'_>) -> Arg {
    match c.str("reduce") {
        "add" => "sum".into(),
        "multiply" => "prod".into(),
        other => {
            c.fail(&format!("reduction '{other}', expected 'add' or 'multiply'"));
            Arg::None
        }
    }
}

/// Elements of `src` added, or multiplied, where the indices say.
pub static SCATTER_WITH: OpDef = OpDef {
    name: "aten.scatter.reduce",
    schema: "(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
    rule: Some(|c| {
        let args = ["self", "dim", "index", "src"].map(|n| c.arg(n).clone()).to_vec();
        vec![c.b.call("aten.scatter_reduce.two", [args, vec![reduction(c)]].concat())]
    }),
    example: "f32[3, 2], 0, i64[2, 2]<3, f32[2, 2], \"add\"",
    ..CORE
};

/// A number added, or multiplied, where the indices say.
pub static SCATTER_VALUE_WITH: OpDef = OpDef {
    name: "aten.scatter.value_reduce",
    schema: "(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
    rule: Some(|c| with_source(c, "aten.scatter_reduce.two", vec![reduction(c)])),
    example: "f32[3, 2], 0, i64[2, 2]<3, 0.5, \"multiply\"",
    ..CORE
};

/// Elements of `src` added where the indices say.
pub static SCATTER_ADD: OpDef = OpDef {
    name: "aten.scatter_add.default",
    schema: "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    accuracy: Accuracy::Approximate,
    ..BASE
};

/// Elements of `src` combined (`sum`, `prod`, `mean`, `amax`, `amin`) where the indices say, with what is there if
/// `include_self`.
pub static SCATTER_REDUCE: OpDef = OpDef {
    name: "aten.scatter_reduce.two",
    schema: "(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| {
        let known = ["sum", "prod", "mean", "amax", "amin"];
        ensure(c, known.contains(&c.str("reduce")), || {
            format!("reduction '{}', expected one of {known:?}", c.str("reduce"))
        })?;
        same(c)
    }),
    ..BASE
};

/// [`SCATTER_REDUCE`] of whole slices along one dimension.
pub static INDEX_REDUCE: OpDef = OpDef {
    name: "aten.index_reduce.default",
    schema: "(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
    rule: Some(|c| {
        let (x, src) = (c.tensor("self"), c.tensor("source"));
        let Ok(axis) = c.axis("dim", src.rank()) else {
            c.fail("a dimension that there is not");
            return vec![x];
        };
        let mut shape = vec![Dim::from(1i64); src.rank()];
        if let (Some(d), Some(n)) = (shape.get_mut(axis), src.shape().get(axis)) {
            *d = n.clone();
        }
        let index = reshape(c.tensor("index"), shape).op("aten.expand", vec![src.shape().into()]);
        let rest = vec![axis.into(), index.into(), src.into(), c.arg("reduce").clone(), c.arg("include_self").clone()];
        vec![x.op("aten.scatter_reduce.two", rest)]
    }),
    example: "f32[3, 2], 0, i64[2]<3, f32[2, 2], \"prod\"",
    ..CORE
};

/// Values put (or added) where the index tensors point.
pub static INDEX_PUT: OpDef = OpDef {
    name: "aten.index_put.default",
    schema: "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| {
        super::index::indexed(c, &c.meta("self")?.shape)?;
        same(c)
    }),
    ..BASE
};

/// [`INDEX_PUT`] by numbers that are known to be inside.
pub static UNSAFE_INDEX_PUT: OpDef = OpDef {
    name: "aten._unsafe_index_put.default",
    schema: "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
    rule: Some(|c| vec![c.b.call("aten.index_put", c.args.to_vec())]),
    example: "f32[3, 2], [i64[2]<3], f32[2, 2], true",
    ..SPELLED
};

/// Values added where the index tensors point and the mask holds.
pub static UNSAFE_MASKED_INDEX_PUT: OpDef = OpDef {
    name: "aten._unsafe_masked_index_put_accumulate.default",
    schema: "(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("self");
        let shape = x.shape();
        if shape.iter().any(|n| n.is(0)) {
            return vec![x.op("aten.clone", vec![])];
        }
        let indices = clamped(c, &shape, |n| Dim::from(0i64) - n);
        let not = c.tensor("mask").op("aten.bitwise_not", vec![]);
        let values = c.tensor("values").op("aten.masked_fill.Scalar", vec![not.into(), 0i64.into()]);
        vec![x.op("aten._unsafe_index_put", vec![Arg::List(indices), values.into(), true.into()])]
    }),
    example: "f32[3, 2], bool[2], [i64[2]<3, i64[2]<2], f32[2]",
    ..SPELLED
};

/// The tensor with at least one dimension, and a list of indices that has only one, for `dim`.
fn along<'b>(c: &Call<'b>, index: Value<'b>) -> Option<(Value<'b>, Arg)> {
    let x = c.tensor("self");
    let axis = c.axis("dim", x.rank()).map_err(|e| c.b.fail(e)).ok()?;
    let wide = if x.rank() == 0 { x.op("aten.unsqueeze", vec![0i64.into()]) } else { x };
    Some((wide, Arg::List([vec![Arg::None; axis], vec![index.into()]].concat())))
}

fn put<'b>(c: &Call<'b>, index: Value<'b>, values: Value<'b>, add: bool) -> Vec<Value<'b>> {
    let index = if index.rank() == 0 { index.op("aten.unsqueeze", vec![0i64.into()]) } else { index };
    let Some((x, indices)) = along(c, index) else { return vec![] };
    let mut args = vec![indices, values.into()];
    if add {
        args.push(true.into());
    }
    let made = x.op("aten.index_put", args);
    vec![match c.tensor("self").rank() {
        0 => made.op("aten.squeeze.dim", vec![0i64.into()]),
        _ => contiguous(made),
    }]
}

/// Slices of `source`, times `alpha`, added along one dimension where the index says.
pub static INDEX_ADD: OpDef = OpDef {
    name: "aten.index_add.default",
    schema: "(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
    rule: Some(|c| {
        let (mut source, alpha) = (c.tensor("source"), c.arg("alpha"));
        if !matches!(alpha, Arg::Int(1) | Arg::Bool(true)) && *alpha != Arg::Float(1.0) {
            source = source.op("aten.mul.Tensor", vec![alpha.clone()]);
        }
        put(c, c.tensor("index"), source, true)
    }),
    example: "f32[3, 2], 0, i64[2]<3, f32[2, 2] | f32[3, 2], 1, i64[3]<2, f32[3, 3], 2 | f32[], 0, i64[1]<1, f32[1]",
    ..SPELLED
};

/// Slices of `source` put along one dimension where the index says.
pub static INDEX_COPY: OpDef = OpDef {
    name: "aten.index_copy.default",
    schema: "(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
    rule: Some(|c| put(c, c.tensor("index"), c.tensor("source"), false)),
    example: "f32[3, 2], 1, i64[1]<2, f32[3, 1] | f32[], 0, i64[1]<1, f32[1]",
    ..SPELLED
};

/// A number, as a tensor, put into whole slices along one dimension.
fn filled<'b>(c: &Call<'b>, value: Value<'b>) -> Vec<Value<'b>> {
    let (x, index) = (c.tensor("self"), c.tensor("index"));
    let Some(axis) = c.axis("dim", x.rank()).map_err(|e| c.b.fail(e)).ok() else { return vec![x] };
    let mut shape = if x.rank() == 0 { vec![Dim::from(1i64)] } else { x.shape() };
    shape[axis] = index.shape().into_iter().product();
    let made = put(c, index, value.op("aten.expand", vec![shape.into()]), false);
    made.into_iter().map(|y| if x.rank() == 0 { y.op("aten.clone", vec![]) } else { y }).collect()
}

/// A number put into whole slices along one dimension.
pub static INDEX_FILL: OpDef = OpDef {
    name: "aten.index_fill.int_Scalar",
    schema: "(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
    rule: Some(|c| {
        let dtype = c.tensor("self").dtype();
        filled(c, c.b.call("aten.scalar_tensor", vec![c.arg("value").clone(), dtype.into()]))
    }),
    example: "f32[3, 2], 0, i64[2]<3!, 0.5 | f32[], 0, i64[1]<1, 0.5",
    ..SPELLED
};

/// A tensor's one element put into whole slices along one dimension.
pub static INDEX_FILL_TENSOR: OpDef = OpDef {
    name: "aten.index_fill.int_Tensor",
    schema: "(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
    rule: Some(|c| filled(c, c.tensor("value"))),
    example: "f32[3, 2], 0, i64[2]<3!, f32[]",
    ..SPELLED
};

/// All dimensions as one.
fn flat(x: Value<'_>) -> Value<'_> {
    reshape(x, vec![x.shape().into_iter().product()])
}

/// Elements put (or added) at places of the flat tensor.
pub static PUT: OpDef = OpDef {
    name: "aten.put.default",
    schema: "(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    rule: Some(|c| {
        let (x, index) = (c.tensor("self"), flat(c.tensor("index")));
        let args = vec![vec![index].into(), flat(c.tensor("source")).into(), c.arg("accumulate").clone()];
        vec![flat(x).op("aten.index_put", args).view(x.shape())]
    }),
    example: "f32[2, 3], i64[2]<6!, f32[2] | f32[2, 3], i64[2]<6, f32[2], true",
    ..CORE
};

/// Elements of `source`, in row-major order, put where the mask holds.
pub static MASKED_SCATTER: OpDef = OpDef {
    name: "aten.masked_scatter.default",
    schema: "(Tensor self, Tensor mask, Tensor source) -> Tensor",
    infer: Some(|c| {
        let (x, mask) = (c.meta("self")?, c.meta("mask")?);
        let shape = super::infer::broadcast(&[&x.shape, &mask.shape]).map_err(|why| c.err(&why))?;
        Ok(Meta::tensor(x.dtype, shape))
    }),
    rule: Some(|c| {
        let both = super::stack::spread(c, vec![c.tensor("self"), c.tensor("mask")]);
        let [x, mask] = both.as_slice() else { return vec![] };
        let source = c.tensor("source");
        let count: Dim = source.shape().into_iter().product();
        if count.is(0) {
            return vec![x.op("aten.clone", vec![])];
        }
        // The number of a place among those where the mask holds.
        let number = flat(*mask).to(DType::I64).op("aten.cumsum", vec![0i64.into()]) - 1i64;
        let last = count.clone() - Dim::from(1i64);
        let number = number.op("aten.clamp", vec![0i64.into(), last.into()]);
        let picked = flat(source).op("aten.index.Tensor", vec![vec![number].into()]);
        vec![mask.op("aten.where.self", vec![picked.view(mask.shape()).into(), (*x).into()])]
    }),
    example: "f32[2, 3], bool[2, 3], f32[6] | f32[2, 3], bool[3], f32[2, 4]",
    ..CORE
};

macro_rules! in_place {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $op:literal, $schema:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: concat!("(Tensor(a!) self, ", $schema, ") -> Tensor(a!)"),
            levels: Levels::TORCH,
            functional: Functional::Always,
            rule: Some(|c| vec![c.b.call($op, c.args.to_vec())]),
            ..BASE
        };)*
        static IN_PLACE: &[&OpDef] = &[$(&$id),*];
    };
}

in_place! {
    /// [`SCATTER`] in place.
    SCATTER_ = "aten.scatter_.src", "aten.scatter.src", "int dim, Tensor index, Tensor src";
    /// [`SCATTER_VALUE`] in place.
    SCATTER_VALUE_ = "aten.scatter_.value", "aten.scatter.value", "int dim, Tensor index, Scalar value";
    /// [`SCATTER_WITH`] in place.
    SCATTER_WITH_ = "aten.scatter_.reduce", "aten.scatter.reduce", "int dim, Tensor index, Tensor src, *, str reduce";
    /// [`SCATTER_VALUE_WITH`] in place.
    SCATTER_VALUE_WITH_ = "aten.scatter_.value_reduce", "aten.scatter.value_reduce",
        "int dim, Tensor index, Scalar value, *, str reduce";
    /// [`SCATTER_ADD`] in place.
    SCATTER_ADD_ = "aten.scatter_add_.default", "aten.scatter_add", "int dim, Tensor index, Tensor src";
    /// [`SCATTER_REDUCE`] in place.
    SCATTER_REDUCE_ = "aten.scatter_reduce_.two", "aten.scatter_reduce.two",
        "int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True";
    /// [`INDEX_REDUCE`] in place.
    INDEX_REDUCE_ = "aten.index_reduce_.default", "aten.index_reduce",
        "int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True";
    /// [`INDEX_PUT`] in place.
    INDEX_PUT_ = "aten.index_put_.default", "aten.index_put",
        "Tensor?[] indices, Tensor values, bool accumulate=False";
    /// [`INDEX_ADD`] in place.
    INDEX_ADD_ = "aten.index_add_.default", "aten.index_add",
        "int dim, Tensor index, Tensor source, *, Scalar alpha=1";
    /// [`INDEX_COPY`] in place.
    INDEX_COPY_ = "aten.index_copy_.default", "aten.index_copy", "int dim, Tensor index, Tensor source";
    /// [`INDEX_FILL`] in place.
    INDEX_FILL_ = "aten.index_fill_.int_Scalar", "aten.index_fill.int_Scalar", "int dim, Tensor index, Scalar value";
    /// [`INDEX_FILL_TENSOR`] in place.
    INDEX_FILL_TENSOR_ = "aten.index_fill_.int_Tensor", "aten.index_fill.int_Tensor",
        "int dim, Tensor index, Tensor value";
    /// [`PUT`] in place.
    PUT_ = "aten.put_.default", "aten.put", "Tensor index, Tensor source, bool accumulate=False";
    /// [`MASKED_SCATTER`] in place.
    MASKED_SCATTER_ = "aten.masked_scatter_.default", "aten.masked_scatter", "Tensor mask, Tensor source";
    /// `masked_fill` in place.
    MASKED_FILL_ = "aten.masked_fill_.Scalar", "aten.masked_fill.Scalar", "Tensor mask, Scalar value";
    /// `masked_fill` by a tensor in place.
    MASKED_FILL_TENSOR_ = "aten.masked_fill_.Tensor", "aten.masked_fill.Tensor", "Tensor mask, Tensor value";
}

static PLAIN: &[&OpDef] = &[
    &SCATTER,
    &SCATTER_VALUE,
    &SCATTER_WITH,
    &SCATTER_VALUE_WITH,
    &SCATTER_ADD,
    &SCATTER_REDUCE,
    &INDEX_REDUCE,
    &INDEX_PUT,
    &UNSAFE_INDEX_PUT,
    &UNSAFE_MASKED_INDEX_PUT,
    &INDEX_ADD,
    &INDEX_COPY,
    &INDEX_FILL,
    &INDEX_FILL_TENSOR,
    &PUT,
    &MASKED_SCATTER,
];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, IN_PLACE];
