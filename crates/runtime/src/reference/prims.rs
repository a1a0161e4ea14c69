//! The prims that say less, or otherwise, than the ATen op of their name. The others are evaluated as that op is:
//! see [`namesake`].

use super::EvalFn;
use super::create::spread;
use super::ctx::Ctx;
use super::pointwise::{arith, int_power, zip};
use super::reduce::{Rows, variance};
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_ir::Meta;
use cleave_numerics::DType;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("prims.add.default", |c| arith(c, |a, b| a + b, i64::wrapping_add)),
    ("prims.sub.default", |c| arith(c, |a, b| a - b, i64::wrapping_sub)),
    ("prims.div.default", |c| arith(c, |a, b| a / b, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) })),
    ("prims.pow.default", |c| arith(c, f64::powf, int_power)),
    ("prims.convert_element_type.default", |c| Ok(c.array("a")?.cast(c.dtype()).into())),
    ("prims.isfinite.default", |c| {
        let y = c.array("self")?.to_f64().mapv(|v| i64::from(v.is_finite()));
        Ok(Array::int(DType::Bool, y).into())
    }),
    ("prims.item.default", |c| match &c.array("a")?.data {
        Data::Int(a) if a.len() == 1 => Ok(Value::Int(a.iter().copied().sum())),
        Data::Float(a) if a.len() == 1 => Ok(Value::Float(a.iter().copied().sum())),
        _ => Err(c.err("expected one element")),
    }),
    ("prims._make_token.default", |c| Ok(Array::from_f64(c.dtype(), ArrayD::zeros(IxDyn(&[0]))).into())),
    ("prims._sink_tokens.default", |_| Ok(Value::None)),
    ("prims.maximum_value.default", known),
    ("prims.minimum_value.default", known),
    ("prims.where.default", select),
    ("prims.broadcast_in_dim.default", broadcast_in_dim),
    ("prims.transpose.default", |c| {
        let order: Vec<usize> = c.sizes("permutation")?;
        fn moved<T: Clone>(a: &ArrayD<T>, order: &[usize]) -> ArrayD<T> {
            a.view().permuted_axes(IxDyn(order)).as_standard_layout().into_owned()
        }
        Ok(c.array("a")?.moved(|a| Ok(moved(a, &order)), |a| Ok(moved(a, &order)))?.into())
    }),
    ("prims.reshape.default", |c| Ok(super::view::shaped(c, &c.array("a")?, &c.ints("shape")?)?.into())),
    ("prims.iota.default", |c| {
        let (n, start, step) = (c.int("length")?, c.int("start")?, c.int("step")?);
        let n = super::places::bounded(c, &[usize::try_from(n).map_err(|_| c.err(format!("{n} elements")))?])?;
        let at = |i: usize| start.wrapping_add(step.wrapping_mul(i as i64));
        Ok(Array::int(DType::I64, (0..n).map(at).collect::<ndarray::Array1<i64>>().into_dyn()).cast(c.dtype()).into())
    }),
    ("prims.sum.default", |c| reduce(c, |r| r.iter().sum(), |r| r.iter().fold(0, |a, b| a.wrapping_add(*b)))),
    ("prims.prod.default", |c| reduce(c, |r| r.iter().product(), |r| r.iter().fold(1, |a, b| a.wrapping_mul(*b)))),
    ("prims.xor_sum.default", |c| {
        if !c.array("inp")?.dtype.is_int() {
            return Err(c.err("bits of floats"));
        }
        reduce(c, |_| f64::NAN, |r| r.iter().fold(0, |a, b| a ^ b))
    }),
    ("prims.cbrt.default", |c| {
        let x = c.array("self")?;
        Ok(Array::from_f64(x.dtype, x.to_f64().mapv(f64::cbrt)).into())
    }),
    ("prims.amax.default", |c| extreme(c, true)),
    ("prims.amin.default", |c| extreme(c, false)),
    ("prims.var.default", |c| {
        let correction = c.opt_float("correction")?.unwrap_or(1.0);
        let x = c.array("inp")?.cast(c.dtype()).to_f64();
        let y = rows(c, x.shape())?.fold(c, &x, |row| variance(row, correction))?;
        Ok(Array::from_f64(c.dtype(), y).into())
    }),
];

