//! Places and elements by what the elements are: where a mask holds, between which bounds, what a number is.

use super::infer::ensure;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, levels: Levels::ALL, ..OpDef::BASE };
const CORE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };
const SPELLED: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..BASE };

/// Places of elements that are not zero, as rows.
pub static NONZERO: OpDef = OpDef {
    name: "aten.nonzero.default",
    schema: "(Tensor self) -> Tensor",
    infer: Some(|c| {
        let rank = c.meta("self")?.shape.len();
        Ok(Meta::tensor(DType::I64, vec![Dim::unknown(0), rank.into()]))
    }),
    ..BASE
};

/// [`NONZERO`] for so many places; where there are fewer, rows of one number follow.
pub static NONZERO_STATIC: OpDef = OpDef {
    name: "aten.nonzero_static.default",
    schema: "(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor",
    infer: Some(|c| {
        let rank = c.meta("self")?.shape.len();
        Ok(Meta::tensor(DType::I64, vec![c.dim("size"), rank.into()]))
    }),
    ..BASE
};

/// [`NONZERO`].
pub static ARGWHERE: OpDef = OpDef {
    name: "aten.argwhere.default",
    schema: "(Tensor self) -> Tensor",
    infer: NONZERO.infer,
    rule: Some(|c| vec![c.tensor("self").op("aten.nonzero", vec![])]),
    example: "bool[2, 3]",
    ..SPELLED
};

fn by_dimension<'b>(c: &Call<'b>, x: Value<'b>) -> Vec<Value<'b>> {
    let x = if x.rank() == 0 { x.op("aten.unsqueeze", vec![0i64.into()]) } else { x };
    let columns = x.op("aten.nonzero", vec![]).op("aten.unbind.int", vec![1i64.into()]);
    (0..x.rank()).map(|i| c.b.getitem(columns, i)).collect()
}

/// Places of elements that are not zero, a tensor for each dimension.
pub static NONZERO_NUMPY: OpDef = OpDef {
    name: "aten.nonzero_numpy.default",
    schema: "(Tensor self) -> Tensor[]",
    rule: Some(|c| by_dimension(c, c.tensor("self"))),
    example: "bool[2, 3]",
    ..SPELLED
};

/// [`NONZERO_NUMPY`].
pub static WHERE: OpDef = OpDef {
    name: "aten.where.default",
    schema: "(Tensor condition) -> Tensor[]",
    rule: Some(|c| by_dimension(c, c.tensor("condition"))),
    example: "bool[2, 3]",
    ..SPELLED
};

/// Elements where the mask holds, in row-major order.
pub static MASKED_SELECT: OpDef = OpDef {
    name: "aten.masked_select.default",
    schema: "(Tensor self, Tensor mask) -> Tensor",
    infer: Some(|c| {
        let (x, mask) = (c.meta("self")?, c.meta("mask")?);
        super::infer::broadcast(&[&x.shape, &mask.shape]).map_err(|why| c.err(&why))?;
        Ok(Meta::tensor(x.dtype, vec![Dim::unknown(0)]))
    }),
    rule: Some(|c| {
        let both = super::stack::spread(c, vec![c.tensor("self"), c.tensor("mask")]);
        let [x, mask] = both.as_slice() else { return vec![] };
        if mask.rank() == 0 {
            let [x, mask] = [x, mask].map(|v| v.op("aten.unsqueeze", vec![0i64.into()]));
            return vec![x.op("aten.index.Tensor", vec![vec![mask].into()])];
        }
        vec![x.op("aten.index.Tensor", vec![vec![*mask].into()])]
    }),
    example: "f32[2, 3], bool[3]",
    ..CORE
};

/// The one element as a number of the program.
pub static LOCAL_SCALAR_DENSE: OpDef = OpDef {
    name: "aten._local_scalar_dense.default",
    schema: "(Tensor self) -> Scalar",
    infer: Some(|c| {
        let m = c.meta("self")?;
        let one = m.shape.iter().all(|d| d.as_const().is_none_or(|n| n == 1));
        ensure(c, one, || format!("a tensor of shape {:?}, expected one element", m.shape))?;
        Ok(if m.dtype.is_int() { Meta::Int(Dim::unknown(0)) } else { Meta::None })
    }),
    ..BASE
};

/// [`LOCAL_SCALAR_DENSE`].
pub static ITEM: OpDef = OpDef {
    name: "aten.item.default",
    example: "i64[]",
    infer: LOCAL_SCALAR_DENSE.infer,
    rule: Some(|c| vec![c.tensor("self").op("aten._local_scalar_dense", vec![])]),
    levels: SPELLED.levels,
    ..LOCAL_SCALAR_DENSE
};

/// A statement about the elements of a tensor.
pub static ASSERT_ASYNC: OpDef = OpDef {
    name: "aten._assert_async.msg",
    schema: "(Tensor self, str assert_msg) -> ()",
    class: Class::Inert,
    infer: Some(|_| Ok(Meta::None)),
    ..BASE
};

/// How far into its storage a tensor starts; 0 where every value has storage of its own.
pub static SYM_STORAGE_OFFSET: OpDef = OpDef {
    name: "aten.sym_storage_offset.default",
    schema: "(Tensor self) -> SymInt",
    infer: Some(|_| Ok(Meta::Int(Dim::unknown(0)))),
    ..BASE
};

/// For each number a row that is 1 there and 0 elsewhere.
pub static ONE_HOT: OpDef = OpDef {
    name: "aten.one_hot.default",
    schema: "(Tensor self, int num_classes=-1) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        let n = c.int("num_classes");
        ensure(c, n >= -1 && m.dtype.is_int(), || format!("{n} classes of {}", m.dtype))?;
        let classes = if n < 0 { Dim::unknown(0) } else { n.into() };
        Ok(Meta::tensor(DType::I64, [m.shape, vec![classes]].concat()))
    }),
    rule: Some(|c| {
        let (x, n) = (c.tensor("self"), c.int("num_classes"));
        let n = if n < 0 {
            match x.op("aten.amax", vec![]).op("aten.item", vec![]).meta() {
                Meta::Int(greatest) => greatest + Dim::from(1i64),
                _ => Dim::from(0i64),
            }
        } else {
            n.into()
        };
        let claim = |holds: Value<'_>, what: &str| {
            let all = holds.op("aten.all", vec![]);
            c.b.call("aten._assert_async.msg", vec![all.into(), format!("one_hot: {what}").as_str().into()]);
        };
        claim(x.op("aten.ge.Scalar", vec![0i64.into()]), "Class values must be non-negative.");
        claim(x.op("aten.lt.Scalar", vec![n.clone().into()]), "Class values must be smaller than num_classes.");
        let classes = c.b.call("aten.arange", vec![n.into(), x.dtype().into()]);
        let wide = x.op("aten.unsqueeze", vec![(-1i64).into()]);
        vec![wide.op("aten.eq.Tensor", vec![classes.into()]).to(DType::I64)]
    }),
    example: "i64[3]<4, 4 | i64[3]<4",
    ..SPELLED
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &NONZERO,
    &NONZERO_STATIC,
    &ARGWHERE,
    &NONZERO_NUMPY,
    &WHERE,
    &MASKED_SELECT,
    &LOCAL_SCALAR_DENSE,
    &ITEM,
    &ASSERT_ASYNC,
    &SYM_STORAGE_OFFSET,
    &ONE_HOT,
]];
