//! What draws random numbers. torch's come from the state of its generator, which no program records; the interpreter
//! draws the same ones each time.

use super::infer::ensure;
use crate::builder::{Call, Value};
use crate::graph::{Arg, Meta};
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Creation,
    levels: Levels::ALL,
    schema: "(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    infer: Some(|c| {
        let dtype = c.opt_dtype("dtype").unwrap_or(DType::F32);
        ensure(c, dtype.is_float(), || format!("numbers of type {dtype}, expected floats"))?;
        Ok(Meta::tensor(dtype, c.dims("size")))
    }),
    ..OpDef::BASE
};
const LIKE: OpDef = OpDef {
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
    infer: None,
    example: "f32[2, 3] | f32[2], f64",
    ..BASE
};
const INTEGERS: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), infer: None, ..BASE };
const BERNOULLIS: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN),
    schema: "(Tensor self, *, Generator? generator=None) -> Tensor",
    infer: None,
    example: "f32[2, 3]",
    ..BASE
};

records! { RANDOM:
    /// Numbers evenly distributed from 0 to below 1.
    RAND = "aten.rand.default", BASE {};
    /// Numbers of normal distribution, of mean 0 and deviation 1.
    RANDN = "aten.randn.default", BASE {};
    /// The numbers from 0 to below n in some order.
    RANDPERM = "aten.randperm.default", BASE {
        schema: "(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        infer: Some(|c| {
            let n = c.dim("n");
            ensure(c, n.as_const().is_none_or(|n| n >= 0), || format!("{n} numbers"))?;
            Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::I64), vec![n]))
        }),
    };
    /// [`RAND`] in the shape of a tensor.
    RAND_LIKE = "aten.rand_like.default", LIKE { rule: Some(|c| like(c, "aten.rand")) };
    /// [`RANDN`] in the shape of a tensor.
    RANDN_LIKE = "aten.randn_like.default", LIKE { rule: Some(|c| like(c, "aten.randn")) };
    /// Integers evenly distributed from 0 to below `high`.
    RANDINT = "aten.randint.default", INTEGERS {
        schema: "(SymInt high, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        rule: Some(|c| integers(c, 0)),
        example: "5, [2, 3]",
    };
    /// Integers evenly distributed from `low` to below `high`.
    RANDINT_LOW = "aten.randint.low", INTEGERS {
        schema: "(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
        rule: Some(|c| integers(c, c.int("low"))),
        example: "-2, 5, [2, 3] | 1, 3, [4], f32",
    };
    /// 1 with the probability that an element is, else 0.
    BERNOULLI = "aten.bernoulli.default", BERNOULLIS {
        rule: Some(|c| {
            let p = c.tensor("self");
            let drawn = c.b.call("aten.rand", vec![p.shape().into(), DType::F32.into()]);
            vec![drawn.op("aten.lt.Tensor", vec![p.into()]).to(p.dtype())]
        }),
    };
    /// 1 with this probability, else 0, in the shape of a tensor.
    BERNOULLI_P = "aten.bernoulli.p", BERNOULLIS {
        schema: "(Tensor self, float p, *, Generator? generator=None) -> Tensor",
        rule: Some(|c| {
            let x = c.tensor("self");
            let drawn = c.b.call("aten.rand", vec![x.shape().into(), DType::F32.into()]);
            vec![drawn.op("aten.lt.Scalar", vec![c.arg("p").clone()]).to(x.dtype())]
        }),
        example: "f32[2, 3], 0.25",
    };
    /// Numbers of normal distribution.
    NORMAL = "prims.normal.default", BASE {
        levels: Levels::PRIMS,
        infer: None,
        schema: "(SymInt[] shape, *, Scalar mean, Scalar std, ScalarType dtype, Device device, bool requires_grad, Generator? generator=None) -> Tensor",
        rule: Some(|c| {
            let drawn = c.b.call("aten.randn", vec![c.arg("shape").clone(), c.arg("dtype").clone()]);
            vec![scaled(drawn, c.arg("std"), c.arg("mean"))]
        }),
        example: "[2, 3], 1, 0.5, f32, \"cpu\", false",
    };
    /// Numbers evenly distributed from `low` to below `high`.
    UNIFORM = "prims.uniform.default", BASE {
        levels: Levels::PRIMS,
        infer: None,
        schema: "(SymInt[] shape, *, Scalar low, Scalar high, ScalarType dtype, Device device, SymInt[] stride, Generator? generator=None) -> Tensor",
        rule: Some(|c| {
            let drawn = c.b.call("aten.rand", vec![c.arg("shape").clone(), c.arg("dtype").clone()]);
            vec![scaled(drawn, &Arg::Float(c.float("high") - c.float("low")), c.arg("low"))]
        }),
        example: "[2, 3], -1, 1.5, f32, \"cpu\", [3, 1]",
    };
}

fn like<'b>(c: &Call<'b>, draw: &str) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    vec![c.b.call(draw, vec![x.shape().into(), c.opt_dtype("dtype").unwrap_or(x.dtype()).into()])]
}

fn integers<'b>(c: &Call<'b>, low: i64) -> Vec<Value<'b>> {
    let count = c.int("high").saturating_sub(low);
    if count <= 0 {
        c.fail(&format!("integers from {low} to below {}", c.int("high")));
    }
    let drawn = c.b.call("aten.rand", vec![c.arg("size").clone(), DType::F64.into()]);
    let whole = scaled(drawn, &count.into(), &0i64.into()).op("aten.floor", vec![]);
    vec![whole.op("aten.add.Tensor", vec![low.into()]).to(c.opt_dtype("dtype").unwrap_or(DType::I64))]
}

fn scaled<'b>(x: Value<'b>, by: &Arg, plus: &Arg) -> Value<'b> {
    x.op("aten.mul.Tensor", vec![by.clone()]).op("aten.add.Tensor", vec![plus.clone()])
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[RANDOM];
