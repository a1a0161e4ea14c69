//! Convolutions, matrix products, pooling and reductions.

use super::Entry;
use super::args::{flag, int, ints};
use super::out::Out;
use crate::onnx::proto::AttributeProto;
use crate::onnx::tensor::code_of;
use cleave_ir::{Arg, Dim, Kind, NodeId, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("aten.conv1d", 13, conv),
    ("aten.conv2d", 13, conv),
    ("aten.conv3d", 13, conv),
    ("aten.conv_transpose1d.input", 13, conv),
    ("aten.conv_transpose2d.input", 13, conv),
    ("aten.conv_transpose3d.input", 13, conv),
    ("aten.convolution", 13, conv),
    ("aten.linear", 13, linear),
    ("aten.addmm", 13, addmm),
    ("aten.mm", 13, |o| matmul(o, "mat2")),
    ("aten.bmm", 13, |o| matmul(o, "mat2")),
    ("aten.matmul", 13, |o| matmul(o, "other")),
    ("aten.max_pool2d", 13, |o| max_pool(o, false)),
    ("aten.max_pool2d_with_indices", 13, |o| max_pool(o, true)),
    ("aten.avg_pool2d", 13, avg_pool),
    ("aten.adaptive_avg_pool2d", 13, adaptive_avg_pool),
    ("aten._adaptive_avg_pool2d", 13, adaptive_avg_pool),
    ("aten.mean.dim", 13, mean),
    ("aten.sum.dim_IntList", 13, |o| reduce(o, "ReduceSum", 13)),
    ("aten.amax", 13, |o| reduce(o, "ReduceMax", 18)),
    ("aten.amin", 13, |o| reduce(o, "ReduceMin", 18)),
    ("aten.prod.dim_int", 13, |o| reduce(o, "ReduceProd", 18)),
    ("aten.logsumexp", 13, |o| reduce(o, "ReduceLogSumExp", 18)),
    ("aten.any.dim", 13, any),
    ("aten.var.correction", 13, var),
    ("aten._adaptive_avg_pool3d", 13, adaptive_avg_pool),
    ("aten.adaptive_avg_pool3d", 13, adaptive_avg_pool),
];

type Step = Result<(), String>;

fn conv(o: &mut Out<'_, '_>) -> Step {
    let transposed = match o.args.given("transposed") {
        true => o.args.bool("transposed")?,
        false => o.node.op().is_some_and(|op| op.base().starts_with("conv_transpose")),
    };
    let weight = o.args.tensor("weight")?;
    let kernel = o.shape(weight)?.iter().skip(2).map(Dim::as_const).collect::<Option<Vec<_>>>();
    let kernel = kernel.ok_or("weight of unknown size")?;
    let n = kernel.len();
    if o.shape(o.args.tensor("input")?)?.len() != n + 2 {
        return Err("an input without a batch dimension cannot be written; unsqueeze it first".into());
    }
    let padding = o.args.spread("padding", n)?;
    let mut attrs = vec![
        ints("dilations", o.args.spread("dilation", n)?),
        int("group", o.args.int("groups")?),
        ints("kernel_shape", kernel),
        ints("pads", [padding.clone(), padding].concat()),
        ints("strides", o.args.spread("stride", n)?),
    ];
    if !transposed && super::dynamic::product(o, "ConvInteger", attrs.clone(), n, Tensor::clone)? {
        return Ok(());
    }
    let mut inputs = vec![o.input("input")?, o.input("weight")?, o.opt_input("bias")?];
    let beside = float_bias_beside_integers(o)?;
    if let Some(bias) = &beside {
        let name = format!("{}_bias", o.node.name);
        let shape = [vec![1, bias.len()], vec![1; n]].concat();
        inputs[2] = o.w.constant(&name, bias.reshape(&shape));
    }
    if !transposed {
        return with_bias("Conv", o, inputs, attrs, beside.is_some());
    }
    let extra = o.args.spread("output_padding", n)?;
    if extra.iter().any(|e| *e != 0) {
        attrs.push(ints("output_padding", extra));
    }
    with_bias("ConvTranspose", o, inputs, attrs, beside.is_some())
}

