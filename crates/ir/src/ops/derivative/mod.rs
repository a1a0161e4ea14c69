//! Derivatives by theme, each table from op names to formulas: the one part of an op's definition that does not stand
//! in its record, since an op with a rule has no need of it.
//!
//! Subgradients are torch's: equal elements share a maximum's gradient, at a bound it is 0.

mod binary;
mod factor;
mod index;
mod moving;
mod norm;
mod pool;
mod prims;
mod product;
mod reduce;
mod resize;
mod special;
mod unary;
mod view;
mod zero;

use crate::builder::{Call, Value};
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::Arg;

/// All derivatives.
pub fn all() -> Vec<Derivative> {
    let tables = [
        binary::TABLE,
        factor::TABLE,
        index::TABLE,
        moving::TABLE,
        norm::TABLE,
        pool::TABLE,
        prims::TABLE,
        product::TABLE,
        reduce::TABLE,
        resize::TABLE,
        special::TABLE,
        unary::TABLE,
        view::TABLE,
        zero::TABLE,
        zero::POLYNOMIALS,
    ];
    let mut all: Vec<Derivative> = tables.concat();
    let named = |op: &str| all.iter().find(|d| d.op == op).copied();
    let prims: Vec<Derivative> =
        prims::SAME.iter().filter_map(|(prim, op)| Some(Derivative { op: prim, ..named(op)? })).collect();
    all.extend(prims);
    all
}

/// The elements where the mask holds, else 0.
fn keep<'b>(v: Value<'b>, mask: Value<'b>) -> Value<'b> {
    mask.op("aten.where.ScalarOther", vec![v.into(), 0i64.into()])
}

/// 0 where the mask holds, else the elements.
fn drop<'b>(v: Value<'b>, mask: Value<'b>) -> Value<'b> {
    v.op("aten.masked_fill.Scalar", vec![mask.into(), 0i64.into()])
}

/// Zeros like a value.
fn zeros(v: Value<'_>) -> Value<'_> {
    v.op("aten.full_like", vec![0i64.into()])
}

/// Zeros of this shape, of the type of a value.
fn zeros_of<'b>(shape: Vec<Dim>, like: Value<'b>) -> Value<'b> {
    like.builder().call("aten.full", vec![shape.into(), 0i64.into(), like.dtype().into()])
}

fn neg(v: Value<'_>) -> Value<'_> {
    v.op("aten.neg", vec![])
}

/// `1 - v`.
fn complement(v: Value<'_>) -> Value<'_> {
    v.op("aten.rsub.Scalar", vec![1i64.into()])
}

/// The product with a tensor or a number.
fn times<'b>(v: Value<'b>, by: &Arg) -> Value<'b> {
    match by {
        Arg::Int(1) => v,
        Arg::Float(f) if *f == 1.0 => v,
        by => v.op("aten.mul.Tensor", vec![by.clone()]),
    }
}

/// A tensor argument; a number in its place as a tensor.
fn operand<'b>(d: &Gradient<'b>, name: &str) -> Value<'b> {
    let number = || d.b.call("aten.scalar_tensor", vec![d.arg(name).clone(), d.y().dtype().into()]);
    d.opt_tensor(name).unwrap_or_else(number)
}

/// The size of a dimension; of one that the value does not have, 0.
fn size(v: Value<'_>, axis: usize) -> Dim {
    v.shape().get(axis).cloned().unwrap_or(Dim::from(0i64))
}

/// An axis of a call on a tensor of this rank; if there is none, the call fails.
fn axis(c: &Call<'_>, name: &str, rank: usize) -> usize {
    c.axis(name, rank).unwrap_or_else(|e| {
        c.b.fail(e);
        0
    })
}
