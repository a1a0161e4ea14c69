//! Quantize and dequantize in one, as programs hold them that were prepared for training and not converted.
//!
//! torch computes `(clamp(rne(x · (1 / scale)) + zero_point, quant_min, quant_max) - zero_point) · scale` in f32, which is
//! what the pair of quantize and dequantize computes, so that every table takes these ops for the pair.

use super::infer;
use crate::builder::{Call, Value};
use crate::graph::{Arg, Kind, Meta};
use crate::op::{Class, Functional, Levels, OpDef};
use crate::tensor::Tensor;
use cleave_numerics::{DType, quantize_recip, reciprocal_per_channel};

const BASE: OpDef = OpDef {
    class: Class::Quantize,
    levels: Levels::TORCH,
    functional: Functional::Always,
    infer: Some(infer::same),
    rule: Some(|c| vec![Fake::of(c).pair()]),
    ..OpDef::BASE
};

/// With a mask of the elements that are not clamped, for a derivative.
const MASKED: OpDef = OpDef {
    infer: Some(|c| {
        let m = c.meta("self")?;
        Ok(Meta::Tuple(vec![Meta::tensor(m.dtype, m.shape.clone()), Meta::tensor(DType::Bool, m.shape)]))
    }),
    rule: Some(|c| {
        let f = Fake::of(c);
        vec![f.pair(), f.mask()]
    }),
    ..BASE
};

/// With one scale.
pub static PER_TENSOR: OpDef = OpDef {
    name: "aten.fake_quantize_per_tensor_affine.default",
    schema: "(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> Tensor",
    example: "f32[2, 3], 0.03, 4, 0, 15",
    ..BASE
};

/// [`PER_TENSOR`] with a scale and zero point in tensors.
pub static PER_TENSOR_QPARAMS: OpDef = OpDef {
    name: "aten.fake_quantize_per_tensor_affine.tensor_qparams",
    schema: "(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor",
    example: "f32[2, 3], f32[1]>0, i32[1]<9, -128, 127",
    ..BASE
};

/// With a scale for each channel.
pub static PER_CHANNEL: OpDef = OpDef {
    name: "aten.fake_quantize_per_channel_affine.default",
    schema: "(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> Tensor",
    example: "f32[2, 3, 2], f32[3]>0, i32[3]<9, 1, -128, 127",
    ..BASE
};

/// [`PER_TENSOR`] and its mask.
pub static PER_TENSOR_MASK: OpDef = OpDef {
    name: "aten.fake_quantize_per_tensor_affine_cachemask.default",
    schema: "(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
    example: "f32[2, 3], 0.03, 4, 0, 15",
    ..MASKED
};

