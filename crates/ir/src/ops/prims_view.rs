//! Prims that move elements or name them otherwise: each is an ATen op under another name. Rules of the vocabulary do
//! not make them; files may hold them.

use super::infer::ensure;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::PRIMS, accuracy: Accuracy::Exact, ..OpDef::BASE };

/// The first argument's ATen op of this name with the other arguments.
fn renamed<'b>(c: &Call<'b>, op: &str) -> Vec<Value<'b>> {
    vec![c.b.call(op, c.args.to_vec())]
}

/// An op of ATen on these arguments.
fn made<'b>(c: &Call<'b>, op: &str, args: &[&str]) -> Vec<Value<'b>> {
    vec![c.b.call(op, args.iter().map(|n| c.arg(n).clone()).collect())]
}

/// Dimensions `start` to `end`, both in, as one.
fn collapsed<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, [start, end]) = (c.tensor("a"), ["start", "end"].map(|n| c.int(n)));
    let shape = x.shape();
    let (Ok(from), Ok(to)) = (c.wrap(start, shape.len()), c.wrap(end, shape.len())) else {
        c.fail(&format!("dimensions {start} to {end} of {shape:?}"));
        return vec![x];
    };
    if from > to || to >= shape.len() {
        c.fail(&format!("dimensions {start} to {end} of {shape:?}"));
        return vec![x];
    }
    let one: Dim = shape[from..=to].iter().cloned().product();
    vec![x.view([&shape[..from], &[one], &shape[to + 1..]].concat())]
}

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $class:ident, $example:literal, $rule:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name, schema: $schema, class: Class::$class, example: $example, rule: Some($rule), ..BASE
        };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id,)* &ITEM, &MAXIMUM_VALUE, &MINIMUM_VALUE, &MAKE_TOKEN, &SINK_TOKENS]];
    };
}

