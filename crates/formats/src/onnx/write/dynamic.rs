//! Scales that are computed as the model runs: DynamicQuantizeLinear, and the integer products behind it.
//!
//! ONNX Runtime (1.32, x64) runs `DynamicQuantizeLinear → MatMulInteger → Cast → Mul → Add` as one kernel, and
//! `DynamicQuantizeLinear → DequantizeLinear → MatMul` in float. Signed weights beside u8 activations saturate in it on
//! machines without VNNI, so they are written as u8 around 128, whose products are exact everywhere.

use super::Entry;
use super::args::{Args, int};
use super::out::Out;
use crate::onnx::proto::AttributeProto;
use crate::onnx::tensor::code_of;
use cleave_ir::{Arg, Graph, NodeId, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("quantized_decomposed.choose_qparams.tensor", 13, choose),
    ("quantized_decomposed.choose_qparams_symmetric.tensor", 13, |_| Err(U8_ONLY.into())),
    ("quantized_decomposed.quantize_per_tensor.tensor", 13, quantize),
    ("quantized_decomposed.dequantize_per_tensor.tensor", 13, dequantize),
];

type Step = Result<(), String>;

const U8_ONLY: &str = "ONNX computes scales for u8 levels 0 to 255 with any zero point only: \
                       quantize with a dynamic spec of dtype u8, scheme per_tensor_affine";

/// The greatest `eps` that is taken for none, which is what ONNX has.
const NO_FLOOR: f64 = 1e-12;

/// Levels, scale and zero point among the names of a `choose_qparams`, behind its own two results.
const LEVELS: usize = 2;
const SCALE: usize = 3;
const ZERO: usize = 4;

fn choose(o: &mut Out<'_, '_>) -> Step {
    let whole = (o.args.int("quant_min")?, o.args.int("quant_max")?) == (0, 255);
    if o.args.dtype("dtype")? != DType::U8 || !whole {
        return Err(U8_ONLY.into());
    }
    let eps = o.args.float("eps")?;
    if eps > NO_FLOOR {
        return Err(format!("ONNX has no least scale, this one is {eps}: quantize with a spec without eps"));
    }
    if o.dtype(o.args.tensor("input")?)? != DType::F32 {
        return Err("ONNX computes scales of f32 only".into());
    }
    let x = o.input("input")?;
    let name = o.node.name.clone();
    let [y, scale, zero] = ["levels", "scale", "zero_point"].map(|what| o.w.fresh(&format!("{name}_{what}")));
    o.w.call("DynamicQuantizeLinear", &name, vec![x], &y, vec![]);
    if let Some(call) = o.w.nodes.last_mut() {
        call.output.extend([scale.clone(), zero.clone()]);
    }
    // The results as torch has them, for whoever reads them.
    let one = o.ints(&[1]);
    let mut torch = |v: &String, dtype| {
        let wide = o.cast(v, dtype);
        o.push("Reshape", vec![wide, one.clone()], vec![])
    };
    let own = vec![torch(&scale, DType::F64), torch(&zero, DType::I64), y, scale, zero];
    o.w.set(o.id, own);
    Ok(())
}

/// The `choose_qparams` that a scale or zero point comes from.
fn chosen(g: &Graph, id: NodeId) -> Option<NodeId> {
    let node = g.node(id);
    let op = node.op()?;
    match op.base() {
        "choose_qparams" => Some(id),
        "getitem" | "_to_copy" | "to" | "view" | "reshape" | "squeeze" => {
            chosen(g, *node.args.first()?.nodes().first()?)
        }
        _ => None,
    }
}

/// Names of levels, scale and zero point that a call's arguments were chosen with.
fn names(o: &Out<'_, '_>, args: Args<'_>) -> Result<[String; 3], String> {
    let g = o.w.g;
    let [scale, zero] = [args.tensor("scale")?, args.tensor("zero_point")?].map(|n| chosen(g, n));
    let names = scale.filter(|s| Some(*s) == zero).map(|c| o.w.names(c));
    let pick = |i: usize| names.and_then(|n| n.get(i)).cloned();
    let all = [LEVELS, SCALE, ZERO].map(pick);
    let [Some(y), Some(s), Some(z)] = all else {
        return Err("a scale that is computed otherwise than by choose_qparams cannot be written".into());
    };
    Ok([y, s, z])
}

