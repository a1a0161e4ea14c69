//! Running sums along a dimension, and differences of neighbours: the integrals and derivatives of samples.

use super::infer::{ensure, same};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Reduction, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// Sums of all elements so far along a dimension.
pub static CUMSUM: OpDef = OpDef {
    name: "aten.cumsum.default",
    schema: "(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| {
        let m = c.meta("self")?;
        c.axis("dim", m.shape.len())?;
        let natural = if m.dtype.is_float() { m.dtype } else { DType::I64 };
        Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(natural), m.shape))
    }),
    ..BASE
};

/// Products of all elements so far along a dimension.
pub static CUMPROD: OpDef = OpDef { name: "aten.cumprod.default", ..CUMSUM };

/// [`CUMSUM`] in place.
pub static CUMSUM_: OpDef = OpDef {
    name: "aten.cumsum_.default",
    schema: "(Tensor(a!) self, int dim, *, ScalarType? dtype=None) -> Tensor(a!)",
    levels: Levels::TORCH,
    infer: Some(same),
    rule: Some(|c| vec![c.b.call("aten.cumsum", c.args.to_vec())]),
    functional: Functional::Always,
    ..BASE
};

/// [`CUMPROD`] in place.
pub static CUMPROD_: OpDef =
    OpDef { name: "aten.cumprod_.default", rule: Some(|c| vec![c.b.call("aten.cumprod", c.args.to_vec())]), ..CUMSUM_ };

/// `log Σ exp(x)` of all elements so far along a dimension.
pub static LOGCUMSUMEXP: OpDef = OpDef {
    name: "aten.logcumsumexp.default",
    schema: "(Tensor self, int dim) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| {
        let m = c.meta("self")?;
        c.axis("dim", m.shape.len())?;
        Ok(Meta::Tensor(m))
    }),
    ..BASE
};

/// Elements along a dimension from `start` to before `end`, which count from its end if negative.
fn part<'b>(x: Value<'b>, dim: usize, start: i64, end: Option<i64>) -> Value<'b> {
    x.op("aten.slice.Tensor", vec![dim.into(), start.into(), end.unwrap_or(i64::MAX).into()])
}

/// The call's dimension, and the tensor's size there; the call fails if there is none.
fn along(c: &Call<'_>, shape: &[Dim]) -> Option<(usize, Dim)> {
    let axis = c.axis("dim", shape.len()).map_err(|e| c.b.fail(e)).ok()?;
    match shape.get(axis) {
        Some(n) => Some((axis, n.clone())),
        None => {
            c.fail("an input of rank 1 or more expected");
            None
        }
    }
}

/// Differences of neighbours along a dimension, `n` times over.
pub static DIFF: OpDef = OpDef {
    name: "aten.diff.default",
    schema: "(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
    rule: Some(|c| {
        let (mut x, n) = (c.tensor("self"), c.int("n"));
        if n == 0 {
            return vec![x.op("aten.zeros_like", vec![]).op("aten.copy", vec![x.into()])];
        }
        let Some((axis, _)) = along(c, &x.shape()) else { return vec![x] };
        let ends = [c.opt_tensor("prepend"), Some(x), c.opt_tensor("append")];
        let parts: Vec<_> = ends.into_iter().flatten().collect();
        if parts.len() > 1 {
            x = c.b.call("aten.cat", vec![parts.into(), axis.into()]);
        }
        let size = x.shape()[axis].clone();
        let times = size.as_const().map_or(n, |s| n.min(s));
        if n < 0 {
            c.fail(&format!("differences taken {n} times"));
        }
        for i in 0..times {
            let left = size.clone() - Dim::from(i + 1);
            let at = |start: i64| x.op("aten.narrow", vec![axis.into(), start.into(), left.clone().into()]);
            x = if x.dtype() == DType::Bool { at(1).op("aten.logical_xor", vec![at(0).into()]) } else { at(1) - at(0) };
        }
        vec![x]
    }),
    example: "f32[2, 4] | f32[4, 2], 2, 0 | f32[2, 3], 1, 1, f32[2, 1], f32[2, 2]",
    ..BASE
};

