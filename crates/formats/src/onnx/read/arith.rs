//! Binary arithmetic, comparisons and choices.

use super::fold::{self, Binary};
use super::host::{Host, Known};
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Add", |c| binary(c, Binary::Add, "aten.add.Tensor")),
    ("Sub", |c| binary(c, Binary::Sub, "aten.sub.Tensor")),
    ("Mul", |c| binary(c, Binary::Mul, "aten.mul.Tensor")),
    ("Div", div),
    ("Mod", modulo),
    ("Pow", pow),
    ("Equal", |c| binary(c, Binary::Equal, "aten.eq.Tensor")),
    ("Less", |c| binary(c, Binary::Less, "aten.lt.Tensor")),
    ("LessOrEqual", |c| binary(c, Binary::LessOrEqual, "aten.le.Tensor")),
    ("Greater", |c| binary(c, Binary::Greater, "aten.gt.Tensor")),
    ("GreaterOrEqual", |c| binary(c, Binary::GreaterOrEqual, "aten.ge.Tensor")),
    ("And", |c| binary(c, Binary::And, "aten.logical_and")),
    ("Or", |c| binary(c, Binary::Or, "aten.logical_or")),
    ("Xor", |c| match c.opset < 7 && c.flag("broadcast", false)? {
        true => placed(c, "aten.logical_xor"),
        false => pair(c, "aten.logical_xor"),
    }),
    ("BitwiseAnd", |c| pair(c, "aten.bitwise_and.Tensor")),
    ("BitwiseOr", |c| pair(c, "aten.bitwise_or.Tensor")),
    ("BitwiseXor", |c| pair(c, "aten.bitwise_xor.Tensor")),
    ("BitShift", |c| {
        let (a, b) = (c.value(0)?, c.value(1)?);
        let op = match c.opt_str("direction")? {
            Some("LEFT") => "aten.bitwise_left_shift.Tensor",
            Some("RIGHT") => "aten.bitwise_right_shift.Tensor",
            other => return Err(format!("attribute 'direction': found {other:?}")),
        };
        c.one(c.call(op, vec![a.into(), b.into()]))
    }),
    ("Max", |c| several(c, Binary::Max, "aten.maximum")),
    ("Min", |c| several(c, Binary::Min, "aten.minimum")),
    ("Sum", |c| several(c, Binary::Add, "aten.add.Tensor")),
    ("Mean", mean),
    ("Where", choose),
];

/// Two operands, never folded.
fn pair<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let (a, b) = (c.value(0)?, c.value(1)?);
    c.one(c.call(op, vec![a.into(), b.into()]))
}

/// Two operands, folded if both are known.
fn binary<'b>(c: &Ctx<'b, '_>, f: Binary, op: &str) -> Step<Vec<Known<'b>>> {
    if c.opset < 7 && c.flag("broadcast", false)? {
        return placed(c, op);
    }
    if let (Some(a), Some(b)) = (c.host(0), c.host(1))
        && let Some(h) = fold::binary(c.output_name(0), f, a, b)?
    {
        return Ok(vec![Known::Host(h)]);
    }
    let commutes = matches!(f, Binary::Add | Binary::Mul);
    let numbers = commutes || matches!(f, Binary::Sub | Binary::Div);
    let (mut a, mut b) = (c.known(0)?, c.known(1)?);
    if commutes && matches!(a, Known::Host(_)) {
        (a, b) = (b, a);
    }
    let a = c.node_of(a);
    let b = if numbers { operand(c, a, b) } else { c.node_of(b).into() };
    c.one(c.call(op, vec![a.into(), b]))
}

/// Before operator set 7 the second operand's dimensions stand at those of the first from an axis on.
fn placed<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let (a, mut b) = (c.value(0)?, c.value(1)?);
    if let Some(axis) = c.opt_int("axis")? {
        let at = super::node::axis_of(axis, a.rank())?;
        let behind = a.rank().checked_sub(at + b.rank()).ok_or("the second operand has too many dimensions")?;
        let shape = [b.shape(), vec![1.into(); behind]].concat();
        b = b.op("aten.reshape", vec![shape.into()]);
    }
    c.one(c.call(op, vec![a.into(), b.into()]))
}

