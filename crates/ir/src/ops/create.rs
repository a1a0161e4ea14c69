//! Tensors made from nothing, and changes of element type.

use super::infer::{ensure, same};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Functional, Levels, OpDef};
use crate::strides;
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Creation, levels: Levels::ALL, ..OpDef::BASE };
const SUGAR: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };

/// Numbers from `start` to below `end`.
pub static ARANGE_STEP: OpDef = OpDef {
    name: "aten.arange.start_step",
    schema: "(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(arange),
    ..BASE
};

/// [`ARANGE_STEP`] in steps of 1.
pub static ARANGE_START: OpDef = OpDef {
    name: "aten.arange.start",
    schema: "(Scalar start, Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    rule: Some(|c| {
        let args = vec![c.arg("start").clone(), c.arg("end").clone(), 1i64.into(), c.arg("dtype").clone()];
        vec![c.b.call("aten.arange.start_step", args)]
    }),
    example: "1, 4, f32",
    ..SUGAR
};

/// [`ARANGE_STEP`] from 0 in steps of 1.
pub static ARANGE: OpDef = OpDef {
    name: "aten.arange.default",
    schema: "(Scalar end, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    rule: Some(|c| {
        let args = vec![0i64.into(), c.arg("end").clone(), 1i64.into(), c.arg("dtype").clone()];
        vec![c.b.call("aten.arange.start_step", args)]
    }),
    example: "4 | 3, f32",
    ..SUGAR
};

fn arange(c: &Call<'_>) -> Result<Meta> {
    let names = ["start", "end", "step"];
    if names.iter().any(|n| matches!(c.arg(n), Arg::Float(_))) {
        let [start, end, step] = names.map(|n| c.float(n));
        let count = ((end - start) / step).ceil();
        ensure(c, (0.0..1e9).contains(&count), || format!("{start} to {end} in steps of {step}"))?;
        let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
        return Ok(Meta::tensor(dtype, vec![Dim::from(count as i64)]));
    }
    let (start, end, step) = (c.dim("start"), c.dim("end"), c.int("step"));
    ensure(c, step != 0, || "steps of 0".into())?;
    let span = if step > 0 { end - start } else { start - end };
    let step = Dim::from(step.abs());
    let count = (span + step.clone() - Dim::from(1i64)).floor_div(&step);
    ensure(c, count.as_const().is_none_or(|n| n >= 0), || format!("{count} elements"))?;
    Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::I64), vec![count]))
}

/// One number everywhere.
pub static FULL: OpDef = OpDef {
    name: "aten.full.default",
    schema: "(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(literal(c.arg("fill_value"))), c.dims("size")))),
    ..BASE
};

/// The type that torch gives a literal.
fn literal(a: &Arg) -> DType {
    match a {
        Arg::Bool(_) => DType::Bool,
        Arg::Int(_) | Arg::Dim(_) | Arg::Node(_) => DType::I64,
        _ => DType::F32,
    }
}

/// A number as a tensor of no dimensions.
pub static SCALAR_TENSOR: OpDef = OpDef {
    name: "aten.scalar_tensor.default",
    schema: "(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::F32), vec![]))),
    ..BASE
};

/// One number everywhere, in the shape of another tensor.
pub static FULL_LIKE: OpDef = OpDef {
    name: "aten.full_like.default",
    schema: "(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    infer: Some(like),
    ..BASE
};

fn like(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(m.dtype), m.shape))
}

/// [`FULL`] of this number, of the type asked for, or else of `default`.
fn full<'b>(c: &Call<'b>, value: Arg, default: DType) -> Vec<Value<'b>> {
    let dtype = c.opt_dtype("dtype").unwrap_or(default);
    vec![c.b.call("aten.full", vec![c.arg("size").clone(), value, dtype.into()])]
}

macro_rules! filled {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $example:literal, $rule:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, example: $example, rule: Some($rule), ..SUGAR };)*
        static FILLED: &[&OpDef] = &[$(&$id),*];
    };
}

filled! {
    /// Zeros.
    ZEROS = "aten.zeros.default",
        "(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        "[2, 3], f32",
        |c| full(c, 0i64.into(), DType::F32);
    /// Ones.
    ONES = "aten.ones.default",
        "(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        "[2, 3], f32",
        |c| full(c, 1i64.into(), DType::F32);
    /// Zeros of another tensor's type.
    NEW_ZEROS = "aten.new_zeros.default",
        "(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        "f32[3], [2]",
        |c| full(c, 0i64.into(), c.tensor("self").dtype());
    /// Ones of another tensor's type.
    NEW_ONES = "aten.new_ones.default",
        "(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        "f32[3], [2]",
        |c| full(c, 1i64.into(), c.tensor("self").dtype());
    /// One number everywhere, of another tensor's type.
    NEW_FULL = "aten.new_full.default",
        "(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        "f32[3], [2], 0.5",
        |c| full(c, c.arg("fill_value").clone(), c.tensor("self").dtype());
    /// Zeros in the shape of another tensor.
    ZEROS_LIKE = "aten.zeros_like.default",
        "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        "f32[2, 3]",
        |c| vec![c.tensor("self").op("aten.full_like", vec![0i64.into(), c.arg("dtype").clone()])];
    /// Ones in the shape of another tensor.
    ONES_LIKE = "aten.ones_like.default",
        "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
        "f32[2, 3]",
        |c| vec![c.tensor("self").op("aten.full_like", vec![1i64.into(), c.arg("dtype").clone()])];
}

