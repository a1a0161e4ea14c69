//! Operators from levels to levels: each is the float operator between dequantizes and a quantize. Those of
//! `com.microsoft` are as ONNX Runtime's `ContribOperators.md` has them.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step};
use super::quantized::{self, Site};
use cleave_ir::{Arg, Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("QLinearConv", |c| Form { inputs: &[(0, 1), (3, 0)], bias: Some(8), output: 6 }.read(c, "Conv")),
    ("QLinearMatMul", |c| Form { inputs: &[(0, -2), (3, -1)], bias: None, output: 6 }.read(c, "MatMul")),
];

pub(super) const MICROSOFT: &[(&str, Map)] = &[
    ("QuantizeLinear", quantized::quantize),
    ("DequantizeLinear", quantized::dequantize),
    ("QLinearAdd", |c| BINARY.read(c, "Add")),
    ("QLinearMul", |c| BINARY.read(c, "Mul")),
    ("QLinearSigmoid", |c| UNARY.read(c, "Sigmoid")),
    ("QLinearLeakyRelu", |c| UNARY.read(c, "LeakyRelu")),
    ("QLinearSoftmax", |c| UNARY.read(c, "Softmax")),
    ("QLinearAveragePool", |c| pool(c, "AveragePool")),
    ("QLinearGlobalAveragePool", |c| pool(c, "GlobalAveragePool")),
    ("QLinearConcat", |c| {
        let inputs: Vec<(usize, i64)> = (2..c.len()).step_by(3).map(|i| (i, 1)).collect();
        Form { inputs: &inputs, bias: None, output: 0 }.read(c, "Concat")
    }),
    ("QGemm", |c| {
        let columns = if c.flag("transB", false)? { 0 } else { 1 };
        Form { inputs: &[(0, 1), (3, columns)], bias: Some(6), output: 7 }.read(c, "Gemm")
    }),
    ("DynamicQuantizeMatMul", |c| {
        let x = quantized::around(c.value(0)?);
        let site = Site { scale: 2, axis: -1, block: 0 };
        let w = quantized::numbers(c, c.value(1)?, site, c.bits(1))?.ok_or("input 2: expected constant scales")?;
        let y = c.call("aten.matmul", vec![x.into(), w.into()]);
        c.one(c.opt_value(4).map_or(y, |b| y + b))
    }),
];

const UNARY: Form<'_> = Form { inputs: &[(0, 1)], bias: None, output: 3 };
const BINARY: Form<'_> = Form { inputs: &[(0, 1), (3, 1)], bias: None, output: 6 };

fn pool<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    match c.flag("channels_last", false)? {
        false => UNARY.read(c, op),
        true => Err("channels_last is not supported; write the model without layout optimisations".into()),
    }
}

/// Where an operator has its arguments.
struct Form<'a> {
    /// Levels, followed by scale and zero point, and the dimension to which several of these belong.
    inputs: &'a [(usize, i64)],
    /// i32 at the product of the inputs' scales.
    bias: Option<usize>,
    /// The result's scale, followed by its zero point. Without it the result is float.
    output: usize,
}

