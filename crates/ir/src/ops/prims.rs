//! The prims: type promotion and broadcasting are explicit. Elementwise prims take tensors of one shape and type
//! (numbers go along), [`CONVERT_ELEMENT_TYPE`] and [`BROADCAST_IN_DIM`] bring them there, see [`lower`].

use super::infer::{self, ensure};
use super::promote::{self, Kind};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{self, Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef =
    OpDef { class: Class::Pointwise, levels: Levels::PRIMS, accuracy: Accuracy::Rounding, ..OpDef::BASE };
const UNARY: OpDef = OpDef { schema: "(Tensor self) -> Tensor", infer: Some(infer::same), ..BASE };
const TEST: OpDef = OpDef { infer: Some(|c| Ok(Meta::tensor(DType::Bool, c.meta("self")?.shape))), ..UNARY };
const BINARY: OpDef =
    OpDef { schema: "(Tensor self, Tensor other) -> Tensor", infer: Some(|c| same_types(c, None)), ..BASE };
const COMMUTES: OpDef = OpDef { commutative: true, ..BINARY };
const COMPARE: OpDef = OpDef { infer: Some(|c| same_types(c, Some(DType::Bool))), ..BINARY };
const REDUCE: OpDef = OpDef {
    schema: "(Tensor inp, int[]? dims, *, ScalarType? output_dtype=None) -> Tensor",
    class: Class::Reduction,
    accuracy: Accuracy::Approximate,
    infer: Some(reduced),
    ..BASE
};

/// Operands of one shape and type; a number goes with any.
fn same_types(c: &Call<'_>, result: Option<DType>) -> Result<Meta> {
    let mut metas = vec![];
    for name in ["self", "other"] {
        match c.arg(name) {
            Arg::Node(_) => metas.push(c.meta(name)?),
            Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Dim(_) => {}
            a => return Err(c.err(&format!("argument '{name}': expected a tensor or a number, found {a:?}"))),
        }
    }
    let first = metas.first().cloned().ok_or_else(|| c.err("expected a tensor among the operands"))?;
    for m in &metas {
        let same = m.shape.len() == first.shape.len()
            && m.shape
                .iter()
                .zip(&first.shape)
                .all(|(a, b)| a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b));
        ensure(c, same && m.dtype == first.dtype, || {
            format!("operands {}{:?} and {}{:?} differ", first.dtype, first.shape, m.dtype, m.shape)
        })?;
    }
    Ok(Meta::tensor(result.unwrap_or(first.dtype), first.shape))
}

fn reduced(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("inp")?;
    let dims = c.opt_ints("dims");
    // No dims are none here, where they are all in ATen.
    let shape = match dims.as_deref() {
        Some([]) => m.shape.clone(),
        dims => infer::reduced(c, &m.shape, dims, false)?,
    };
    Ok(Meta::tensor(c.opt_dtype("output_dtype").unwrap_or(m.dtype), shape))
}

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $base:ident;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, ..$base };)*
        static ELEMENTWISE: &[&OpDef] = &[$(&$id),*];
    };
}

