//! Attention and Einstein sums.

use super::infer::{broadcast, ensure};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Meta, TensorMeta};
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
    ..BASE
};

fn attention<'b>(c: &Call<'b>) -> Value<'b> {
    let (q, k, v) = (c.tensor("query"), c.tensor("key"), c.tensor("value"));
    let heads = |x: Value<'b>| x.rank().checked_sub(3).map(|i| x.shape()[i].clone());
    let grouped = c.bool("enable_gqa") && (heads(q) != heads(k) || heads(q) != heads(v));
    if c.float("dropout_p") != 0.0 || grouped {
        c.fail("attention with dropout or grouped queries");
        return q;
    }
    let width = q.shape().last().and_then(Dim::as_const);
    let Some(scale) = c.opt_float("scale").or_else(|| width.map(|e| 1.0 / (e as f64).sqrt())) else {
        c.fail("queries of unknown width");
        return q;
    };
    let half = scale.sqrt();
    let left = q.op("aten.mul.Scalar", vec![half.into()]);
    let right =
        k.op("aten.transpose.int", vec![(-2i64).into(), (-1i64).into()]).op("aten.mul.Scalar", vec![half.into()]);
    let mut scores = left.op("aten.matmul", vec![right.into()]);
    if let Some(mask) = c.opt_tensor("attn_mask") {
        scores = if mask.dtype() == DType::Bool { scores + additive(mask, q.dtype()) } else { scores + mask };
    }
    if c.bool("is_causal") {
        scores = scores + additive(causal(q, k), q.dtype());
    }
    let y = safe_softmax(scores).op("aten.matmul", vec![v.into()]);
    if y.rank() != 4 {
        return y;
    }
    let laid = y.permute(vec![2, 0, 1, 3]).op("aten.clone", vec!["contiguous_format".into()]);
    laid.permute(vec![1, 2, 0, 3])
}

