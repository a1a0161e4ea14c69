//! Products of tensors over any dimensions.

use super::infer::ensure;
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Strategic, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// Products of all elements of one vector and all of another.
pub static OUTER: OpDef = OpDef {
    name: "aten.outer.default",
    schema: "(Tensor self, Tensor vec2) -> Tensor",
    rule: Some(|c| {
        let (x, y) = (c.tensor("self"), c.tensor("vec2"));
        if x.rank() != 1 || y.rank() != 1 {
            c.fail(&format!("{:?} by {:?}: vectors expected", x.shape(), y.shape()));
        }
        let column = reshape(x, [x.shape(), vec![1i64.into()]].concat());
        vec![column * y]
    }),
    example: "f32[2], f32[3]",
    ..BASE
};

/// [`OUTER`].
pub static GER: OpDef = OpDef { name: "aten.ger.default", ..OUTER };

/// Each element of the first tensor times all of the second, in its place.
pub static KRON: OpDef = OpDef {
    name: "aten.kron.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    rule: Some(|c| {
        let (x, y) = (c.tensor("self"), c.tensor("other"));
        let rank = x.rank().max(y.rank());
        let aligned = |v: Value<'_>| [vec![Dim::from(1i64); rank - v.rank()], v.shape()].concat();
        let (a, b, one) = (aligned(x), aligned(y), Dim::from(1i64));
        let left = a.iter().flat_map(|d| [d.clone(), one.clone()]).collect::<Vec<_>>();
        let right = b.iter().flat_map(|d| [one.clone(), d.clone()]).collect::<Vec<_>>();
        let sizes: Vec<Dim> = a.iter().zip(&b).map(|(a, b)| a.clone() * b.clone()).collect();
        let [left, right] = [(x, left), (y, right)].map(|(v, to)| v.op("aten._unsafe_view", vec![to.into()]));
        vec![(left * right).op("aten._unsafe_view", vec![sizes.into()])]
    }),
    example: "f32[2, 2], f32[3]",
    ..BASE
};

/// The product over dimensions of one tensor and as many of the other.
pub static TENSORDOT: OpDef = OpDef {
    name: "aten.tensordot.default",
    schema: "(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
    rule: Some(|c| {
        vec![tensordot(c, c.tensor("self"), c.tensor("other"), &c.ints("dims_self"), &c.ints("dims_other"))]
    }),
    example: "f32[2, 3, 2], f32[3, 2, 2], [1, 2], [0, 1] | f32[2, 3], f32[3, 2], [0, 1], [1, 0] | f32[2, 3], f32[1, 2], [1], [0]",
    ..BASE
};

/// Products over the last dimension of both; a tensor without dimensions is a factor.
pub static INNER: OpDef = OpDef {
    name: "aten.inner.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    rule: Some(|c| {
        let (x, y) = (c.tensor("self"), c.tensor("other"));
        if x.rank() == 0 || y.rank() == 0 {
            return vec![x * y];
        }
        vec![x.op("aten.tensordot", vec![y.into(), vec![-1i64].into(), vec![-1i64].into()])]
    }),
    example: "f32[2, 3], f32[4, 3] | f32[3], f32[3] | f32[], f32[3]",
    ..BASE
};