family! {
    /// Absolute value.
    ABS = "prims.abs.default", UNARY;
    /// Inverse cosine.
    ACOS = "prims.acos.default", UNARY;
    /// Inverse hyperbolic cosine.
    ACOSH = "prims.acosh.default", UNARY;
    /// Inverse sine.
    ASIN = "prims.asin.default", UNARY;
    /// Inverse hyperbolic sine.
    ASINH = "prims.asinh.default", UNARY;
    /// Inverse tangent.
    ATAN = "prims.atan.default", UNARY;
    /// Inverse hyperbolic tangent.
    ATANH = "prims.atanh.default", UNARY;
    /// Bits, or truth values, inverted.
    BITWISE_NOT = "prims.bitwise_not.default", UNARY;
    /// Cube root.
    CBRT = "prims.cbrt.default", UNARY;
    /// Least integer not below.
    CEIL = "prims.ceil.default", UNARY;
    /// Cosine.
    COS = "prims.cos.default", UNARY;
    /// Hyperbolic cosine.
    COSH = "prims.cosh.default", UNARY;
    /// Error function.
    ERF = "prims.erf.default", UNARY;
    /// `1 - erf(x)`.
    ERFC = "prims.erfc.default", UNARY;
    /// `exp(x²) · erfc(x)`.
    ERFCX = "prims.erfcx.default", UNARY;
    /// The inverse of erf.
    ERF_INV = "prims.erf_inv.default", UNARY;
    /// 2 to the power of x.
    EXP2 = "prims.exp2.default", UNARY;
    /// e to the power of x.
    EXP = "prims.exp.default", UNARY;
    /// `exp(x) - 1`.
    EXPM1 = "prims.expm1.default", UNARY;
    /// The derivative of the logarithm of Γ.
    DIGAMMA = "prims.digamma.default", UNARY;
    /// `log|Γ(x)|`.
    LGAMMA = "prims.lgamma.default", UNARY;
    /// Where the standard normal distribution has this probability below.
    NDTRI = "prims.ndtri.default", UNARY;
    /// Bessel function of the first kind, order 0.
    BESSEL_J0 = "prims.bessel_j0.default", UNARY;
    /// Bessel function of the first kind, order 1.
    BESSEL_J1 = "prims.bessel_j1.default", UNARY;
    /// Modified Bessel function of the first kind, order 0.
    BESSEL_I0 = "prims.bessel_i0.default", UNARY;
    /// [`BESSEL_I0`] times `exp(-|x|)`.
    BESSEL_I0E = "prims.bessel_i0e.default", UNARY;
    /// Modified Bessel function of the first kind, order 1.
    BESSEL_I1 = "prims.bessel_i1.default", UNARY;
    /// [`BESSEL_I1`] times `exp(-|x|)`.
    BESSEL_I1E = "prims.bessel_i1e.default", UNARY;
    /// `sin(x) / x`.
    SPHERICAL_BESSEL_J0 = "prims.spherical_bessel_j0.default", UNARY;
    /// Greatest integer not above.
    FLOOR = "prims.floor.default", UNARY;
    /// Natural logarithm.
    LOG = "prims.log.default", UNARY;
    /// Logarithm to base 10.
    LOG10 = "prims.log10.default", UNARY;
    /// `log(1 + x)`.
    LOG1P = "prims.log1p.default", UNARY;
    /// Logarithm to base 2.
    LOG2 = "prims.log2.default", UNARY;
    /// `-x`.
    NEG = "prims.neg.default", UNARY;
    /// `1 / x`.
    RECIPROCAL = "prims.reciprocal.default", UNARY;
    /// Nearest integer, halves to even.
    ROUND = "prims.round.default", UNARY;
    /// `1 / sqrt(x)`.
    RSQRT = "prims.rsqrt.default", UNARY;
    /// -1, 0 or 1.
    SIGN = "prims.sign.default", UNARY;
    /// Sine.
    SIN = "prims.sin.default", UNARY;
    /// Hyperbolic sine.
    SINH = "prims.sinh.default", UNARY;
    /// Square root.
    SQRT = "prims.sqrt.default", UNARY;
    /// Tangent.
    TAN = "prims.tan.default", UNARY;
    /// Hyperbolic tangent.
    TANH = "prims.tanh.default", UNARY;
    /// Towards zero.
    TRUNC = "prims.trunc.default", UNARY;
    /// Whether an element is a number and finite.
    ISFINITE = "prims.isfinite.default", TEST;
    /// Whether the sign bit is set, that of -0 too.
    SIGNBIT = "prims.signbit.default", TEST;
    /// Sum.
    ADD = "prims.add.default", COMMUTES;
    /// Angle of the point (other, self).
    ATAN2 = "prims.atan2.default", BINARY;
    /// Bits that both have.
    BITWISE_AND = "prims.bitwise_and.default", COMMUTES;
    /// Bits that one has.
    BITWISE_OR = "prims.bitwise_or.default", COMMUTES;
    /// Bits that exactly one has.
    BITWISE_XOR = "prims.bitwise_xor.default", COMMUTES;
    /// Quotient; of integers, rounded towards zero.
    DIV = "prims.div.default", BINARY;
    /// Whether elements are equal.
    EQ = "prims.eq.default", COMPARE;
    /// The greater element, or the one that is a number.
    FMAX = "prims.fmax.default", COMMUTES;
    /// The lesser element, or the one that is a number.
    FMIN = "prims.fmin.default", COMMUTES;
    /// Greatest common divisor.
    GCD = "prims.gcd.default", COMMUTES;
    /// `√(self² + other²)`.
    HYPOT = "prims.hypot.default", COMMUTES;
    /// Regularized lower incomplete gamma function.
    IGAMMA = "prims.igamma.default", BINARY;
    /// Regularized upper incomplete gamma function.
    IGAMMAC = "prims.igammac.default", BINARY;
    /// The next number of the type towards the other element.
    NEXTAFTER = "prims.nextafter.default", BINARY;
    /// `self · 2^other` in the integer type.
    SHIFT_LEFT = "prims.shift_left.default", BINARY;
    /// `floor(self / 2^other)`.
    SHIFT_RIGHT_ARITHMETIC = "prims.shift_right_arithmetic.default", BINARY;
    /// Hurwitz zeta function.
    ZETA = "prims.zeta.default", BINARY;
    /// Remainder with the sign of the dividend.
    FMOD = "prims.fmod.default", BINARY;
    /// Whether elements are greater or equal.
    GE = "prims.ge.default", COMPARE;
    /// Whether elements are greater.
    GT = "prims.gt.default", COMPARE;
    /// Whether elements are less or equal.
    LE = "prims.le.default", COMPARE;
    /// Whether elements are less.
    LT = "prims.lt.default", COMPARE;
    /// The greater element.
    MAXIMUM = "prims.maximum.default", COMMUTES;
    /// The lesser element.
    MINIMUM = "prims.minimum.default", COMMUTES;
    /// Product.
    MUL = "prims.mul.default", COMMUTES;
    /// Whether elements differ.
    NE = "prims.ne.default", COMPARE;
    /// Power.
    POW = "prims.pow.default", BINARY;
    /// Remainder with the sign of the divisor.
    REMAINDER = "prims.remainder.default", BINARY;
    /// Difference.
    SUB = "prims.sub.default", BINARY;
    /// Sum over dimensions.
    SUM = "prims.sum.default", REDUCE;
    /// Product over dimensions.
    PROD = "prims.prod.default", REDUCE;
    /// Greatest elements over dimensions.
    AMAX = "prims.amax.default", REDUCE;
    /// Least elements over dimensions.
    AMIN = "prims.amin.default", REDUCE;
    /// Exclusive or of the bits of integers.
    XOR_SUM = "prims.xor_sum.default", REDUCE;
}

