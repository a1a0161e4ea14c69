//! Shapes, and the same elements under another one.

use super::fold::{self, limited, pick, positions};
use super::host::{Data, Host, Known, cast};
use super::node::{Ctx, Map, Step, axis_of};
use cleave_ir::{Dim, Tensor, Value};
use cleave_numerics::DType;
use ndarray::IxDyn;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("Shape", shape),
    ("Size", |c| {
        let count = shape_of(c.known(0)?).into_iter().product();
        c.sized(DType::I64, vec![], vec![count])
    }),
    ("Range", range),
    ("Reshape", reshape),
    ("Flatten", flatten),
    ("Transpose", transpose),
    ("Squeeze", squeeze),
    ("Unsqueeze", unsqueeze),
    ("Expand", expand),
];

/// The most elements to which a constant is repeated while reading.
const REPEAT_LIMIT: usize = 1 << 20;

/// Sizes of a value.
pub(super) fn shape_of(k: &Known<'_>) -> Vec<Dim> {
    match k {
        Known::Value(v) => v.shape(),
        Known::Host(h) => h.shape().iter().map(|n| Dim::from(*n)).collect(),
    }
}

fn constant<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    if let Some(t) = c.opt_tensor_attr("value")? {
        return c.folded(t);
    }
    if let Some(v) = c.opt_float("value_float")? {
        return c.folded(Tensor::scalar(v as f32));
    }
    if let Some(v) = c.opt_floats("value_floats")? {
        return c.folded(Tensor::new(&[v.len()], v));
    }
    if let Some(v) = c.opt_int("value_int")? {
        return c.folded(Tensor::scalar(v));
    }
    if let Some(v) = c.opt_list("value_ints")? {
        return c.folded(Tensor::new(&[v.len()], v));
    }
    if let Some(t) = c.opt_sparse("sparse_value")? {
        return c.folded(t);
    }
    Err("expected a value: a tensor, integers or floats".into())
}

fn constant_of_shape<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let value = c.opt_tensor_attr("value")?.unwrap_or_else(|| Tensor::scalar(0f32));
    if value.len() != 1 {
        return Err(format!("value of shape {:?}, expected one element", value.shape()));
    }
    let sizes = c.dims(0)?;
    let numbers = sizes.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect::<Option<Vec<_>>>();
    if let Some(shape) = numbers.filter(|s| limited(s).is_ok_and(|n| n <= REPEAT_LIMIT)) {
        let host = Host::tensor(c.output_name(0), value.reshape(&vec![1; shape.len()]));
        return Ok(vec![Known::Host(repeated(c, &host, &shape)?)]);
    }
    let fill = Host::tensor("", value).as_scalar().unwrap_or(0.0);
    let dtype = c.opt_tensor_attr("value")?.map_or(DType::F32, |t| t.dtype());
    c.one(c.call("aten.full", vec![sizes.into(), fill.into(), dtype.into()]))
}

/// Sizes of 1 repeated.
fn repeated(c: &Ctx<'_, '_>, h: &Host, shape: &[usize]) -> Step<Host> {
    let at = positions(h.shape());
    let wide = at.broadcast(IxDyn(shape)).ok_or_else(|| format!("{:?} does not expand to {shape:?}", h.shape()))?;
    pick(c.output_name(0), h, &wide.to_owned())
}

fn shape<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let dims = shape_of(c.known(0)?);
    let rank = i64::try_from(dims.len()).map_err(|e| e.to_string())?;
    let clip = |v: i64| usize::try_from(if v < 0 { v.saturating_add(rank) } else { v }.clamp(0, rank)).unwrap_or(0);
    let (start, end) = (clip(c.int("start", 0)?), clip(c.int("end", rank)?));
    let part = dims.get(start..end.max(start)).unwrap_or_default().to_vec();
    c.sized(DType::I64, vec![part.len()], part)
}

