//! Attention and what goes with it: rotary embeddings, linear attention, causal convolutions with a state.

use super::host::Known;
use super::node::{Ctx, Map, Step, dim_of};
use cleave_ir::{Arg, Dim, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Attention", attention),
    ("RotaryEmbedding", rotary),
    ("LinearAttention", linear_attention),
    ("CausalConvWithState", causal_conv),
];

pub(super) const PREVIEW: &[(&str, Map)] = &[("FlexAttention", flex_attention)];

/// `[batch, time, heads · size]` as `[batch, heads, time, size]`.
fn split_heads<'b>(x: Value<'b>, heads: i64) -> Step<Value<'b>> {
    let s = x.shape();
    if s.len() != 3 || heads <= 0 {
        return Err(format!("input of shape {s:?} for {heads} heads"));
    }
    let size = s[2].floor_div(&heads.into());
    let split = x.op("aten.reshape", vec![vec![s[0].clone(), s[1].clone(), heads.into(), size].into()]);
    Ok(split.permute(vec![0, 2, 1, 3]))
}

/// [`split_heads`]; one number for all heads is one for each.
fn per_head<'b>(x: Value<'b>, heads: i64) -> Step<Value<'b>> {
    if dim_of(x, 2).is(1) && heads > 1 { Ok(x.op("aten.unsqueeze", vec![1i64.into()])) } else { split_heads(x, heads) }
}

/// The reverse of [`split_heads`].
fn join_heads(x: Value<'_>) -> Value<'_> {
    let s = x.shape();
    let [b, heads, time, size] = s.as_slice() else { return x };
    let wide = heads.clone() * size.clone();
    x.permute(vec![0, 2, 1, 3]).op("aten.reshape", vec![vec![b.clone(), time.clone(), wide].into()])
}

/// Each head of keys or values once for each head of queries that shares it.
fn shared<'b>(x: Value<'b>, q: Value<'b>) -> Step<Value<'b>> {
    let (have, want) = (dim_of(x, 1).as_const(), dim_of(q, 1).as_const());
    match (have, want) {
        (Some(h), Some(w)) if h == w => Ok(x),
        (Some(h), Some(w)) if h > 0 && w % h == 0 => {
            Ok(x.op("aten.repeat_interleave.self_int", vec![(w / h).into(), 1i64.into()]))
        }
        other => Err(format!("{other:?} heads of keys and queries")),
    }
}

fn count<'b>(c: &Ctx<'b, '_>, n: Dim) -> Value<'b> {
    c.b.call("aten.arange.start_step", vec![0i64.into(), n.into(), 1i64.into(), DType::I64.into()])
}

fn attention<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (mut q, mut k, mut v) = (c.value(0)?, c.value(1)?, c.value(2)?);
    let flat = q.rank() == 3;
    let heads = (c.int("q_num_heads", 0)?, c.int("kv_num_heads", 0)?);
    if flat {
        q = split_heads(q, heads.0)?;
        k = split_heads(k, heads.1)?;
        v = split_heads(v, heads.1)?;
    }
    if [q, k, v].iter().any(|x| x.rank() != 4) {
        return Err(format!("inputs of ranks {}, {}, {}", q.rank(), k.rank(), v.rank()));
    }
    let past = c.opt_value(4).map(|p| dim_of(p, 2));
    if let (Some(pk), Some(pv)) = (c.opt_value(4), c.opt_value(5)) {
        k = c.b.call("aten.cat", vec![vec![pk, k].into(), 2i64.into()]);
        v = c.b.call("aten.cat", vec![vec![pv, v].into(), 2i64.into()]);
    }
    let present = (k, v);
    (k, v) = (shared(k, q)?, shared(v, q)?);
    let (dtype, lens) = (q.dtype(), c.opt_value(6));
    let causal = c.flag("is_causal", false)?;
    let (left, right) = (c.int("left_window_size", -1)?, c.int("right_window_size", -1)?);
    let (soft, mode) = (c.float("softcap", 0.0)?, c.int("qk_matmul_output_mode", 0)?);
    let precision = c.opt_dtype("softmax_precision")?;
    let size = dim_of(q, 3).as_const().ok_or("heads of unknown size are not supported")?;
    let scale = c.opt_float("scale")?;
    let plain = !causal && left < 0 && right < 0 && soft == 0.0 && lens.is_none() && precision.is_none();
    let mask = c.opt_value(3);
    // torch's gives NaN where all places of a row are masked, as ONNX did once.
    if plain && !c.wants(3) && mask.is_none_or(|m| m.dtype() != DType::Bool && !c.wants(1)) && c.opset < 24 {
        let scale = scale.map_or(Arg::None, Arg::Float);
        let args = vec![q.into(), k.into(), v.into(), mask.into(), 0.0.into(), false.into(), scale];
        let y = c.call("aten.scaled_dot_product_attention", args);
        let y = if flat { join_heads(y) } else { y };
        return Ok([y, present.0, present.1].map(Known::Value).to_vec());
    }
    let half = scale.unwrap_or(1.0 / (size as f64).sqrt()).sqrt();
    let scores = (q * half).op("aten.matmul", vec![(k * half).permute(vec![0, 1, 3, 2]).into()]);
    let raw = scores;
    let capped = if soft == 0.0 { scores } else { (scores / soft).tanh() * soft };
    let bias = bias(c, &scores, mask, past, lens, causal, (left, right))?;
    let (biased, allowed) = match bias {
        Some((bias, allowed)) => (capped + bias.to(dtype), Some(allowed)),
        None => (capped, None),
    };
    let wide = biased.to(precision.unwrap_or(dtype));
    let mut p = wide.op("aten.softmax.int", vec![(-1i64).into()]);
    if let Some(allowed) = allowed {
        // A row without any place that may be looked at gives zeros.
        let any = allowed.op("aten.any.dim", vec![(-1i64).into(), true.into()]);
        p = any.op("aten.where.ScalarOther", vec![p.into(), 0.0.into()]);
    }
    let p = p.to(dtype);
    let y = p.op("aten.matmul", vec![v.into()]);
    let shown = match mode {
        0 => raw,
        1 => capped,
        2 => biased,
        3 => p,
        other => return Err(format!("attribute 'qk_matmul_output_mode': found {other}")),
    };
    let y = if flat { join_heads(y) } else { y };
    Ok([y, present.0, present.1, shown].map(Known::Value).to_vec())
}