macro_rules! integrals {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $rule:expr, $example:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, rule: Some($rule), example: $example, ..BASE };)*
        static INTEGRALS: &[&OpDef] = &[$(&$id),*];
    };
}

integrals! {
    /// The integral of samples at places `x`, by trapezoids.
    TRAPEZOID_X = "aten.trapezoid.x", "(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        |c| integral(c, Sum::Whole), "f32[2, 3], f32[3] | f32[2, 3], f32[2, 3], 0";
    /// The integral of samples at equal distances, by trapezoids.
    TRAPEZOID_DX = "aten.trapezoid.dx", "(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
        |c| integral(c, Sum::Whole), "f32[2, 3] | f32[2, 3], 0.5, 0";
    /// [`TRAPEZOID_X`].
    TRAPZ_X = "aten.trapz.x", "(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        |c| integral(c, Sum::Whole), "f32[2, 3], f32[3]";
    /// [`TRAPEZOID_DX`].
    TRAPZ_DX = "aten.trapz.dx", "(Tensor y, *, float dx=1., int dim=-1) -> Tensor",
        |c| integral(c, Sum::Whole), "f32[2, 3]";
    /// [`TRAPEZOID_X`] up to each sample.
    CUMULATIVE_X = "aten.cumulative_trapezoid.x", "(Tensor y, Tensor x, *, int dim=-1) -> Tensor",
        |c| integral(c, Sum::SoFar), "f32[2, 3], f32[3]";
    /// [`TRAPEZOID_DX`] up to each sample.
    CUMULATIVE_DX = "aten.cumulative_trapezoid.dx", "(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor",
        |c| integral(c, Sum::SoFar), "f32[2, 3] | f32[2, 3], 0.5, 0";
}

/// How far an integral goes.
#[derive(PartialEq)]
enum Sum {
    /// Over all samples.
    Whole,
    /// Up to each sample.
    SoFar,
}

fn integral<'b>(c: &Call<'b>, sum: Sum) -> Vec<Value<'b>> {
    let y = c.tensor("y");
    let Some((axis, n)) = along(c, &y.shape()) else { return vec![y] };
    let dims = || vec![Arg::from(vec![axis])];
    if n.is(0) && sum == Sum::Whole {
        let mut left = y.shape();
        left.remove(axis);
        return vec![c.b.call("aten.zeros", vec![left.into(), y.dtype().into()])];
    }
    let number = |v: Value<'b>, op: &str, by: f64| v.op(op, vec![by.into()]);
    let pairs = || part(y, axis, 0, Some(-1)) + part(y, axis, 1, None);
    if c.op.schema.index("x").is_some() {
        let Some(x) = aligned(c, y, axis, &n) else { return vec![y] };
        let steps = part(x, axis, 1, None) - part(x, axis, 0, Some(-1));
        let areas = pairs() * steps;
        let total = match sum {
            Sum::Whole => areas.op("aten.sum.dim_IntList", dims()),
            Sum::SoFar => areas.op("aten.cumsum", vec![axis.into()]),
        };
        return vec![number(total, "aten.div.Scalar", 2.0)];
    }
    let dx = c.float("dx");
    if sum == Sum::SoFar {
        return vec![number(pairs(), "aten.mul.Scalar", dx / 2.0).op("aten.cumsum", vec![axis.into()])];
    }
    let end = |i: i64| y.op("aten.select.int", vec![axis.into(), i.into()]);
    let ends = number(end(0) + end(-1), "aten.mul.Scalar", 0.5);
    vec![number(y.op("aten.sum.dim_IntList", dims()) - ends, "aten.mul.Scalar", dx)]
}

