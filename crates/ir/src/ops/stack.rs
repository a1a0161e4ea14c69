//! Tensors put side by side, one upon another, and on a grid.

use super::infer::{broadcast, ensure, promote};
use super::spelling::at_least;
use super::view::{axis_or_fail, reshape};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Meta, TensorMeta};
use crate::op::{Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };
const STACKED: OpDef = OpDef { schema: "(Tensor[] tensors) -> Tensor", ..BASE };
const SEVERAL: OpDef = OpDef { schema: "(Tensor[] tensors) -> Tensor[]", ..BASE };

fn cat<'b>(c: &Call<'b>, parts: Vec<Value<'b>>, dim: usize) -> Value<'b> {
    c.b.call("aten.cat", vec![parts.into(), dim.into()])
}

/// The tensors with at least so many dimensions, joined along one of them.
fn stacked<'b>(c: &Call<'b>, rank: usize, dim: usize) -> Vec<Value<'b>> {
    let parts: Vec<_> = c.tensors("tensors").into_iter().map(|x| at_least(x, rank)).collect();
    vec![cat(c, parts, dim)]
}

/// Tensors joined along one dimension.
pub static CAT: OpDef = OpDef {
    name: "aten.cat.default",
    schema: "(Tensor[] tensors, int dim=0) -> Tensor",
    levels: Levels::ALL,
    infer: Some(joined),
    ..BASE
};

fn joined(c: &Call<'_>) -> Result<Meta> {
    let metas = c.metas("tensors")?;
    // torch leaves out the legacy empty tensor of shape [0].
    let legacy = |m: &TensorMeta| m.shape.len() == 1 && m.shape[0].is(0);
    let first = metas.iter().find(|m| !legacy(m)).or(metas.first()).ok_or_else(|| c.err("no tensors"))?;
    let axis = c.axis("dim", first.shape.len())?;
    let (mut shape, mut dtype) = (first.shape.clone(), first.dtype);
    ensure(c, !shape.is_empty(), || "tensors without dimensions".into())?;
    shape[axis] = Dim::from(0i64);
    for m in &metas {
        dtype = promote(dtype, m.dtype);
        if legacy(m) && shape.len() != 1 {
            continue;
        }
        ensure(c, m.shape.len() == shape.len(), || format!("ranks {} and {}", shape.len(), m.shape.len()))?;
        let fits = (0..shape.len())
            .all(|i| i == axis || shape[i].as_const().zip(m.shape[i].as_const()).is_none_or(|(a, b)| a == b));
        ensure(c, fits, || format!("{shape:?} and {:?} along dimension {axis}", m.shape))?;
        shape[axis] = shape[axis].clone() + m.shape[axis].clone();
    }
    Ok(Meta::tensor(dtype, shape))
}

/// Tensors joined along a new dimension.
pub static STACK: OpDef = OpDef {
    name: "aten.stack.default",
    schema: "(Tensor[] tensors, int dim=0) -> Tensor",
    rule: Some(|c| {
        let parts = c.tensors("tensors");
        let Some(first) = parts.first().copied() else {
            c.fail("no tensors");
            return vec![];
        };
        let Some(axis) = axis_or_fail(c, "dim", first.rank() + 1) else { return vec![first] };
        let mut shape = first.shape();
        if let Some(odd) = parts.iter().find(|p| !super::infer::fit(&p.shape(), &shape)) {
            c.fail(&format!("shapes {shape:?} and {:?}", odd.shape()));
            return vec![first];
        }
        if axis == shape.len() {
            let wide: Vec<_> = parts.into_iter().map(|x| x.op("aten.unsqueeze", vec![axis.into()])).collect();
            return vec![cat(c, wide, axis)];
        }
        shape.insert(axis, Dim::from(parts.len()));
        vec![cat(c, parts, axis).view(shape)]
    }),
    example: "[f32[2, 3], f32[2, 3]], 1 | [f32[2], f32[2]], -1",
    ..BASE
};

/// Tensors joined along their second dimension, vectors end to end.
pub static HSTACK: OpDef = OpDef {
    name: "aten.hstack.default",
    rule: Some(|c| {
        let dim = usize::from(c.tensors("tensors").first().is_some_and(|x| x.rank() > 1));
        stacked(c, 1, dim)
    }),
    example: "[f32[2, 3], f32[2, 1]] | [f32[], f32[2]]",
    ..STACKED
};

/// Tensors joined along their first dimension; vectors are rows.
pub static VSTACK: OpDef =
    OpDef { name: "aten.vstack.default", rule: Some(|c| stacked(c, 2, 0)), example: "[f32[2, 3], f32[3]]", ..STACKED };

/// [`VSTACK`].
pub static ROW_STACK: OpDef = OpDef { name: "aten.row_stack.default", ..VSTACK };

