//! Elements picked by index.

use super::infer::{broadcast, ensure, same};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, ConstKind, Kind, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, levels: Levels::ALL, ..OpDef::BASE };
const CORE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };
const SPELLED: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };

/// Elements at broadcast index tensors, one for each leading dimension, none for a whole one. A mask stands for the
/// places where it holds, over as many dimensions as it has.
pub static INDEX: OpDef = OpDef {
    name: "aten.index.Tensor",
    schema: "(Tensor self, Tensor?[] indices) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        Ok(Meta::tensor(m.dtype, indexed(c, &m.shape)?))
    }),
    ..BASE
};

/// The shape of what the argument `indices` picks of this shape.
pub(super) fn indexed(c: &Call<'_>, shape: &[Dim]) -> Result<Vec<Dim>> {
    let Arg::List(items) = c.arg("indices") else { return Err(c.err("expected a list of indices")) };
    let (mut given, mut shapes, mut axis, mut masks) = (vec![], vec![], 0, 0);
    let mut metas = c.metas("indices")?.into_iter();
    for item in items {
        let meta = match item {
            Arg::None => None,
            _ => metas.next(),
        };
        let Some(meta) = meta else {
            axis += 1;
            continue;
        };
        if matches!(meta.dtype, DType::Bool | DType::U8) {
            given.extend(axis..axis + meta.shape.len());
            axis += meta.shape.len();
            shapes.push(vec![Dim::unknown(masks)]);
            masks += 1;
        } else {
            ensure(c, meta.dtype.is_int(), || format!("indices of type {}", meta.dtype))?;
            given.push(axis);
            axis += 1;
            shapes.push(meta.shape);
        }
    }
    ensure(c, axis <= shape.len(), || format!("indices of {axis} dimensions for {shape:?}"))?;
    let shapes: Vec<&[Dim]> = shapes.iter().map(Vec::as_slice).collect();
    let picked = broadcast(&shapes).map_err(|why| c.err(&why))?;
    let together = given.windows(2).all(|w| w[0] + 1 == w[1]);
    let rest = |range: std::ops::Range<usize>| range.filter(|i| !given.contains(i)).map(|i| shape[i].clone());
    let n = shape.len();
    Ok(match given.first() {
        Some(&first) if together => rest(0..first).chain(picked).chain(rest(first..n)).collect(),
        _ => picked.into_iter().chain(rest(0..n)).collect(),
    })
}

/// [`INDEX`] by numbers that are known to be inside.
pub static UNSAFE_INDEX: OpDef = OpDef {
    name: "aten._unsafe_index.Tensor",
    schema: "(Tensor self, Tensor?[] indices) -> Tensor",
    rule: Some(|c| vec![c.b.call("aten.index.Tensor", c.args.to_vec())]),
    example: "f32[3, 2], [i64[2]<3]",
    ..SPELLED
};

/// The index tensors held between a share of the size, from below, and the last place.
pub(super) fn clamped(c: &Call<'_>, shape: &[Dim], least: fn(Dim) -> Dim) -> Vec<Arg> {
    let Arg::List(items) = c.arg("indices") else { return vec![] };
    let held = |(i, item): (usize, &Arg)| match (item, shape.get(i)) {
        (Arg::Node(id), Some(n)) => {
            let (min, max) = (least(n.clone()), n.clone() - Dim::from(1i64));
            c.b.value(*id).op("aten.clamp", vec![min.into(), max.into()]).into()
        }
        (other, _) => other.clone(),
    };
    items.iter().enumerate().map(held).collect()
}

/// [`INDEX`] where the mask holds, by numbers that may be outside where it does not; there, a number.
pub static UNSAFE_MASKED_INDEX: OpDef = OpDef {
    name: "aten._unsafe_masked_index.default",
    schema: "(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
    rule: Some(|c| {
        let (x, fill) = (c.tensor("self"), c.arg("fill").clone());
        let shape = x.shape();
        if shape.iter().any(|n| n.is(0)) {
            let size = indexed(c, &shape).unwrap_or_else(|e| {
                c.b.fail(e);
                vec![]
            });
            return vec![x.op("aten.new_full", vec![size.into(), fill])];
        }
        let indices = clamped(c, &shape, |_| Dim::from(0i64));
        let picked = x.op("aten._unsafe_index.Tensor", vec![Arg::List(indices)]);
        let not = c.tensor("mask").op("aten.bitwise_not", vec![]);
        vec![picked.op("aten.masked_fill.Scalar", vec![not.into(), fill])]
    }),
    example: "f32[3, 2], bool[2], [i64[2]<3, i64[2]<2], 0.5",
    ..SPELLED
};

