//! Short forms for rules.

use super::infer;
use super::promote::{self, Kind};
use crate::builder::{Builder, Call, Value};
use crate::graph::{Arg, Meta};
use cleave_numerics::DType;

/// Whether an argument is a tensor; a node may also be a size.
pub fn is_tensor(b: &Builder, a: &Arg) -> bool {
    matches!(a, Arg::Node(n) if !matches!(b.value(*n).meta(), Meta::Int(_)))
}

/// The rule of an elementwise op: what `f` makes of the named tensors in the type in which torch computes, in the
/// type that torch gives.
pub fn elementwise<'b, const N: usize>(
    c: &Call<'b>,
    names: [&str; N],
    kind: Kind,
    f: impl FnOnce([Value<'b>; N]) -> Value<'b>,
) -> Vec<Value<'b>> {
    let (tensors, types) = promote::tensors(c, &names, kind);
    let mut next = tensors.into_iter();
    let tensors = std::array::from_fn(|_| next.next().expect("invariant: a tensor for each name"));
    vec![f(tensors).to(types.result)]
}

/// A comparison (`eq`, `ne`, `lt`, `le`, `gt`, `ge`) with a tensor or a number.
pub fn compare<'b>(x: Value<'b>, how: &str, with: impl Into<Arg>) -> Value<'b> {
    let with = with.into();
    let overload = if is_tensor(x.builder(), &with) { "Tensor" } else { "Scalar" };
    x.op(&format!("aten.{how}.{overload}"), vec![with])
}

/// `a` where the condition holds, else `b`: tensors or numbers.
pub fn choose<'b>(condition: Value<'b>, a: impl Into<Arg>, b: impl Into<Arg>) -> Value<'b> {
    let (a, b) = (a.into(), b.into());
    let is_tensor = |a: &Arg| is_tensor(condition.builder(), a);
    let overload = match (is_tensor(&a), is_tensor(&b)) {
        (true, true) => "self",
        (false, true) => "ScalarSelf",
        (true, false) => "ScalarOther",
        (false, false) => "Scalar",
    };
    condition.op(&format!("aten.where.{overload}"), vec![a, b])
}

/// A number as a tensor of no dimensions.
pub fn scalar<'b>(b: &'b Builder, number: impl Into<Arg>, dtype: DType) -> Value<'b> {
    b.call("aten.scalar_tensor", vec![number.into(), dtype.into()])
}

/// `number - x`, as `rsub` has it.
pub fn minus<'b>(number: impl Into<Arg>, x: Value<'b>) -> Value<'b> {
    x.builder().call("aten.sub.Tensor", vec![number.into(), x.into()])
}

/// `-x`.
pub fn neg(x: Value<'_>) -> Value<'_> {
    x.op("aten.neg", vec![])
}

/// `log(x)`.
pub fn log(x: Value<'_>) -> Value<'_> {
    x.op("aten.log", vec![])
}

/// `log(1 + x)`.
pub fn log1p(x: Value<'_>) -> Value<'_> {
    x.op("aten.log1p", vec![])
}

/// `exp(x) - 1`.
pub fn expm1(x: Value<'_>) -> Value<'_> {
    x.op("aten.expm1", vec![])
}

/// Whether elements are not numbers.
pub fn isnan(x: Value<'_>) -> Value<'_> {
    x.op("aten.isnan", vec![])
}

/// Tensors expanded to their common shape; those that have it, or no dimensions, stay as they are.
pub fn broadcast<'b, const N: usize>(c: &Call<'b>, tensors: [Value<'b>; N]) -> [Value<'b>; N] {
    let shapes = tensors.map(Value::shape);
    match infer::broadcast(&shapes.each_ref().map(Vec::as_slice)) {
        Ok(shape) => tensors.map(|x| {
            if x.rank() == 0 || x.shape() == shape { x } else { x.op("aten.expand", vec![shape.clone().into()]) }
        }),
        Err(why) => {
            c.fail(&why);
            tensors
        }
    }
}
