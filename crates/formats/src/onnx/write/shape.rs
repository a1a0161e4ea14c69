//! Shapes, and elements moved.

use super::Entry;
use super::args::{int, ints, text};
use super::out::Out;
use crate::onnx::proto::AttributeProto;
use cleave_ir::{Arg, Dim, NodeId, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("aten.view", 13, reshape),
    ("aten._unsafe_view", 13, reshape),
    ("aten.reshape", 13, reshape),
    ("aten.unflatten.int", 13, reshape),
    ("aten.flatten.using_ints", 13, flatten),
    ("aten.permute", 13, permute),
    ("aten.transpose.int", 13, transpose),
    ("aten.t", 13, |o| turned(o, vec![1, 0])),
    ("aten.unsqueeze", 13, |o| {
        let x = o.input("self")?;
        let axes = o.args.int("dim")?;
        let axes = o.ints(&[axes]);
        o.done("Unsqueeze", vec![x, axes], vec![])
    }),
    ("aten.squeeze.dims", 13, squeeze),
    ("aten.squeeze.dim", 13, squeeze),
    ("aten.squeeze", 13, squeeze),
    ("aten.expand", 13, expand),
    ("aten.cat", 13, cat),
    ("aten.stack", 13, stack),
    ("aten.split_with_sizes", 13, |o| split(o, "dim")),
    ("aten.split.Tensor", 13, |o| split(o, "dim")),
    ("aten.chunk", 13, |o| split(o, "dim")),
    ("aten.slice.Tensor", 13, slice),
    ("aten.select.int", 13, select),
    ("aten.index_select", 13, |o| gather(o, "self", "index")),
    ("aten.gather", 13, |o| {
        let inputs = vec![o.input("self")?, o.input("index")?];
        let axis = o.args.int("dim")?;
        o.done("GatherElements", inputs, vec![int("axis", axis)])
    }),
    ("aten.embedding", 13, |o| gather(o, "weight", "indices")),
    ("aten.constant_pad_nd", 13, |o| pad(o, "constant")),
    ("aten.flip", 13, flip),
    ("aten.pad", 13, pad_by_mode),
    ("aten.reflection_pad1d", 13, |o| pad(o, "reflect")),
    ("aten.reflection_pad2d", 13, |o| pad(o, "reflect")),
    ("aten.replication_pad1d", 13, |o| pad(o, "edge")),
    ("aten.replication_pad2d", 13, |o| pad(o, "edge")),
    ("aten.upsample_nearest2d.vec", 13, |o| resize(o, false)),
    ("aten.upsample_bilinear2d.vec", 13, |o| resize(o, true)),
    ("aten.full", 13, full),
    ("aten.full_like", 13, full_like),
    ("aten.scalar_tensor", 13, |o| {
        let (v, to) = (o.args.float("s")?, o.dtype(o.id)?);
        let number = o.number(v, to);
        o.alias(number)
    }),
    ("aten.arange.start_step", 13, arange),
];

type Step = Result<(), String>;

/// To the shape that the node has. Unknown sizes are 0 where they stay in place, -1 where one is left, and
/// else read off values that have them.
fn reshape(o: &mut Out<'_, '_>) -> Step {
    let (from, to) = (o.shape(o.args.tensor("self")?)?, o.shape(o.id)?);
    let x = o.input("self")?;
    let mut spec: Vec<Option<i64>> = vec![];
    for (i, d) in to.iter().enumerate() {
        let kept = d.as_const().is_none() && from.get(i) == Some(d);
        spec.push(if kept { Some(0) } else { d.as_const() });
    }
    let empty = to.iter().any(|d| d.is(0));
    let open: Vec<usize> = (0..spec.len()).filter(|i| spec[*i].is_none()).collect();
    if let ([i], false) = (open.as_slice(), empty) {
        spec[*i] = Some(-1);
    }
    let shape = match spec.into_iter().collect::<Option<Vec<_>>>() {
        Some(numbers) if !empty => o.ints(&numbers),
        _ => o.sizes(to)?,
    };
    let attrs = if empty { vec![int("allowzero", 1)] } else { vec![] };
    o.done("Reshape", vec![x, shape], attrs)
}

fn flatten(o: &mut Out<'_, '_>) -> Step {
    let rank = o.shape(o.args.tensor("self")?)?.len();
    if o.args.int("start_dim")? == 1 && o.shape(o.id)?.len() == 2 && rank >= 2 {
        let x = o.input("self")?;
        return o.done("Flatten", vec![x], vec![int("axis", 1)]);
    }
    reshape(o)
}

fn turned(o: &mut Out<'_, '_>, order: Vec<i64>) -> Step {
    let x = o.input("self")?;
    o.done("Transpose", vec![x], vec![ints("perm", order)])
}

/// A dimension counted from the front.
pub(super) fn front(axis: i64, rank: usize) -> Result<usize, String> {
    let n = i64::try_from(rank).map_err(|e| e.to_string())?;
    usize::try_from(if axis < 0 { axis + n } else { axis }).map_err(|_| format!("dimension {axis} of rank {rank}"))
}

