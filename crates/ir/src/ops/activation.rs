//! Activations, each with its formula as rule.

use super::expr::{choose, compare, elementwise, expm1, isnan, log1p, neg, scalar};
use super::infer;
use super::promote::{self, Kind};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Pointwise,
    schema: "(Tensor self) -> Tensor",
    infer: Some(infer::same),
    example: "f32[2, 3]",
    ..OpDef::BASE
};
const CORE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };
const SMOOTH: OpDef = OpDef { accuracy: Accuracy::Approximate, ..BASE };

records! { ACTIVATIONS:
    /// `max(x, 0)`.
    RELU = "aten.relu.default", CORE {
        raisable: true,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| choose(compare(x, "le", 0i64), 0i64, x))),
    };
    /// `max(min_val, min(x, max_val))`: ReLU6 is `hardtanh(0, 6)`.
    HARDTANH = "aten.hardtanh.default", CORE {
        raisable: true,
        schema: "(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
        rule: Some(|c| {
            let x = c.tensor("self");
            // Bounds do not change the type.
            let bound = |n: &str| match c.arg(n) {
                Arg::Float(f) if !x.dtype().is_float() => Arg::Int(*f as i64),
                number => number.clone(),
            };
            vec![x.op("aten.clamp", vec![bound("min_val"), bound("max_val")])]
        }),
        example: "f32[2, 3] | f32[2], 0, 6",
    };
    /// Elements held between bounds.
    CLAMP = "aten.clamp.default", CORE {
        raisable: true,
        schema: "(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
        infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &given(c))?))),
        rule: Some(clamp),
        example: "f32[2, 3], -0.5, 0.5 | f32[2], 0.25 | f32[2], none, 0.25",
    };
    /// Elements held between those of other tensors.
    CLAMP_TENSOR = "aten.clamp.Tensor", CORE {
        schema: "(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor",
        infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &given(c))?))),
        rule: Some(clamp),
        example: "f32[2, 3], f32[3], f32[3] | f32[2], f32[2] | f32[2], none, f32[2]",
    };
    /// Elements held above a bound.
    CLAMP_MIN = "aten.clamp_min.default", BASE {
        schema: "(Tensor self, Scalar min) -> Tensor",
        infer: None,
        rule: Some(|c| vec![c.tensor("self").op("aten.clamp", vec![c.arg("min").clone()])]),
        example: "f32[2, 3], 0.25",
    };
    /// Elements held above those of another tensor.
    CLAMP_MIN_TENSOR = "aten.clamp_min.Tensor", BASE {
        schema: "(Tensor self, Tensor min) -> Tensor",
        infer: None,
        rule: Some(|c| vec![c.tensor("self").op("aten.clamp.Tensor", vec![c.arg("min").clone()])]),
        example: "f32[2, 3], f32[3]",
    };
    /// Elements held below a bound.
    CLAMP_MAX = "aten.clamp_max.default", BASE {
        schema: "(Tensor self, Scalar max) -> Tensor",
        infer: None,
        rule: Some(|c| vec![c.tensor("self").op("aten.clamp", vec![Arg::None, c.arg("max").clone()])]),
        example: "f32[2, 3], 0.25",
    };
    /// Elements held below those of another tensor.
    CLAMP_MAX_TENSOR = "aten.clamp_max.Tensor", BASE {
        schema: "(Tensor self, Tensor max) -> Tensor",
        infer: None,
        rule: Some(|c| vec![c.tensor("self").op("aten.clamp.Tensor", vec![Arg::None, c.arg("max").clone()])]),
        example: "f32[2, 3], f32[3]",
    };
    /// `x` above the threshold, elsewhere a number.
    THRESHOLD = "aten.threshold.default", BASE {
        schema: "(Tensor self, Scalar threshold, Scalar value) -> Tensor",
        rule: Some(|c| {
            elementwise(c, ["self"], Kind::Default, |[x]| {
                choose(compare(x, "le", c.arg("threshold").clone()), c.arg("value").clone(), x)
            })
        }),
        example: "f32[2, 3], 0.25, 2.0",
    };
    /// `x` where positive, else `negative_slope · x`.
    LEAKY_RELU = "aten.leaky_relu.default", CORE {
        raisable: true,
        schema: "(Tensor self, Scalar negative_slope=0.01) -> Tensor",
        rule: Some(|c| {
            elementwise(c, ["self"], Kind::Default, |[x]| {
                let below = x.op("aten.mul.Tensor", vec![c.arg("negative_slope").clone()]);
                choose(compare(x, "gt", 0i64), x, below)
            })
        }),
        example: "f32[2, 3] | f32[2], 0.5",
    };
    /// `hardtanh(x, 0, 6)`.
    RELU6 = "aten.relu6.default", BASE {
        rule: Some(|c| vec![c.tensor("self").op("aten.hardtanh", vec![0i64.into(), 6i64.into()])]),
    };
    /// `x · clamp(x + 3, 0, 6) / 6`.
    HARDSWISH = "aten.hardswish.default", BASE {
        raisable: true,
        accuracy: Accuracy::Rounding,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| x * sixfold(x) / 6i64)),
    };
    /// `clamp(x + 3, 0, 6) / 6`.
    HARDSIGMOID = "aten.hardsigmoid.default", BASE {
        raisable: true,
        accuracy: Accuracy::Rounding,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| sixfold(x) / 6i64)),
    };
    /// `x` outside of `[-lambd, lambd]`, 0 inside.
    HARDSHRINK = "aten.hardshrink.default", BASE {
        raisable: true,
        schema: "(Tensor self, Scalar lambd=0.5) -> Tensor",
        functional: Functional::Always,
        rule: Some(|c| {
            let x = c.tensor("self");
            vec![choose(compare(x.abs(), "le", c.arg("lambd").clone()), 0i64, x)]
        }),
        example: "f32[2, 3] | f32[2], 0.25",
    };
    /// `x` moved by `lambd` towards 0, and 0 inside of `[-lambd, lambd]`.
    SOFTSHRINK = "aten.softshrink.default", BASE {
        raisable: true,
        schema: "(Tensor self, Scalar lambd=0.5) -> Tensor",
        functional: Functional::Always,
        rule: Some(|c| {
            let x = c.tensor("self");
            if c.float("lambd") < 0.0 {
                c.fail("lambd must not be negative");
            }
            let lambd = match x.dtype() {
                d @ (DType::F16 | DType::BF16) => scalar(c.b, c.arg("lambd").clone(), d).into(),
                _ => c.arg("lambd").clone(),
            };
            let moved = x - x.op("aten.sign", vec![]).op("aten.mul.Tensor", vec![lambd.clone()]);
            // What is not a number stays so.
            vec![choose(compare(x.abs(), "gt", lambd), moved, x.op("aten.mul.Tensor", vec![0i64.into()]))]
        }),
        example: "f32[2, 3] | f32[2], 0.25",
    };
    /// `x` where positive, else `weight · x`, with one weight for all channels (dimension 1) or one for each.
    PRELU = "aten.prelu.default", BASE {
        raisable: true,
        schema: "(Tensor self, Tensor weight) -> Tensor",
        rule: Some(|c| {
            let (x, w) = (c.tensor("self"), c.tensor("weight"));
            let rank = x.rank();
            if rank == w.rank() {
                return vec![x.op("aten._prelu_kernel", vec![w.into()])];
            }
            let mut shape = vec![Dim::from(1i64); rank];
            if let (Some(channels), Some(n)) = (shape.get_mut(1), w.shape().first()) {
                *channels = n.clone();
            }
            vec![x.op("aten._prelu_kernel", vec![w.view(shape).into()])]
        }),
        example: "f32[2, 3], f32[3] | f32[2, 3, 2], f32[1] | f32[3], f32[1] | f32[2], f32[]",
    };
    /// `x` where positive, else `weight · x`, the weight broadcast.
    PRELU_KERNEL = "aten._prelu_kernel.default", BASE {
        schema: "(Tensor self, Tensor weight) -> Tensor",
        rule: Some(|c| {
            let (x, w) = (c.tensor("self"), c.tensor("weight"));
            vec![choose(compare(x, "gt", 0i64), x, w * x)]
        }),
        example: "f32[2, 3], f32[1, 3]",
    };
    /// `x` where positive, else `x` times a slope out of `[lower, upper]`: at inference their mean.
    RRELU = "aten.rrelu.default", BASE {
        schema: "(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> Tensor",
        rule: Some(|c| {
            let x = c.tensor("self");
            let noise = x.op("aten.empty_like", vec![Arg::None, Arg::None, Arg::None, Arg::None, "contiguous_format".into()]);
            let [lower, upper, training] = ["lower", "upper", "training"].map(|n| c.arg(n).clone());
            let both = x.op("aten.rrelu_with_noise_functional", vec![noise.into(), lower, upper, training]);
            vec![c.b.getitem(both, 0)]
        }),
        example: "f32[2, 3] | f32[2], 0.25, 0.5",
    };
    /// [`RRELU`] and the slopes; in training the ones that were drawn.
    RRELU_WITH_NOISE = "aten.rrelu_with_noise_functional.default", CORE {
        schema: "(Tensor self, Tensor noise, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None) -> (Tensor, Tensor)",
        infer: Some(|c| Ok(Meta::Tuple(vec![Meta::Tensor(c.meta("self")?), Meta::Tensor(c.meta("noise")?)]))),
        rule: Some(|c| {
            if c.bool("training") {
                c.fail("rrelu draws its slopes in training mode; export the model after .eval()");
            }
            let slope = (c.float("lower") + c.float("upper")) / 2.0;
            vec![c.tensor("self").op("aten.leaky_relu", vec![slope.into()]), c.tensor("noise")]
        }),
        example: "f32[2, 3], f32[2, 3]",
    };
    /// `x · sigmoid(x)`.
    SILU = "aten.silu.default", SMOOTH {
        raisable: true,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| x * x.sigmoid())),
    };
    /// `x/2 · (1 + erf(x / √2))`, or with `tanh` its usual approximation.
    GELU = "aten.gelu.default", SMOOTH {
        raisable: true,
        schema: "(Tensor self, *, str approximate='none') -> Tensor",
        levels: CORE.levels,
        rule: Some(|c| {
            let tanh = match c.str("approximate") {
                "tanh" => true,
                "none" => false,
                other => {
                    c.fail(&format!("approximate '{other}', expected 'none' or 'tanh'"));
                    false
                }
            };
            elementwise(c, ["self"], Kind::Default, |[x]| {
                if tanh {
                    let k = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;
                    let inner = (x + x * x * x * 0.044715) * k;
                    x * 0.5 * (inner.tanh() + 1i64)
                } else {
                    x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1i64)
                }
            })
        }),
        example: "f32[2, 3] | f32[2], \"tanh\"",
    };
    /// `scale · (x if x > 0 else alpha · (exp(x · input_scale) - 1))`.
    ELU = "aten.elu.default", SMOOTH {
        raisable: true,
        schema: "(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
        levels: CORE.levels,
        rule: Some(|c| {
            let (alpha, scale) = (c.float("alpha"), c.float("scale"));
            elementwise(c, ["self"], Kind::Default, |[x]| {
                let below = expm1(x * c.float("input_scale")) * (alpha * scale);
                choose(compare(x, "gt", 0i64), x * scale, below)
            })
        }),
        example: "f32[2, 3] | f32[2], 0.5, 2, 1.5",
    };
    /// [`ELU`] with the constants that keep mean and variance.
    SELU = "aten.selu.default", SMOOTH {
        raisable: true,
        rule: Some(|c| vec![c.tensor("self").op("aten.elu", vec![1.6732632423543772.into(), 1.0507009873554805.into()])]),
    };
    /// `x` where positive, else `alpha · (exp(x / alpha) - 1)`.
    CELU = "aten.celu.default", SMOOTH {
        schema: "(Tensor self, Scalar alpha=1.0) -> Tensor",
        rule: Some(|c| {
            let alpha = c.float("alpha");
            if alpha == 0.0 {
                c.fail("alpha must not be 0");
            }
            elementwise(c, ["self"], Kind::Default, |[x]| {
                let below = if alpha == 1.0 { expm1(x) } else { expm1(x / alpha) * alpha };
                choose(compare(x, "gt", 0i64), x, below)
            })
        }),
        example: "f32[2, 3] | f32[2], 0.5",
    };
    /// `log(1 + exp(beta · x)) / beta`, and `x` where `beta · x` is above the threshold.
    SOFTPLUS = "aten.softplus.default", SMOOTH {
        raisable: true,
        schema: "(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
        rule: Some(|c| {
            let (beta, threshold) = (c.arg("beta").clone(), c.float("threshold"));
            let plain = c.float("beta") == 1.0 && threshold == 20.0;
            elementwise(c, ["self"], Kind::Default, |[x]| {
                if plain {
                    return softplus(x);
                }
                let scaled = x.op("aten.mul.Tensor", vec![beta.clone()]);
                let soft = log1p(scaled.exp()).op("aten.div.Tensor", vec![beta]);
                choose(compare(scaled, "gt", c.arg("threshold").clone()), x, soft)
            })
        }),
        example: "f32[2, 3] | f32[2], 2 | f32[2], 0.5, 0.1",
    };
    /// `x · tanh(softplus(x))`.
    MISH = "aten.mish.default", SMOOTH {
        raisable: true,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| x * softplus(x).tanh())),
    };
    /// `log(sigmoid(x))`.
    LOG_SIGMOID = "aten.log_sigmoid.default", SMOOTH {
        raisable: true,
        rule: Some(|c| vec![c.b.getitem(c.tensor("self").op("aten.log_sigmoid_forward", vec![]), 0)]),
    };
    /// [`LOG_SIGMOID`] as `min(x, 0) - log(1 + z)`, and `z = exp(-|x|)`.
    LOG_SIGMOID_FORWARD = "aten.log_sigmoid_forward.default", SMOOTH {
        schema: "(Tensor self) -> (Tensor output, Tensor buffer)",
        infer: Some(|c| {
            let m = Meta::Tensor(c.meta("self")?);
            Ok(Meta::Tuple(vec![m.clone(), m]))
        }),
        rule: Some(|c| {
            let (x, types) = promote::tensors(c, &["self"], Kind::Default);
            let zero = c.b.call("aten.full", vec![Arg::List(vec![]), 0i64.into(), types.compute.into()]);
            let least = zero.op("aten.minimum", vec![x[0].into()]);
            let z = neg(x[0].abs()).exp();
            [least - log1p(z), z].map(|v| v.to(types.result)).to_vec()
        }),
    };
    /// `first half · sigmoid(second half)` along a dimension.
    GLU = "aten.glu.default", SMOOTH {
        raisable: true,
        schema: "(Tensor self, int dim=-1) -> Tensor",
        infer: None,
        rule: Some(glu),
        example: "f32[2, 4] | f32[2, 3], 0",
    };
}