/// Places of samples with a dimension for each of the samples'.
fn aligned<'b>(c: &Call<'b>, y: Value<'b>, axis: usize, n: &Dim) -> Option<Value<'b>> {
    let x = c.tensor("x");
    let (own, rank) = (x.shape(), y.rank());
    if own.len() == 1 {
        if own[0].as_const().zip(n.as_const()).is_some_and(|(a, b)| a != b) {
            c.fail(&format!("{} places for {n} samples", own[0]));
            return None;
        }
        let mut to = vec![Dim::from(1i64); rank];
        to[axis] = own[0].clone();
        return Some(x.view(to));
    }
    Some(match rank.checked_sub(own.len()) {
        Some(lead) if lead > 0 => x.view([vec![Dim::from(1i64); lead], own].concat()),
        _ => x,
    })
}

macro_rules! gradients {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $params:literal, $example:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: concat!("(Tensor self, *, ", $params, ", int edge_order=1) -> Tensor[]"),
            rule: Some(gradient),
            example: $example,
            ..BASE
        };)*
        static GRADIENTS: &[&OpDef] = &[$(&$id),*];
    };
}

gradients! {
    /// Slopes of samples along one dimension or all, by central differences, at the ends by one-sided ones.
    GRADIENT = "aten.gradient.scalarint", "Scalar? spacing=None, int? dim=None", "f32[3, 4] | f32[3, 4], 0.5, 1, 2";
    /// [`GRADIENT`] along several dimensions, all at this distance.
    GRADIENT_DIMS = "aten.gradient.scalararray", "Scalar spacing, int[] dim", "f32[3, 4], 0.5, [0, 1]";
    /// [`GRADIENT`] along several dimensions, at distances of 1.
    GRADIENT_UNIT = "aten.gradient.array", "int[] dim", "f32[3, 4], [0, 1]";
    /// [`GRADIENT`] at a distance for each dimension.
    GRADIENT_SPACINGS = "aten.gradient.scalarrayint", "Scalar[] spacing, int? dim=None", "f32[3, 4], [0.5, 2.0]";
    /// [`GRADIENT`] along several dimensions, at a distance for each.
    GRADIENT_SPACINGS_DIMS = "aten.gradient.scalarrayarray", "Scalar[] spacing, int[] dim", "f32[3, 4], [0.5, 2.0], [1, 0]";
    /// [`GRADIENT`] at places for each dimension.
    GRADIENT_PLACES = "aten.gradient.tensorarrayint", "Tensor[] spacing, int? dim=None", "f32[3, 4], [f32[3]!, f32[4]!]";
    /// [`GRADIENT`] along several dimensions, at places for each.
    GRADIENT_PLACES_DIMS = "aten.gradient.tensorarray", "Tensor[] spacing, int[] dim", "f32[3, 4], [f32[4]!], [1] | f32[3, 4], [f32[4]!], [1], 2";
}

fn gradient<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let shape = x.shape();
    let dims: Vec<i64> = match c.arg("dim") {
        Arg::None => (0..shape.len() as i64).collect(),
        Arg::List(_) => c.ints("dim"),
        _ => vec![c.int("dim")],
    };
    let order = c.int("edge_order");
    let spacing = match c.op.schema.index("spacing").map(|_| c.arg("spacing")) {
        None | Some(Arg::None) => vec![Arg::Int(1)],
        Some(Arg::List(l)) => l.clone(),
        Some(one) => vec![one.clone()],
    };
    let named = dims.iter().map(|d| c.wrap(*d, shape.len())).collect::<Result<Vec<_>>>();
    let named = named.and_then(|v| {
        let long = v.iter().all(|i| shape.get(*i).is_some_and(|n| n.as_const().is_none_or(|n| n > order)));
        ensure(c, long && (1..=2).contains(&order), || format!("{shape:?} along {dims:?} at edges of order {order}"))?;
        ensure(c, spacing.len() == 1 || spacing.len() == v.len(), || {
            format!("{} distances for {} dimensions", spacing.len(), v.len())
        })?;
        Ok(v)
    });
    let named = named.unwrap_or_else(|e| {
        c.b.fail(e);
        vec![]
    });
    let at = |i: usize| spacing.get(i).or(spacing.first()).cloned().unwrap_or(Arg::Int(1));
    let slopes = named.iter().enumerate().map(|(i, axis)| {
        let parts = match at(i) {
            Arg::Node(id) => by_places(x, *axis, c.b.value(id), order),
            step => by_step(x, *axis, &step, order),
        };
        c.b.call("aten.cat", vec![parts.to_vec().into(), (*axis).into()])
    });
    slopes.collect()
}