fn permute(o: &mut Out<'_, '_>) -> Step {
    let rank = o.shape(o.args.tensor("self")?)?.len() as i64;
    let order = o.args.ints("dims")?.into_iter().map(|a| if a < 0 { a + rank } else { a }).collect();
    turned(o, order)
}

fn transpose(o: &mut Out<'_, '_>) -> Step {
    let rank = o.shape(o.args.tensor("self")?)?.len();
    let (a, b) = (front(o.args.int("dim0")?, rank)?, front(o.args.int("dim1")?, rank)?);
    let mut order: Vec<i64> = (0..rank as i64).collect();
    if a.max(b) >= rank {
        return Err(format!("dimensions {a} and {b} of rank {rank}"));
    }
    order.swap(a, b);
    turned(o, order)
}

fn squeeze(o: &mut Out<'_, '_>) -> Step {
    let shape = o.shape(o.args.tensor("self")?)?;
    let named = match o.args.given("dim") {
        true => match o.args.get("dim")? {
            Arg::List(_) => o.args.ints("dim")?,
            _ => vec![o.args.int("dim")?],
        },
        false => (0..shape.len() as i64).collect(),
    };
    let axes = named.into_iter().map(|a| front(a, shape.len())).collect::<Result<Vec<_>, _>>()?;
    // torch leaves other sizes as they are.
    let ones: Vec<i64> =
        axes.into_iter().filter(|a| shape.get(*a).is_some_and(|d| d.is(1))).map(|a| a as i64).collect();
    let x = o.input("self")?;
    if ones.is_empty() {
        return o.alias(x);
    }
    let axes = o.ints(&ones);
    o.done("Squeeze", vec![x, axes], vec![])
}

fn expand(o: &mut Out<'_, '_>) -> Step {
    let from = o.shape(o.args.tensor("self")?)?;
    let to = o.shape(o.id)?;
    if from == to {
        let x = o.input("self")?;
        return o.alias(x);
    }
    // A size that stays as it is may be written as 1.
    let lead = to.len() - from.len();
    let sizes: Vec<Dim> = to
        .iter()
        .enumerate()
        .map(|(i, d)| if i >= lead && from[i - lead] == *d { Dim::from(1) } else { d.clone() })
        .collect();
    let (x, sizes) = (o.input("self")?, o.sizes(&sizes)?);
    o.done("Expand", vec![x, sizes], vec![])
}

/// The names of a list of tensors, all in the result's type.
fn values(o: &mut Out<'_, '_>, name: &str) -> Result<Vec<String>, String> {
    let to = o.dtype(o.id)?;
    let mut out = vec![];
    for id in o.args.get(name)?.nodes() {
        let (value, from): (String, DType) = (o.w.name(id)?, o.dtype(id)?);
        out.push(if from == to { value } else { o.cast(&value, to) });
    }
    Ok(out)
}

fn cat(o: &mut Out<'_, '_>) -> Step {
    let (inputs, axis) = (values(o, "tensors")?, o.args.int("dim")?);
    o.done("Concat", inputs, vec![int("axis", axis)])
}

fn stack(o: &mut Out<'_, '_>) -> Step {
    let (inputs, axis) = (values(o, "tensors")?, o.args.int("dim")?);
    let axes = o.ints(&[axis]);
    let parts = inputs.into_iter().map(|x| o.push("Unsqueeze", vec![x, axes.clone()], vec![])).collect();
    o.done("Concat", parts, vec![int("axis", axis)])
}

fn split(o: &mut Out<'_, '_>, dim: &str) -> Step {
    let cleave_ir::Meta::Tuple(parts) = &o.node.meta else { return Err("expected several results".into()) };
    let first = o.args.get("self").or_else(|_| o.args.get("tensor"))?.nodes();
    let id = *first.first().ok_or("no tensor to split")?;
    let axis = front(o.args.int(dim)?, o.shape(id)?.len())?;
    let size = |m: &cleave_ir::Meta| m.as_tensor().and_then(|t| t.shape.get(axis)?.as_const());
    let sizes = parts.iter().map(size).collect::<Option<Vec<_>>>().ok_or("parts of unknown size")?;
    let inputs = vec![o.w.name(id)?, o.ints(&sizes)];
    o.done_tuple("Split", inputs, sizes.len(), vec![int("axis", axis as i64)]);
    Ok(())
}

fn slice(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    let bound = |o: &Out<'_, '_>, name: &str, default: i64| {
        if o.args.given(name) { o.args.dim(name) } else { Ok(Dim::from(default)) }
    };
    let (start, end) = (bound(o, "start", 0)?, bound(o, "end", i64::MAX)?);
    let (start, end) = (o.sizes(&[start])?, o.sizes(&[end])?);
    let (axis, step) = (o.args.int("dim")?, o.args.int("step")?);
    let mut inputs = vec![x, start, end, o.ints(&[axis])];
    if step != 1 {
        inputs.push(o.ints(&[step]));
    }
    o.done("Slice", inputs, vec![])
}