fn tensordot<'b>(c: &Call<'b>, x: Value<'b>, y: Value<'b>, over_x: &[i64], over_y: &[i64]) -> Value<'b> {
    let wrap = |v: Value<'_>, dims: &[i64]| dims.iter().map(|d| c.wrap(*d, v.rank())).collect::<Result<Vec<_>>>();
    let checked = wrap(x, over_x).and_then(|p| Ok((p, wrap(y, over_y)?))).and_then(|(p, q)| {
        let distinct = |v: &[usize]| (1..v.len()).all(|i| !v[..i].contains(&v[i]));
        let fits = p.len() == q.len() && distinct(&p) && distinct(&q) && x.dtype() == y.dtype();
        let fits = fits && p.iter().all(|i| *i < x.rank()) && q.iter().all(|i| *i < y.rank());
        ensure(c, fits, || format!("{:?} over {over_x:?} by {:?} over {over_y:?}", x.shape(), y.shape()))?;
        Ok((p, q))
    });
    let (p, q) = match checked {
        Ok(dims) => dims,
        Err(e) => {
            c.b.fail(e);
            return x;
        }
    };
    let (mut left, mut right, mut size) = (x, y, Dim::from(1i64));
    let alone =
        |v: Value<'b>, dim: usize| v.op("aten.sum.dim_IntList", vec![vec![dim].into(), true.into(), v.dtype().into()]);
    for (i, j) in p.iter().zip(&q) {
        let (n, m) = (x.shape()[*i].clone(), y.shape()[*j].clone());
        if m.is(1) {
            left = alone(left, *i);
        } else if n.is(1) {
            right = alone(right, *j);
        } else if n.as_const().zip(m.as_const()).is_some_and(|(n, m)| n != m) {
            c.fail(&format!("{:?} over {over_x:?} by {:?} over {over_y:?}", x.shape(), y.shape()));
            return x;
        } else {
            size = size * n;
        }
    }
    let rest = |v: Value<'_>, over: &[usize]| (0..v.rank()).filter(|i| !over.contains(i)).collect::<Vec<_>>();
    let (rows, columns) = (rest(x, &p), rest(y, &q));
    let sizes = |v: Value<'_>, dims: &[usize]| dims.iter().map(|i| v.shape()[*i].clone()).collect::<Vec<Dim>>();
    let (n, m) = (sizes(left, &rows), sizes(right, &columns));
    let order = |dims: &[usize]| dims.iter().map(|i| *i as i64).collect::<Vec<i64>>();
    let left = left.permute(order(&[rows.as_slice(), &p].concat()));
    let right = right.permute(order(&[q.as_slice(), &columns].concat()));
    let to = [n.as_slice(), &m].concat();
    if to.iter().all(|d| d.is(1)) {
        // One sum of products.
        let sum = if left.is_contiguous() && right.is_contiguous() {
            let [a, b] = [left, right].map(|v| if v.rank() == 1 { v } else { v.view(vec![size.clone()]) });
            a.op("aten.dot", vec![b.into()])
        } else {
            let [a, b] = [left, right].map(|v| {
                let all: Vec<usize> = (0..v.rank()).collect();
                v.op("aten.squeeze.dims", vec![all.into()])
            });
            (a * b).op("aten.sum", vec![x.dtype().into()])
        };
        return sum.view(to);
    }
    let left = reshape(left, vec![n.iter().cloned().product(), size.clone()]);
    let right = reshape(right, vec![size, m.iter().cloned().product()]);
    reshape(left.op("aten.mm", vec![right.into()]), to)
}

/// `Σ input1·weight·input2 + bias`, a sum for each of the weight's matrices.
pub static BILINEAR: OpDef = OpDef {
    name: "aten.bilinear.default",
    schema: "(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor",
    rule: Some(|c| {
        let (x, y, w) = (c.tensor("input1"), c.tensor("input2"), c.tensor("weight"));
        let (a, b, k) = (x.shape(), y.shape(), w.shape());
        let (Some((width, lead)), Some((height, _))) = (a.split_last(), b.split_last()) else {
            c.fail("inputs without dimensions");
            return vec![x];
        };
        if k.len() != 3 || a.len() != b.len() {
            c.fail(&format!("inputs {a:?} and {b:?}, weight {k:?}"));
            return vec![x];
        }
        let rows: Dim = lead.iter().cloned().product();
        let left = reshape(x, vec![rows.clone(), width.clone()]);
        let right = reshape(y, vec![rows, height.clone()]);
        let list = |v: &[i64]| Arg::from(v.to_vec());
        let args = vec![w.into(), right.into(), list(&[1, 3]), list(&[0]), list(&[1, 2]), list(&[2, 3])];
        let y = reshape(left.op("aten._trilinear", args), [lead, &k[..1]].concat());
        vec![c.opt_tensor("bias").map_or(y, |b| y + b)]
    }),
    example: "f32[2, 3], f32[2, 4], f32[5, 3, 4], f32[5] | f32[2, 2, 3], f32[2, 2, 4], f32[5, 3, 4]",
    ..BASE
};

/// `Σ i1·i2·i3` over dimensions, after each got dimensions of size 1 where `expand1` to `expand3` say.
pub static TRILINEAR: OpDef = OpDef {
    name: "aten._trilinear.default",
    schema: "(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, int unroll_dim=1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    rule: Some(|c| {
        let [x, y, z] = [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")]
            .map(|(n, at)| c.ints(at).into_iter().fold(c.tensor(n), |v, i| v.op("aten.unsqueeze", vec![i.into()])));
        let product = x * y * z;
        let over = c.arg("sumdim").clone();
        vec![if c.ints("sumdim").is_empty() { product } else { product.op("aten.sum.dim_IntList", vec![over]) }]
    }),
    example: "f32[2, 3], f32[5, 3, 4], f32[2, 4], [1, 3], [0], [1, 2], [2, 3]",
    ..BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&OUTER, &GER, &KRON, &TENSORDOT, &INNER, &BILINEAR, &TRILINEAR]];
