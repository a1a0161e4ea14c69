//! Reductions and running sums.

use super::super::view::reshape;
use super::{axis, keep, zeros};
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::Arg;

const OVER: &str = "f32[2, 3, 2], [1] | f32[2, 3], [0, -1], true | f32[2, 3], []";
const ALONG: &str = "f32[2, 3], 1 | f32[3, 2], 0, true | f32[], 0 | f32[3, 2, 4], 0";
const ALONG_DISTINCT: &str = "f32[2, 3]!, 1 | f32[3, 2]!, 0, true";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.sum.dim_IntList", OVER, |d| d.give("self", kept(d, d.g()))),
    Derivative::new("aten.mean.dim", OVER, |d| {
        let n = count(d);
        d.give("self", kept(d, d.g().op("aten.div.Scalar", vec![n.into()])));
    }),
    Derivative::new("aten.amax.default", OVER, shared),
    Derivative::new("aten.amin.default", OVER, shared),
    Derivative::new("aten.var.correction", "f32[2, 3], [1] | f32[2, 3], [0, 1], 0, true | f32[4], none, 2", |d| {
        d.give("self", spread_out(d, kept(d, d.g())));
    }),
    Derivative::new("aten.std.correction", "f32[2, 3], [1] | f32[2, 3], [0, 1], 0, true", |d| {
        let y = kept(d, d.y());
        let half = kept(d, d.g()) / (y * 2i64);
        d.give("self", spread_out(d, super::drop(half, y.op("aten.eq.Scalar", vec![0i64.into()]))));
    }),
    Derivative::new("aten.logsumexp.default", "f32[2, 3], [1] | f32[2, 3], [0, 1], true", |d| {
        d.give("self", kept(d, d.g()) * (d.tensor("self") - kept(d, d.y())).exp());
    }),
    Derivative::new(
        "aten.linalg_vector_norm.default",
        "f32[2, 3] | f32[2, 3], 1, [1] | f32[2, 3], 3, [0], true | f32[2, 3], 0.5 | f32[2, 3], 1.5 | f32[2, 3], inf",
        norm,
    ),
    Derivative::new("aten.prod.dim_int", ALONG, product),
    Derivative::new("aten.median.default", "f32[2, 3]! | f32[4]!", alike),
    Derivative::new("aten.nanmedian.default", "f32[2, 3]!", alike),
    Derivative::new("aten.cumsum.default", "f32[2, 3], 1 | f32[3], 0", |d| {
        let dims = || Arg::List(vec![d.arg("dim").clone()]);
        let sums = d.g().op("aten.flip", vec![dims()]).op("aten.cumsum", vec![d.arg("dim").clone()]);
        d.give("self", sums.op("aten.flip", vec![dims()]));
    }),
    Derivative::new("aten.cumprod.default", "f32[2, 3], 1 | f32[3, 2], 0 | f32[2, 3, 2], 1", |d| {
        along(d, |d, x, g| {
            // [.., product up to here, factor left out], where the factor is in the product.
            let products = without_one(d, x).op("aten.cumprod", vec![(-2i64).into()]);
            let within = compared(d, x, "aten.ge.Tensor");
            let g = g.op("aten.unsqueeze", vec![(-1i64).into()]);
            (g * keep(products, within)).op("aten.sum.dim_IntList", vec![vec![-2i64].into()])
        });
    }),
    Derivative::new("aten.logcumsumexp.default", "f32[2, 3], 1 | f32[3], 0", |d| {
        // Positive and negative gradients apart, since only those have logarithms.
        let dims = || Arg::List(vec![d.arg("dim").clone()]);
        let part = |sign: f64| {
            let log = (d.g() * sign).relu().op("aten.log", vec![]) - d.y();
            let sums = log.op("aten.flip", vec![dims()]).op("aten.logcumsumexp", vec![d.arg("dim").clone()]);
            (sums.op("aten.flip", vec![dims()]) + d.tensor("self")).exp()
        };
        d.give("self", part(1.0) - part(-1.0));
    }),
    Derivative::new("aten.max.dim", ALONG_DISTINCT, picked),
    Derivative::new("aten.min.dim", ALONG_DISTINCT, picked),
    Derivative::new("aten.median.dim", ALONG_DISTINCT, picked),
    Derivative::new("aten.nanmedian.dim", ALONG_DISTINCT, picked),
    Derivative::new("aten.mode.default", ALONG_DISTINCT, picked),
    Derivative::new("aten.kthvalue.default", "f32[2, 3]!, 2, 1 | f32[3, 2]!, 1, 0, true", picked),
];