/// Places along one dimension.
pub static INDEX_SELECT: OpDef = OpDef {
    name: "aten.index_select.default",
    schema: "(Tensor self, int dim, Tensor index) -> Tensor",
    infer: Some(|c| {
        let (mut m, index) = (c.meta("self")?, c.meta("index")?);
        ensure(c, index.shape.len() <= 1, || format!("index of shape {:?}", index.shape))?;
        let axis = c.axis("dim", m.shape.len())?;
        if let Some(d) = m.shape.get_mut(axis) {
            *d = index.shape.first().cloned().unwrap_or(Dim::from(1i64));
        }
        Ok(Meta::Tensor(m))
    }),
    rule: Some(|c| {
        let (x, mut index) = (c.tensor("self"), c.tensor("index"));
        let Ok(axis) = c.axis("dim", x.rank()) else {
            c.fail("a dimension that there is not");
            return vec![x];
        };
        if index.rank() == 0 {
            index = index.op("aten.unsqueeze", vec![0i64.into()]);
        }
        let pick = |x: Value<'_>| {
            let indices = [vec![Arg::None; axis], vec![index.into()]].concat();
            c.b.call("aten.index.Tensor", vec![x.into(), Arg::List(indices)])
        };
        if x.rank() == 0 {
            return vec![
                pick(x.op("aten.unsqueeze", vec![0i64.into()])).op("aten.squeeze.dims", vec![vec![0i64].into()]),
            ];
        }
        vec![pick(x)]
    }),
    example: "f32[3, 2], 0, i64[4]<3 | f32[3, 2], 1, i64[]<2",
    ..CORE
};

/// Elements along one dimension, each by an index of its own.
pub static GATHER: OpDef = OpDef {
    name: "aten.gather.default",
    schema: "(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        c.axis("dim", m.shape.len())?;
        Ok(Meta::tensor(m.dtype, c.meta("index")?.shape))
    }),
    ..BASE
};

/// Elements of the flat tensor.
pub static TAKE: OpDef = OpDef {
    name: "aten.take.default",
    schema: "(Tensor self, Tensor index) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, c.meta("index")?.shape))),
    rule: Some(|c| {
        let x = c.tensor("self");
        let flat = reshape(x, vec![x.shape().into_iter().product()]);
        vec![flat.op("aten.index.Tensor", vec![vec![c.arg("index").clone()].into()])]
    }),
    example: "f32[2, 3], i64[2, 2]<6",
    ..SPELLED
};

/// [`GATHER`] with broadcasting and negative indices; without a dimension, of the flat tensor.
pub static TAKE_ALONG_DIM: OpDef = OpDef {
    name: "aten.take_along_dim.default",
    schema: "(Tensor self, Tensor indices, int? dim=None) -> Tensor",
    rule: Some(|c| {
        let (x, index) = (c.tensor("self"), c.tensor("indices"));
        if *c.arg("dim") == Arg::None {
            let flat = |x: Value<'_>| c.b.call("aten.view", vec![x.into(), vec![-1i64].into()]);
            return vec![flat(x).op("aten.gather", vec![0i64.into(), flat(index).into()])];
        }
        let (own, wanted) = (x.shape(), index.shape());
        let Some(axis) = c.axis("dim", own.len()).ok().filter(|_| own.len() == wanted.len() && !own.is_empty()) else {
            c.fail(&format!("indices {wanted:?} along dimension {} of {own:?}", c.int("dim")));
            return vec![x];
        };
        let spread = |x: Value<'_>, a: &[Dim], b: &[Dim]| {
            let mut a = a.to_vec();
            a[axis] = b[axis].clone();
            let shape = broadcast(&[&a, b]).unwrap_or_else(|why| {
                c.fail(&why);
                a.clone()
            });
            c.b.call("aten.expand", vec![x.into(), shape.into()])
        };
        let index = spread(index, &own, &wanted);
        let x = spread(x, &wanted, &own);
        let index = index.op("aten.remainder.Scalar", vec![own[axis].clone().into()]);
        vec![x.op("aten.gather", vec![axis.into(), index.into()])]
    }),
    example: "f32[2, 3], i64[2, 3], 1 | f32[2, 3], i64[1, 2]<3, -1 | f32[2, 3], i64[2]<6",
    ..SPELLED
};