/// Tensors joined along their third dimension.
pub static DSTACK: OpDef = OpDef {
    name: "aten.dstack.default",
    rule: Some(|c| stacked(c, 3, 2)),
    example: "[f32[2, 3], f32[2, 3]] | [f32[3], f32[1, 3]]",
    ..STACKED
};

fn column(x: Value<'_>) -> Value<'_> {
    let count: Dim = x.shape().into_iter().product();
    if x.rank() > 1 { x } else { reshape(x, vec![count, Dim::from(1i64)]) }
}

fn row(x: Value<'_>) -> Value<'_> {
    let count: Dim = x.shape().into_iter().product();
    if x.rank() > 1 { x } else { x.view(vec![Dim::from(1i64), count]) }
}

/// Tensors joined along their second dimension; vectors are columns.
pub static COLUMN_STACK: OpDef = OpDef {
    name: "aten.column_stack.default",
    rule: Some(|c| {
        let parts = c.tensors("tensors").into_iter().map(column).collect();
        vec![cat(c, parts, 1)]
    }),
    example: "[f32[2], f32[2, 3]]",
    ..STACKED
};

/// `cat`.
pub static CONCAT: OpDef = OpDef {
    name: "aten.concat.default",
    schema: "(Tensor[] tensors, int dim=0) -> Tensor",
    rule: Some(|c| vec![c.b.call("aten.cat", c.args.to_vec())]),
    example: "[f32[2, 3], f32[2, 1]], 1",
    ..BASE
};

/// `cat`.
pub static CONCATENATE: OpDef = OpDef { name: "aten.concatenate.default", ..CONCAT };

/// Tensors in chunks of one count along a dimension, padded with zeros where need be; chunks of the same number are
/// joined, and what stands behind the dimension is flat.
pub static CHUNK_CAT: OpDef = OpDef {
    name: "aten._chunk_cat.default",
    schema: "(Tensor[] tensors, int dim, int num_chunks) -> Tensor",
    rule: Some(|c| {
        let (parts, chunks) = (c.tensors("tensors"), c.int("num_chunks"));
        let Some(axis) = parts.first().and_then(|x| axis_or_fail(c, "dim", x.rank())) else { return vec![] };
        if chunks < 1 || parts.iter().any(|x| x.rank() <= axis) {
            c.fail(&format!("{chunks} chunks along dimension {axis}"));
            return vec![];
        }
        let parts = parts.into_iter().map(|x| chunked(x, axis, &Dim::from(chunks))).collect();
        vec![cat(c, parts, axis + 1)]
    }),
    example: "[f32[3, 2], f32[4, 1]], 0, 2",
    ..BASE
};

fn chunked<'b>(x: Value<'b>, axis: usize, chunks: &Dim) -> Value<'b> {
    let shape = x.shape();
    let whole = (shape[axis].clone() + chunks.clone() - Dim::from(1i64)).floor_div(chunks) * chunks.clone();
    let more = whole - shape[axis].clone();
    let even = if more.is(0) {
        x
    } else {
        let pad = [vec![Dim::from(0i64); 2 * (shape.len() - axis) - 1], vec![more]].concat();
        x.op("aten.constant_pad_nd", vec![pad.into(), 0i64.into()])
    };
    let rest: Dim = even.shape()[axis..].iter().cloned().product();
    reshape(even, [&shape[..axis], &[chunks.clone(), rest.floor_div(chunks)]].concat())
}

/// Matrices along the diagonal of a matrix of zeros; vectors are rows.
pub static BLOCK_DIAG: OpDef = OpDef {
    name: "aten.block_diag.default",
    rule: Some(|c| {
        let blocks: Vec<_> = c.tensors("tensors").into_iter().map(row).collect();
        if blocks.is_empty() || blocks.iter().any(|x| x.rank() != 2) {
            c.fail("expected tensors of at most two dimensions");
            return vec![];
        }
        let width = blocks.iter().fold(Dim::from(0i64), |sum, x| sum + x.shape()[1].clone());
        let mut before = Dim::from(0i64);
        let mut rows = vec![];
        for x in blocks {
            let shape = x.shape();
            let zeros = |n: Dim| {
                let size = vec![shape[0].clone(), n];
                c.b.call("aten.full", vec![size.into(), 0i64.into(), x.dtype().into()])
            };
            let left = zeros(before.clone());
            before = before + shape[1].clone();
            rows.push(cat(c, vec![left, x, zeros(width.clone() - before.clone())], 1));
        }
        vec![cat(c, rows, 0)]
    }),
    example: "[f32[2, 3], f32[2]]",
    ..STACKED
};