fn select(o: &mut Out<'_, '_>) -> Step {
    let (x, axis, index) = (o.input("self")?, o.args.int("dim")?, o.args.int("index")?);
    let index = o.w.literal(&format!("index_{index}").replace('-', "m"), Tensor::scalar(index));
    o.done("Gather", vec![x, index], vec![int("axis", axis)])
}

fn gather(o: &mut Out<'_, '_>, from: &str, index: &str) -> Step {
    let axis = if o.args.given("dim") { o.args.int("dim")? } else { 0 };
    let inputs = vec![o.input(from)?, o.input(index)?];
    o.done("Gather", inputs, vec![int("axis", axis)])
}

/// Slices that go backwards.
fn flip(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    let axes = o.args.ints("dims")?;
    let all = |v: i64| vec![v; axes.len()];
    let (starts, ends, steps) = (o.ints(&all(-1)), o.ints(&all(i64::MIN + 1)), o.ints(&all(-1)));
    let axes = o.ints(&axes);
    o.done("Slice", vec![x, starts, ends, axes, steps], vec![])
}

fn pad_by_mode(o: &mut Out<'_, '_>) -> Step {
    match o.args.get("mode")? {
        Arg::Str(m) if m == "constant" => pad(o, "constant"),
        Arg::Str(m) if m == "reflect" => pad(o, "reflect"),
        Arg::Str(m) if m == "replicate" => pad(o, "edge"),
        other => Err(format!("mode {other:?} cannot be written")),
    }
}

fn pad(o: &mut Out<'_, '_>, mode: &'static str) -> Step {
    let id: NodeId = o.args.tensor("self")?;
    let rank = o.shape(id)?.len();
    let pads = o.args.dims(if o.args.get("pad").is_ok() { "pad" } else { "padding" })?;
    let mut sizes = vec![Dim::from(0); 2 * rank];
    for (i, pair) in pads.chunks(2).enumerate() {
        let at = rank.checked_sub(i + 1).ok_or("more pads than dimensions")?;
        if let [before, after] = pair {
            (sizes[at], sizes[rank + at]) = (before.clone(), after.clone());
        }
    }
    let (x, sizes, to) = (o.input("self")?, o.sizes(&sizes)?, o.dtype(id)?);
    if mode != "constant" {
        return o.done("Pad", vec![x, sizes], vec![text("mode", mode)]);
    }
    let value = o.args.opt_float("value")?.unwrap_or(0.0);
    let value = o.number(value, to);
    o.done("Pad", vec![x, sizes, value], vec![text("mode", mode)])
}

fn resize(o: &mut Out<'_, '_>, linear: bool) -> Step {
    let x = o.input("input")?;
    let aligned = linear && o.args.bool("align_corners")?;
    let places = match (linear, aligned) {
        (false, _) => "asymmetric",
        (true, true) => "align_corners",
        (true, false) => "pytorch_half_pixel",
    };
    let mut attrs: Vec<AttributeProto> =
        vec![text("coordinate_transformation_mode", places), text("mode", if linear { "linear" } else { "nearest" })];
    if !linear {
        attrs.push(text("nearest_mode", "floor"));
    }
    if o.args.given("scale_factors") && !o.args.given("output_size") {
        let Arg::List(l) = o.args.get("scale_factors")? else { return Err("expected scale factors".into()) };
        let mut scales = vec![1.0f32, 1.0];
        for a in l {
            match a {
                Arg::Float(v) => scales.push(*v as f32),
                Arg::Int(v) => scales.push(*v as f32),
                other => return Err(format!("scale factor {other:?}")),
            }
        }
        let wish = format!("{}_scales", o.node.name);
        let scales = o.w.literal(&wish, Tensor::new(&[scales.len()], scales));
        return o.done("Resize", vec![x, String::new(), scales], attrs);
    }
    let sizes = o.sizes(o.shape(o.id)?)?;
    o.done("Resize", vec![x, String::new(), String::new(), sizes], attrs)
}

fn full(o: &mut Out<'_, '_>) -> Step {
    let (to, dtype) = (o.shape(o.id)?, o.dtype(o.id)?);
    if to.is_empty() {
        let value = o.operand("fill_value", dtype)?;
        return o.alias(value);
    }
    let value = o.operand("fill_value", dtype)?;
    let sizes = o.sizes(to)?;
    o.done("Expand", vec![value, sizes], vec![])
}

fn full_like(o: &mut Out<'_, '_>) -> Step {
    let (v, to) = (o.args.float("fill_value")?, o.dtype(o.id)?);
    let (number, shape) = (o.number(v, to), o.shape(o.id)?.to_vec());
    let sizes = o.sizes(&shape)?;
    o.done("Expand", vec![number, sizes], vec![])
}

/// Numbers at equal steps, of integers.
fn arange(o: &mut Out<'_, '_>) -> Step {
    let to = o.dtype(o.id)?;
    if !to.is_int() {
        return Err(format!("numbers of {to} at equal steps cannot be written"));
    }
    let mut parts = vec![];
    for name in ["start", "end", "step"] {
        let size = o.size(&o.args.dim(name)?)?;
        parts.push(o.cast(&size, to));
    }
    o.done("Range", parts, vec![])
}