/// Elements that hold anything; here zeros.
pub static EMPTY: OpDef = OpDef {
    name: "aten.empty.memory_format",
    schema: "(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    infer: Some(empty),
    ..BASE
};

fn empty(c: &Call<'_>) -> Result<Meta> {
    Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::F32), c.dims("size")))
}

/// [`EMPTY`] at these strides.
pub static EMPTY_STRIDED: OpDef = OpDef {
    name: "aten.empty_strided.default",
    schema: "(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(empty),
    ..BASE
};

/// [`EMPTY`] whose dimensions lie in this order, outermost first.
pub static EMPTY_PERMUTED: OpDef = OpDef {
    name: "aten.empty_permuted.default",
    schema: "(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(empty),
    ..BASE
};

/// [`EMPTY`] of another tensor's type.
pub static NEW_EMPTY: OpDef = OpDef {
    name: "aten.new_empty.default",
    schema: "(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    rule: Some(|c| {
        let dtype = c.opt_dtype("dtype").unwrap_or(c.tensor("self").dtype());
        vec![c.b.call("aten.empty.memory_format", vec![c.arg("size").clone(), dtype.into()])]
    }),
    example: "f32[3], [2, 2]",
    ..SUGAR
};

/// [`EMPTY_STRIDED`] of another tensor's type.
pub static NEW_EMPTY_STRIDED: OpDef = OpDef {
    name: "aten.new_empty_strided.default",
    schema: "(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    rule: Some(|c| {
        let dtype = c.opt_dtype("dtype").unwrap_or(c.tensor("self").dtype());
        let args = vec![c.arg("size").clone(), c.arg("stride").clone(), dtype.into()];
        vec![c.b.call("aten.empty_strided", args)]
    }),
    example: "f32[3], [2, 2], [2, 1]",
    ..SUGAR
};

/// [`EMPTY`] in the shape of another tensor, which lies as that does.
pub static EMPTY_LIKE: OpDef = OpDef {
    name: "aten.empty_like.default",
    schema: "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("self");
        let dtype = c.opt_dtype("dtype").unwrap_or(x.dtype());
        let format = match c.arg("memory_format") {
            Arg::Str(f) if f != "preserve_format" => c.arg("memory_format").clone(),
            _ => {
                let order = strides::lying(&x.shape(), &x.strides());
                let order: Vec<usize> = order.into_iter().rev().collect();
                return vec![c.b.call("aten.empty_permuted", vec![x.shape().into(), order.into(), dtype.into()])];
            }
        };
        let args = vec![x.shape().into(), dtype.into(), Arg::None, Arg::None, Arg::None, format];
        vec![c.b.call("aten.empty.memory_format", args)]
    }),
    example: "f32[2, 3] | f32[2, 3], i64",
    ..SUGAR
};

/// Every element replaced by a number.
pub static FILL: OpDef = OpDef {
    name: "aten.fill.Scalar",
    schema: "(Tensor self, Scalar value) -> Tensor",
    infer: Some(same),
    rule: Some(|c| vec![c.tensor("self").op("aten.full_like", vec![c.arg("value").clone()])]),
    example: "f32[2, 3], 0.5",
    ..SUGAR
};

/// Every element replaced by a tensor's one element.
pub static FILL_TENSOR: OpDef = OpDef {
    name: "aten.fill.Tensor",
    schema: "(Tensor self, Tensor value) -> Tensor",
    infer: Some(same),
    rule: Some(|c| vec![c.tensor("self").op("aten.copy", vec![c.arg("value").clone()])]),
    example: "f32[2, 3], f32[]",
    ..SUGAR
};

/// Zeros in the tensor's shape.
pub static ZERO: OpDef = OpDef {
    name: "aten.zero.default",
    schema: "(Tensor self) -> Tensor",
    infer: Some(same),
    rule: Some(|c| vec![c.tensor("self").op("aten.full_like", vec![0i64.into()])]),
    example: "f32[2, 3]",
    ..SUGAR
};

const IN_PLACE: OpDef = OpDef { levels: Levels::TORCH, infer: Some(same), functional: Functional::Always, ..BASE };

/// [`FILL`] in place.
pub static FILL_: OpDef = OpDef {
    name: "aten.fill_.Scalar",
    schema: "(Tensor(a!) self, Scalar value) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.fill.Scalar", c.args.to_vec())]),
    ..IN_PLACE
};