/// What is added to the scores, and the places that may be looked at.
fn bias<'b>(
    c: &Ctx<'b, '_>,
    scores: &Value<'b>,
    mask: Option<Value<'b>>,
    past: Option<Dim>,
    lens: Option<Value<'b>>,
    causal: bool,
    window: (i64, i64),
) -> Step<Option<(Value<'b>, Value<'b>)>> {
    let (rows, columns) = (dim_of(*scores, 2), dim_of(*scores, 3));
    let column = count(c, columns.clone());
    let row = count(c, rows.clone()).op("aten.unsqueeze", vec![1i64.into()]);
    let lens = lens.map(|l| l.to(DType::I64).op("aten.reshape", vec![vec![-1i64, 1, 1, 1].into()]));
    let place = match (&past, lens) {
        (Some(p), _) => row.op("aten.add.Tensor", vec![p.clone().into()]),
        (None, Some(l)) => row + (l.op("aten.sub.Tensor", vec![rows.into()])),
        (None, None) => row,
    };
    let mut allowed: Option<Value<'b>> = None;
    let mut both = |m: Value<'b>| {
        allowed = Some(allowed.map_or(m, |a| a.op("aten.logical_and", vec![m.into()])));
    };
    if causal || window.1 >= 0 {
        let ahead = if causal { 0 } else { window.1 };
        both(column.op("aten.le.Tensor", vec![(place + ahead).into()]));
    }
    if window.0 >= 0 {
        both(column.op("aten.ge.Tensor", vec![(place - window.0).into()]));
    }
    if let Some(l) = lens {
        both(column.op("aten.lt.Tensor", vec![l.into()]));
    }
    let mut added = None;
    if let Some(mut m) = mask {
        let have = m.shape().last().cloned().ok_or("a mask without dimensions")?;
        let missing = columns - have.clone();
        if !missing.is(0) && !have.is(1) {
            let value: Arg = if m.dtype() == DType::Bool { false.into() } else { f64::NEG_INFINITY.into() };
            m = m.op("aten.constant_pad_nd", vec![vec![Dim::from(0), missing].into(), value]);
        }
        if m.dtype() == DType::Bool {
            both(m);
        } else {
            added = Some(m);
            both(m.op("aten.ne.Scalar", vec![f64::NEG_INFINITY.into()]));
        }
    }
    let Some(allowed) = allowed else { return Ok(None) };
    let zero = added
        .unwrap_or_else(|| c.b.call("aten.full", vec![Vec::<i64>::new().into(), 0.0.into(), scores.dtype().into()]));
    let b = allowed.op("aten.where.ScalarOther", vec![zero.into(), f64::NEG_INFINITY.into()]);
    Ok(Some((b, allowed)))
}