family! {
    /// Elements by their place in the storage of the input.
    AS_STRIDED = "prims.as_strided.default",
        "(Tensor a, SymInt[] size, SymInt[] stride, SymInt storage_offset) -> Tensor", View,
        "f32[2, 3], [3, 2], [1, 3], 0", |c| renamed(c, "aten.as_strided");
    /// [`AS_STRIDED`] put into the input's storage.
    AS_STRIDED_SCATTER = "prims.as_strided_scatter.default",
        "(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt storage_offset) -> Tensor", Move,
        "f32[2, 3], f32[2], [2], [3], 1", |c| renamed(c, "aten.as_strided_scatter");
    /// Tensors one behind the other along a dimension.
    CAT = "prims.cat.default", "(Tensor[] tensors, int dim) -> Tensor", Move,
        "[f32[2, 3], f32[1, 3]], 0", |c| renamed(c, "aten.cat");
    /// A copy.
    CLONE = "prims.clone.default", "(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", Inert,
        "f32[2, 3]", |c| renamed(c, "aten.clone");
    /// Neighbouring dimensions as one.
    COLLAPSE = "prims.collapse.default", "(Tensor a, int start, int end) -> Tensor", View, "f32[2, 3, 4], 0, 1", collapsed;
    /// [`COLLAPSE`] as a view.
    COLLAPSE_VIEW = "prims.collapse_view.default", "(Tensor(a) a, int start, int end) -> Tensor(a)", View,
        "f32[2, 3, 4], 1, 2", collapsed;
    /// The complex conjugate, which of real numbers is the number itself.
    CONJ = "prims.conj.default", "(Tensor(a) a) -> Tensor(a)", Inert, "f32[2, 3]", |c| renamed(c, "aten.alias");
    /// [`CONJ`] as a copy.
    CONJ_PHYSICAL = "prims.conj_physical.default", "(Tensor self) -> Tensor", Inert, "f32[2, 3]",
        |c| renamed(c, "aten.clone");
    /// The real part, which of real numbers is the number itself.
    REAL = "prims.real.default", "(Tensor(a) self) -> Tensor(a)", Inert, "f32[2, 3]", |c| renamed(c, "aten.alias");
    /// A copy that lies at these strides.
    COPY_STRIDED = "prims.copy_strided.default", "(Tensor a, SymInt[] stride) -> Tensor", Inert, "f32[2, 3], [1, 2]",
        |c| vec![c.tensor("a").op("aten.clone", vec![])];
    /// The elements of another tensor put into one, which must be of its shape.
    COPY_TO = "prims.copy_to.default", "(Tensor(a!) a, Tensor b) -> Tensor(a!)", Move, "f32[2, 3], f32[2, 3]",
        |c| renamed(c, "aten.copy");
    /// Elements that hold anything; here zeros.
    EMPTY = "prims.empty.default",
        "(SymInt[] shape, *, ScalarType dtype, Device device, bool requires_grad) -> Tensor", Creation,
        "[2, 3], f32, \"cpu\", false", |c| made(c, "aten.empty.memory_format", &["shape", "dtype"]);
    /// [`EMPTY`] whose dimensions lie in this order, outermost first.
    EMPTY_PERMUTED = "prims.empty_permuted.default",
        "(SymInt[] shape, int[] physical_layout, *, ScalarType dtype, Device device, bool requires_grad) -> Tensor",
        Creation, "[2, 3], [1, 0], f32, \"cpu\", false",
        |c| made(c, "aten.empty_permuted", &["shape", "physical_layout", "dtype"]);
    /// [`EMPTY`] at these strides.
    EMPTY_STRIDED = "prims.empty_strided.default",
        "(SymInt[] shape, SymInt[] strides, *, ScalarType dtype, Device device, bool requires_grad) -> Tensor",
        Creation, "[2, 3], [1, 2], f32, \"cpu\", false",
        |c| made(c, "aten.empty_strided", &["shape", "strides", "dtype"]);
    /// One number everywhere.
    FULL = "prims.full.default",
        "(SymInt[] shape, Scalar fill_value, *, ScalarType dtype, Device device, bool requires_grad) -> Tensor",
        Creation, "[2, 3], 0.5, f32, \"cpu\", false", |c| made(c, "aten.full", &["shape", "fill_value", "dtype"]);
    /// [`FULL`] in the shape of a tensor.
    FULL_LIKE = "prims.full_like.default",
        "(Tensor a, Scalar fill_value, *, ScalarType dtype, Device device, bool requires_grad) -> Tensor",
        Creation, "f32[2, 3], 0.5, f32, \"cpu\", false", |c| made(c, "aten.full_like", &["a", "fill_value", "dtype"]);
    /// Mantissa, from ½ to below 1, and exponent of each number.
    FREXP = "prims.frexp.default", "(Tensor self) -> (Tensor mantissa, Tensor exponent)", Move, "f32[2, 3]", |c| {
            let both = c.b.call("aten.frexp.Tensor", vec![c.arg("self").clone()]);
            vec![c.b.getitem(both, 0), c.b.getitem(both, 1)]
        };
    /// As many of the elements as this shape holds, in order.
    RESIZE = "prims.resize.default", "(Tensor(a!) a, SymInt[] shape) -> Tensor(a!)", Move, "f32[2, 3], [4]",
        |c| renamed(c, "aten.resize");
    /// `U`, `S` and `Vᵀ` of `U·S·Vᵀ`, `S` descending.
    SVD = "prims.svd.default", "(Tensor A, *, bool full_matrices) -> (Tensor U, Tensor S, Tensor Vh)", Strategic,
        "f32[2, 3], false", |c| {
            let args = vec![c.arg("A").clone(), c.arg("full_matrices").clone(), true.into()];
            let all = c.b.call("aten._linalg_svd", args);
            (0..3).map(|i| c.b.getitem(all, i)).collect()
        };
    /// The bits of the elements as another type.
    VIEW_OF_DTYPE = "prims.view_of_dtype.default", "(Tensor(a) a, ScalarType dtype) -> Tensor(a)", View,
        "f32[2, 3], i32", |c| renamed(c, "aten.view.dtype");
    /// The tensor on another device, which is the same one here.
    DEVICE_PUT = "prims.device_put.default", "(Tensor a, Device device, bool non_blocking=False) -> Tensor", Inert,
        "f32[2, 3], \"cpu\"", |c| vec![c.tensor("a").op("aten.clone", vec![])];
    /// One number everywhere.
    FILL = "prims.fill.default", "(Tensor self, Scalar value) -> Tensor", Creation,
        "f32[2, 3], 0.5", |c| renamed(c, "aten.full_like");
    /// Elements in reverse order along dimensions.
    REV = "prims.rev.default", "(Tensor a, int[] dims) -> Tensor", Move, "f32[2, 3], [1]", |c| renamed(c, "aten.flip");
    /// A number as a tensor of no dimensions.
    SCALAR_TENSOR = "prims.scalar_tensor.default",
        "(Scalar s, *, ScalarType? dtype=None, Device? device=None) -> Tensor", Creation, "0.5, f32",
        |c| vec![c.b.call("aten.scalar_tensor", vec![c.arg("s").clone(), c.arg("dtype").clone()])];
    /// A dimension as two, the first of this size.
    SPLIT_DIM = "prims.split_dim.default", "(Tensor(a) a, int dim, SymInt outer_length) -> Tensor(a)", View,
        "f32[6, 3], 0, 2", |c| {
            let (x, outer) = (c.tensor("a"), c.dim("outer_length"));
            let mut shape = x.shape();
            let Some(axis) = c.axis("dim", shape.len()).ok().filter(|a| *a < shape.len()) else {
                c.fail(&format!("a dimension of {shape:?}"));
                return vec![x];
            };
            let inner = if outer.is(0) { Dim::from(0i64) } else { shape[axis].floor_div(&outer) };
            shape.splice(axis..=axis, [outer, inner]);
            vec![x.view(shape)]
        };
    /// Dimensions of size 1 dropped.
    SQUEEZE = "prims.squeeze.default", "(Tensor(a) a, int[] dimensions) -> Tensor(a)", View, "f32[2, 1, 3], [1]",
        |c| renamed(c, "aten.squeeze.dims");
    /// Another name for a value.
    VIEW_OF = "prims.view_of.default", "(Tensor(a) a) -> Tensor(a)", Inert, "f32[2, 3]", |c| renamed(c, "aten.alias");
}