/// A size that inference knows.
pub(super) fn known(c: &Ctx<'_>) -> Result<Value> {
    match c.meta {
        Meta::Int(d) => Ok(Value::Int(d.as_const().ok_or_else(|| c.err("a size that is not known"))?)),
        _ => Err(c.err("expected a size")),
    }
}

/// The ATen op that a prim without an anchor of its own is evaluated as.
pub fn namesake(prim: &str) -> Option<[String; 2]> {
    let base = prim.strip_prefix("prims.")?.strip_suffix(".default")?;
    Some([format!("aten.{base}.default"), format!("aten.{base}.Tensor")])
}

fn select(c: &Ctx<'_>) -> Result<Value> {
    let pred = c.array("pred")?.to_f64().mapv(|v| v != 0.0);
    let (a, b) = (c.array("a")?.cast(c.dtype()), c.array("b")?.cast(c.dtype()));
    fn pick<T: Copy>(c: &Ctx<'_>, pred: &ArrayD<bool>, a: &ArrayD<T>, b: &ArrayD<T>) -> Result<ArrayD<T>> {
        let either = zip(c, a, b, |a, b| (*a, *b))?;
        zip(c, pred, &either, |p, (a, b)| if *p { *a } else { *b })
    }
    Ok(match (&a.data, &b.data) {
        (Data::Int(a), Data::Int(b)) => Array::int(c.dtype(), pick(c, &pred, a, b)?).into(),
        _ => Array::from_f64(c.dtype(), pick(c, &pred, &a.to_f64(), &b.to_f64())?).into(),
    })
}

fn broadcast_in_dim(c: &Ctx<'_>) -> Result<Value> {
    let (x, shape, to) = (c.array("a")?, c.sizes("shape")?, c.sizes("broadcast_dimensions")?);
    let mut spaced = vec![1i64; shape.len()];
    for (n, i) in x.shape().iter().zip(&to) {
        *spaced.get_mut(*i).ok_or_else(|| c.err(format!("dimension {i} of {shape:?}")))? = *n as i64;
    }
    spread(c, &super::view::shaped(c, &x, &spaced)?, &shape)
}

/// The rows that a prim reduces: those of `dims`, or of all dimensions where none are given.
fn rows(c: &Ctx<'_>, shape: &[usize]) -> Result<Rows> {
    let axes = match c.opt_ints("dims")? {
        Some(d) => d.iter().map(|a| c.axis(*a, shape.len())).collect::<Result<Vec<_>>>()?,
        None => (0..shape.len()).collect(),
    };
    Ok(Rows::new(shape, &axes, false))
}

fn reduce(c: &Ctx<'_>, f: fn(&[f64]) -> f64, i: fn(&[i64]) -> i64) -> Result<Value> {
    let x = c.array("inp")?.cast(c.dtype());
    let rows = rows(c, x.shape())?;
    Ok(match &x.data {
        Data::Int(a) => Array::int(c.dtype(), rows.fold(c, a, i)?).into(),
        Data::Float(a) => Array::from_f64(c.dtype(), rows.fold(c, a, f)?).into(),
    })
}

fn extreme(c: &Ctx<'_>, greatest: bool) -> Result<Value> {
    let x = c.array("inp")?;
    if x.shape().contains(&0) {
        return Err(c.err(format!("no elements to choose from in shape {:?}", x.shape())));
    }
    fn best<T: Copy>(row: &[T], better: impl Fn(T, T) -> bool) -> T {
        row.iter().copied().reduce(|p, q| if better(q, p) { q } else { p }).expect("invariant: a row has elements")
    }
    let rows = rows(c, x.shape())?;
    Ok(match &x.data {
        Data::Int(a) => {
            Array::int(c.dtype(), rows.fold(c, a, |r| best(r, |p, q| if greatest { p > q } else { p < q }))?).into()
        }
        Data::Float(a) => {
            Array::from_f64(c.dtype(), rows.fold(c, a, |r| best(r, |p, q| super::reduce::before(p, q, greatest)))?)
                .into()
        }
    })
}