impl Form<'_> {
    /// Scales that are constants become torch's ops. Others are computed with in f64, in which sums of products are
    /// exact.
    fn read<'b>(&self, c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
        let sites = || self.inputs.iter().map(|(i, axis)| Site { scale: i + 1, axis: *axis, block: 0 });
        let out = Site { scale: self.output, axis: 1, block: 0 };
        let constant = |i: usize| c.opt(i).is_none() || c.host(i).is_some();
        let plain = match sites().chain([out]).all(|s| constant(s.scale) && constant(s.scale + 1)) {
            true => sites()
                .map(|s| quantized::numbers(c, c.value(s.scale - 1)?, s, c.bits(s.scale - 1)))
                .collect::<Step<Option<Vec<_>>>>()?,
            false => None,
        };
        let stays_exact = plain.is_none();
        let mut args = match plain {
            Some(args) => args,
            None => sites().map(|s| restored(c, s)).collect::<Step<_>>()?,
        };
        args.extend(self.bias(c, stays_exact)?);
        let y = match c.as_if(op, args.into_iter().map(|v| Some(Known::Value(v))).collect())?.into_iter().next() {
            Some(k) => c.node_of(&k),
            None => return Err(format!("{op} has no result")),
        };
        if c.opt(self.output).is_none() {
            return c.one(y.to(DType::F32));
        }
        let dtype = match c.opt_value(self.output + 1) {
            Some(z) => z.dtype(),
            None => c.value(self.inputs.first().ok_or("no input")?.0)?.dtype(),
        };
        match stays_exact {
            true => rounded(c, y, out, dtype),
            false => {
                let q = quantized::levels(c, y, out, dtype)?;
                c.one(q.ok_or_else(|| format!("input {}: expected one scale", self.output))?)
            }
        }
    }

    fn bias<'b>(&self, c: &Ctx<'b, '_>, exact: bool) -> Step<Option<Value<'b>>> {
        let Some((at, b)) = self.bias.and_then(|i| Some((i, c.opt_value(i)?))) else { return Ok(None) };
        let scales = || self.inputs.iter().map(|(i, _)| i + 1);
        let alpha = if c.op_type() == "QGemm" { c.float("alpha", 1.0)? } else { 1.0 };
        if exact {
            let unit = scales().map(|s| c.value(s)).collect::<Step<Vec<_>>>()?;
            return Ok(Some(unit.into_iter().fold(b.to(DType::F64) * alpha, |b, s| b * s.to(DType::F64))));
        }
        let mut unit = vec![alpha as f32];
        for s in scales() {
            let by = c.host(s).and_then(Host::as_tensor).ok_or("expected a constant scale")?.to_f32().into_owned();
            let n = unit.len().max(by.len());
            if [unit.len(), by.len()].iter().any(|len| ![1, n].contains(len)) {
                return Err(format!("{} and {} scales", unit.len(), by.len()));
            }
            unit = (0..n).map(|i| unit[i % unit.len()] * by[i % by.len()]).collect();
        }
        let range = [i64::from(i32::MIN).into(), i64::from(i32::MAX).into(), Arg::from(DType::I32)];
        if let [one] = unit[..] {
            let args = [vec![Arg::Float(one.into()), 0i64.into()], range.to_vec()].concat();
            return Ok(Some(b.op("quantized_decomposed.dequantize_per_tensor", args)));
        }
        let name = c.host(at).map_or_else(|| format!("{}.bias", c.name), |h| h.name.clone());
        let derived = |what: &str, t| c.node_of(&Known::Host(Host::tensor(&format!("{name}.{what}"), t)));
        let n = unit.len();
        let zeros = derived("zero_point", Tensor::new(&[n], vec![0i64; n]));
        let args = [vec![derived("scale", Tensor::new(&[n], unit)).into(), zeros.into(), 0i64.into()], range.to_vec()];
        Ok(Some(b.op("quantized_decomposed.dequantize_per_channel", args.concat())))
    }
}

/// The numbers that levels stand for, in f64.
fn restored<'b>(c: &Ctx<'b, '_>, site: Site) -> Step<Value<'b>> {
    let (x, (s, z)) = (c.value(site.scale - 1)?, site.values(c)?);
    let spread = |v: Value<'b>| if v.rank() < 2 { quantized::spread(site, v, x) } else { Ok(v) };
    let wide = x.to(DType::F64);
    let shifted = match z {
        Some(z) => wide - spread(z)?.to(DType::F64),
        None => wide,
    };
    Ok(shifted * spread(s)?.to(DType::F64))
}

/// Numbers in f64 as levels.
fn rounded<'b>(c: &Ctx<'b, '_>, y: Value<'b>, site: Site, dtype: DType) -> Step<Vec<Known<'b>>> {
    let (s, z) = site.values(c)?;
    let (low, high) = quantized::range(dtype, c.bits(site.scale + 1))?;
    let levels = (y / s.to(DType::F64)).op("aten.round", vec![]);
    let levels = z.map_or(levels, |z| levels + z.to(DType::F64));
    c.one(levels.clamp(Some(low as f64), Some(high as f64)).to(dtype))
}