/// Slopes at the first sample, at those between, and at the last, of samples at equal distances.
fn by_step<'b>(x: Value<'b>, axis: usize, step: &Arg, order: i64) -> [Value<'b>; 3] {
    let over = |v: Value<'b>, by: Arg| v.op("aten.div.Scalar", vec![by]);
    let times = |v: Value<'b>, by: f64| v.op("aten.mul.Scalar", vec![by.into()]);
    let at = |start, end| part(x, axis, start, end);
    let middle = over(over(at(2, None) - at(0, Some(-2)), step.clone()), 2i64.into());
    let (first, last) = match order {
        1 => (at(1, Some(2)) - at(0, Some(1)), at(-1, None) - at(-2, Some(-1))),
        _ => (
            times(at(0, Some(1)), -1.5) + times(at(1, Some(2)), 2.0) - times(at(2, Some(3)), 0.5),
            times(at(-3, Some(-2)), 0.5) - times(at(-2, Some(-1)), 2.0) + times(at(-1, None), 1.5),
        ),
    };
    [over(first, step.clone()), middle, over(last, step.clone())]
}

/// [`by_step`] for samples at these places: the slopes of the parabola through each three neighbours.
fn by_places<'b>(x: Value<'b>, axis: usize, places: Value<'b>, order: i64) -> [Value<'b>; 3] {
    let steps = places.op("aten.diff", vec![1i64.into(), 0i64.into()]);
    let mut column = vec![Dim::from(1i64); x.rank()];
    column[axis] = Dim::from(-1i64);
    let at = |start, end| part(x, axis, start, end);
    let step = |i: i64| steps.op("aten.select.int", vec![0i64.into(), i.into()]);
    let minus = |v: Value<'b>| v.op("aten.neg", vec![]);
    let (left, right) = (part(steps, 0, 0, Some(-1)), part(steps, 0, 1, None));
    let spread = |v: Value<'b>| v.view(column.clone());
    let a = spread(minus(right) / (left * (left + right)));
    let b = spread((right - left) / (left * right));
    let k = spread(left / (right * (left + right)));
    let middle = a * at(0, Some(-2)) + b * at(1, Some(-1)) + k * at(2, None);
    if order == 1 {
        let first = (at(1, Some(2)) - at(0, Some(1))) / step(0);
        return [first, middle, (at(-1, None) - at(-2, Some(-1))) / step(-1)];
    }
    let double = |v: Value<'b>| v.op("aten.mul.Scalar", vec![2i64.into()]);
    let (p, q) = (step(0), step(1));
    let first = minus(double(p) + q) / (p * (p + q)) * at(0, Some(1))
        + (p + q) / (p * q) * at(1, Some(2))
        + minus(p) / (q * (p + q)) * at(2, Some(3));
    let (p, q) = (step(-1), step(-2));
    let last = p / (q * (p + q)) * at(-3, Some(-2))
        + minus(p + q) / (p * q) * at(-2, Some(-1))
        + (double(p) + q) / (p * (p + q)) * at(-1, None);
    [first, middle, last]
}

static PLAIN: &[&OpDef] = &[&CUMSUM, &CUMPROD, &CUMSUM_, &CUMPROD_, &LOGCUMSUMEXP, &DIFF];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, INTEGRALS, GRADIENTS];