/// An op with a bias for its third input; with `apart`, the bias is added by a node of its own.
fn with_bias(op: &str, o: &mut Out<'_, '_>, mut inputs: Vec<String>, attrs: Vec<AttributeProto>, apart: bool) -> Step {
    if !apart {
        return o.done(op, inputs, attrs);
    }
    let bias = inputs.pop().ok_or("a bias was expected")?;
    let y = o.push(op, inputs, attrs);
    o.done("Add", vec![y, bias], vec![])
}

/// A bias in float beside an activation and a weight in integers that does not fit 32 bits at their scales.
/// Optimised ONNX Runtime would quantize it all the same and let it saturate, unless it stands in an Add.
fn float_bias_beside_integers(o: &Out<'_, '_>) -> Result<Option<Tensor>, String> {
    let g = o.w.g;
    let dequantized = |name: &str| -> Option<&cleave_ir::Node> {
        let node = g.node(o.args.tensor(name).ok()?);
        node.op().filter(|op| op.name.starts_with("quantized_decomposed.dequantize")).map(|_| node)
    };
    let (Some(x), Some(w)) = (dequantized("input"), dequantized("weight")) else { return Ok(None) };
    let Some(bias) = o.args.opt_tensor("bias")?.and_then(|b| g.constant(b)).filter(|t| t.dtype().is_float()) else {
        return Ok(None);
    };
    let scales = |n: &cleave_ir::Node| match n.arg("scales").or(n.arg("scale")) {
        Some(Arg::Float(s)) => Some(vec![*s]),
        Some(Arg::Node(s)) => g.constant(*s).map(|t| t.to_f64()),
        _ => None,
    };
    let (Some(sx), Some(sw)) = (scales(x), scales(w)) else { return Ok(None) };
    // Half of the range is left to the sum of products.
    let room = f64::from(1u32 << 30);
    let fits = |(c, b): (usize, &f64)| b.abs() <= room * sx[0] * sw[c % sw.len().max(1)];
    let fits = bias.to_f64().iter().enumerate().all(fits);
    Ok((!fits).then(|| bias.clone()))
}

/// Gemm on matrices, so that runtimes take the bias into the integer kernel; MatMul and Add on others.
fn linear(o: &mut Out<'_, '_>) -> Step {
    if super::dynamic::product(o, "MatMulInteger", vec![], 0, |w| w.permute(&[1, 0]))? {
        return Ok(());
    }
    let (x, w) = (o.input("input")?, o.args.tensor("weight")?);
    if o.shape(o.args.tensor("input")?)?.len() == 2 {
        let inputs = vec![x, o.w.name(w)?, o.opt_input("bias")?];
        let apart = float_bias_beside_integers(o)?.is_some();
        return with_bias("Gemm", o, inputs, vec![int("transB", 1)], apart);
    }
    let w = transposed(o, w)?;
    if !o.args.given("bias") {
        return o.done("MatMul", vec![x, w], vec![]);
    }
    let y = o.push("MatMul", vec![x, w], vec![]);
    let bias = o.input("bias")?;
    o.done("Add", vec![y, bias], vec![])
}

/// A matrix with its dimensions exchanged: a constant, also a quantized one, is stored so.
fn transposed(o: &mut Out<'_, '_>, id: NodeId) -> Result<String, String> {
    let g = o.w.g;
    let node = g.node(id);
    let exchanged = |o: &mut Out<'_, '_>, id: NodeId| {
        let t = g.constant(id).filter(|t| t.shape().len() == 2)?;
        let wish = format!("{}_transposed", g.node(id).target);
        Some(o.w.constant(&wish, t.permute(&[1, 0])))
    };
    if let Some(name) = exchanged(o, id) {
        return Ok(name);
    }
    if let (Kind::Call(op), Some(Arg::Node(q))) = (node.kind, node.args.first())
        && (op.name.starts_with("quantized_decomposed.dequantize") || op.base() == "_to_copy")
        && g.constant(*q).is_some()
        && let Some(value) = exchanged(o, *q)
    {
        if op.base() == "_to_copy" {
            let to = code_of(o.dtype(id)?);
            return Ok(o.push("Cast", vec![value], vec![int("to", i64::from(to))]));
        }
        return super::quantized::dequantize_as(o, id, value, |axis| 1 - axis);
    }
    let name = o.w.name(id)?;
    Ok(o.push("Transpose", vec![name], vec![ints("perm", vec![1, 0])]))
}