/// Variance over dimensions; `correction` is taken from the count.
pub static VAR: OpDef = OpDef {
    name: "prims.var.default",
    schema: "(Tensor inp, int[]? dims, float? correction=1, *, ScalarType? output_dtype=None) -> Tensor",
    ..REDUCE
};

/// `a` where the predicate holds, else `b`.
pub static WHERE: OpDef = OpDef {
    name: "prims.where.default",
    schema: "(Tensor pred, Tensor a, Tensor b) -> Tensor",
    infer: Some(|c| {
        let pred = c.meta("pred")?;
        ensure(c, pred.dtype == DType::Bool, || format!("a predicate of type {}", pred.dtype))?;
        let types = ["a", "b"].map(|n| if let Arg::Node(_) = c.arg(n) { c.meta(n).map(Some) } else { Ok(None) });
        let [a, b] = types;
        let given: Vec<_> = [a?, b?].into_iter().flatten().collect();
        let dtype = given.first().map(|m| m.dtype).ok_or_else(|| c.err("expected a tensor to choose from"))?;
        ensure(c, given.iter().all(|m| m.dtype == dtype && m.shape.len() == pred.shape.len()), || {
            format!("choices {given:?} under a predicate of shape {:?}", pred.shape)
        })?;
        Ok(Meta::tensor(dtype, pred.shape))
    }),
    ..BASE
};

