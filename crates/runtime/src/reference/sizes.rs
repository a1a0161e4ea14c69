//! Sizes and what is said of them.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::Value;
use crate::error::Result;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.sym_size.int", |c| {
        let x = c.array("self")?;
        let axis = c.axis(c.int("dim")?, x.shape().len())?;
        let n = x.shape().get(axis).ok_or_else(|| c.err("a tensor without dimensions"))?;
        Ok(Value::Int(*n as i64))
    }),
    ("aten.sym_stride.int", super::prims::known),
    // Every value of the interpreter lies in row-major order.
    ("aten.sym_is_contiguous.default", |_| Ok(Value::Bool(true))),
    ("aten.sym_numel.default", |c| Ok(Value::Int(c.array("self")?.shape().iter().product::<usize>() as i64))),
    ("_operator.add", |c| size(c, i64::checked_add)),
    ("_operator.sub", |c| size(c, i64::checked_sub)),
    ("_operator.mul", |c| size(c, i64::checked_mul)),
    ("_operator.floordiv", |c| size(c, |a, b| Some(a.checked_sub(modulo(a, b)?)? / b))),
    ("_operator.mod", |c| size(c, modulo)),
    ("torch.sym_max", |c| size(c, |a, b| Some(a.max(b)))),
    ("torch.sym_min", |c| size(c, |a, b| Some(a.min(b)))),
    ("_operator.ge", |c| condition(c, |a, b| a >= b)),
    ("_operator.le", |c| condition(c, |a, b| a <= b)),
    ("_operator.eq", |c| condition(c, |a, b| a == b)),
    ("_operator.ne", |c| condition(c, |a, b| a != b)),
    ("_operator.gt", |c| condition(c, |a, b| a > b)),
    ("_operator.lt", |c| condition(c, |a, b| a < b)),
    ("aten._assert_tensor_metadata.default", |_| Ok(Value::None)),
    ("aten._assert_scalar.default", |c| {
        let Value::Str(message) = c.arg("assert_msg")? else { return Err(c.err("expected a message")) };
        if c.float("self")? != 0.0 { Ok(Value::None) } else { Err(c.err(format!("does not hold: {message}"))) }
    }),
    ("aten.sym_constrain_range_for_size.default", |c| {
        let (n, lo, hi) = (c.int("size")?, c.opt_int("min")?, c.opt_int("max")?);
        let holds = lo.is_none_or(|lo| n >= lo) && hi.is_none_or(|hi| n <= hi);
        if holds { Ok(Value::None) } else { Err(c.err(format!("size {n}, expected {lo:?} to {hi:?}"))) }
    }),
];

/// Python's remainder: of the divisor's sign.
fn modulo(a: i64, b: i64) -> Option<i64> {
    let rest = a.checked_rem(b)?;
    Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
}

fn size(c: &Ctx<'_>, f: fn(i64, i64) -> Option<i64>) -> Result<Value> {
    let (a, b) = (c.int("a")?, c.int("b")?);
    f(a, b).map(Value::Int).ok_or_else(|| c.err(format!("sizes {a} and {b}")))
}

fn condition(c: &Ctx<'_>, f: fn(&f64, &f64) -> bool) -> Result<Value> {
    Ok(Value::Bool(f(&c.float("a")?, &c.float("b")?)))
}
