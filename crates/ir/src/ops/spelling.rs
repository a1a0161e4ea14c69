//! Views under further names, which every table spells by the plain ones, and views taken in place.

use super::view::{contiguous, reshape};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Class, Functional, Levels, OpDef};
use crate::strides;

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::TORCH, functional: Functional::Always, ..OpDef::BASE };

/// Another op on the same leading tensor.
fn as_op<'b>(c: &Call<'b>, op: &str, rest: Vec<Arg>) -> Vec<Value<'b>> {
    vec![c.tensor("self").op(op, rest)]
}

/// The last two dimensions exchanged; without dimensions, itself.
fn turned<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    match x.rank() {
        0 => vec![x],
        1 => {
            c.fail("a vector, expected matrices");
            vec![x]
        }
        _ => as_op(c, "aten.transpose.int", vec![(-2i64).into(), (-1i64).into()]),
    }
}

/// Dimensions moved to other places, the rest in their order.
fn moved<'b>(c: &Call<'b>, from: &[i64], to: &[i64]) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let rank = x.rank();
    if rank == 0 {
        return as_op(c, "aten.alias", vec![]);
    }
    let places = |dims: &[i64]| dims.iter().map(|d| c.wrap(*d, rank).map_err(|e| c.b.fail(e)).ok()).collect();
    let (Some(from), Some(to)): (Option<Vec<usize>>, Option<Vec<usize>>) = (places(from), places(to)) else {
        return vec![x];
    };
    let distinct = |v: &[usize]| v.iter().enumerate().all(|(i, d)| !v[..i].contains(d));
    if from.len() != to.len() || !distinct(&from) || !distinct(&to) {
        c.fail(&format!("dimensions {from:?} to {to:?}"));
        return vec![x];
    }
    let mut rest = (0..rank).filter(|d| !from.contains(d));
    let order = (0..rank).map(|d| to.iter().position(|t| *t == d).map(|i| from[i]).or_else(|| rest.next()));
    vec![x.permute(order.flatten().map(|d| d as i64).collect())]
}

/// Dimensions of size 1 put in front of, and behind, a tensor of fewer than `rank` dimensions.
pub(super) fn at_least(x: Value<'_>, rank: usize) -> Value<'_> {
    match (x.rank(), rank) {
        (0, n) => reshape(x, vec![Dim::from(1i64); n]),
        (1, 2) => x.op("aten.unsqueeze", vec![0i64.into()]),
        (1, 3) => x.op("aten.unsqueeze", vec![0i64.into()]).op("aten.unsqueeze", vec![(-1i64).into()]),
        (2, 3) => x.op("aten.unsqueeze", vec![(-1i64).into()]),
        _ => x,
    }
}

macro_rules! spelled {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $example:literal, $rule:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, example: $example, rule: Some($rule), ..BASE };)*
        static SPELLED: &[&OpDef] = &[$(&$id),*];
    };
}

