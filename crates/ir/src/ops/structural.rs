//! Tuples, sizes, and what has no effect.

use super::infer;
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};
use crate::strides;

/// One of several results.
pub static GETITEM: OpDef = OpDef {
    name: "getitem",
    schema: "(Tensor self, int index) -> Tensor",
    class: Class::Structural,
    levels: Levels::ALL,
    infer: Some(getitem),
    ..OpDef::BASE
};

fn getitem(c: &Call<'_>) -> Result<Meta> {
    let index = c.int("index");
    let meta = c.arg("self").nodes().first().map(|n| c.b.with_graph(|g| g.node(*n).meta.clone()));
    match meta {
        Some(Meta::Tuple(items)) => {
            let item = usize::try_from(index).ok().and_then(|i| items.get(i)).cloned();
            item.ok_or_else(|| c.err(&format!("result {index} of {}", items.len())))
        }
        other => Err(c.err(&format!("expected several results, found {other:?}"))),
    }
}

/// The size of one dimension.
pub static SYM_SIZE: OpDef = OpDef {
    name: "aten.sym_size.int",
    schema: "(Tensor self, int dim) -> SymInt",
    class: Class::Structural,
    levels: Levels::ALL,
    infer: Some(sym_size),
    ..OpDef::BASE
};

fn sym_size(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    Ok(Meta::Int(m.shape[c.axis("dim", m.shape.len())?].clone()))
}

/// How many elements lie between neighbours along a dimension.
pub static SYM_STRIDE: OpDef = OpDef {
    name: "aten.sym_stride.int",
    infer: Some(|c| {
        let strides = c.tensor("self").strides();
        Ok(Meta::Int(strides[c.axis("dim", strides.len())?].clone()))
    }),
    ..SYM_SIZE
};

/// Whether the elements lie in row-major order, or in that of a memory format.
pub static SYM_IS_CONTIGUOUS: OpDef = OpDef {
    name: "aten.sym_is_contiguous.default",
    schema: "(Tensor self, MemoryFormat memory_format='contiguous_format') -> SymBool",
    infer: Some(|_| Ok(Meta::None)),
    ..SYM_SIZE
};

const INERT: OpDef = OpDef {
    class: Class::Inert,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self) -> Tensor",
    infer: Some(infer::same),
    ..OpDef::BASE
};

/// The same elements in row-major order; itself, if they lie so already.
pub static CONTIGUOUS: OpDef = OpDef {
    name: "aten.contiguous.default",
    schema: "(Tensor self, *, MemoryFormat memory_format='contiguous_format') -> Tensor",
    levels: Levels::TORCH,
    rule: Some(|c| {
        let (x, format) = (c.tensor("self"), c.str("memory_format"));
        let lies = if format.starts_with("channels_last") {
            strides::is_channels_last(&x.shape(), &x.strides())
        } else {
            x.is_contiguous()
        };
        vec![if lies { x } else { x.op("aten.clone", vec![format.into()]) }]
    }),
    example: "f32[2, 3]",
    functional: Functional::Always,
    ..INERT
};

/// A copy.
pub static CLONE: OpDef = OpDef {
    name: "aten.clone.default",
    schema: "(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    ..INERT
};

/// Another name for a value.
pub static ALIAS: OpDef = OpDef { name: "aten.alias.default", ..INERT };

/// Itself, out of reach of gradients.
pub static DETACH: OpDef = OpDef {
    name: "aten.detach.default",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| vec![c.tensor("self").op("aten.alias", vec![])]),
    example: "f32[2]",
    ..INERT
};

/// [`DETACH`] in place.
pub static DETACH_: OpDef = OpDef {
    name: "aten.detach_.default",
    schema: "(Tensor(a!) self) -> Tensor(a!)",
    levels: Levels::TORCH,
    rule: Some(|c| vec![c.tensor("self")]),
    functional: Functional::Always,
    ..INERT
};

/// A fresh copy of a literal.
pub static LIFT_FRESH_COPY: OpDef = OpDef {
    name: "aten.lift_fresh_copy.default",
    levels: Levels::TORCH,
    rule: Some(|c| vec![c.tensor("self").op("aten.clone", vec![])]),
    example: "f32[2]",
    functional: Functional::Always,
    ..INERT
};