/// Pairs of elements turned by the angle of their place.
fn rotary<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, mut cos, mut sin) = (c.value(0)?, c.value(1)?, c.value(2)?);
    let (heads, part) = (c.int("num_heads", 0)?, c.int("rotary_embedding_dim", 0)?);
    let interleaved = c.flag("interleaved", false)?;
    let flat = x.rank() == 3;
    let y = if flat { split_heads(x, heads)? } else { x };
    let size = y.shape().get(3).and_then(Dim::as_const).ok_or("heads of unknown size are not supported")?;
    let part = if part == 0 { size } else { part };
    if part <= 0 || part > size || part % 2 != 0 {
        return Err(format!("rotary_embedding_dim {part} of {size}"));
    }
    if let Some(ids) = c.opt_value(3) {
        cos = cos.op("aten.embedding", vec![ids.into()]);
        sin = sin.op("aten.embedding", vec![ids.into()]);
    }
    let over_heads = |v: Value<'b>| v.op("aten.unsqueeze", vec![1i64.into()]);
    (cos, sin) = (over_heads(cos), over_heads(sin));
    let cut = |v: Value<'b>, from: i64, to: i64, step: i64| {
        v.op("aten.slice.Tensor", vec![3i64.into(), from.into(), to.into(), step.into()])
    };
    let turned = if part == size { y } else { cut(y, 0, part, 1) };
    let (a, b) = match interleaved {
        true => (cut(turned, 0, part, 2), cut(turned, 1, part, 2)),
        false => (cut(turned, 0, part / 2, 1), cut(turned, part / 2, part, 1)),
    };
    let (real, imag) = (cos * a - sin * b, sin * a + cos * b);
    let mut done = if interleaved {
        let both = c.b.call("aten.stack", vec![vec![real, imag].into(), (-1i64).into()]);
        both.op("aten.reshape", vec![turned.shape().into()])
    } else {
        c.b.call("aten.cat", vec![vec![real, imag].into(), 3i64.into()])
    };
    if part != size {
        done = c.b.call("aten.cat", vec![vec![done, cut(y, part, size, 1)].into(), 3i64.into()]);
    }
    c.one(if flat { join_heads(done) } else { done })
}

/// The convolution of each channel with what was there before, and what is to be there the next time.
fn causal_conv<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, w, bias) = (c.value(0)?, c.value(1)?, c.opt_value(2));
    let reach = w.shape().get(2).and_then(Dim::as_const).ok_or("a weight of unknown size")? - 1;
    let channels = dim_of(w, 0).as_const().ok_or("a weight of unknown size")?;
    let padded = match c.opt_value(3) {
        Some(past) => c.b.call("aten.cat", vec![vec![past, x].into(), 2i64.into()]),
        None => x.op("aten.constant_pad_nd", vec![vec![reach, 0].into(), 0.0.into()]),
    };
    let args = vec![
        padded.into(),
        w.into(),
        bias.into(),
        vec![1i64].into(),
        vec![0i64].into(),
        vec![1i64].into(),
        channels.into(),
    ];
    let y = c.call("aten.conv1d", args);
    let y = match c.str("activation", "none")? {
        "none" | "" => y,
        "silu" | "swish" => y.op("aten.silu", vec![]),
        other => return Err(format!("attribute 'activation': found '{other}'")),
    };
    let end = dim_of(padded, 2);
    let start = end.clone() - reach.into();
    let state = padded.op("aten.slice.Tensor", vec![2i64.into(), start.into(), end.into()]);
    Ok(vec![Known::Value(y), Known::Value(state)])
}