spelled! {
    /// `transpose` under NumPy's name.
    SWAPAXES = "aten.swapaxes.default", "(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", "f32[2, 3], 0, 1",
        |c| as_op(c, "aten.transpose.int", vec![c.arg("axis0").clone(), c.arg("axis1").clone()]);
    /// `transpose`.
    SWAPDIMS = "aten.swapdims.default", "(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", "f32[2, 3], 0, 1",
        |c| as_op(c, "aten.transpose.int", vec![c.arg("dim0").clone(), c.arg("dim1").clone()]);
    /// Matrices turned.
    MT = "aten.mT.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3, 4]", turned;
    /// Matrices turned and conjugated, which real ones are.
    MH = "aten.mH.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3, 4]", turned;
    /// [`MH`].
    ADJOINT = "aten.adjoint.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3, 4]", turned;
    /// [`MH`] of one matrix.
    MATRIX_H = "aten.matrix_H.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3]", |c| {
        let x = c.tensor("self");
        match x.rank() {
            0 => vec![x],
            2 => as_op(c, "aten.transpose.int", vec![0i64.into(), 1i64.into()]),
            n => {
                c.fail(&format!("a tensor of rank {n}, expected a matrix"));
                vec![x]
            }
        }
    };
    /// Dimensions in the opposite order.
    NUMPY_T = "aten.numpy_T.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3, 4]",
        |c| vec![c.tensor("self").permute((0..c.tensor("self").rank() as i64).rev().collect())];
    /// One dimension moved to another place.
    MOVEDIM = "aten.movedim.int", "(Tensor(a) self, int source, int destination) -> Tensor(a)",
        "f32[2, 3, 4], 0, -1", |c| moved(c, &[c.int("source")], &[c.int("destination")]);
    /// Dimensions moved to other places.
    MOVEDIM_LIST = "aten.movedim.intlist", "(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
        "f32[2, 3, 4], [0, 1], [-1, 0]", |c| moved(c, &c.ints("source"), &c.ints("destination"));
    /// [`MOVEDIM`].
    MOVEAXIS = "aten.moveaxis.int", "(Tensor(a) self, int source, int destination) -> Tensor(a)",
        "f32[2, 3, 4], 2, 0", |c| moved(c, &[c.int("source")], &[c.int("destination")]);
    /// [`MOVEDIM_LIST`].
    MOVEAXIS_LIST = "aten.moveaxis.intlist", "(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
        "f32[2, 3, 4], [2], [0]", |c| moved(c, &c.ints("source"), &c.ints("destination"));
    /// `view` in the shape of another tensor.
    VIEW_AS = "aten.view_as.default", "(Tensor(a) self, Tensor other) -> Tensor(a)", "f32[2, 3], f32[3, 2]",
        |c| vec![c.tensor("self").view(c.tensor("other").shape())];
    /// `reshape` to the shape of another tensor.
    RESHAPE_AS = "aten.reshape_as.default", "(Tensor(a) self, Tensor other) -> Tensor(a)", "f32[2, 3], f32[3, 2]",
        |c| as_op(c, "aten.reshape", vec![c.tensor("other").shape().into()]);
    /// `view` with these strides, which the same elements have under that shape.
    RESHAPE_ALIAS = "aten._reshape_alias.default", "(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)",
        "f32[2, 3], [3, 2], [2, 1]", |c| vec![c.tensor("self").view(c.dims("size"))];
    /// All dimensions as one.
    RAVEL = "aten.ravel.default", "(Tensor(a) self) -> Tensor(a)", "f32[2, 3]",
        |c| vec![contiguous(c.tensor("self")).op("aten.view", vec![vec![-1i64].into()])];
    /// `expand` under NumPy's name.
    BROADCAST_TO = "aten.broadcast_to.default", "(Tensor(a) self, SymInt[] size) -> Tensor(a)", "f32[3], [2, 3]",
        |c| as_op(c, "aten.expand", vec![c.arg("size").clone()]);
    /// `expand` to the shape of another tensor.
    EXPAND_AS = "aten.expand_as.default", "(Tensor(a) self, Tensor other) -> Tensor(a)", "f32[3], f32[2, 3]",
        |c| as_op(c, "aten.expand", vec![c.tensor("other").shape().into()]);
    /// At least one dimension.
    ATLEAST_1D = "aten.atleast_1d.default", "(Tensor self) -> Tensor", "f32[] | f32[2]",
        |c| vec![at_least(c.tensor("self"), 1)];
    /// At least two dimensions; new ones stand in front.
    ATLEAST_2D = "aten.atleast_2d.default", "(Tensor self) -> Tensor", "f32[] | f32[2]",
        |c| vec![at_least(c.tensor("self"), 2)];
    /// At least three dimensions; a vector is put in the middle, a matrix in front.
    ATLEAST_3D = "aten.atleast_3d.default", "(Tensor self) -> Tensor", "f32[] | f32[2] | f32[2, 3]",
        |c| vec![at_least(c.tensor("self"), 3)];
    /// `diagonal` of the last two dimensions.
    LINALG_DIAGONAL = "aten.linalg_diagonal.default",
        "(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)", "f32[2, 3, 4], 1", |c| {
            let rest = ["offset", "dim1", "dim2"].map(|n| c.arg(n).clone());
            vec![c.tensor("A").op("aten.diagonal", rest.to_vec())]
        };
    /// The real part, which a real tensor is.
    REAL = "aten.real.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
    /// Conjugate, which a real tensor is of itself.
    CONJ = "aten.conj.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
    /// What [`CONJ`] left to be done.
    RESOLVE_CONJ = "aten.resolve_conj.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
    /// A negation left to be done, which a real tensor has none of.
    RESOLVE_NEG = "aten.resolve_neg.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
    /// `+x`.
    POSITIVE = "aten.positive.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
    /// A literal as a tensor of the program.
    LIFT_FRESH = "aten.lift_fresh.default", "(Tensor(a) self) -> Tensor(a)", "f32[2]", |c| vec![c.tensor("self")];
}