/// A constant of one element that does not decide the result's shape or type, as a number; a computed
/// size likewise; anything else as a node.
fn operand<'b>(c: &Ctx<'b, '_>, other: Value<'b>, k: &Known<'b>) -> Arg {
    let Known::Host(h) = k else { return c.node_of(k).into() };
    if h.len() != 1 || h.shape().len() > other.rank() || h.dtype() != other.dtype() {
        return c.node_of(k).into();
    }
    match (h.as_scalar(), h.as_dims()) {
        (Some(v), _) if h.dtype().is_float() => Arg::Float(v),
        (_, Some(d)) => d[0].clone().into(),
        _ => c.node_of(k).into(),
    }
}

fn div<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    if let (Some(a), Some(b)) = (c.host(0), c.host(1))
        && let Some(h) = fold::binary(c.output_name(0), Binary::Div, a, b)?
    {
        return Ok(vec![Known::Host(h)]);
    }
    if !c.value(0)?.dtype().is_float() && c.opset >= 7 {
        // ONNX divides integers with truncation.
        let (a, b) = (c.value(0)?, c.value(1)?);
        return c.one(c.call("aten.div.Tensor_mode", vec![a.into(), b.into(), "trunc".into()]));
    }
    binary(c, Binary::Div, "aten.div.Tensor")
}

fn modulo<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    match c.flag("fmod", false)? {
        true => binary(c, Binary::Fmod, "aten.fmod.Tensor"),
        false => binary(c, Binary::Mod, "aten.remainder.Tensor"),
    }
}

fn pow<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    if let (None, Some(h)) = (c.host(0), c.host(1))
        && let Some(e) = h.as_scalar()
        && h.shape().len() <= c.value(0)?.rank()
        && (h.dtype().is_float() || c.value(0)?.dtype().is_float() || e >= 0.0)
    {
        let x = c.value(0)?;
        let whole = e.fract() == 0.0 && e.abs() < 1e9;
        let e = if whole { Arg::Int(e as i64) } else { Arg::Float(e) };
        return of_base(c, c.one(c.call("aten.pow.Tensor_Scalar", vec![x.into(), e]))?);
    }
    of_base(c, binary(c, Binary::Pow, "aten.pow.Tensor_Tensor")?)
}

/// A power in the type of its base, where torch's is promoted.
fn of_base<'b>(c: &Ctx<'b, '_>, power: Vec<Known<'b>>) -> Step<Vec<Known<'b>>> {
    match power.as_slice() {
        [Known::Value(y)] if y.dtype() != c.value(0)?.dtype() => {
            c.one(y.op("aten._to_copy", vec![c.value(0)?.dtype().into()]))
        }
        _ => Ok(power),
    }
}

/// Any number of operands, combined from the left.
fn several<'b>(c: &Ctx<'b, '_>, f: Binary, op: &str) -> Step<Vec<Known<'b>>> {
    if let Some(hosts) = c.hosts() {
        let (first, rest) = hosts.split_first().ok_or("no inputs")?;
        let name = c.output_name(0);
        let fold = |a: Option<Host>, b: &&Host| a.map_or(Ok(None), |a| fold::binary(name, f, &a, b));
        if let Some(h) = rest.iter().try_fold(Some((*first).clone()), fold)? {
            return Ok(vec![Known::Host(Host { name: name.into(), ..h })]);
        }
    }
    let mut sum = c.value(0)?;
    for i in 1..c.len() {
        sum = c.call(op, vec![sum.into(), c.value(i)?.into()]);
    }
    c.one(sum)
}

fn mean<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let count = i32::try_from(c.len()).map_err(|e| e.to_string())?;
    match several(c, Binary::Add, "aten.add.Tensor")?.as_slice() {
        [Known::Value(v)] => c.one(*v / f64::from(count)),
        [Known::Host(h)] => {
            let n = Host::tensor("", super::host::cast(&cleave_ir::Tensor::scalar(count), h.dtype()));
            match fold::binary(c.output_name(0), Binary::Div, h, &n)? {
                Some(h) => Ok(vec![Known::Host(h)]),
                None => c.one(c.node_of(&Known::Host(h.clone())) / f64::from(count)),
            }
        }
        _ => Err("no inputs".into()),
    }
}

fn choose<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    if let (Some(k), Some(a), Some(b)) = (c.host(0), c.host(1), c.host(2))
        && k.dtype() == DType::Bool
        && let Some(h) = fold::choose(c.output_name(0), k, a, b)?
    {
        return Ok(vec![Known::Host(h)]);
    }
    let (k, a, b) = (c.value(0)?, c.value(1)?, c.value(2)?);
    c.one(c.call("aten.where.self", vec![k.into(), a.into(), b.into()]))
}