fn addmm(o: &mut Out<'_, '_>) -> Step {
    let (alpha, beta) = (o.args.float("alpha")?, o.args.float("beta")?);
    let inputs = vec![o.input("mat1")?, o.input("mat2")?, o.input("self")?];
    let mut attrs = vec![];
    for (name, v) in [("alpha", alpha), ("beta", beta)] {
        if v != 1.0 {
            attrs.push(super::args::float(name, v));
        }
    }
    o.done("Gemm", inputs, attrs)
}

fn matmul(o: &mut Out<'_, '_>, other: &str) -> Step {
    let inputs = vec![o.input("self")?, o.input(other)?];
    o.done("MatMul", inputs, vec![])
}

/// The attributes that all pools share; an empty stride is the kernel's size.
fn window(o: &Out<'_, '_>) -> Result<Vec<crate::onnx::proto::AttributeProto>, String> {
    if o.shape(o.args.tensor("self")?)?.len() != 4 {
        return Err("an input without a batch dimension cannot be written; unsqueeze it first".into());
    }
    let kernel = o.args.spread("kernel_size", 2)?;
    let stride = if o.args.dims("stride")?.is_empty() { kernel.clone() } else { o.args.spread("stride", 2)? };
    let padding = o.args.spread("padding", 2)?;
    Ok(vec![
        flag("ceil_mode", o.args.bool("ceil_mode")?),
        ints("kernel_shape", kernel),
        ints("pads", [padding.clone(), padding].concat()),
        ints("strides", stride),
    ])
}

fn max_pool(o: &mut Out<'_, '_>, tuple: bool) -> Step {
    let mut attrs = window(o)?;
    attrs.push(ints("dilations", o.args.spread("dilation", 2)?));
    let inputs = vec![o.input("self")?];
    if tuple {
        // torch's indices count within a plane, ONNX's within the whole tensor: only the first result is named.
        o.done_tuple("MaxPool", inputs, 1, attrs);
        return Ok(());
    }
    o.done("MaxPool", inputs, attrs)
}

fn avg_pool(o: &mut Out<'_, '_>) -> Step {
    o.args.only("divisor_override", &Arg::None)?;
    let mut attrs = window(o)?;
    attrs.push(flag("count_include_pad", o.args.bool("count_include_pad")?));
    let inputs = vec![o.input("self")?];
    o.done("AveragePool", inputs, attrs)
}

fn adaptive_avg_pool(o: &mut Out<'_, '_>) -> Step {
    let x = o.args.tensor("self")?;
    let spatial = if o.node.op().is_some_and(|op| op.base().ends_with("3d")) { 3 } else { 2 };
    let (shape, size) = (o.shape(x)?, o.args.spread("output_size", spatial)?);
    let inputs = vec![o.input("self")?];
    if size.iter().all(|n| *n == 1) && shape.len() == spatial + 2 {
        return o.done("GlobalAveragePool", inputs, vec![]);
    }
    let lead = shape.len().saturating_sub(spatial);
    let whole =
        shape[lead..].iter().zip(&size).map(|(n, s)| n.as_const().filter(|n| *s > 0 && n % s == 0).map(|n| n / s));
    match whole.collect::<Option<Vec<_>>>() {
        Some(k) if shape.len() == spatial + 2 => {
            o.done("AveragePool", inputs, vec![ints("kernel_shape", k.clone()), ints("strides", k)])
        }
        _ => Err(format!("output size {size:?} does not divide {shape:?}")),
    }
}