/// The reduced tensor, and the dimensions: ATen and prims name them differently.
fn reduced<'b>(d: &Gradient<'b>) -> (&'static str, Value<'b>, Vec<usize>) {
    let (name, dims) = if d.op.schema.index("inp").is_some() { ("inp", "dims") } else { ("self", "dim") };
    let x = d.tensor(name);
    let named = match d.arg(dims) {
        Arg::Int(i) => vec![*i],
        Arg::None => vec![],
        _ => d.ints(dims),
    };
    // No dims are none of a prim's.
    if x.rank() == 0 || named.is_empty() && (name == "self" || *d.arg(dims) == Arg::None) {
        return (name, x, (0..x.rank()).collect());
    }
    (name, x, named.into_iter().filter_map(|i| d.wrap(i, x.rank()).map_err(|e| d.b.fail(e)).ok()).collect())
}

/// How many elements are reduced to one.
fn count(d: &Gradient<'_>) -> Dim {
    let (_, x, axes) = reduced(d);
    axes.into_iter().filter_map(|i| x.shape().get(i).cloned()).product()
}

/// A result with the dimensions that were reduced as ones of size 1.
pub(super) fn kept<'b>(d: &Gradient<'b>, v: Value<'b>) -> Value<'b> {
    let (_, x, axes) = reduced(d);
    if v.rank() == x.rank() {
        return v;
    }
    let mut shape = x.shape();
    let one = Dim::from(1i64);
    shape.iter_mut().enumerate().filter(|(i, _)| axes.contains(i)).for_each(|(_, n)| *n = one.clone());
    v.view(shape)
}

/// The gradient times the product of all other elements, so that zeros do no harm.
pub(super) fn product(d: &Gradient<'_>) {
    let (name, x, axes) = reduced(d);
    let order: Vec<usize> = (0..x.rank()).filter(|i| !axes.contains(i)).chain(axes.iter().copied()).collect();
    let laid = x.permute(order.iter().map(|i| *i as i64).collect());
    let rest: Vec<Dim> = laid.shape().into_iter().take(x.rank() - axes.len()).collect();
    let flat = reshape(laid, [rest, vec![count(d)]].concat());
    let others = without_one(d, flat).op("aten.prod.dim_int", vec![(-2i64).into()]);
    let back = (0..x.rank()).map(|i| order.iter().position(|o| *o == i).unwrap_or(i) as i64);
    d.give(name, kept(d, d.g()) * reshape(others, laid.shape()).permute(back.collect()));
}

/// The gradient shared among all elements of a tensor that are equal to its one result.
fn alike(d: &Gradient<'_>) {
    let x = d.tensor("self");
    let mask = x.op("aten.eq.Tensor", vec![d.y().into()]).to(x.dtype());
    d.give("self", d.g() / mask.op("aten.sum.default", vec![]) * mask);
}

/// The gradient shared among all elements that are equal to the result.
pub(super) fn shared(d: &Gradient<'_>) {
    let (name, x, axes) = reduced(d);
    let mask = x.op("aten.eq.Tensor", vec![kept(d, d.y()).into()]).to(x.dtype());
    let n = mask.op("aten.sum.dim_IntList", vec![axes.into(), true.into()]);
    d.give(name, kept(d, d.g()) / n * mask);
}

