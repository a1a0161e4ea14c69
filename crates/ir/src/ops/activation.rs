//! Activations, each with its formula as rule.

use super::infer;
use crate::dim::Dim;
use crate::graph::Arg;
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

/// [`LEAKY_RELU`] in place.
pub static LEAKY_RELU_: OpDef = OpDef {
    name: "aten.leaky_relu_.default",
    schema: "(Tensor(a!) self, Scalar negative_slope=0.01) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.leaky_relu", c.args.to_vec())]),
    ..IN_PLACE
};

/// `hardtanh(x, 0, 6)`.
pub static RELU6: OpDef = OpDef {
    name: "aten.relu6.default",
    rule: Some(|c| vec![c.tensor("self").op("aten.hardtanh", vec![0i64.into(), 6i64.into()])]),
    ..BASE
};

/// [`RELU6`] in place.
pub static RELU6_: OpDef =
    OpDef { name: "aten.relu6_.default", rule: Some(|c| vec![c.tensor("self").op("aten.relu6", vec![])]), ..IN_PLACE };

/// [`CLAMP`] in place.
pub static CLAMP_: OpDef = OpDef {
    name: "aten.clamp_.default",
    schema: "(Tensor(a!) self, Scalar? min=None, Scalar? max=None) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.clamp", c.args.to_vec())]),
    ..IN_PLACE
};

/// Elements held above a bound.
pub static CLAMP_MIN: OpDef = OpDef {
    name: "aten.clamp_min.default",
    schema: "(Tensor self, Scalar min) -> Tensor",
    rule: Some(|c| vec![c.tensor("self").op("aten.clamp", vec![c.arg("min").clone()])]),
    ..BASE
};

/// Elements held below a bound.
pub static CLAMP_MAX: OpDef = OpDef {
    name: "aten.clamp_max.default",
    schema: "(Tensor self, Scalar max) -> Tensor",
    rule: Some(|c| vec![c.tensor("self").op("aten.clamp", vec![Arg::None, c.arg("max").clone()])]),
    ..BASE
};

/// [`GELU`] in place.
pub static GELU_: OpDef = OpDef {
    name: "aten.gelu_.default",
    schema: "(Tensor(a!) self, *, str approximate='none') -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.gelu", c.args.to_vec())]),
    ..IN_PLACE
};

/// `x` where positive, else `weight · x`, with one weight for all channels (dimension 1) or one for each.
pub static PRELU: OpDef = OpDef {
    name: "aten.prelu.default",
    schema: "(Tensor self, Tensor weight) -> Tensor",
    rule: Some(|c| {
        let (x, w) = (c.tensor("self"), c.tensor("weight"));
        let rank = x.rank();
        let w = if rank > 1 && w.rank() == 1 {
            let mut shape = vec![Dim::from(1i64); rank];
            shape[1] = w.shape()[0].clone();
            w.view(shape)
        } else {
            w
        };
        vec![x.op("aten.gt.Scalar", vec![0i64.into()]).op("aten.where.self", vec![x.into(), (w * x).into()])]
    }),
    ..BASE
};

/// `scale · (x if x > 0 else alpha · (exp(x · input_scale) - 1))`.
pub static ELU: OpDef = OpDef {
    name: "aten.elu.default",
    schema: "(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let (x, scale) = (c.tensor("self"), c.float("scale"));
        let negative = (x * c.float("input_scale")).op("aten.expm1", vec![]) * (c.float("alpha") * scale);
        vec![x.op("aten.gt.Scalar", vec![0i64.into()]).op("aten.where.self", vec![(x * scale).into(), negative.into()])]
    }),
    ..BASE
};

/// [`ELU`] in place.
pub static ELU_: OpDef = OpDef {
    name: "aten.elu_.default",
    schema: "(Tensor(a!) self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.elu", c.args.to_vec())]),
    ..IN_PLACE
};

/// `log(1 + exp(beta · x)) / beta`, and `x` where `beta · x` is above the threshold.
pub static SOFTPLUS: OpDef = OpDef {
    name: "aten.softplus.default",
    schema: "(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let x = c.tensor("self");
        let scaled = x * c.float("beta");
        let soft = scaled.exp().op("aten.log1p", vec![]) / c.float("beta");
        let above = scaled.op("aten.gt.Scalar", vec![c.arg("threshold").clone()]);
        vec![above.op("aten.where.self", vec![x.into(), soft.into()])]
    }),
    ..BASE
};

/// `x · tanh(softplus(x))`.
pub static MISH: OpDef = OpDef {
    name: "aten.mish.default",
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![x * x.op("aten.softplus", vec![]).tanh()]
    }),
    ..BASE
};

/// [`MISH`] in place.
pub static MISH_: OpDef =
    OpDef { name: "aten.mish_.default", rule: Some(|c| vec![c.tensor("self").op("aten.mish", vec![])]), ..IN_PLACE };

/// `first half · sigmoid(second half)` along a dimension.
pub static GLU: OpDef = OpDef {
    name: "aten.glu.default",
    schema: "(Tensor self, int dim=-1) -> Tensor",
    infer: None,
    accuracy: Accuracy::Approximate,
    rule: Some(|c| {
        let x = c.tensor("self");
        let halves = x.op("aten.chunk", vec![2i64.into(), c.arg("dim").clone()]);
        vec![c.b.getitem(halves, 0) * c.b.getitem(halves, 1).sigmoid()]
    }),
    ..BASE
};

/// [`crate::ops::unary::SIGMOID`] in place.
pub static SIGMOID_: OpDef =
    OpDef { name: "aten.sigmoid_.default", rule: Some(|c| vec![c.tensor("self").sigmoid()]), ..IN_PLACE };

/// [`crate::ops::unary::TANH`] in place.
pub static TANH_: OpDef =
    OpDef { name: "aten.tanh_.default", rule: Some(|c| vec![c.tensor("self").tanh()]), ..IN_PLACE };

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
    &LEAKY_RELU_,
    &RELU6,
    &RELU6_,
    &CLAMP_,
    &CLAMP_MIN,
    &CLAMP_MAX,
    &GELU_,
    &PRELU,
    &ELU,
    &ELU_,
    &SOFTPLUS,
    &MISH,
    &MISH_,
    &GLU,
    &SIGMOID_,
    &TANH_,
];