/// The elements as another type.
pub static CONVERT_ELEMENT_TYPE: OpDef = OpDef {
    name: "prims.convert_element_type.default",
    schema: "(Tensor a, ScalarType dtype) -> Tensor",
    accuracy: Accuracy::Exact,
    infer: Some(|c| Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::F32), c.meta("a")?.shape))),
    ..BASE
};

/// Elements repeated: dimension `i` of the input is dimension `broadcast_dimensions[i]` of the result.
pub static BROADCAST_IN_DIM: OpDef = OpDef {
    name: "prims.broadcast_in_dim.default",
    schema: "(Tensor(a) a, SymInt[] shape, int[] broadcast_dimensions) -> Tensor(a)",
    class: Class::View,
    accuracy: Accuracy::Exact,
    infer: Some(|c| {
        let (m, shape, to) = (c.meta("a")?, c.dims("shape"), c.ints("broadcast_dimensions"));
        let fits = to.len() == m.shape.len()
            && to.windows(2).all(|w| w[0] < w[1])
            && to.iter().zip(&m.shape).all(|(to, from)| {
                let to = usize::try_from(*to).ok().and_then(|i| shape.get(i));
                to.is_some_and(|to| from.is(1) || from.as_const().zip(to.as_const()).is_none_or(|(a, b)| a == b))
            });
        ensure(c, fits, || format!("{:?} to {shape:?} at dimensions {to:?}", m.shape))?;
        Ok(Meta::tensor(m.dtype, shape))
    }),
    ..BASE
};

/// `length` numbers from `start` in steps.
pub static IOTA: OpDef = OpDef {
    name: "prims.iota.default",
    schema: "(SymInt length, *, SymInt start, SymInt step, ScalarType dtype, Device device='cpu', bool requires_grad=False) -> Tensor",
    class: Class::Creation,
    accuracy: Accuracy::Exact,
    infer: Some(|c| Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::I64), vec![c.dim("length")]))),
    ..BASE
};

/// Dimensions in another order.
pub static TRANSPOSE: OpDef = OpDef {
    name: "prims.transpose.default",
    schema: "(Tensor(a) a, int[] permutation) -> Tensor(a)",
    class: Class::View,
    accuracy: Accuracy::Exact,
    infer: Some(|c| {
        let (m, order) = (c.meta("a")?, c.ints("permutation"));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        ensure(c, sorted.iter().copied().eq(0..m.shape.len() as i64), || {
            format!("{order:?} is no order of {} dimensions", m.shape.len())
        })?;
        Ok(Meta::tensor(m.dtype, order.into_iter().map(|i| m.shape[i as usize].clone()).collect()))
    }),
    ..BASE
};

/// The same elements in this shape.
pub static RESHAPE: OpDef = OpDef {
    name: "prims.reshape.default",
    schema: "(Tensor a, SymInt[] shape) -> Tensor",
    class: Class::View,
    accuracy: Accuracy::Exact,
    infer: Some(|c| {
        let (m, shape) = (c.meta("a")?, c.dims("shape"));
        let count = |s: &[Dim]| s.iter().cloned().product::<Dim>().as_const();
        let fits = count(&m.shape).zip(count(&shape)).is_none_or(|(a, b)| a == b);
        ensure(c, fits, || format!("{:?} as {shape:?}", m.shape))?;
        Ok(Meta::tensor(m.dtype, shape))
    }),
    ..BASE
};

/// Windows' greatest elements, and where in its window each was.
pub static LOW_MEMORY_MAX_POOL: OpDef = OpDef {
    name: "prims._low_memory_max_pool_with_offsets.default",
    schema: "(Tensor self, SymInt[] kernel_size, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool ceil_mode) -> (Tensor, Tensor)",
    class: Class::Pool,
    accuracy: Accuracy::Exact,
    infer: Some(|c| {
        let op = match c.ints("kernel_size").len() {
            3 => "aten.max_pool3d_with_indices",
            _ => "aten.max_pool2d_with_indices",
        };
        match c.b.infer(op::find(op)?, &c.args, &c.name)? {
            Meta::Tuple(items) => match items.first() {
                Some(Meta::Tensor(t)) => {
                    let offsets = Meta::tensor(DType::I8, t.shape.clone());
                    Ok(Meta::Tuple(vec![Meta::Tensor(t.clone()), offsets]))
                }
                _ => Err(c.err("expected a tensor")),
            },
            _ => Err(c.err("expected windows over two or three dimensions")),
        }
    }),
    ..BASE
};