/// The one element of a tensor.
pub static ITEM: OpDef = OpDef {
    name: "prims.item.default",
    schema: "(Tensor a) -> Scalar",
    class: Class::Reduction,
    infer: Some(|c| {
        let m = c.meta("a")?;
        ensure(c, m.shape.iter().all(|d| d.as_const().is_none_or(|n| n == 1)), || {
            format!("one element expected, found shape {:?}", m.shape)
        })?;
        Ok(Meta::Int(Dim::unknown(0)))
    }),
    ..BASE
};

/// What orders effects in a program: a tensor without elements.
pub static MAKE_TOKEN: OpDef = OpDef {
    name: "prims._make_token.default",
    schema: "() -> Tensor",
    class: Class::Structural,
    infer: Some(|_| Ok(Meta::tensor(DType::F32, vec![0.into()]))),
    ..BASE
};

/// Where tokens of [`MAKE_TOKEN`] end.
pub static SINK_TOKENS: OpDef = OpDef {
    name: "prims._sink_tokens.default",
    schema: "(Tensor[] tokens) -> ()",
    class: Class::Inert,
    infer: Some(|_| Ok(Meta::None)),
    ..BASE
};

/// The greatest number of a type, as a size: of integer types only.
pub static MAXIMUM_VALUE: OpDef = OpDef {
    name: "prims.maximum_value.default",
    schema: "(ScalarType dtype) -> Scalar",
    class: Class::Structural,
    infer: Some(|c| bound(c, |_, max| max)),
    ..BASE
};

/// The least number of a type, as a size: of integer types only.
pub static MINIMUM_VALUE: OpDef =
    OpDef { name: "prims.minimum_value.default", infer: Some(|c| bound(c, |min, _| min)), ..MAXIMUM_VALUE };

fn bound(c: &Call<'_>, pick: fn(i64, i64) -> i64) -> crate::Result<Meta> {
    let Arg::DType(d) = c.arg("dtype") else { return Err(c.err("expected an element type")) };
    let (min, max) = match d {
        DType::Bool => (0, 1),
        DType::U8 => (0, i64::from(u8::MAX)),
        DType::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DType::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DType::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DType::I64 => (i64::MIN, i64::MAX),
        d => return Err(c.err(&format!("the bounds of {d} are no integers"))),
    };
    Ok(Meta::Int(Dim::from(pick(min, max))))
}