fn range<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    if c.known(0).is_ok_and(|k| matches!(k, Known::Host(h) if h.dtype().is_float())) {
        let v = |i| c.constant(i)?.to_f64().first().copied().ok_or_else(|| format!("input {i}: expected one element"));
        let (start, limit, delta) = (v(0)?, v(1)?, v(2)?);
        let count = ((limit - start) / delta).ceil();
        if count.is_nan() || count > fold::LIMIT as f64 {
            return Err(format!("range of {count} elements"));
        }
        let numbers: Vec<f64> = (0..count.max(0.0) as u64).map(|i| start + i as f64 * delta).collect();
        let t = Tensor::new(&[numbers.len()], numbers);
        return c.folded(cast(&t, c.constant(0)?.dtype()));
    }
    let one = |i| c.dims(i)?.first().cloned().ok_or_else(|| format!("input {i}: expected one element"));
    let (start, limit, delta) = (one(0)?, one(1)?, one(2)?);
    let numbers = start.as_const().zip(limit.as_const()).zip(delta.as_const());
    let Some(((a, z), d)) = numbers else {
        return c
            .one(c.call("aten.arange.start_step", vec![start.into(), limit.into(), delta.into(), DType::I64.into()]));
    };
    if d == 0 {
        return Err("range with a step of 0".into());
    }
    let count =
        usize::try_from((i128::from(z) - i128::from(a) + i128::from(d - d.signum())) / i128::from(d)).unwrap_or(0);
    limited(&[count])?;
    let numbers: Vec<i64> = (0i64..).take(count).map(|i| a + i * d).collect();
    let dtype = c.host(0).map_or(DType::I64, Host::dtype);
    c.folded(cast(&Tensor::new(&[count], numbers), dtype))
}

/// Under another shape, if it is known; a tensor shares its bytes.
fn reshaped(c: &Ctx<'_, '_>, h: &Host, shape: &[usize]) -> Step<Host> {
    if shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)) != Some(h.len()) {
        return Err(format!("{:?} as {shape:?}", h.shape()));
    }
    Ok(match &h.data {
        Data::Tensor(t) => Host { name: c.output_name(0).into(), kind: h.kind, data: Data::Tensor(t.reshape(shape)) },
        Data::Dims(d, _, dims) => Host::dims(c.output_name(0), *d, shape.to_vec(), dims.clone()),
    })
}

/// The sizes that Reshape asks for: 0 keeps a size, -1 is what is left.
fn target(c: &Ctx<'_, '_>, from: &[Dim]) -> Step<Vec<Dim>> {
    let allow_zero = c.flag("allowzero", false)?;
    let wanted = if c.opset < 5 { c.opt_list("shape")?.map(|l| l.into_iter().map(Dim::from).collect()) } else { None };
    let mut sizes = wanted.map_or_else(|| c.dims(1), Ok)?;
    for (i, d) in sizes.iter_mut().enumerate() {
        if d.is(0) && !allow_zero {
            *d = from.get(i).cloned().ok_or_else(|| format!("size 0 at {i} of an input of rank {}", from.len()))?;
        }
    }
    Ok(sizes)
}

fn reshape<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let from = shape_of(c.known(0)?);
    let mut sizes = target(c, &from)?;
    if let Some(h) = c.host(0) {
        let known: Dim = sizes.iter().filter(|d| !d.is(-1)).cloned().product();
        if let (Some(total), Some(known)) = (i64::try_from(h.len()).ok(), known.as_const()) {
            sizes.iter_mut().filter(|d| d.is(-1)).for_each(|d| *d = Dim::from(total / known.max(1)));
            let shape = sizes.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok()));
            let shape = shape.collect::<Option<Vec<_>>>().ok_or_else(|| format!("shape {sizes:?}"))?;
            return Ok(vec![Known::Host(reshaped(c, h, &shape)?)]);
        }
    }
    let x = c.value(0)?;
    c.one(c.call("aten.reshape", vec![x.into(), sizes.into()]))
}

fn flatten<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let shape = x.shape();
    let axis = c.int("axis", 1)?;
    let rank = i64::try_from(shape.len()).map_err(|e| e.to_string())?;
    let at = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok().filter(|a| *a <= shape.len());
    let at = at.ok_or_else(|| format!("axis {axis} of a tensor of rank {rank}"))?;
    if at == 1 && rank >= 2 {
        return c.one(c.call("aten.flatten.using_ints", vec![x.into(), 1i64.into()]));
    }
    let sizes: [Dim; 2] = [shape[..at].iter().cloned().product(), shape[at..].iter().cloned().product()];
    c.one(c.call("aten.reshape", vec![x.into(), sizes.to_vec().into()]))
}

