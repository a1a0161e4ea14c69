//! Attention.

use super::infer::{broadcast, ensure};
use super::promote::Kind;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta, TensorMeta};
use crate::op::{Accuracy, Class, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Strategic, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// `softmax(q·kᵀ·scale + mask)·v`; a row whose scores are all -inf becomes 0. Operands `[…, L, E]`.
pub static ATTENTION: OpDef = OpDef {
    name: "aten.scaled_dot_product_attention.default",
    schema: "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor",
    infer: Some(|c| {
        let (q, k, v) = (c.meta("query")?, c.meta("key")?, c.meta("value")?);
        ensure(c, [&q, &k, &v].iter().all(|m| m.shape.len() >= 2), || "operands of rank 2 or more expected".into())?;
        let lead = |m: &TensorMeta| m.shape[..m.shape.len() - 2].to_vec();
        let batch = match c.bool("enable_gqa") && q.shape.len() == k.shape.len() {
            true => lead(&q),
            false => broadcast(&[&lead(&q), &lead(&k), &lead(&v)]).map_err(|why| c.err(&why))?,
        };
        let own = [q.shape[q.shape.len() - 2].clone(), v.shape[v.shape.len() - 1].clone()];
        Ok(Meta::tensor(q.dtype, [batch.as_slice(), &own].concat()))
    }),
    rule: Some(|c| vec![attention(c)]),
    example: "f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 3, 4] | f32[2, 3, 4], f32[2, 2, 4], f32[2, 2, 4], f32[3, 2] | f32[2, 3, 4], f32[2, 3, 4], f32[2, 3, 2], none, 0, true, -0.5 | f32[1, 2, 3, 4], f32[1, 1, 3, 4], f32[1, 1, 3, 4], none, 0, false, none, true | f32[1, 2, 3, 4], f32[1, 2, 2, 4], f32[1, 2, 2, 4], f32[1, 2, 3, 2], 0, false, 1.0 | f32[1, 2, 3, 4], f32[1, 2, 2, 4], f32[1, 2, 2, 4], none, 0, false, 1.0 | f32[1, 2, 3, 4], f32[1, 2, 2, 4], f32[1, 2, 2, 4], f32[1, 1, 3, 2]",
    raisable: true,
    ..BASE
};

/// [`ATTENTION`] as one kernel computes it, with the logarithms of the rows' sums of exponentials.
pub static FLASH_ATTENTION: OpDef = OpDef {
    name: "aten._scaled_dot_product_flash_attention_for_cpu.default",
    schema: "(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor, Tensor)",
    infer: Some(|c| {
        let (q, k, v) = (c.meta("query")?, c.meta("key")?, c.meta("value")?);
        ensure(c, [&q, &k, &v].iter().all(|m| m.shape.len() == 4), || "operands of rank 4 expected".into())?;
        let own = [&q.shape[..3], &v.shape[3..]].concat();
        let sums = Meta::tensor(Kind::Default.of(q.dtype).compute, q.shape[..3].to_vec());
        Ok(Meta::Tuple(vec![Meta::tensor(q.dtype, own), sums]))
    }),
    rule: Some(|c| {
        let (q, k) = (c.tensor("query"), c.tensor("key"));
        let operands = Operands { q, k, v: c.tensor("value"), mask: c.opt_tensor("attn_mask") };
        let heads = |x: Value<'_>| x.shape().get(1).cloned();
        let Some(scores) = operands.scores(c, heads(q) != heads(k)) else { return vec![q] };
        let sums = scores.op("aten.logsumexp", vec![vec![-1i64].into()]);
        vec![laid(operands.weighted(scores, heads(q) != heads(k))), sums]
    }),
    example: "f32[1, 2, 3, 4], f32[1, 2, 2, 4], f32[1, 2, 2, 4] | f32[1, 2, 3, 4], f32[1, 2, 3, 4], f32[1, 2, 3, 4], 0, true",
    ..BASE
};

#[derive(Clone, Copy)]
struct Operands<'b> {
    q: Value<'b>,
    k: Value<'b>,
    v: Value<'b>,
    mask: Option<Value<'b>>,
}

fn attention<'b>(c: &Call<'b>) -> Value<'b> {
    let o =
        Operands { q: c.tensor("query"), k: c.tensor("key"), v: c.tensor("value"), mask: c.opt_tensor("attn_mask") };
    let grouped = c.bool("enable_gqa");
    if [o.q, o.k, o.v].iter().any(|x| x.rank() != 3) {
        return one_of_both(c, o, grouped);
    }
    let wide = |x: Value<'b>| x.op("aten.unsqueeze", vec![0i64.into()]);
    let mask = o.mask.map(|m| (m.rank()..4).fold(m, |m, _| wide(m)));
    let y = one_of_both(c, Operands { q: wide(o.q), k: wide(o.k), v: wide(o.v), mask }, grouped);
    y.op("aten.squeeze.dims", vec![vec![0i64].into()])
}

/// What torch's choice of a kernel gives: the one kernel lays its result otherwise.
fn one_of_both<'b>(c: &Call<'b>, o: Operands<'b>, grouped: bool) -> Value<'b> {
    let Some(scores) = o.scores(c, grouped) else { return o.q };
    let y = o.weighted(scores, grouped);
    let mask = o.mask.map(|m| m.shape());
    if fuses(&o.q.shape(), &o.k.shape(), &o.v.shape(), mask.as_deref(), grouped) { laid(y) } else { y }
}