/// Tensors broadcast to their common shape.
pub static BROADCAST_TENSORS: OpDef = OpDef {
    name: "aten.broadcast_tensors.default",
    infer: Some(|c| {
        let metas = c.metas("tensors")?;
        let shapes: Vec<&[Dim]> = metas.iter().map(|m| m.shape.as_slice()).collect();
        let shape = broadcast(&shapes).map_err(|why| c.err(&why))?;
        Ok(Meta::Tuple(metas.iter().map(|m| Meta::tensor(m.dtype, shape.clone())).collect()))
    }),
    rule: Some(|c| {
        let all = c.tensors("tensors");
        spread(c, all)
    }),
    example: "[f32[3], f32[2, 1]]",
    ..SEVERAL
};

/// Tensors broadcast to their common shape; those that have it are left.
pub(super) fn spread<'b>(c: &Call<'b>, all: Vec<Value<'b>>) -> Vec<Value<'b>> {
    let shapes: Vec<Vec<Dim>> = all.iter().map(|x| x.shape()).collect();
    match broadcast(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()) {
        Ok(to) => all
            .into_iter()
            .map(|x| if x.shape() == to { x } else { x.op("aten.expand", vec![to.clone().into()]) })
            .collect(),
        Err(why) => {
            c.fail(&why);
            all
        }
    }
}

/// Vectors as coordinates of a grid: one tensor over the grid for each. By indexing `xy` the first two axes change
/// places.
pub static MESHGRID_INDEXING: OpDef = OpDef {
    name: "aten.meshgrid.indexing",
    schema: "(Tensor[] tensors, *, str indexing) -> Tensor[]",
    rule: Some(|c| match c.str("indexing") {
        "ij" => grid(c, c.tensors("tensors"), false),
        "xy" => grid(c, c.tensors("tensors"), true),
        other => {
            c.fail(&format!("indexing '{other}', expected 'ij' or 'xy'"));
            vec![]
        }
    }),
    example: "[f32[2], f32[3]], \"ij\" | [f32[2], f32[3], f32[]], \"xy\"",
    ..BASE
};

/// [`MESHGRID_INDEXING`] by indexing `ij`.
pub static MESHGRID: OpDef = OpDef {
    name: "aten.meshgrid.default",
    rule: Some(|c| grid(c, c.tensors("tensors"), false)),
    example: "[f32[2], f32[3]]",
    ..SEVERAL
};

fn grid<'b>(c: &Call<'b>, mut axes: Vec<Value<'b>>, swap: bool) -> Vec<Value<'b>> {
    if axes.iter().any(|x| x.rank() > 1) {
        c.fail("expected vectors");
        return vec![];
    }
    let swap = swap && axes.len() > 1;
    if swap {
        axes.swap(0, 1);
    }
    let shape: Vec<Dim> = axes.iter().map(|x| x.shape().into_iter().product()).collect();
    let spread = |(i, x): (usize, &Value<'b>)| {
        let mut own = vec![Dim::from(1i64); shape.len()];
        own[i] = shape[i].clone();
        x.view(own).op("aten.expand", vec![shape.clone().into()])
    };
    let mut grids: Vec<_> = axes.iter().enumerate().map(spread).collect();
    if swap {
        grids.swap(0, 1);
    }
    grids
}

/// All combinations of one element of each vector, as rows.
pub static CARTESIAN_PROD: OpDef = OpDef {
    name: "aten.cartesian_prod.default",
    levels: Levels::TORCH,
    functional: Functional::Always,
    rule: Some(|c| {
        let axes = c.tensors("tensors");
        if let [one] = axes.as_slice() {
            return vec![*one];
        }
        let grids = c.b.call("aten.meshgrid.indexing", vec![axes.clone().into(), "ij".into()]);
        let columns: Vec<_> =
            (0..axes.len()).map(|i| c.b.getitem(grids, i).op("aten.flatten.using_ints", vec![])).collect();
        vec![c.b.call("aten.stack", vec![columns.into(), 1i64.into()])]
    }),
    example: "[f32[2], f32[3]] | [f32[2]]",
    ..STACKED
};