/// Rows of a table.
pub static EMBEDDING: OpDef = OpDef {
    name: "aten.embedding.default",
    schema: "(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    infer: Some(|c| {
        let (w, i) = (c.meta("weight")?, c.meta("indices")?);
        ensure(c, w.shape.len() == 2, || format!("weight of shape {:?}", w.shape))?;
        Ok(Meta::tensor(w.dtype, [i.shape, vec![w.shape[1].clone()]].concat()))
    }),
    rule: Some(|c| {
        let (w, index) = (c.tensor("weight"), c.tensor("indices"));
        if index.rank() > 1 {
            return vec![w.op("aten.index.Tensor", vec![vec![index].into()])];
        }
        let rows = w.op("aten.index_select", vec![0i64.into(), index.into()]);
        vec![if index.rank() == 0 { rows.op("aten.squeeze.dims", vec![vec![0i64].into()]) } else { rows }]
    }),
    example: "f32[4, 2], i64[3]<4 | f32[4, 2], i64[2, 2]<4 | f32[4, 2], i64[]<4",
    ..CORE
};

/// The rows that the indices name brought to at most this norm.
pub static EMBEDDING_RENORM: OpDef = OpDef {
    name: "aten.embedding_renorm.default",
    schema: "(Tensor self, Tensor indices, float max_norm, float norm_type) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(same),
    rule: Some(|c| {
        let (w, most, p) = (c.tensor("self"), c.float("max_norm"), c.float("norm_type"));
        let [rows, _] = w.shape().try_into().unwrap_or_else(|shape: Vec<Dim>| {
            c.fail(&format!("a table of shape {shape:?}"));
            [Dim::from(0i64), Dim::from(0i64)]
        });
        let along = || vec![vec![1i64].into(), true.into()];
        let sizes = w.abs();
        let power = |x: Value<'_>, p: f64| c.b.call("aten.pow.Tensor_Scalar", vec![x.into(), p.into()]);
        let norms = if p == f64::INFINITY {
            sizes.op("aten.amax", along())
        } else {
            power(power(sizes, p).op("aten.sum.dim_IntList", along()), 1.0 / p)
        };
        let none = c.b.call("aten.full", vec![vec![rows, 1i64.into()].into(), false.into(), DType::Bool.into()]);
        let yes = c.b.call("aten.scalar_tensor", vec![true.into(), DType::Bool.into()]);
        let named = none.op("aten.index_put", vec![vec![c.tensor("indices")].into(), yes.into()]);
        let over = named.op("aten.logical_and", vec![norms.op("aten.gt.Scalar", vec![most.into()]).into()]);
        let factor = (norms + 1e-7).reciprocal() * most;
        vec![over.op("aten.where.self", vec![(w * factor).into(), w.into()])]
    }),
    example: "f32[4, 2], i64[2]<4, 100.0, 2.0 | f32[4, 2], i64[2]<4, 100.0, 1.0",
    ..CORE
};

/// [`EMBEDDING_RENORM`] in place.
pub static EMBEDDING_RENORM_: OpDef = OpDef {
    name: "aten.embedding_renorm_.default",
    schema: "(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)",
    levels: Levels::TORCH,
    infer: Some(same),
    rule: Some(|c| vec![c.b.call("aten.embedding_renorm", c.args.to_vec())]),
    functional: Functional::Always,
    ..BASE
};

/// Sums (mode 0), means (1) or greatest elements (2) of rows of a table, by bags: each starts at its offset into the
/// indices. Results: the bags, the bag of each index, how many rows each bag has, and where the greatest were.
pub static EMBEDDING_BAG_FORWARD_ONLY: OpDef = OpDef {
    name: "aten._embedding_bag_forward_only.default",
    schema: "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| bag_metas(c, true)),
    rule: Some(summed_up),
    example: "f32[4, 2], i64[5]<4, i64[2]<2 | f32[4, 2], i64[3]<4, i64[1]<1, false, 1, false, none, false, 2 \
              | f32[4, 2]!, i64[4]<4, i64[1]<1, false, 2 | f32[4, 2], i64[3]<4, i64[1]<1, false, 0, false, f32[3]",
    ..CORE
};