fn given(c: &Call<'_>) -> Vec<&'static str> {
    let mut names = vec!["self"];
    names.extend(["min", "max"].iter().filter(|n| *c.arg(n) != Arg::None));
    names
}

fn clamp<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let names = given(c);
    let (args, types) = promote::operands(c, &names, Kind::Default);
    let mut y = c.tensor("self").to(types.compute);
    for (name, bound) in names.into_iter().zip(args).skip(1) {
        let inside = compare(y, if name == "min" { "ge" } else { "le" }, bound.clone());
        y = choose(inside.op("aten.bitwise_or.Tensor", vec![isnan(y).into()]), y, bound);
    }
    vec![y.to(types.result)]
}

/// `clamp(x + 3, 0, 6)`.
fn sixfold(x: Value<'_>) -> Value<'_> {
    (x + 3i64).clamp(Some(0.0), None).clamp(None, Some(6.0))
}

/// `log(1 + exp(x))`, and `x` above 20.
fn softplus(x: Value<'_>) -> Value<'_> {
    let soft = log1p(x.exp());
    choose(compare(x, "gt", 20i64), x, soft)
}

fn glu<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let rank = c.tensor("self").rank();
    let axis = c.axis("dim", rank);
    elementwise(c, ["self"], Kind::Default, |[x]| {
        let n = match axis.map(|a| x.shape().get(a).cloned()) {
            Ok(Some(n)) if n.as_const().is_none_or(|n| n % 2 == 0) => n,
            Ok(n) => {
                c.fail(&format!("a dimension of size {n:?}, expected an even one"));
                return x;
            }
            Err(e) => {
                c.b.fail(e);
                return x;
            }
        };
        let half = n.floor_div(&Dim::from(2i64));
        let part = |from: Dim, to: Dim| x.op("aten.slice.Tensor", vec![c.arg("dim").clone(), from.into(), to.into()]);
        part(Dim::from(0i64), half.clone()) * part(half, n).sigmoid()
    })
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[ACTIVATIONS];