/// The dimensions of a reduction, counted from the front; none given are all.
fn axes(o: &Out<'_, '_>, rank: usize) -> Result<Vec<i64>, String> {
    let n = i64::try_from(rank).map_err(|e| e.to_string())?;
    let given = if o.args.given("dim") { o.args.ints("dim")? } else { vec![] };
    if given.is_empty() {
        return Ok((0..n).collect());
    }
    let mut axes: Vec<i64> = given.into_iter().map(|a| if a < 0 { a + n } else { a }).collect();
    axes.sort_unstable();
    Ok(axes)
}

/// Whether any element is not 0: the greatest of ones and zeros.
fn any(o: &mut Out<'_, '_>) -> Step {
    let x = o.operand("self", DType::Bool)?;
    let ones = o.cast(&x, DType::I32);
    let (axis, keep) = (o.args.int("dim")?, flag("keepdims", o.args.bool("keepdim")?));
    let most = match o.w.opset >= 18 {
        true => {
            let axes = o.ints(&[axis]);
            o.push("ReduceMax", vec![ones, axes], vec![keep])
        }
        false => o.push("ReduceMax", vec![ones], vec![ints("axes", vec![axis]), keep]),
    };
    let code = i64::from(crate::onnx::tensor::code_of(DType::Bool));
    o.done("Cast", vec![most], vec![int("to", code)])
}

/// The mean of the squared differences from the mean, times n/(n - correction).
fn var(o: &mut Out<'_, '_>) -> Step {
    let id = o.args.tensor("self")?;
    let shape = o.shape(id)?.to_vec();
    let axes = axes(o, shape.len())?;
    let n = axes.iter().map(|a| shape[*a as usize].as_const()).product::<Option<i64>>();
    let n = n.ok_or("a variance over an unknown number of elements")? as f64;
    let correction = o.args.opt_float("correction")?.unwrap_or(1.0);
    let (x, to) = (o.input("self")?, o.dtype(o.id)?);
    let keep = o.args.bool("keepdim")?;
    let late = o.w.opset >= 18;
    let mean = |o: &mut Out<'_, '_>, x: String, keep: bool| match late {
        true => {
            let axes = o.ints(&axes);
            o.push("ReduceMean", vec![x, axes], vec![flag("keepdims", keep)])
        }
        false => o.push("ReduceMean", vec![x], vec![ints("axes", axes.clone()), flag("keepdims", keep)]),
    };
    let middle = mean(o, x.clone(), true);
    let far = o.push("Sub", vec![x, middle], vec![]);
    let square = o.push("Mul", vec![far.clone(), far], vec![]);
    let spread = mean(o, square, keep);
    let factor = o.number(n / (n - correction).max(0.0), to);
    o.done("Mul", vec![spread, factor], vec![])
}

/// A mean over all of space that keeps its dimensions is a pool, which runtimes have in integers.
fn mean(o: &mut Out<'_, '_>) -> Step {
    let rank = o.shape(o.args.tensor("self")?)?.len();
    let axes = axes(o, rank)?;
    let spatial = axes.iter().copied().eq((2i64..).take(rank.saturating_sub(2)));
    if spatial && rank >= 3 && o.args.bool("keepdim")? && !o.args.given("dtype") {
        let inputs = vec![o.input("self")?];
        return o.done("GlobalAveragePool", inputs, vec![]);
    }
    reduce(o, "ReduceMean", 18)
}

/// A reduction; its axes are an input from operator set `since` on.
fn reduce(o: &mut Out<'_, '_>, op: &str, since: i64) -> Step {
    let id = o.args.tensor("self")?;
    let axes = axes(o, o.shape(id)?.len())?;
    let to = o.dtype(o.id)?;
    let x = o.operand("self", to)?;
    let keep = flag("keepdims", o.args.bool("keepdim")?);
    if o.w.opset >= since {
        let axes = o.ints(&axes);
        return o.done(op, vec![x, axes], vec![keep]);
    }
    o.done(op, vec![x], vec![ints("axes", axes), keep])
}