/// Rows are added, or combined, where the bag of each says.
fn summed_up<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (w, indices, offsets) = (c.tensor("weight"), c.tensor("indices"), c.tensor("offsets"));
    let (mode, padding) = (c.int("mode"), c.int("padding_idx"));
    let metas = match bag_metas(c, c.op.name == EMBEDDING_BAG_FORWARD_ONLY.name) {
        Ok(Meta::Tuple(items)) => items,
        Ok(_) => return vec![],
        Err(e) => {
            c.b.fail(e);
            return vec![];
        }
    };
    let shape = |i: usize| metas.get(i).and_then(Meta::as_tensor).map(|m| m.shape.clone()).unwrap_or_default();
    let (bags, count) = (shape(0)[0].clone(), indices.shape()[0].clone());
    let range = |n: &Dim| c.b.call("aten.arange", vec![n.clone().into(), offsets.dtype().into()]);
    let column = |v: Value<'_>| c.b.call("aten.unsqueeze", vec![v.into(), (-1i64).into()]);
    let zeros = |shape: Vec<Dim>, dtype: DType| c.b.call("aten.full", vec![shape.into(), 0i64.into(), dtype.into()]);
    let starts = offsets.op("aten.slice.Tensor", vec![0i64.into(), 0i64.into(), bags.clone().into()]);
    let places = range(&count);
    let bag_of = places.op("aten.bucketize.Tensor", vec![starts.into(), false.into(), true.into()]) - 1i64;
    let counts = indices.op("aten.ne.Scalar", vec![padding.into()]);
    let rows = w.op("aten.index_select", vec![0i64.into(), indices.into()]);
    let skipped = column(counts.op("aten.logical_not", vec![]));
    let added =
        |to: Value<'_>, v: Value<'_>| c.b.call("aten.index_add", vec![to.into(), 0i64.into(), bag_of.into(), v.into()]);
    let sizes = added(zeros(vec![bags.clone()], offsets.dtype()), counts.to(offsets.dtype()));
    let mut most = sizes;
    let made = if mode == 2 {
        let lowest = rows.op("aten.masked_fill.Scalar", vec![skipped.into(), f64::NEG_INFINITY.into()]);
        let at = column(bag_of).op("aten.expand", vec![rows.shape().into()]);
        let combined = |to: Value<'_>, v: Value<'_>, how: &str| {
            let args = vec![to.into(), 0i64.into(), at.into(), v.into(), how.into(), false.into()];
            c.b.call("aten.scatter_reduce.two", args)
        };
        let greatest = combined(zeros(shape(0), w.dtype()), lowest, "amax");
        let empty = column(sizes.op("aten.eq.Scalar", vec![0i64.into()]));
        let greatest = greatest.op("aten.masked_fill.Scalar", vec![empty.into(), 0i64.into()]);
        // The first of a bag's rows that has the greatest element.
        let is_it = lowest.op("aten.eq.Tensor", vec![greatest.op("aten.gather", vec![0i64.into(), at.into()]).into()]);
        let last = c.b.call("aten.scalar_tensor", vec![(count - Dim::from(1i64)).into(), offsets.dtype().into()]);
        let at_place = is_it.op("aten.where.self", vec![column(places).into(), last.into()]);
        let first = combined(zeros(shape(0), offsets.dtype()), at_place, "amin");
        most = indices.op("aten.index.Tensor", vec![vec![first].into()]).to(offsets.dtype());
        greatest
    } else {
        let rows = rows.op("aten.masked_fill.Scalar", vec![skipped.into(), 0i64.into()]);
        let rows = c.opt_tensor("per_sample_weights").map_or(rows, |by| rows * column(by));
        let sums = added(zeros(shape(0), w.dtype()), rows);
        if mode == 1 { sums / column(sizes.clamp(Some(1.0), None).to(w.dtype())) } else { sums }
    };
    let fitted = |v: Value<'_>, i: usize| match shape(i).first() {
        Some(n) if v.shape().first() != Some(n) => {
            let more = n.clone() - v.shape().first().cloned().unwrap_or(Dim::from(0i64));
            c.b.call("aten.constant_pad_nd", vec![v.into(), vec![Dim::from(0i64), more].into()])
        }
        _ => c.b.call("aten.alias", vec![v.into()]),
    };
    vec![made, fitted(bag_of.to(offsets.dtype()), 1), fitted(sizes, 2), most]
}