/// Combinations of `r` elements of a vector in the order in which they stand, as rows.
pub static COMBINATIONS: OpDef = OpDef {
    name: "aten.combinations.default",
    schema: "(Tensor self, int r=2, bool with_replacement=False) -> Tensor",
    rule: Some(|c| {
        let (x, r) = (c.tensor("self"), c.int("r"));
        let n = match x.shape().as_slice() {
            [n] => n.as_const(),
            _ => None,
        };
        let (Some(n), Ok(r)) = (n, usize::try_from(r)) else {
            c.fail(&format!("{r} elements of {:?}, expected a vector of known length", x.shape()));
            return vec![x];
        };
        if r == 0 {
            return vec![c.b.call("aten.empty.memory_format", vec![vec![0i64].into(), x.dtype().into()])];
        }
        let repeats = c.bool("with_replacement");
        let Some(count) = combinations(n, r as i64, repeats).filter(|_| r < 17) else {
            c.fail(&format!("{r} of {n} elements are too many combinations"));
            return vec![x];
        };
        let mut mask = c.b.call("aten.full", vec![vec![n; r].into(), true.into(), DType::Bool.into()]);
        if r > 1 {
            let places = c.b.call("aten.arange", vec![n.into()]);
            let grids = grid(c, vec![places; r], false);
            let op = if repeats { "aten.le.Tensor" } else { "aten.lt.Tensor" };
            for pair in grids.windows(2) {
                mask = mask.op("aten.mul.Tensor", vec![pair[0].op(op, vec![pair[1].into()]).into()]);
            }
        }
        let places = mask.op("aten.nonzero_static", vec![count.into()]);
        vec![x.op("aten.index.Tensor", vec![vec![places].into()])]
    }),
    example: "f32[4] | f32[3], 2, true | f32[4], 3 | f32[3], 1",
    ..BASE
};

/// How many combinations of `r` of `n` elements there are, if not too many.
fn combinations(n: i64, r: i64, repeats: bool) -> Option<i64> {
    let n = if repeats { n.checked_add(r - 1)? } else { n };
    if r > n {
        return Some(0);
    }
    (0..r).try_fold(1i64, |count, i| Some(count.checked_mul(n - i)? / (i + 1))).filter(|count| *count < 1 << 31)
}

macro_rules! at_least {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $rank:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            rule: Some(|c| c.tensors("tensors").into_iter().map(|x| at_least(x, $rank)).collect()),
            example: "[f32[], f32[2], f32[2, 3]]",
            ..SEVERAL
        };)*
    };
}

at_least! {
    /// At least one dimension each.
    ATLEAST_1D = "aten.atleast_1d.Sequence", 1;
    /// At least two dimensions each.
    ATLEAST_2D = "aten.atleast_2d.Sequence", 2;
    /// At least three dimensions each.
    ATLEAST_3D = "aten.atleast_3d.Sequence", 3;
}

/// Sequences of several lengths as one tensor, padded.
pub static PAD_SEQUENCE: OpDef = OpDef {
    name: "aten.pad_sequence.default",
    schema: "(Tensor[] sequences, bool batch_first=False, float padding_value=0.0, str padding_side='right') -> Tensor",
    rule: Some(|c| {
        let (all, value) = (c.tensors("sequences"), c.arg("padding_value").clone());
        let Some(first) = all.first().copied().filter(|x| x.rank() > 0) else {
            c.fail("expected sequences");
            return vec![];
        };
        let trailing = first.shape()[1..].to_vec();
        let length = |x: &Value<'_>| x.shape().first().cloned().unwrap_or(Dim::from(0i64));
        let longest = all.iter().skip(1).fold(length(&first), |n, x| n.max_of(&length(x)));
        let right = match c.str("padding_side") {
            "right" => true,
            "left" => false,
            other => {
                c.fail(&format!("padding side '{other}'"));
                return vec![first];
            }
        };
        let batch = Dim::from(all.len());
        let lead = if c.bool("batch_first") { [batch, longest.clone()] } else { [longest.clone(), batch] };
        let dim = i64::from(!c.bool("batch_first"));
        let mut out = first.op("aten.new_full", vec![[&lead[..], &trailing].concat().into(), value.clone()]);
        for (i, x) in all.iter().enumerate() {
            let more = longest.clone() - length(x);
            let ends = if right { [Dim::from(0i64), more] } else { [more, Dim::from(0i64)] };
            let pad = [vec![Dim::from(0i64); 2 * trailing.len()], ends.to_vec()].concat();
            let row = x.to(out.dtype()).op("aten.constant_pad_nd", vec![pad.into(), value.clone()]);
            out = out.op("aten.select_scatter", vec![row.into(), dim.into(), i.into()]);
        }
        vec![out]
    }),
    example: "[f32[2], f32[3]] | [f32[2, 2], f32[1, 2]], true, 1.5, \"left\"",
    ..BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &CAT,
    &STACK,
    &HSTACK,
    &VSTACK,
    &ROW_STACK,
    &DSTACK,
    &COLUMN_STACK,
    &CONCAT,
    &CONCATENATE,
    &CHUNK_CAT,
    &BLOCK_DIAG,
    &BROADCAST_TENSORS,
    &MESHGRID_INDEXING,
    &MESHGRID,
    &CARTESIAN_PROD,
    &COMBINATIONS,
    &ATLEAST_1D,
    &ATLEAST_2D,
    &ATLEAST_3D,
    &PAD_SEQUENCE,
]];