/// A variance's gradient times `2·(x - mean) / (n - correction)`.
pub(super) fn spread_out<'b>(d: &Gradient<'b>, g: Value<'b>) -> Value<'b> {
    let (_, x, axes) = reduced(d);
    let correction = d.opt_float("correction").unwrap_or(1.0);
    let left: Arg = match count(d).as_const() {
        Some(n) => (n as f64 - correction).max(0.0).into(),
        None if correction.fract() == 0.0 => (count(d) - Dim::from(correction as i64)).into(),
        None => {
            d.fail("a count that is not known less a fraction");
            Arg::Int(1)
        }
    };
    let far = x - x.op("aten.mean.dim", vec![axes.into(), true.into()]);
    g * (far * 2i64).op("aten.div.Scalar", vec![left])
}

/// `(Σ |x|^p)^(1/p)`; at a norm of 0 the gradient is 0.
fn norm<'b>(d: &Gradient<'b>) {
    let (x, y, g, p) = (d.tensor("self"), kept(d, d.y()), kept(d, d.g()), d.float("ord"));
    let sign = x.op("aten.sign", vec![]);
    let power = |v: Value<'b>, e: f64| v.op("aten.pow.Tensor_Scalar", vec![e.into()]);
    let flat = |v: Value<'b>, of: Value<'b>| super::drop(v, of.op("aten.eq.Scalar", vec![0i64.into()]));
    d.give(
        "self",
        match p {
            0.0 => zeros(x),
            1.0 => g * sign,
            2.0 => g * flat(x / y, y),
            p if p.is_infinite() => {
                // A norm that is no number is one element's that is none.
                let nan = x.op("aten.isnan", vec![]);
                let mask =
                    x.abs().op("aten.eq.Tensor", vec![y.into()]).op("aten.logical_or", vec![nan.into()]).to(x.dtype());
                let n = mask.op("aten.sum.dim_IntList", vec![reduced(d).2.into(), true.into()]);
                g / n * (mask * sign)
            }
            p => {
                let each = flat(sign * power(x.abs(), p - 1.0), x);
                each * (g * flat(power(y, 1.0 - p), y))
            }
        },
    );
}

/// The gradient to the element that was picked.
fn picked(d: &Gradient<'_>) {
    let x = d.tensor("self");
    if x.rank() == 0 {
        return d.give("self", d.g());
    }
    let args = vec![d.arg("dim").clone(), kept(d, d.ys(1)).into(), kept(d, d.g()).into()];
    d.give("self", zeros(x).op("aten.scatter.src", args));
}

/// Gives a gradient that is found along the last dimension, with the argument and the result's gradient laid so.
fn along<'b>(d: &Gradient<'b>, f: fn(&Gradient<'b>, Value<'b>, Value<'b>) -> Value<'b>) {
    let x = d.tensor("self");
    if x.rank() == 0 {
        return d.give("self", d.g());
    }
    let (at, rank) = (axis(d, "dim", x.rank()) as i64, x.rank() as i64);
    let to: Vec<i64> = (0..rank).filter(|i| *i != at).chain([at]).collect();
    let back: Vec<i64> = (0..at).chain([rank - 1]).chain(at..rank - 1).collect();
    let laid = |v: Value<'b>| if v.rank() == x.rank() { v.permute(to.clone()) } else { v };
    d.give("self", f(d, laid(x), laid(d.g())).permute(back));
}

/// The last dimension, and behind it one of the same size, at each place of which one element is 1.
fn without_one<'b>(d: &Gradient<'b>, x: Value<'b>) -> Value<'b> {
    let wide = x.op("aten.unsqueeze", vec![(-1i64).into()]);
    compared(d, x, "aten.ne.Tensor").op("aten.where.ScalarOther", vec![wide.into(), 1i64.into()])
}

/// A matrix of how each place along the last dimension compares with each.
fn compared<'b>(d: &Gradient<'b>, x: Value<'b>, how: &str) -> Value<'b> {
    let n = x.shape().last().cloned().unwrap_or(Dim::from(1i64));
    let places = d.b.call("aten.arange.start_step", vec![0i64.into(), n.into()]);
    places.op("aten.unsqueeze", vec![1i64.into()]).op(how, vec![places.into()])
}