fn bag_metas(c: &Call<'_>, forward_only: bool) -> Result<Meta> {
    let (w, i, o) = (c.meta("weight")?, c.meta("indices")?, c.meta("offsets")?);
    let ([_, width], [count], [offsets]) = (w.shape.as_slice(), i.shape.as_slice(), o.shape.as_slice()) else {
        return Err(c.err(&format!("weight {:?}, indices {:?}, offsets {:?}", w.shape, i.shape, o.shape)));
    };
    let bags = if c.bool("include_last_offset") { offsets.clone() - Dim::from(1i64) } else { offsets.clone() };
    let padded = c.opt_int("padding_idx").is_some_and(|i| i >= 0);
    // torch's fast path for sums does not note the bags.
    let fast = c.int("mode") == 0 && matches!(w.dtype, DType::F32 | DType::F16) && !padded;
    let max = if c.int("mode") == 2 { vec![bags.clone(), width.clone()] } else { vec![bags.clone()] };
    Ok(Meta::Tuple(vec![
        Meta::tensor(w.dtype, vec![bags.clone(), width.clone()]),
        Meta::tensor(o.dtype, vec![if fast { Dim::from(0i64) } else { count.clone() }]),
        Meta::tensor(o.dtype, vec![if forward_only { offsets.clone() } else { bags }]),
        Meta::tensor(o.dtype, max),
    ]))
}

/// [`EMBEDDING_BAG_FORWARD_ONLY`] where gradients are taken.
pub static EMBEDDING_BAG_CORE: OpDef =
    OpDef { name: "aten._embedding_bag.default", infer: Some(|c| bag_metas(c, false)), ..EMBEDDING_BAG_FORWARD_ONLY };

/// Whether the table is a parameter, for which torch notes what gradients need.
fn trained(c: &Call<'_>) -> bool {
    let kind = |id| c.b.with_graph(|g| g.node(id).kind);
    c.arg("weight").nodes().into_iter().any(|id| kind(id) == Kind::GetAttr(ConstKind::Param))
}

/// The index that counts for nothing, as torch writes it out; -1 if there is none.
fn padding(c: &Call<'_>) -> Arg {
    match c.op.schema.index("padding_idx").and_then(|_| c.opt_int("padding_idx")) {
        None => (-1i64).into(),
        Some(i) if i >= 0 => i.into(),
        Some(i) => (c.tensor("weight").shape().first().cloned().unwrap_or(Dim::from(0i64)) + i.into()).into(),
    }
}

/// [`EMBEDDING_BAG_CORE`] if the table is a parameter, else [`EMBEDDING_BAG_FORWARD_ONLY`]; as torch chooses.
fn bags<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let op = if trained(c) { "aten._embedding_bag" } else { "aten._embedding_bag_forward_only" };
    let given = c.args.get(..8).unwrap_or(&c.args);
    let all = c.b.call(op, [given, &[padding(c)]].concat());
    (0..4).map(|i| c.b.getitem(all, i)).collect()
}

/// Rows of a table summed by bags, see [`EMBEDDING_BAG_FORWARD_ONLY`].
pub static EMBEDDING_BAG: OpDef = OpDef {
    name: "aten.embedding_bag.default",
    schema: "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| {
        let op = if trained(c) { &EMBEDDING_BAG_CORE } else { &EMBEDDING_BAG_FORWARD_ONLY };
        let op = crate::op::find(op.name)?;
        let given = c.args.get(..8).unwrap_or(&c.args);
        c.b.resolve(op, [given, &[padding(c)]].concat(), &c.name).map(|(_, meta)| meta)
    }),
    rule: Some(bags),
    example: "f32[4, 2], i64[5]<4, i64[2]<2",
    ..SPELLED
};

/// [`EMBEDDING_BAG`] where one index counts for nothing.
pub static EMBEDDING_BAG_PADDING_IDX: OpDef = OpDef {
    name: "aten.embedding_bag.padding_idx",
    schema: "(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
    example: "f32[4, 2], i64[5]<4, i64[2]<2, false, 1, false, none, false, 2",
    ..EMBEDDING_BAG
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &INDEX,
    &UNSAFE_INDEX,
    &UNSAFE_MASKED_INDEX,
    &INDEX_SELECT,
    &GATHER,
    &TAKE,
    &TAKE_ALONG_DIM,
    &EMBEDDING,
    &EMBEDDING_RENORM,
    &EMBEDDING_RENORM_,
    &EMBEDDING_BAG_FORWARD_ONLY,
    &EMBEDDING_BAG_CORE,
    &EMBEDDING_BAG,
    &EMBEDDING_BAG_PADDING_IDX,
]];