/// A state that each step changes by the outer product of a key and a value, and a query reads.
fn linear_attention<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    const LONGEST: i64 = 1024;
    let (heads, pairs) = (c.int("q_num_heads", 0)?, c.int("kv_num_heads", 0)?);
    let (q, k, v) =
        (split_heads(c.value(0)?, heads)?, split_heads(c.value(1)?, pairs)?, split_heads(c.value(2)?, pairs)?);
    let rule = c.str("update_rule", "gated_delta")?;
    c.ignore(&["chunk_size"]);
    let (gated, delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(format!("attribute 'update_rule': found '{other}'")),
    };
    let size = dim_of(k, 3).as_const().ok_or("heads of unknown size are not supported")?;
    let scale = c.float("scale", 0.0)?;
    let scale = if scale == 0.0 { 1.0 / (size as f64).sqrt() } else { scale };
    let steps = dim_of(q, 2).as_const().filter(|n| (1..=LONGEST).contains(n));
    let steps = steps.ok_or_else(|| format!("a sequence of length {}, expected 1 to {LONGEST}", dim_of(q, 2)))?;
    let dtype = v.dtype();
    let wide = |x: Value<'b>| x.to(DType::F32);
    let mut state = match c.opt_value(3) {
        Some(s) => wide(s),
        None => {
            let s = vec![dim_of(k, 0), dim_of(k, 1), dim_of(k, 3), dim_of(v, 3)];
            c.b.call("aten.full", vec![s.into(), 0.0.into(), DType::F32.into()])
        }
    };
    // Rates for each head, or for each element of a key.
    let by_head =
        |i: usize| -> Step<Option<Value<'b>>> { c.opt_value(i).map(|x| per_head(wide(x), pairs)).transpose() };
    let decay = if gated { by_head(4)? } else { None };
    let beta = if delta { by_head(5)? } else { None };
    let at = |x: Value<'b>, t: i64| x.op("aten.select.int", vec![2i64.into(), t.into()]);
    let (q, k, v) = (wide(q), wide(k), wide(v));
    let mut outs = vec![];
    for t in 0..steps {
        let (kt, vt) =
            (at(k, t).op("aten.unsqueeze", vec![3i64.into()]), at(v, t).op("aten.unsqueeze", vec![2i64.into()]));
        if let Some(g) = decay {
            state = at(g, t).exp().op("aten.unsqueeze", vec![3i64.into()]) * state;
        }
        let mut new = vt;
        if delta {
            new = vt - kt.permute(vec![0, 1, 3, 2]).op("aten.matmul", vec![state.into()]);
        }
        if let Some(b) = beta {
            new = at(b, t).op("aten.unsqueeze", vec![3i64.into()]) * new;
        }
        state = state + kt * new;
        let qt = at(q, t).op("aten.unsqueeze", vec![2i64.into()]);
        outs.push(qt.op("aten.matmul", vec![shared(state, qt)?.into()]) * scale);
    }
    let y = c.b.call("aten.cat", vec![outs.into(), 2i64.into()]);
    let state_type = c.opt_value(3).map_or(dtype, |s| s.dtype());
    Ok(vec![Known::Value(join_heads(y).to(dtype)), Known::Value(state.to(state_type))])
}

/// Attention whose scores and weights are changed by graphs of the file.
fn flex_attention<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (q, k, v) = (c.value(0)?, c.value(1)?, c.value(2)?);
    if [q, k, v].iter().any(|x| x.rank() != 4) {
        return Err(format!("inputs of ranks {}, {}, {}", q.rank(), k.rank(), v.rank()));
    }
    let size = dim_of(q, 3).as_const().ok_or("heads of unknown size are not supported")?;
    let scale = c.float("scale", 1.0 / (size as f64).sqrt())?;
    let dtype = q.dtype();
    let wide = c.opt_dtype("softmax_precision")?.unwrap_or(if dtype == DType::F64 { dtype } else { DType::F32 });
    let change = |name: &str, x: Value<'b>| -> Step<Value<'b>> {
        match c.opt_graph(name)? {
            None => Ok(x),
            Some(g) => match c.scope.inline(g, vec![Known::Value(x)])?.as_slice() {
                [one] => Ok(c.node_of(one)),
                all => Err(format!("'{name}' has {} results", all.len())),
            },
        }
    };
    let k = shared(k, q)?.permute(vec![0, 1, 3, 2]);
    let scores = q.to(wide).op("aten.matmul", vec![k.to(wide).into()]) * scale;
    let p = change("score_mod", scores)?.op("aten.softmax.int", vec![(-1i64).into()]);
    let p = change("prob_mod", p)?;
    c.one(p.op("aten.matmul", vec![shared(v, q)?.to(wide).into()]).to(dtype))
}