macro_rules! in_place {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $view:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: $schema,
            rule: Some(|c| vec![c.b.call($view, c.args.to_vec())]),
            ..BASE
        };)*
        static IN_PLACE: &[&OpDef] = &[$(&$id,)* &RESIZE_];
    };
}

in_place! {
    /// `unsqueeze` in place.
    UNSQUEEZE_ = "aten.unsqueeze_.default", "(Tensor(a!) self, int dim) -> Tensor(a!)", "aten.unsqueeze";
    /// `squeeze` of all dimensions in place.
    SQUEEZE_ = "aten.squeeze_.default", "(Tensor(a!) self) -> Tensor(a!)", "aten.squeeze";
    /// `squeeze` of one dimension in place.
    SQUEEZE_DIM_ = "aten.squeeze_.dim", "(Tensor(a!) self, int dim) -> Tensor(a!)", "aten.squeeze.dim";
    /// `squeeze` of dimensions in place.
    SQUEEZE_DIMS_ = "aten.squeeze_.dims", "(Tensor(a!) self, int[] dim) -> Tensor(a!)", "aten.squeeze.dims";
    /// `transpose` in place.
    TRANSPOSE_ = "aten.transpose_.default", "(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)", "aten.transpose.int";
    /// [`SWAPAXES`] in place.
    SWAPAXES_ = "aten.swapaxes_.default", "(Tensor(a!) self, int axis0, int axis1) -> Tensor(a!)", "aten.transpose.int";
    /// [`SWAPDIMS`] in place.
    SWAPDIMS_ = "aten.swapdims_.default", "(Tensor(a!) self, int dim0, int dim1) -> Tensor(a!)", "aten.transpose.int";
    /// `t` in place.
    T_ = "aten.t_.default", "(Tensor(a!) self) -> Tensor(a!)", "aten.t";
    /// `as_strided` in place.
    AS_STRIDED_ = "aten.as_strided_.default",
        "(Tensor(a!) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a!)", "aten.as_strided";
}

/// Another shape in place; elements that are too many are left out.
pub static RESIZE_: OpDef = OpDef {
    name: "aten.resize_.default",
    schema: "(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    rule: Some(|c| {
        let (size, x) = (c.dims("size"), c.tensor("self"));
        let count = |s: &[Dim]| s.iter().cloned().product::<Dim>();
        let (to, from) = (count(&size), count(&x.shape()));
        if to.as_const().zip(from.as_const()).is_none_or(|(to, from)| to > from) {
            c.fail(&format!("{:?} to {size:?}, which has more elements", x.shape()));
        }
        let stride = strides::contiguous(&size);
        vec![x.op("aten.as_strided", vec![size.into(), stride.into()])]
    }),
    ..BASE
};

/// The families.
pub static OPS: &[&[&OpDef]] = &[SPELLED, IN_PLACE];