/// Whether torch has one kernel for operands of these shapes.
pub(crate) fn fuses(q: &[Dim], k: &[Dim], v: &[Dim], mask: Option<&[Dim]>, grouped: bool) -> bool {
    let ([n, h, l, e], [kn, kh, s, ke], [vn, vh, vs, ve]) = (q, k, v) else { return false };
    let heads = kh == vh && (h == kh || grouped);
    let masked = match mask {
        None | Some([_, _]) => true,
        Some([mn, mh, _, _]) => (mn == n || mn.is(1)) && (mh == h || mh.is(1)),
        Some(_) => false,
    };
    let some = ![n, h, l, s].iter().any(|d| d.is(0));
    heads && masked && some && n == kn && n == vn && e == ke && e == ve && s == vs
}

/// The result as the one kernel lays it: rows of a place side by side.
fn laid(y: Value<'_>) -> Value<'_> {
    let rows = y.permute(vec![2, 0, 1, 3]).op("aten.clone", vec!["contiguous_format".into()]);
    rows.permute(vec![1, 2, 0, 3])
}

impl<'b> Operands<'b> {
    /// In the type in which torch computes.
    fn wide(self, x: Value<'b>) -> Value<'b> {
        x.to(Kind::Default.of(self.q.dtype()).compute)
    }

    /// Keys or values repeated for each group of queries.
    fn spread(self, x: Value<'b>, grouped: bool) -> Value<'b> {
        let heads = |x: Value<'b>| x.rank().checked_sub(3).map(|i| x.shape()[i].clone());
        let (Some(all), Some(own)) = (heads(self.q), heads(x)) else { return x };
        let same = heads(self.k) == heads(self.q) && heads(self.v) == heads(self.q);
        if !grouped || same {
            return x;
        }
        let (shape, times) = (x.shape(), all.floor_div(&own));
        let at = shape.len() - 2;
        let wide = [&shape[..at], std::slice::from_ref(&times), &shape[at..]].concat();
        let mut joined = shape.clone();
        joined[at - 1] = own * times;
        let repeated = x.op("aten.unsqueeze", vec![at.into()]).op("aten.expand", vec![wide.into()]);
        repeated.op("aten.clone", vec!["contiguous_format".into()]).view(joined)
    }

    /// `q·kᵀ·scale + mask`.
    fn scores(self, c: &Call<'b>, grouped: bool) -> Option<Value<'b>> {
        if c.float("dropout_p") != 0.0 {
            c.fail("attention with dropout");
            return None;
        }
        let width = self.q.shape().last().and_then(Dim::as_const);
        let Some(scale) = c.opt_float("scale").or_else(|| width.map(|e| 1.0 / (e as f64).sqrt())) else {
            c.fail("queries of unknown width");
            return None;
        };
        let half = scale.abs().sqrt();
        let left = self.wide(self.q).op("aten.mul.Scalar", vec![half.copysign(scale).into()]);
        let keys = self.spread(self.wide(self.k), grouped);
        let keys = keys.op("aten.transpose.int", vec![(-2i64).into(), (-1i64).into()]);
        let scores = left.op("aten.matmul", vec![keys.op("aten.mul.Scalar", vec![half.into()]).into()]);
        let dtype = scores.dtype();
        Some(match (self.mask, c.bool("is_causal")) {
            (Some(_), true) => {
                c.fail("attention with a mask that is also causal");
                scores
            }
            (Some(m), _) if m.dtype() == DType::Bool => scores + additive(m, self.q.dtype()),
            (Some(m), _) => scores + m,
            (None, true) => scores + additive(causal(self.q, self.k), dtype),
            (None, false) => scores,
        })
    }

    /// `softmax(scores)·v`.
    fn weighted(self, scores: Value<'b>, grouped: bool) -> Value<'b> {
        let p = scores.op("aten._safe_softmax", vec![(-1i64).into()]);
        let values = self.spread(self.wide(self.v), grouped);
        p.op("aten.matmul", vec![values.into()]).to(self.q.dtype())
    }
}

/// 0 where the mask holds, else -inf.
fn additive(mask: Value<'_>, dtype: DType) -> Value<'_> {
    let b = mask.builder();
    let zero = b.call("aten.scalar_tensor", vec![0i64.into(), dtype.into()]);
    let never = b.call("aten.scalar_tensor", vec![f64::NEG_INFINITY.into(), dtype.into()]);
    mask.op("aten.where.self", vec![zero.into(), never.into()])
}

/// Whether a key stands no later than its query: the lower triangle of trues.
fn causal<'b>(q: Value<'b>, k: Value<'b>) -> Value<'b> {
    let b = q.builder();
    let length = |x: Value<'b>| x.shape().get(x.rank().saturating_sub(2)).cloned().unwrap_or(Dim::from(1i64));
    let (rows, columns) = (length(q), length(k));
    let count = |n: &Dim, at: i64| {
        let places = b.call("aten.arange.start_step", vec![0i64.into(), n.clone().into()]);
        places.op("aten.unsqueeze", vec![at.into()])
    };
    let all = b.call("aten.full", vec![vec![rows.clone(), columns.clone()].into(), true.into(), DType::Bool.into()]);
    let below = (count(&columns, -2) - count(&rows, -1)).op("aten.le.Scalar", vec![Arg::Int(0)]);
    below.op("aten.logical_and", vec![all.into()])
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&ATTENTION, &FLASH_ATTENTION]];
