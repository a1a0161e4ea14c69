//! Numbers at equal steps, their powers, and products of vectors that are written with ranges.

use super::promote::Kind;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Creation, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// The named end of a range: a number, or a tensor of no dimensions in f64.
fn end(c: &Call<'_>, name: &str) -> Arg {
    match c.arg(name) {
        Arg::Node(id) => {
            let x = c.b.value(*id);
            if x.rank() > 0 {
                c.fail(&format!("argument '{name}': a tensor of rank {}, expected one number", x.rank()));
            }
            x.to(DType::F64).into()
        }
        number => number.clone(),
    }
}

/// A number, where both are; else the op of the two.
fn combined(c: &Call<'_>, a: &Arg, b: &Arg, op: &str, f: fn(f64, f64) -> f64) -> Arg {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => f(a, b).into(),
        _ => c.b.call(op, vec![a.clone(), b.clone()]).into(),
    }
}

fn number(a: &Arg) -> Option<f64> {
    match a {
        Arg::Int(i) => Some(*i as f64),
        Arg::Float(f) => Some(*f),
        _ => None,
    }
}

/// `steps` numbers from `start` to `end`, both included: counted from the start in the first half, from the end in
/// the second.
fn linspace<'b>(c: &Call<'b>, start: Arg, end: Arg, dtype: DType) -> Value<'b> {
    let steps = c.int("steps");
    if !(0..1 << 31).contains(&steps) {
        c.fail(&format!("{steps} steps"));
    }
    let full = |n: i64, value: Arg| c.b.call("aten.full", vec![vec![n].into(), value, dtype.into()]);
    match (steps, &start) {
        (..=0, _) => return full(0, 0i64.into()),
        (1, Arg::Node(_)) => {
            let one = c.b.call("aten.empty.memory_format", vec![vec![1i64].into(), dtype.into()]);
            return one.op("aten.copy", vec![start]);
        }
        (1, _) => return full(1, start),
        _ => {}
    }
    let places = c.b.call("aten.arange.start", vec![0i64.into(), steps.into()]);
    let compute = if dtype.is_float() { Kind::Default.of(dtype).compute } else { DType::I64 };
    let span = combined(c, &end, &start, "aten.sub.Tensor", |a, b| a - b);
    let step = combined(c, &span, &(steps - 1).into(), "aten.div.Tensor", |a, b| a / b);
    let first_half = places.op("aten.lt.Scalar", vec![(steps as f64 / 2.0).into()]);
    let far = |x: Value<'b>| x.to(compute).op("aten.mul.Tensor", vec![step.clone()]);
    let from_start = far(places).op("aten.add.Tensor", vec![start]);
    let left = c.b.call("aten.sub.Tensor", vec![(steps - 1).into(), places.into()]);
    let from_end = c.b.call("aten.sub.Tensor", vec![end, far(left).into()]);
    first_half.op("aten.where.self", vec![from_start.into(), from_end.into()]).to(dtype)
}

fn lin<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    vec![linspace(c, end(c, "start"), end(c, "end"), c.opt_dtype("dtype").unwrap_or(DType::F32))]
}

/// Powers of the base with exponents at equal steps, computed in f64.
fn log<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
    let exponent = |name: &str| match c.arg(name) {
        Arg::Float(f) if !dtype.is_float() => Arg::Int(*f as i64),
        Arg::Node(id) if !dtype.is_float() => c.b.value(*id).to(dtype).to(DType::F64).into(),
        _ => end(c, name),
    };
    if c.float("base") < 0.0 {
        c.fail("a negative base");
    }
    let exponents = linspace(c, exponent("start"), exponent("end"), DType::F64);
    vec![c.b.call("aten.pow.Scalar", vec![c.arg("base").clone(), exponents.into()]).to(dtype)]
}

macro_rules! spaced {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $rule:ident, $ends:literal, $more:literal, $example:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: concat!(
                "(", $ends, ", int steps", $more,
                ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
            ),
            rule: Some($rule),
            example: $example,
            ..BASE
        };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id,)* &LINALG_VANDER, &LINALG_CROSS, &CROSS]];
    };
}

