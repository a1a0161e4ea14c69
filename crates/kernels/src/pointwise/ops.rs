//! The ops of a pointwise program.

use super::math;

/// A function of one value. NaN passes through all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// `-x`
    Neg,
    /// `|x|`
    Abs,
    /// `max(x, 0)`
    Relu,
    /// `min(max(x, lo), hi)`
    Clamp {
        /// Lower bound.
        lo: f32,
        /// Upper bound.
        hi: f32,
    },
    /// `x · clamp(x + 3, 0, 6) / 6`
    HardSwish,
    /// `clamp(x + 3, 0, 6) / 6`, torch's
    HardSigmoid,
    /// `clamp(alpha · x + beta, 0, 1)`, ONNX's
    HardSigmoidAffine {
        /// Slope.
        alpha: f32,
        /// Offset.
        beta: f32,
    },
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x / (1 + e^-x)`
    Silu,
    /// The hyperbolic tangent.
    Tanh,
    /// `e^x`
    Exp,
    /// The natural logarithm.
    Log,
    /// The error function.
    Erf,
    /// GELU by the error function.
    Gelu,
    /// GELU by torch's tanh approximation.
    GeluTanh,
    /// `x` above 0, `slope · x` below.
    LeakyRelu {
        /// Factor below 0.
        slope: f32,
    },
    /// `√x`, correctly rounded.
    Sqrt,
    /// `1 / √x`, two correctly rounded steps.
    Rsqrt,
    /// `1 / x`
    Reciprocal,
    /// Greatest integer not above `x`.
    Floor,
    /// Least integer not below `x`.
    Ceil,
    /// Towards zero.
    Trunc,
    /// To the nearest integer, half to even.
    Round,
    /// -1, 0 or 1; 0 for NaN, as torch has it.
    Sign,
}

/// A function of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a · b`
    Mul,
    /// `a / b`
    Div,
    /// The greater; NaN if either is.
    Max,
    /// The lesser; NaN if either is.
    Min,
    /// `a^b` with C's special cases.
    Pow,
    /// 1 if `a < b`, else 0.
    Lt,
    /// 1 if `a <= b`, else 0.
    Le,
    /// 1 if `a == b`, else 0.
    Eq,
    /// 1 if `a != b`, else 0.
    Ne,
}

impl Unary {
    /// The op on one value: what the vectorised loops compute, to the bit.
    #[inline(always)]
    pub fn eval(self, x: f32) -> f32 {
        match self {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Relu => math::max_ps(0.0, x),
            Unary::Clamp { lo, hi } => math::clamp(x, lo, hi),
            Unary::HardSwish => math::hardswish(x),
            Unary::HardSigmoid => math::hardsigmoid(x),
            Unary::HardSigmoidAffine { alpha, beta } => math::clamp(alpha * x + beta, 0.0, 1.0),
            Unary::Sigmoid => math::sigmoid(x),
            Unary::Silu => math::silu(x),
            Unary::Tanh => math::tanh(x),
            Unary::Exp => math::exp(x),
            Unary::Log => math::log(x),
            Unary::Erf => math::erf(x),
            Unary::Gelu => math::gelu(x),
            Unary::GeluTanh => math::gelu_tanh(x),
            Unary::LeakyRelu { slope } => leaky_relu(x, slope),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Reciprocal => 1.0 / x,
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Trunc => x.trunc(),
            Unary::Round => x.round_ties_even(),
            Unary::Sign => sign(x),
        }
    }
}

impl Binary {
    /// The op on one pair: what the vectorised loops compute, to the bit.
    #[inline(always)]
    pub fn eval(self, a: f32, b: f32) -> f32 {
        match self {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Max => math::maximum(a, b),
            Binary::Min => math::minimum(a, b),
            Binary::Pow => math::pow(a, b),
            Binary::Lt => mask(a < b),
            Binary::Le => mask(a <= b),
            Binary::Eq => mask(a == b),
            Binary::Ne => mask(a != b),
        }
    }
}

#[inline(always)]
pub(crate) fn leaky_relu(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { x * slope }
}

#[inline(always)]
pub(crate) fn sign(x: f32) -> f32 {
    mask(x > 0.0) - mask(x < 0.0)
}

#[inline(always)]
pub(crate) fn mask(holds: bool) -> f32 {
    if holds { 1.0 } else { 0.0 }
}