/// 0 where the mask holds, else -inf.
fn additive(mask: Value<'_>, dtype: DType) -> Value<'_> {
    let b = mask.builder();
    let zero = b.call("aten.scalar_tensor", vec![0i64.into(), dtype.into()]);
    let never = b.call("aten.scalar_tensor", vec![f64::NEG_INFINITY.into(), dtype.into()]);
    mask.op("aten.where.self", vec![zero.into(), never.into()])
}

/// Whether a key stands no later than its query.
fn causal<'b>(q: Value<'b>, k: Value<'b>) -> Value<'b> {
    let length = |x: Value<'b>| x.shape()[x.rank() - 2].clone();
    let count = |x: Value<'b>| x.builder().call("aten.arange.start_step", vec![0i64.into(), length(x).into()]);
    count(q).op("aten.unsqueeze", vec![1i64.into()]).op("aten.ge.Tensor", vec![count(k).into()])
}

fn safe_softmax(scores: Value<'_>) -> Value<'_> {
    let p = scores.op("aten.softmax.int", vec![(-1i64).into()]);
    let not = |x: Value<'_>| x.op("aten.logical_not", vec![]).id();
    let open = scores.builder().value(not(scores.op("aten.eq.Scalar", vec![f64::NEG_INFINITY.into()])));
    let any = open.op("aten.any.dim", vec![(-1i64).into(), true.into()]);
    let closed = scores.builder().value(not(any));
    let zeros = p.op("aten.full_like", vec![0i64.into()]);
    closed.op("aten.where.self", vec![zeros.into(), p.into()])
}

/// Products of operands summed over the labels that the result lacks.
pub static EINSUM: OpDef = OpDef {
    name: "aten.einsum.default",
    schema: "(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
    infer: Some(|c| {
        let metas = c.metas("tensors")?;
        let e = Equation::parse(c.str("equation"), metas.len()).map_err(|why| c.err(&why))?;
        let shapes: Vec<Vec<Dim>> = metas.iter().map(|m| m.shape.clone()).collect();
        let shape = e.output.iter().map(|l| e.size(*l, &shapes)).collect::<Option<_>>();
        let shape = shape.ok_or_else(|| c.err(&format!("{} on {shapes:?}", c.str("equation"))))?;
        Ok(Meta::tensor(metas.first().map_or(DType::F32, |m| m.dtype), shape))
    }),
    rule: Some(|c| {
        let operands = c.tensors("tensors");
        match (Equation::parse(c.str("equation"), operands.len()), operands.as_slice()) {
            (Ok(e), [a, b]) => vec![e.contract(*a, *b)],
            (Ok(e), [a]) => vec![e.reduce(*a)],
            (Ok(_), _) => {
                c.fail("an Einstein sum of more than two operands");
                vec![]
            }
            (Err(why), _) => {
                c.fail(&why);
                vec![]
            }
        }
    }),
    ..BASE
};

/// An equation such as `bij,bjk->bik`, taken apart.
struct Equation {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

impl Equation {
    fn parse(text: &str, operands: usize) -> std::result::Result<Equation, String> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        if text.contains('.') {
            return Err(format!("'{text}' has an ellipsis"));
        }
        let (left, right) = text.split_once("->").map_or((text.as_str(), None), |(l, r)| (l, Some(r)));
        let inputs: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
        let repeated = |v: &[char]| (1..v.len()).any(|i| v[..i].contains(&v[i]));
        if inputs.len() != operands || inputs.iter().any(|v| repeated(v)) {
            return Err(format!("'{text}' for {operands} operands"));
        }
        let output = right.map(|r| r.chars().collect()).unwrap_or_else(|| {
            let mut once: Vec<char> = left.chars().filter(|c| *c != ',' && left.matches(*c).count() == 1).collect();
            once.sort_unstable();
            once
        });
        if repeated(&output) || output.iter().any(|l| !left.contains(*l)) {
            return Err(format!("'{text}' names results that no operand has"));
        }
        Ok(Equation { inputs, output })
    }

    /// The size of a label: a number other than 1 if some operand has one there.
    fn size(&self, label: char, shapes: &[Vec<Dim>]) -> Option<Dim> {
        let mut found: Option<Dim> = None;
        for (labels, shape) in self.inputs.iter().zip(shapes) {
            if labels.len() != shape.len() {
                return None;
            }
            if let Some(i) = labels.iter().position(|l| *l == label) {
                found = found.filter(|d| !d.is(1)).or_else(|| Some(shape[i].clone()));
            }
        }
        found
    }

    /// All labels: those of the result, then those summed, in order of appearance.
    fn all(&self) -> Vec<char> {
        let mut all = self.output.clone();
        for l in self.inputs.iter().flatten() {
            if !all.contains(l) {
                all.push(*l);
            }
        }
        all
    }

    /// An operand with a dimension for every label, those that it lacks of size 1.
    fn spread<'b>(&self, x: Value<'b>, labels: &[char]) -> Value<'b> {
        let all = self.all();
        let mut have = labels.to_vec();
        let mut x = x;
        for l in &all {
            if !have.contains(l) {
                x = x.op("aten.unsqueeze", vec![have.len().into()]);
                have.push(*l);
            }
        }
        let order = all.iter().map(|l| have.iter().position(|h| h == l).unwrap_or(0) as i64).collect();
        x.permute(order)
    }

    fn reduce<'b>(&self, x: Value<'b>) -> Value<'b> {
        let (x, kept) = (self.spread(x, &self.inputs[0]), self.output.len());
        let summed: Vec<usize> = (kept..self.all().len()).collect();
        if summed.is_empty() { x } else { x.op("aten.sum.dim_IntList", vec![summed.into()]) }
    }

    /// torch's `sumproduct_pair`: one batched matrix product between permutations.
    fn contract<'b>(&self, a: Value<'b>, b: Value<'b>) -> Value<'b> {
        let (mut a, mut b) = (self.spread(a, &self.inputs[0]), self.spread(b, &self.inputs[1]));
        let kept = self.output.len();
        let (mut batch, mut left, mut right, mut summed) = (vec![], vec![], vec![], vec![]);
        for i in 0..self.all().len() {
            let (in_a, in_b) = (!a.shape()[i].is(1), !b.shape()[i].is(1));
            match (i >= kept, in_a, in_b) {
                (true, true, false) => a = a.op("aten.sum.dim_IntList", vec![vec![i].into(), true.into()]),
                (true, false, true) => b = b.op("aten.sum.dim_IntList", vec![vec![i].into(), true.into()]),
                _ => {}
            }
            match (i >= kept, in_a, in_b) {
                (true, ..) => summed.push(i),
                (_, true, true) => batch.push(i),
                (_, true, false) => left.push(i),
                _ => right.push(i),
            }
        }
        let size = |x: Value<'b>, dims: &[usize]| -> Dim { dims.iter().map(|i| x.shape()[*i].clone()).product() };
        let order = |parts: [&[usize]; 4]| -> Vec<i64> { parts.concat().into_iter().map(|i| i as i64).collect() };
        let (n, k) = (size(a, &batch), size(a, &summed));
        let (rows, columns) = (size(a, &left), size(b, &right));
        let x = reshape(a.permute(order([&batch, &left, &summed, &right])), vec![n.clone(), rows, k.clone()]);
        let y = reshape(b.permute(order([&batch, &summed, &right, &left])), vec![n, k, columns]);
        let product = x.op("aten.bmm", vec![y.into()]);
        let laid = [batch.as_slice(), &left, &summed, &right].concat();
        let sizes = laid.iter().map(|i| match () {
            () if summed.contains(i) => Dim::from(1i64),
            () if right.contains(i) => b.shape()[*i].clone(),
            () => a.shape()[*i].clone(),
        });
        let product = product.view(sizes.collect());
        let back = (0..laid.len()).map(|i| laid.iter().position(|l| *l == i).unwrap_or(0) as i64).collect();
        let product = product.permute(back);
        if summed.is_empty() { product } else { reshape(product, product.shape()[..kept].to_vec()) }
    }
}

/// The family.
pub static OPS: &[&OpDef] = &[&ATTENTION, &EINSUM];