fn transpose<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let rank = shape_of(c.known(0)?).len();
    let perm = c.opt_list("perm")?;
    let order = match &perm {
        Some(p) => p.iter().map(|a| axis_of(*a, rank)).collect::<Step<Vec<_>>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..rank) {
        return Err(format!("perm {perm:?} is no order of {rank} dimensions"));
    }
    if let Some(Host { kind, data: Data::Tensor(t), .. }) = c.host(0) {
        let host = Host { kind: *kind, ..Host::tensor(c.output_name(0), t.permute(&order)) };
        return Ok(vec![Known::Host(host)]);
    }
    let x = c.value(0)?;
    c.one(c.call("aten.permute", vec![x.into(), order.into()]))
}

/// The axes that a node names, as attribute before operator set 13 and as input from there on.
fn axes(c: &Ctx<'_, '_>) -> Step<Option<Vec<i64>>> {
    if c.opset < 13 { c.opt_list("axes") } else { c.opt_ints(1) }
}

fn squeeze<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let from = shape_of(c.known(0)?);
    let axes = match axes(c)? {
        Some(a) => a.into_iter().map(|a| axis_of(a, from.len())).collect::<Step<Vec<_>>>()?,
        None => (0..from.len()).filter(|i| from[*i].is(1)).collect(),
    };
    if let Some(a) = axes.iter().find(|a| from[**a].as_const().is_some_and(|v| v != 1)) {
        return Err(format!("size {} of axis {a}, expected 1", from[*a]));
    }
    if let Some(h) = c.host(0) {
        let keep = |(i, n): (usize, &usize)| (!axes.contains(&i)).then_some(*n);
        let shape: Vec<usize> = h.shape().iter().enumerate().filter_map(keep).collect();
        return Ok(vec![Known::Host(reshaped(c, h, &shape)?)]);
    }
    let x = c.value(0)?;
    // A size that is not known yet is stated to be 1.
    if axes.iter().any(|a| !from[*a].is(1)) {
        let sizes: Vec<Dim> = (0..from.len()).filter(|i| !axes.contains(i)).map(|i| from[i].clone()).collect();
        return c.one(c.call("aten.reshape", vec![x.into(), sizes.into()]));
    }
    c.one(c.call("aten.squeeze.dims", vec![x.into(), axes.into()]))
}

fn unsqueeze<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let from = shape_of(c.known(0)?);
    let axes = axes(c)?.ok_or("axes are missing")?;
    let rank = from.len() + axes.len();
    let mut axes = axes.into_iter().map(|a| axis_of(a, rank)).collect::<Step<Vec<_>>>()?;
    axes.sort_unstable();
    if axes.windows(2).any(|w| w[0] == w[1]) {
        return Err(format!("axes {axes:?} are not distinct"));
    }
    if let Some(h) = c.host(0) {
        let mut shape = h.shape().to_vec();
        axes.iter().for_each(|a| shape.insert(*a, 1));
        return Ok(vec![Known::Host(reshaped(c, h, &shape)?)]);
    }
    let mut x: Value<'b> = c.value(0)?;
    for a in axes {
        x = c.call("aten.unsqueeze", vec![x.into(), a.into()]);
    }
    c.one(x)
}

fn expand<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (from, wanted) = (shape_of(c.known(0)?), c.dims(1)?);
    let sizes = cleave_ir::ops::infer::broadcast(&[&from, &wanted])?;
    let numbers = sizes.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect::<Option<Vec<_>>>();
    if let (Some(h), Some(shape)) = (c.host(0), numbers.filter(|s| limited(s).is_ok_and(|n| n <= REPEAT_LIMIT))) {
        return Ok(vec![Known::Host(repeated(c, h, &shape)?)]);
    }
    let x = c.value(0)?;
    c.one(c.call("aten.expand", vec![x.into(), sizes.into()]))
}