/// An elementwise ATen op as the prim of its name: operands are converted to the type in which torch computes and
/// broadcast to one shape, the result is converted to the type that torch gives. `alpha`, where there is one,
/// becomes a factor.
pub fn lower<'b>(c: &Call<'b>, kind: Kind) -> Vec<Value<'b>> {
    lower_to(c, kind, &format!("prims.{}", c.op.base()))
}

/// [`lower`] to a prim of another name.
pub fn lower_to<'b>(c: &Call<'b>, kind: Kind, prim: &str) -> Vec<Value<'b>> {
    let is_operand = |n: &&str| matches!(*n, "self" | "other" | "exponent" | "x");
    let names: Vec<&str> = c.op.schema.params.iter().map(|p| p.name.as_str()).filter(is_operand).collect();
    let (mut args, types) = promote::operands(c, &names, kind);
    if let (Some(Arg::Int(_) | Arg::Float(_)), Some(other)) =
        (c.op.schema.index("alpha").map(|_| c.arg("alpha")), args.get_mut(1))
    {
        *other = scaled(c, other, c.arg("alpha"));
    }
    let args = broadcast(c, args);
    vec![c.b.call(prim, args).to(types.result)]
}

/// `x · alpha`.
fn scaled(c: &Call<'_>, x: &Arg, alpha: &Arg) -> Arg {
    match (x, alpha) {
        (_, Arg::Int(1)) | (_, Arg::Float(1.0)) => x.clone(),
        (Arg::Node(id), alpha) => c.b.value(*id).op("prims.mul", vec![alpha.clone()]).into(),
        (Arg::Int(a), Arg::Int(b)) => Arg::Int(a.wrapping_mul(*b)),
        _ => {
            let number = |a: &Arg| match a {
                Arg::Int(i) => *i as f64,
                Arg::Float(f) => *f,
                _ => 1.0,
            };
            Arg::Float(number(x) * number(alpha))
        }
    }
}

/// The tensors among the arguments in their common shape.
pub fn broadcast(c: &Call<'_>, args: Vec<Arg>) -> Vec<Arg> {
    let shapes: Vec<Vec<Dim>> = args.iter().flat_map(Arg::nodes).map(|n| c.b.value(n).shape()).collect();
    let shapes: Vec<&[Dim]> = shapes.iter().map(Vec::as_slice).collect();
    match infer::broadcast(&shapes) {
        Ok(shape) => {
            let spread = |a: Arg| match a {
                Arg::Node(id) => in_shape(c.b.value(id), &shape).into(),
                number => number,
            };
            args.into_iter().map(spread).collect()
        }
        Err(why) => {
            c.fail(&why);
            args
        }
    }
}

/// A tensor broadcast to a shape, aligned at its last dimension.
pub fn in_shape<'b>(x: Value<'b>, shape: &[Dim]) -> Value<'b> {
    let own = x.shape();
    if own == shape {
        return x;
    }
    let lead = shape.len().saturating_sub(own.len());
    let dims: Vec<usize> = (lead..shape.len()).collect();
    x.op("prims.broadcast_in_dim", vec![shape.to_vec().into(), dims.into()])
}

static PLAIN: &[&OpDef] =
    &[&VAR, &WHERE, &CONVERT_ELEMENT_TYPE, &BROADCAST_IN_DIM, &IOTA, &TRANSPOSE, &RESHAPE, &LOW_MEMORY_MAX_POOL];

/// The families.
pub static OPS: &[&[&OpDef]] = &[ELEMENTWISE, PLAIN];
