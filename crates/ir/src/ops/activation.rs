//! Activations, each with its formula as rule.

use super::infer;
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};

const BASE: OpDef =
    OpDef { class: Class::Pointwise, schema: "(Tensor self) -> Tensor", infer: Some(infer::same), ..OpDef::BASE };
const IN_PLACE: OpDef =
    OpDef { schema: "(Tensor(a!) self) -> Tensor(a!)", levels: Levels::TORCH, functional: Functional::Always, ..BASE };

/// `max(x, 0)`.
pub static RELU: OpDef = OpDef { name: "aten.relu.default", levels: Levels::ALL, ..BASE };

/// [`RELU`] in place.
pub static RELU_: OpDef =
    OpDef { name: "aten.relu_.default", rule: Some(|c| vec![c.tensor("self").relu()]), ..IN_PLACE };

/// `max(min_val, min(x, max_val))`: ReLU6 is `hardtanh(0, 6)`.
pub static HARDTANH: OpDef = OpDef {
    name: "aten.hardtanh.default",
    schema: "(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    ..BASE
};

/// [`HARDTANH`] in place.
pub static HARDTANH_: OpDef = OpDef {
    name: "aten.hardtanh_.default",
    schema: "(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.hardtanh", c.args.to_vec())]),
    ..IN_PLACE
};

/// Elements held between bounds.
pub static CLAMP: OpDef = OpDef {
    name: "aten.clamp.default",
    schema: "(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
    levels: Levels::ALL,
    ..BASE
};

/// `x · clamp(x + 3, 0, 6) / 6`.
pub static HARDSWISH: OpDef = OpDef {
    name: "aten.hardswish.default",
    accuracy: Accuracy::Rounding,
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![x * (x + 3i64).clamp(Some(0.0), None).clamp(None, Some(6.0)) / 6i64]
    }),
    ..BASE
};

/// [`HARDSWISH`] in place.
pub static HARDSWISH_: OpDef = OpDef {
    name: "aten.hardswish_.default",
    rule: Some(|c| vec![c.tensor("self").op("aten.hardswish", vec![])]),
    ..IN_PLACE
};

/// `clamp(x + 3, 0, 6) / 6`.
pub static HARDSIGMOID: OpDef = OpDef {
    name: "aten.hardsigmoid.default",
    accuracy: Accuracy::Rounding,
    rule: Some(|c| vec![(c.tensor("self") + 3i64).clamp(Some(0.0), None).clamp(None, Some(6.0)) / 6i64]),
    ..BASE
};

/// [`HARDSIGMOID`] in place.
pub static HARDSIGMOID_: OpDef = OpDef {
    name: "aten.hardsigmoid_.default",
    rule: Some(|c| vec![c.tensor("self").op("aten.hardsigmoid", vec![])]),
    ..IN_PLACE
};

/// `x · sigmoid(x)`.
pub static SILU: OpDef = OpDef {
    name: "aten.silu.default",
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![x * x.sigmoid()]
    }),
    ..BASE
};

/// [`SILU`] in place.
pub static SILU_: OpDef =
    OpDef { name: "aten.silu_.default", rule: Some(|c| vec![c.tensor("self").op("aten.silu", vec![])]), ..IN_PLACE };

/// `x/2 · (1 + erf(x / √2))`, or with `tanh` its usual approximation.
pub static GELU: OpDef = OpDef {
    name: "aten.gelu.default",
    schema: "(Tensor self, *, str approximate='none') -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![match c.str("approximate") {
            "tanh" => {
                let k = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
                let cube = x * x * x;
                let inner = (x + cube * 0.044715) * k;
                x * 0.5 * (inner.tanh() + 1i64)
            }
            _ => x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1i64),
        }]
    }),
    ..BASE
};

/// `x` where positive, else `negative_slope · x`.
pub static LEAKY_RELU: OpDef = OpDef {
    name: "aten.leaky_relu.default",
    schema: "(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[
    &RELU,
    &RELU_,
    &HARDTANH,
    &HARDTANH_,
    &CLAMP,
    &HARDSWISH,
    &HARDSWISH_,
    &HARDSIGMOID,
    &HARDSIGMOID_,
    &SILU,
    &SILU_,
    &GELU,
    &LEAKY_RELU,
];