/// A statement about a tensor that was checked when the program was made.
pub static ASSERT_TENSOR_METADATA: OpDef = OpDef {
    name: "aten._assert_tensor_metadata.default",
    schema: "(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, Device? device=None, Layout? layout=None) -> ()",
    infer: Some(|_| Ok(Meta::None)),
    ..INERT
};

/// A statement about a size.
pub static ASSERT_SCALAR: OpDef = OpDef {
    name: "aten._assert_scalar.default",
    schema: "(Scalar self, str assert_msg) -> ()",
    infer: Some(|_| Ok(Meta::None)),
    ..INERT
};

/// A statement about the range of a size.
pub static CONSTRAIN_RANGE: OpDef = OpDef {
    name: "aten.sym_constrain_range_for_size.default",
    schema: "(Scalar size, *, int? min=None, int? max=None) -> ()",
    infer: Some(|_| Ok(Meta::None)),
    ..INERT
};

/// The number of elements.
pub static SYM_NUMEL: OpDef = OpDef {
    name: "aten.sym_numel.default",
    schema: "(Tensor self) -> SymInt",
    class: Class::Structural,
    levels: Levels::ALL,
    infer: Some(|c| Ok(Meta::Int(c.meta("self")?.shape.into_iter().product()))),
    ..OpDef::BASE
};

macro_rules! sizes {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $f:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: "(int a, int b) -> SymInt",
            class: Class::Structural,
            levels: Levels::ALL,
            infer: Some(|c| {
                let f: fn(Dim, Dim) -> Dim = $f;
                Ok(Meta::Int(f(c.dim("a"), c.dim("b"))))
            }),
            ..OpDef::BASE
        };)*
        static ARITHMETIC: &[&OpDef] = &[$(&$id),*];
    };
}

sizes! {
    /// Sum of two sizes.
    SIZE_ADD = "_operator.add", |a, b| a + b;
    /// Difference of two sizes.
    SIZE_SUB = "_operator.sub", |a, b| a - b;
    /// Product of two sizes.
    SIZE_MUL = "_operator.mul", |a, b| a * b;
    /// Quotient of two sizes, rounded down.
    SIZE_FLOORDIV = "_operator.floordiv", |a, b| a.floor_div(&b);
    /// Remainder of two sizes.
    SIZE_MOD = "_operator.mod", |a, b| a.modulo(&b);
    /// The greater of two sizes.
    SIZE_MAX = "torch.sym_max", |a, b| a.max_of(&b);
    /// The lesser of two sizes.
    SIZE_MIN = "torch.sym_min", |a, b| a.min_of(&b);
}

macro_rules! conditions {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $f:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: "(Scalar a, Scalar b) -> bool",
            class: Class::Structural,
            infer: Some(|_| Ok(Meta::None)),
            ..OpDef::BASE
        };)*
        static CONDITIONS: &[&OpDef] = &[$(&$id),*];

        /// What a condition says of two sizes; of another op, nothing.
        pub fn condition(op: &str, a: i64, b: i64) -> Option<bool> {
            let f: fn(&i64, &i64) -> bool = match op {
                $($name => $f,)*
                _ => return None,
            };
            Some(f(&a, &b))
        }
    };
}

conditions! {
    /// Whether a size is at least another.
    SIZE_GE = "_operator.ge", i64::ge;
    /// Whether a size is at most another.
    SIZE_LE = "_operator.le", i64::le;
    /// Whether two sizes are equal.
    SIZE_EQ = "_operator.eq", i64::eq;
    /// Whether two sizes differ.
    SIZE_NE = "_operator.ne", i64::ne;
    /// Whether a size is greater than another.
    SIZE_GT = "_operator.gt", i64::gt;
    /// Whether a size is less than another.
    SIZE_LT = "_operator.lt", i64::lt;
}

static PLAIN: &[&OpDef] = &[
    &GETITEM,
    &SYM_SIZE,
    &SYM_STRIDE,
    &SYM_IS_CONTIGUOUS,
    &SYM_NUMEL,
    &CONTIGUOUS,
    &CLONE,
    &ALIAS,
    &DETACH,
    &DETACH_,
    &LIFT_FRESH_COPY,
    &ASSERT_TENSOR_METADATA,
    &ASSERT_SCALAR,
    &CONSTRAIN_RANGE,
];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, ARITHMETIC, CONDITIONS];