/// [`PER_TENSOR_QPARAMS`] and its mask, if it is enabled; else its input.
pub static PER_TENSOR_QPARAMS_MASK: OpDef = OpDef {
    name: "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    schema: "(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
    example: "f32[2, 3], f32[1]>0, i32[1]<9, i64[1]<2, -8, 7",
    rule: Some(|c| {
        let f = Fake::of(c);
        if f.number("fake_quant_enabled").is_some_and(|v| v != 0.0) {
            return vec![f.pair(), f.mask()];
        }
        let (x, off) = (c.tensor("self"), c.tensor("fake_quant_enabled").op("aten.eq.Scalar", vec![0i64.into()]));
        let y = off.op("aten.where.self", vec![x.into(), f.pair().into()]);
        vec![y, f.mask().op("aten.logical_or", vec![off.into()])]
    }),
    ..MASKED
};

/// [`PER_CHANNEL`] and its mask.
pub static PER_CHANNEL_MASK: OpDef = OpDef {
    name: "aten.fake_quantize_per_channel_affine_cachemask.default",
    schema: "(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
    example: "f32[2, 3, 2], f32[3]>0, i32[3]<9, 1, -128, 127",
    ..MASKED
};

/// A call of one of these ops as quantize and dequantize.
struct Fake<'c, 'b> {
    c: &'c Call<'b>,
    /// Overload of both.
    form: &'static str,
    /// Scale, zero point and axis.
    params: Vec<Arg>,
    range: (i64, i64),
    dtype: DType,
}

impl<'c, 'b> Fake<'c, 'b> {
    fn of(c: &'c Call<'b>) -> Self {
        let range = (c.int("quant_min"), c.int("quant_max"));
        let of = |d: &DType| d.int_range().is_some_and(|(lo, hi)| i64::from(lo) <= range.0 && range.1 <= i64::from(hi));
        let dtype = [DType::U8, DType::I8, DType::U16, DType::I16].into_iter().find(of).unwrap_or(DType::I32);
        let mut f = Fake { c, form: "per_tensor.default", params: vec![], range, dtype };
        if c.op.schema.index("axis").is_some() {
            f.form = "per_channel.default";
            f.params = vec![c.arg("scale").clone(), f.zero_points(), c.arg("axis").clone()];
        } else if let (Some(scale), Some(zero)) = (f.number("scale"), f.number("zero_point")) {
            f.params = vec![f64::from(scale as f32).into(), (zero as i64).into()];
        } else {
            f.form = "per_tensor.tensor";
            f.params = vec![c.arg("scale").clone(), c.arg("zero_point").clone()];
        }
        f
    }

    /// The constant that an argument is.
    fn constant(&self, name: &str) -> Option<Tensor> {
        let Arg::Node(id) = self.c.arg(name) else { return None };
        self.c.b.with_graph(|g| g.constant(*id).cloned())
    }

    /// An argument that is a number, or a constant of one element.
    fn number(&self, name: &str) -> Option<f64> {
        match self.c.arg(name) {
            Arg::Float(v) => Some(*v),
            Arg::Int(i) => Some(*i as f64),
            _ => self.constant(name).filter(|t| t.len() == 1)?.to_f64().first().copied(),
        }
    }

    /// Zero points of channels, as converted programs have them.
    fn zero_points(&self) -> Arg {
        let zeros = self.c.tensor("zero_point");
        if zeros.dtype().is_float() {
            self.c.fail("zero points that are no integers are not supported");
        }
        match (self.constant("zero_point"), self.c.arg("zero_point")) {
            (Some(t), Arg::Node(id)) if t.dtype() != DType::I64 => {
                let (kind, target) = self.c.b.with_graph(|g| (g.node(*id).kind, g.node(*id).target.clone()));
                let Kind::GetAttr(kind) = kind else { return zeros.into() };
                self.c.b.constant(&format!("{target}.i64"), kind, Tensor::new(t.shape(), t.to_i64())).into()
            }
            _ => zeros.into(),
        }
    }

    fn call(&self, op: &str, x: Value<'b>, (lo, hi): (i64, i64), dtype: DType) -> Value<'b> {
        let args = [self.params.clone(), vec![lo.into(), hi.into(), dtype.into()]].concat();
        x.op(&format!("quantized_decomposed.{op}_{}", self.form), args)
    }

    fn pair(&self) -> Value<'b> {
        let x = self.c.tensor("self");
        let q = match self.levels() {
            Some(levels) => levels,
            None => self.call("quantize", x.to(DType::F32), self.range, self.dtype),
        };
        self.call("dequantize", q, self.range, self.dtype).to(x.dtype())
    }

    /// The levels of a weight.
    fn levels(&self) -> Option<Value<'b>> {
        let (x, scale, zero) = (self.constant("self")?, self.all("scale")?, self.all("zero_point")?);
        let axis = self.c.op.schema.index("axis").map(|_| self.c.wrap(self.c.int("axis"), x.shape().len()));
        let axis = axis.transpose().ok()?;
        let (n, inner) = axis.map_or((1, 1), |a| (x.shape()[a], x.shape()[a + 1..].iter().product::<usize>()));
        if x.dtype() != DType::F32 || (scale.len(), zero.len()) != (n, n) || self.dtype.size() > 1 {
            return None;
        }
        let one = |(i, v): (usize, &f32)| {
            let (s, z) = (scale[i / inner % n] as f32, zero[i / inner % n] as i32);
            quantize_recip(*v, reciprocal_per_channel(s), z, self.range.0 as i32, self.range.1 as i32)
        };
        let q: Vec<i32> = x.to_f32().iter().enumerate().map(one).collect();
        let t = match self.dtype {
            DType::U8 => Tensor::new::<u8>(x.shape(), q.into_iter().map(|v| v as u8).collect()),
            _ => Tensor::new::<i8>(x.shape(), q.into_iter().map(|v| v as i8).collect()),
        };
        let id = self.c.tensor("self").id();
        let (kind, target) = self.c.b.with_graph(|g| (g.node(id).kind, g.node(id).target.clone()));
        let Kind::GetAttr(kind) = kind else { return None };
        Some(self.c.b.constant(&format!("{target}.levels"), kind, t))
    }

    /// The numbers of an argument that does not depend on inputs.
    fn all(&self, name: &str) -> Option<Vec<f64>> {
        self.number(name).map(|v| vec![v]).or_else(|| Some(self.constant(name)?.to_f64()))
    }

    /// Whether levels are the same without a range.
    fn mask(&self) -> Value<'b> {
        let x = self.c.tensor("self").to(DType::F32);
        let free = self.call("quantize", x, (i32::MIN.into(), i32::MAX.into()), DType::I32);
        free.op("aten.eq.Tensor", vec![self.call("quantize", x, self.range, DType::I32).into()])
    }
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &PER_TENSOR,
    &PER_TENSOR_QPARAMS,
    &PER_CHANNEL,
    &PER_TENSOR_MASK,
    &PER_TENSOR_QPARAMS_MASK,
    &PER_CHANNEL_MASK,
]];