spaced! {
    /// Numbers at equal steps.
    LINSPACE = "aten.linspace.default", lin, "Scalar start, Scalar end", "", "0, 1, 4, f32 | 1, 5, 1, f32 | 1.5, 2, 0, f32 | 0, 7, 3, i64";
    /// Numbers at equal steps between numbers of tensors.
    LINSPACE_TENSORS = "aten.linspace.Tensor_Tensor", lin, "Tensor start, Tensor end", "", "f32[], f32[], 4, f32";
    /// Numbers at equal steps from that of a tensor.
    LINSPACE_FROM = "aten.linspace.Tensor_Scalar", lin, "Tensor start, Scalar end", "", "f32[], 2, 4, f32 | f32[], 2, 1, f32";
    /// Numbers at equal steps to that of a tensor.
    LINSPACE_TO = "aten.linspace.Scalar_Tensor", lin, "Scalar start, Tensor end", "", "2, f32[], 4, f32";
    /// Powers with exponents at equal steps.
    LOGSPACE = "aten.logspace.default", log, "Scalar start, Scalar end", ", float base=10.0", "0, 1, 4, 10.0, f32";
    /// Powers with exponents at equal steps between numbers of tensors.
    LOGSPACE_TENSORS = "aten.logspace.Tensor_Tensor", log, "Tensor start, Tensor end", ", float base=10.0", "f32[], f32[], 4, 2.0, f32";
    /// Powers with exponents at equal steps from that of a tensor.
    LOGSPACE_FROM = "aten.logspace.Tensor_Scalar", log, "Tensor start, Scalar end", ", float base=10.0", "f32[], 2, 4, 3.0, f32";
    /// Powers with exponents at equal steps to that of a tensor.
    LOGSPACE_TO = "aten.logspace.Scalar_Tensor", log, "Scalar start, Tensor end", ", float base=10.0", "2, f32[], 4, 2.0, f32";
}

/// Rows of powers 0 to `N - 1` of each element.
pub static LINALG_VANDER: OpDef = OpDef {
    name: "aten.linalg_vander.default",
    example: "f32[3] | f32[2, 2], 3",
    schema: "(Tensor x, *, SymInt? N=None) -> Tensor",
    class: Class::Move,
    rule: Some(|c| {
        let mut x = c.tensor("x");
        if x.rank() == 0 {
            x = x.op("aten.unsqueeze", vec![(-1i64).into()]);
        }
        let mut shape = x.shape();
        let n = match c.arg("N") {
            Arg::None => shape.last().cloned().unwrap_or(Dim::from(1i64)),
            _ => c.dim("N"),
        };
        if n.as_const().is_some_and(|n| n < 2) {
            c.fail(&format!("{n} powers, expected at least 2"));
        }
        shape.push(n - Dim::from(1i64));
        let wide = x.op("aten.unsqueeze", vec![(-1i64).into()]).op("aten.expand", vec![shape.clone().into()]);
        let powers = wide.op("aten.cumprod", vec![(-1i64).into()]);
        if let Some(last) = shape.last_mut() {
            *last = Dim::from(1i64);
        }
        let ones = powers.op("aten.new_ones", vec![shape.into()]);
        vec![c.b.call("aten.cat", vec![vec![ones, powers].into(), (-1i64).into()])]
    }),
    ..BASE
};

/// Cross products of vectors of three elements along a dimension.
pub static LINALG_CROSS: OpDef = OpDef {
    name: "aten.linalg_cross.default",
    schema: "(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
    class: Class::Pointwise,
    accuracy: Accuracy::Rounding,
    rule: Some(|c| {
        let given = [c.tensor("self"), c.tensor("other")];
        let rank = given[0].rank();
        let axis = c.axis("dim", rank).map_err(|e| c.b.fail(e)).ok();
        let three = |x: &Value<'_>| axis.and_then(|a| x.shape().get(a).cloned()).is_some_and(|n| n.is(3));
        if given[1].rank() != rank || !given.iter().all(three) {
            c.fail(&format!(
                "vectors of {:?} and {:?}, expected three elements each",
                given[0].shape(),
                given[1].shape()
            ));
            return vec![given[0]];
        }
        let both = super::stack::spread(c, given.to_vec());
        let places = c.b.call("aten.arange", vec![3i64.into()]);
        // Elements that stand so many places further.
        let further = |x: Value<'_>, by: i64| {
            let index = (places + by).op("aten.remainder.Scalar", vec![3i64.into()]);
            c.b.call("aten.index_select", vec![x.into(), axis.unwrap_or(0).into(), index.into()])
        };
        let plus = further(both[0], 1) * further(both[1], 2);
        vec![plus - further(both[0], 2) * further(both[1], 1)]
    }),
    example: "f32[2, 3], f32[2, 3] | f32[3, 1], f32[3, 2], 0",
    ..BASE
};

/// [`LINALG_CROSS`] along a dimension, or else the first of size 3.
pub static CROSS: OpDef = OpDef {
    name: "aten.cross.default",
    schema: "(Tensor self, Tensor other, int? dim=None) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("self");
        let first = x.shape().iter().position(|n| n.is(3)).map(|i| i as i64);
        let Some(dim) = c.opt_int("dim").or(first) else {
            c.fail(&format!("{:?}, which has no dimension of size 3", x.shape()));
            return vec![x];
        };
        vec![x.op("aten.linalg_cross", vec![c.arg("other").clone(), dim.into()])]
    }),
    example: "f32[2, 3], f32[2, 3] | f32[3, 3], f32[3, 3], 1",
    ..LINALG_CROSS
};
