//! Attention as exporters spell it.

use crate::raise::RuleDef;
use cleave_ir::graph::Arg;
use cleave_ir::{Dim, Value};
use cleave_rewrite::Bound;

/// The order of dimensions of `p`, a permutation or transposition of a tensor of this rank.
fn order(m: &Bound<'_, '_>, rank: usize) -> Option<Vec<usize>> {
    let axis = |a: &Arg| match a {
        Arg::Int(i) => usize::try_from(i.rem_euclid(rank.max(1) as i64)).ok(),
        _ => None,
    };
    match (m.arg_of("p", "dims"), m.arg_of("p", "dim0"), m.arg_of("p", "dim1")) {
        (Arg::List(dims), ..) => dims.iter().map(axis).collect(),
        (_, a, b) => {
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(axis(&a)?, axis(&b)?);
            Some(order)
        }
    }
}

fn spelled<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let (q, k, v) = (m.value("q")?, m.value("k")?, m.value("v")?);
    let rank = q.rank();
    if !(3..=4).contains(&rank) || k.rank() != rank || v.rank() != rank {
        return Err(format!("queries, keys and values of ranks {rank}, {} and {}", k.rank(), v.rank()));
    }
    let over = match m.arg_of("softmax", "dim") {
        Arg::Int(i) => i.rem_euclid(rank as i64),
        _ => -1,
    };
    if over != rank as i64 - 1 {
        return Err("the softmax goes over another dimension than the keys".into());
    }
    // Keys as they are before the last two dimensions change places.
    let mut turned = order(m, rank).ok_or("the order of the keys' dimensions is not known")?;
    turned.swap(rank - 2, rank - 1);
    let k = match turned.iter().copied().eq(0..rank) {
        true => k,
        false => k.permute(turned.into_iter().map(|i| i as i64).collect()),
    };
    let lead = |x: Value<'_>| x.shape()[..rank - 2].to_vec();
    let last = |x: Value<'_>, i: usize| x.shape()[rank - i].clone();
    if lead(q) != lead(k) || lead(k) != lead(v) || last(q, 1) != last(k, 1) || last(k, 2) != last(v, 2) {
        return Err(format!("queries {:?}, keys {:?} and values {:?}", q.shape(), k.shape(), v.shape()));
    }
    let mask = match m.found.value("mask") {
        Some(id) => {
            let mask = m.source.node(id).meta.as_tensor().ok_or("the mask is no tensor")?;
            let want: Vec<Dim> = [lead(q), vec![last(q, 2), last(k, 2)]].concat();
            let fits = mask.shape.iter().rev().zip(want.iter().rev()).all(|(a, b)| a == b || a.is(1));
            if mask.dtype != q.dtype() || mask.shape.len() > rank || !fits {
                return Err(format!("a mask of {}{:?}", mask.dtype, mask.shape));
            }
            m.value("mask")?.into()
        }
        None => Arg::None,
    };
    let scale = match (m.number("by"), m.number("times")) {
        (Ok(by), _) => 1.0 / by,
        (_, Ok(times)) => times,
        _ => 1.0,
    };
    let usual = last(q, 1).as_const().is_some_and(|e| (scale * (e as f64).sqrt() - 1.0).abs() < 1e-6);
    let scale = if usual { Arg::None } else { scale.into() };
    Ok(q.op("aten.scaled_dot_product_attention", vec![k.into(), v.into(), mask, 0.0.into(), false.into(), scale]))
}

/// `softmax(q·kᵀ·scale + mask)·v`.
pub static ATTENTION: RuleDef = RuleDef {
    name: "attention",
    doc: "softmax(q·kᵀ·scale + mask)·v over the keys, a mask of floats.",
    spellings: &[
        "matmul(softmax(add(div(matmul(q, p:turned(k)), by), mask)), v)",
        "matmul(softmax(add(mul(matmul(q, p:turned(k)), times), mask)), v)",
        "matmul(softmax(div(matmul(q, p:turned(k)), by)), v)",
        "matmul(softmax(mul(matmul(q, p:turned(k)), times)), v)",
        "matmul(softmax(add(matmul(q, p:turned(k)), mask)), v)",
        "matmul(softmax(matmul(q, p:turned(k))), v)",
    ],
    any: &[("turned", &["permute", "transpose"])],
    conditions: &["single_use(softmax)"],
    build: spelled,
    example: (
        "graph(%q: f32[1, 2, 5, 4], %k: f32[1, 5, 2, 4], %v: f32[1, 2, 5, 4], %mask: f32[1, 1, 1, 5]) {
  %kt = aten.permute(%k, [0, 2, 3, 1])
  %s = aten.matmul(%q, %kt)
  %d = aten.div.Tensor(%s, 2.0)
  %a = aten.add.Tensor(%d, %mask)
  %w = aten.softmax.int(%a, 3)
  %y = aten.matmul(%w, %v)
  return %y
}",
        "graph(%q: f32[1, 2, 5, 4], %k: f32[1, 5, 2, 4], %v: f32[1, 2, 5, 4], %mask: f32[1, 1, 1, 5]) {
  %permute = aten.permute(%k, [0, 2, 1, 3]): f32[1, 2, 5, 4]
  %scaled_dot_product_attention = aten.scaled_dot_product_attention(%q, %permute, %v, %mask): f32[1, 2, 5, 4]
  return %scaled_dot_product_attention \"y\"
}",
    ),
};