/// [`FILL_TENSOR`] in place.
pub static FILL_TENSOR_: OpDef = OpDef {
    name: "aten.fill_.Tensor",
    schema: "(Tensor(a!) self, Tensor value) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.fill.Tensor", c.args.to_vec())]),
    ..IN_PLACE
};

/// [`ZERO`] in place.
pub static ZERO_: OpDef = OpDef {
    name: "aten.zero_.default",
    schema: "(Tensor(a!) self) -> Tensor(a!)",
    rule: Some(|c| vec![c.tensor("self").op("aten.zero", vec![])]),
    ..IN_PLACE
};

/// The elements of `src` in the shape and type of the first tensor.
pub static COPY: OpDef = OpDef {
    name: "aten.copy.default",
    schema: "(Tensor self, Tensor src, bool non_blocking=False) -> Tensor",
    class: Class::Move,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(same),
    rule: Some(|c| {
        let (x, src) = (c.tensor("self"), c.tensor("src"));
        let wide = src.to(x.dtype()).op("aten.expand", vec![x.shape().into()]);
        vec![wide.op("aten.clone", vec![])]
    }),
    example: "f32[2, 3], f32[3]",
    ..BASE
};

/// [`COPY`] in place.
pub static COPY_: OpDef = OpDef {
    name: "aten.copy_.default",
    schema: "(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.copy", c.args.to_vec())]),
    ..IN_PLACE
};

/// The elements as another type.
pub static TO_COPY: OpDef = OpDef {
    name: "aten._to_copy.default",
    example: "f32[2, 3], f64 | f32[2, 3], i32 | i64[3], f32",
    schema: "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(like),
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![x.op("prims.convert_element_type", vec![c.opt_dtype("dtype").unwrap_or(x.dtype()).into()])]
    }),
    ..BASE
};

/// [`TO_COPY`], or the tensor itself if it is of the type and no copy is asked for.
fn convert<'b>(c: &Call<'b>, dtype: DType) -> Vec<Value<'b>> {
    let (x, copy) = (c.tensor("self"), c.op.schema.index("copy").is_some_and(|_| c.bool("copy")));
    vec![if copy { x.op("aten._to_copy", vec![dtype.into()]) } else { x.to(dtype) }]
}

const CONVERT: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH,
    functional: Functional::Always,
    infer: Some(like),
    rule: Some(|c| convert(c, c.opt_dtype("dtype").unwrap_or(c.tensor("self").dtype()))),
    ..BASE
};

/// The elements as this type.
pub static TO_DTYPE: OpDef = OpDef {
    name: "aten.to.dtype",
    example: "f32[2, 3], f64 | i64[3], f32, false, true",
    schema: "(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor",
    ..CONVERT
};

/// [`TO_DTYPE`] with further wishes that do not matter here.
pub static TO_DTYPE_LAYOUT: OpDef = OpDef {
    name: "aten.to.dtype_layout",
    example: "f32[2, 3], i64",
    schema: "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor",
    ..CONVERT
};

/// [`TO_DTYPE`] with a device, which does not matter here.
pub static TO_DEVICE: OpDef = OpDef {
    name: "aten.to.device",
    example: "f32[2, 3], \"cpu\", f64",
    schema: "(Tensor self, Device device, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor",
    ..CONVERT
};

/// The elements as another tensor's type.
pub static TYPE_AS: OpDef = OpDef {
    name: "aten.type_as.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: None,
    rule: Some(|c| convert(c, c.tensor("other").dtype())),
    example: "f32[2], i64[3]<2 | f32[2], f32[3]",
    levels: Levels::TORCH.and(Levels::ATEN),
    functional: Functional::Keep,
    ..CONVERT
};

/// [`TYPE_AS`] with further wishes that do not matter here.
pub static TO_OTHER: OpDef = OpDef {
    name: "aten.to.other",
    schema: "(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor",
    infer: None,
    rule: Some(|c| convert(c, c.tensor("other").dtype())),
    example: "f32[2], i64[3]<2",
    ..CONVERT
};

static PLAIN: &[&OpDef] = &[
    &ARANGE_STEP,
    &ARANGE_START,
    &ARANGE,
    &FULL,
    &SCALAR_TENSOR,
    &FULL_LIKE,
    &EMPTY,
    &EMPTY_STRIDED,
    &EMPTY_PERMUTED,
    &NEW_EMPTY,
    &NEW_EMPTY_STRIDED,
    &EMPTY_LIKE,
    &FILL,
    &FILL_TENSOR,
    &ZERO,
    &FILL_,
    &FILL_TENSOR_,
    &ZERO_,
    &COPY,
    &COPY_,
    &TO_COPY,
    &TO_DTYPE,
    &TO_DTYPE_LAYOUT,
    &TO_DEVICE,
    &TYPE_AS,
    &TO_OTHER,
];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, FILLED];
