//! Dropout.

use super::infer;
use crate::builder::{Call, Value};
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Inert,
    levels: Levels::TORCH,
    schema: "(Tensor input, float p, bool train) -> Tensor",
    infer: Some(infer::same),
    functional: Functional::Always,
    example: "f32[2, 3], 0.5, false",
    ..OpDef::BASE
};
const IN_PLACE: OpDef = OpDef { schema: "(Tensor(a!) self, float p, bool train) -> Tensor(a!)", ..BASE };

/// Dropout; at inference its input.
pub static DROPOUT: OpDef = OpDef { name: "aten.dropout.default", rule: Some(|c| vec![dropped(c, "input")]), ..BASE };

/// [`DROPOUT`] in place.
pub static DROPOUT_: OpDef =
    OpDef { name: "aten.dropout_.default", rule: Some(|c| vec![dropped(c, "self")]), ..IN_PLACE };

fn dropped<'b>(c: &Call<'b>, name: &str) -> Value<'b> {
    let x = c.tensor(name);
    if !c.bool("train") || c.float("p") == 0.0 {
        return x;
    }
    c.b.getitem(x.op("aten.native_dropout", vec![c.arg("p").clone(), true.into()]), 0)
}

/// The share of elements that go: none or all. Another fails the call.
fn drawn(c: &Call<'_>, train: bool) -> f64 {
    let p = if train { c.float("p") } else { 0.0 };
    if p != 0.0 && p != 1.0 {
        c.fail("dropout in training mode; export the model after .eval()");
    }
    p
}

macro_rules! of_channels {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $base:ident, $input:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, rule: Some(|c| vec![lost(c, $input)]), ..$base };)*
        static OF_CHANNELS: &[&OpDef] = &[$(&$id),*];
    };
}

of_channels! {
    /// [`DROPOUT`] of whole channels.
    FEATURE_DROPOUT = "aten.feature_dropout.default", BASE, "input";
    /// [`FEATURE_DROPOUT`] in place.
    FEATURE_DROPOUT_ = "aten.feature_dropout_.default", IN_PLACE, "self";
    /// [`DROPOUT`] that keeps mean and variance.
    ALPHA_DROPOUT = "aten.alpha_dropout.default", BASE, "input";
    /// [`ALPHA_DROPOUT`] in place.
    ALPHA_DROPOUT_ = "aten.alpha_dropout_.default", IN_PLACE, "self";
    /// [`ALPHA_DROPOUT`] of whole channels.
    FEATURE_ALPHA_DROPOUT = "aten.feature_alpha_dropout.default", BASE, "input";
    /// [`FEATURE_ALPHA_DROPOUT`] in place.
    FEATURE_ALPHA_DROPOUT_ = "aten.feature_alpha_dropout_.default", IN_PLACE, "self";
}

fn lost<'b>(c: &Call<'b>, name: &str) -> Value<'b> {
    let x = c.tensor(name);
    if drawn(c, c.bool("train")) == 0.0 || x.shape().iter().any(|d| d.is(0)) {
        return x;
    }
    x * c.b.call("aten.zeros", vec![Arg::List(vec![]), x.dtype().into()])
}

/// [`DROPOUT`] and which elements stay.
pub static NATIVE_DROPOUT: OpDef = OpDef {
    name: "aten.native_dropout.default",
    schema: "(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    functional: Functional::Keep,
    infer: Some(|c| {
        let m = c.meta("input")?;
        let mask = Meta::tensor(DType::Bool, m.shape.clone());
        Ok(Meta::Tuple(vec![Meta::Tensor(m), mask]))
    }),
    rule: Some(|c| {
        let (x, p) = (c.tensor("input"), c.float("p"));
        let stay = *c.arg("train") == Arg::Bool(false) || p == 0.0;
        if stay || p == 1.0 {
            let y = if stay { x } else { x.op("aten.zeros_like", vec![]) };
            return vec![y, x.op("aten.full_like", vec![stay.into(), DType::Bool.into()])];
        }
        let mask = x.op("aten.rand_like", vec![]).op("aten.gt.Scalar", vec![p.into()]);
        vec![(mask * x) * (1.0 / (1.0 - p)), mask]
    }),
    example: "f32[2, 3], 0.5, false | f32[2, 3], 1, true | f32[2, 3], 0.25, true",
    ..BASE
};

/// Gradient of [`NATIVE_DROPOUT`]: `grad · mask · scale`.
pub static NATIVE_DROPOUT_BACKWARD: OpDef = OpDef {
    name: "aten.native_dropout_backward.default",
    schema: "(Tensor grad_output, Tensor mask, float scale) -> Tensor",
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN),
    functional: Functional::Keep,
    accuracy: Accuracy::Rounding,
    rule: Some(|c| {
        let grad = c.tensor("grad_output");
        let kept = c.tensor("mask").to(grad.dtype()).op("aten.mul.Tensor", vec![c.arg("scale").clone()]);
        vec![(grad * kept).op("aten.clone", vec![])]
    }),
    example: "f32[2, 3], f32[2, 3], 2",
    ..BASE
};

static PLAIN: &[&OpDef] = &[&DROPOUT, &DROPOUT_, &NATIVE_DROPOUT, &NATIVE_DROPOUT_BACKWARD];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, OF_CHANNELS];