fn quantize(o: &mut Out<'_, '_>) -> Step {
    let [y, ..] = names(o, o.args)?;
    let choice = chosen(o.w.g, o.args.tensor("scale")?).map(|c| o.w.g.node(c));
    let same = |name: &str| choice.and_then(|c| c.arg(name)) == o.node.arg(name);
    if !["input", "quant_min", "quant_max", "dtype"].iter().all(|n| same(n)) {
        return Err("levels of another value, or another range, than its scale was chosen for cannot be written".into());
    }
    o.alias(y)
}

fn dequantize(o: &mut Out<'_, '_>) -> Step {
    let [_, scale, zero] = names(o, o.args)?;
    let x = o.input("input")?;
    if o.dtype(o.id)? != DType::F32 {
        return Err(format!("dequantizing to {} cannot be written", o.dtype(o.id)?));
    }
    o.done("DequantizeLinear", vec![x, scale, zero], vec![])
}

/// A constant weight in integers as u8 around 128, and the scale of each output channel.
struct Weight {
    levels: Tensor,
    scales: Vec<f32>,
}

fn weight(g: &Graph, id: NodeId) -> Option<Weight> {
    let node = g.node(id);
    let args = Args::new(g, node);
    let q = g.constant(args.tensor("input").ok()?)?;
    let (scales, zeros) = match node.op()?.name {
        "quantized_decomposed.dequantize_per_channel.default" if args.int("axis").ok()? == 0 => {
            let zeros = args.opt_tensor("zero_points").ok()?;
            let zeros = zeros.map(|z| g.constant(z).map(Tensor::to_i64));
            (g.constant(args.tensor("scales").ok()?)?.to_f32().into_owned(), zeros.unwrap_or(Some(vec![0]))?)
        }
        "quantized_decomposed.dequantize_per_tensor.default" => {
            (vec![args.float("scale").ok()? as f32], vec![args.int("zero_point").ok()?])
        }
        _ => return None,
    };
    let up = match q.dtype() {
        DType::I8 => 128,
        DType::U8 => 0,
        _ => return None,
    };
    if zeros.iter().any(|z| z + up != 128) {
        return None;
    }
    let levels: Option<Vec<u8>> = q.to_i64().into_iter().map(|v| u8::try_from(v + up).ok()).collect();
    Some(Weight { levels: Tensor::new(q.shape(), levels?), scales })
}

/// A linear layer or convolution of levels that were computed as the model runs, as a product of integers; false if
/// it is none. The second operand is what `shape` makes of the weight, scales and bias get the shape `[C, 1, …]` with so
/// many ones behind.
pub(super) fn product(
    o: &mut Out<'_, '_>,
    op: &str,
    attrs: Vec<AttributeProto>,
    ones: usize,
    shape: impl Fn(&Tensor) -> Tensor,
) -> Result<bool, String> {
    let g = o.w.g;
    let (x, w) = (o.args.tensor("input")?, o.args.tensor("weight")?);
    let Some(dq) = Some(g.node(x)).filter(|n| n.op().is_some_and(|o| o.name == OPS[3].0)) else { return Ok(false) };
    let Some(w) = weight(g, w) else { return Ok(false) };
    let args = Args::new(g, dq);
    if args.dtype("dtype")? != DType::U8 || o.dtype(o.id)? != DType::F32 {
        return Ok(false);
    }
    let ([_, scale, zero], levels) = (names(o, args)?, o.w.name(args.tensor("input")?)?);
    let name = o.node.name.clone();
    let column = |v: &[f32]| Tensor::new(&[vec![v.len()], vec![1; ones]].concat(), v.to_vec());
    let weight = o.w.constant(&format!("{name}_weight"), shape(&w.levels));
    let middle = o.w.literal("weight_zero_point", Tensor::scalar(128u8));
    let acc = o.push(op, vec![levels, weight, zero, middle], attrs);
    let acc = o.push("Cast", vec![acc], vec![int("to", i64::from(code_of(DType::F32)))]);
    let scales = o.w.constant(&format!("{name}_weight_scale"), column(&w.scales));
    let scale = o.push("Mul", vec![scale, scales], vec![]);
    if !o.args.given("bias") {
        o.done("Mul", vec![acc, scale], vec![])?;
        return Ok(true);
    }
    let y = o.push("Mul", vec![acc, scale], vec![]);
    let bias = match o.node.arg("bias") {
        Some(Arg::Node(b)) if ones > 0 => {
            let t = g.constant(*b).ok_or("a bias that is not constant cannot be written")?;
            o.w.constant(&format!("{name}_bias"), column(&t.to_f32()))
        }
        _ => o.input("bias")?,
    };
    o.done("Add", vec![y, bias], vec![])?;
    Ok(true)
}
