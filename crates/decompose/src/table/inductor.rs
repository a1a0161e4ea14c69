//! Inductor's table: what torch's compiler for CPUs breaks up beyond Core ATen, what it lowers better itself, and
//! the rules that it spells otherwise than Core ATen does.

use super::{Step, Table};
use cleave_ir::ops::promote::{Kind, tensors};
use cleave_ir::{Arg, Builder, Call, Dim, Value};
use cleave_numerics::DType;

/// What Inductor also wants broken up: with the op's own rule, or with another one.
const ADD: &[Step] = &[
    Step::own("aten.gelu", "a pointwise program: its formula fuses with its neighbours"),
    Step::own("aten.elu", "a pointwise program"),
    Step::own("aten.native_layer_norm", "one reduction kernel (var_mean), and the rest one pointwise kernel"),
    Step::own("aten.native_group_norm", "one reduction kernel (var_mean), and the rest one pointwise kernel"),
    Step::own("aten._softmax", "two reductions and pointwise programs that fuse with them"),
    Step::own("aten._log_softmax", "two reductions and pointwise programs that fuse with them"),
    Step::own("aten._to_copy", "a change of type is pointwise and fuses"),
    Step::with("aten.leaky_relu", "a pointwise program", |c| {
        let x = c.tensor("self");
        let below = x.op("aten.mul.Tensor", vec![c.arg("negative_slope").clone()]);
        vec![x.op("aten.gt.Scalar", vec![0i64.into()]).op("aten.where.self", vec![x.into(), below.into()])]
    }),
    Step::with("aten.hardtanh", "a pointwise program", |c| {
        vec![c.tensor("self").clamp(Some(c.float("min_val")), Some(c.float("max_val")))]
    }),
    Step::with("aten.clamp", "each bound is an op, so that either can be dropped", |c| {
        let bound = |x: Value<'_>, op: &str, name: &str| match c.arg(name) {
            Arg::None => x.id(),
            bound => x.op(op, vec![bound.clone()]).id(),
        };
        let x = c.b.value(bound(c.tensor("self"), "aten.clamp_min", "min"));
        vec![c.b.value(bound(x, "aten.clamp_max", "max"))]
    }),
    Step::with("aten.silu", "spelled so that it gives the bits of the op itself", |c| {
        let (x, types) = tensors(c, &["self"], Kind::Default);
        let e = x[0].op("aten.neg", vec![]).exp();
        vec![(x[0] / (e + 1i64)).to(types.result)]
    }),
    Step::with(
        "aten._native_batch_norm_legit_no_training",
        "running statistics are constants: pointwise, and it fuses",
        batch_norm,
    ),
    Step::with("aten.max_pool2d_with_indices", "indices are kept as a byte each, and only if they are read", |c| {
        let pick = |n: &str| c.arg(n).clone();
        let stride = if c.ints("stride").is_empty() { pick("kernel_size") } else { pick("stride") };
        let args =
            vec![pick("self"), pick("kernel_size"), stride, pick("padding"), pick("dilation"), pick("ceil_mode")];
        let pooled = c.b.call("prims._low_memory_max_pool_with_offsets", args);
        vec![c.b.getitem(pooled, 0), c.b.getitem(pooled, 1)]
    }),
    Step::with("aten.index_select", "a gather by index, which is pointwise", |c| {
        let (x, dim) = (c.tensor("self"), c.int("dim"));
        let before = c.wrap(dim, x.rank()).unwrap_or(0);
        let mut indices = vec![Arg::None; before];
        indices.push(c.arg("index").clone());
        vec![x.op("aten.index.Tensor", vec![Arg::List(indices)])]
    }),
    Step::with("aten.full_like", "a constant needs no input", |c| {
        let x = c.tensor("self");
        let dtype = c.opt_dtype("dtype").unwrap_or(x.dtype());
        vec![c.b.call("aten.full", vec![x.shape().into(), c.arg("fill_value").clone(), dtype.into()])]
    }),
    Step::with("aten.arange.start_step", "numbers made where they are needed", |c| {
        let numbers = ["start", "end", "step"].map(|n| c.arg(n).clone());
        if numbers.iter().any(|a| matches!(a, Arg::Float(_))) {
            return vec![];
        }
        let length = own_shape(c).first().cloned().unwrap_or(0.into());
        let [start, _, step] = numbers;
        let iota = c.b.call("prims.iota", vec![length.into(), start, step, DType::I64.into()]);
        vec![iota.to(c.opt_dtype("dtype").unwrap_or(DType::I64))]
    }),
    Step::with("aten.cat", "of one tensor it is a copy", |c| {
        let parts = c.tensors("tensors");
        match parts.as_slice() {
            [one] => vec![one.op("aten.clone", vec![])],
            _ => vec![],
        }
    }),
    Step::with("aten.upsample_bilinear2d.vec", "gathers and pointwise arithmetic, which fuse", bilinear),
    Step::with("aten.scaled_dot_product_attention", "a kernel of its own", |c| {
        let pick = |n: &str| c.arg(n).clone();
        let args = ["query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale"].map(pick);
        vec![c.b.getitem(c.b.call("aten._scaled_dot_product_flash_attention_for_cpu", args.to_vec()), 0)]
    }),
];

/// What Inductor lowers better itself.
const REMOVE: &[Step] = &[
    Step::own("aten.clamp_min", "it has a lowering; both bounds in one op would not"),
    Step::own("aten.clamp_max", "it has a lowering; both bounds in one op would not"),
    Step::own("aten.split.Tensor", "lowered directly: its parts are views"),
    Step::own("aten.squeeze.dim", "lowered directly: it is a view"),
    Step::own("aten.unbind.int", "lowered directly: its parts are views"),
    Step::own("aten.var_mean.correction", "lowered directly: one reduction kernel for both statistics"),
    Step::own("aten.sum", "lowered directly: one reduction kernel"),
    Step::own("aten.glu", "lowered directly: one pointwise kernel"),
    Step::own("aten.baddbmm", "its rule computes in f32, which costs speed"),
    Step::own("aten.select_scatter", "a later pass that works in place looks for it"),
    Step::own("aten.slice_scatter", "a later pass that works in place looks for it"),
    Step::own("aten.addcmul", "its lowering uses fused multiply-adds"),
    Step::own("aten.addcdiv", "its lowering uses fused multiply-adds"),
    Step::own("aten._unsafe_index.Tensor", "lowered without bounds checks, which its rule would bring back"),
    Step::own("aten._unsafe_masked_index", "lowered as one masked load"),
    Step::own("aten._unsafe_masked_index_put_accumulate", "lowered as one masked store"),
    Step::own("aten._softmax_backward_data", "lowered with a fused multiply-add"),
    Step::own("aten._scaled_dot_product_flash_attention_for_cpu", "a kernel of its own"),
];

impl Table {
    /// Inductor's: reductions and pointwise programs for what Core ATen leaves whole, heavy ops kept.
    pub fn inductor() -> Table {
        let mut t = Table::core().add(ADD).remove(REMOVE);
        t.name = "inductor".into();
        t.doc = "torch's compiler for CPUs: what it fuses is broken up into reductions and pointwise ops".into();
        t
    }
}

/// The shape of the call's result.
fn own_shape(c: &Call<'_>) -> Vec<Dim> {
    let meta = c.b.infer(c.op, &c.args, &c.name);
    meta.ok().and_then(|m| Some(m.as_tensor()?.shape.clone())).unwrap_or_default()
}

/// `(x - mean) · rsqrt(var + eps) · weight + bias`, each brought to the rank of the input.
fn batch_norm<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("input");
    let compute = Kind::Default.of(x.dtype()).compute;
    let per_channel = |v: Value<'b>| (2..x.rank()).fold(v, |v, _| v.op("aten.unsqueeze", vec![Arg::Int(-1)]));
    let statistic = |name: &str| c.tensor(name).op("prims.convert_element_type", vec![compute.into()]);
    let (mean, var) = (statistic("running_mean"), statistic("running_var"));
    let scale = (var + c.float("eps")).rsqrt();
    let mut y = (x.to(compute) - per_channel(mean)) * per_channel(scale);
    if let Some(w) = c.opt_tensor("weight") {
        y = y * per_channel(w);
    }
    if let Some(b) = c.opt_tensor("bias") {
        y = y + per_channel(b);
    }
    let none = || c.b.call("aten.full", vec![vec![0i64].into(), 0i64.into(), x.dtype().into()]);
    vec![y.to(x.dtype()), none(), none()]
}

/// Source rows (or columns) of a resize: the place, the index below it, the index above.
struct Source<'b> {
    place: Value<'b>,
    below: Value<'b>,
    above: Value<'b>,
}

fn source<'b>(
    b: &'b Builder,
    from: &Dim,
    to: &Dim,
    align: bool,
    scale: Option<f64>,
    behind: usize,
) -> Option<Source<'b>> {
    let (n, m) = (from.as_const()?, to.as_const()?);
    let iota = b.call("prims.iota", vec![to.clone().into(), 0i64.into(), 1i64.into(), DType::I64.into()]);
    let at = iota.to(DType::F32);
    let ratio = match scale {
        _ if align => {
            if m > 1 {
                (n - 1) as f64 / (m - 1) as f64
            } else {
                0.0
            }
        }
        Some(s) if s > 0.0 => 1.0 / s,
        _ => n as f64 / m as f64,
    };
    let at = if align { at * ratio } else { (at + 0.5) * ratio - 0.5 };
    let shape = [vec![to.clone()], vec![Dim::from(1i64); behind]].concat();
    let place = at.clamp(Some(0.0), None).view(shape);
    let below = place.to(DType::I64);
    let above = (below + 1i64).op("aten.clamp", vec![Arg::None, Arg::Int(n - 1)]);
    Some(Source { place, below, above })
}

fn bilinear<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, b) = (c.tensor("input"), c.b);
    let (from, to) = (x.shape(), own_shape(c));
    let scales = match c.arg("scale_factors") {
        Arg::List(l) => l.iter().map(|a| if let Arg::Float(f) = a { Some(*f) } else { None }).collect(),
        _ => vec![None; 2],
    };
    if from.len() != 4 || to.len() != 4 || scales.len() != 2 || x.dtype() != DType::F32 {
        return vec![];
    }
    let axis = |i: usize| source(b, &from[2 + i], &to[2 + i], c.bool("align_corners"), scales[i], 1 - i);
    let (Some(h), Some(w)) = (axis(0), axis(1)) else { return vec![] };
    let pick = |i: Value<'b>, j: Value<'b>| {
        x.op("aten._unsafe_index.Tensor", vec![Arg::List(vec![Arg::None, Arg::None, i.into(), j.into()])])
    };
    let mix = |a: Value<'b>, b: Value<'b>, by: Value<'b>| a + (b - a) * by;
    let share = |s: &Source<'b>| (s.place - s.below).clamp(Some(0.0), Some(1.0));
    let corners = [pick(h.below, w.below), pick(h.below, w.above), pick(h.above, w.below), pick(h.above, w.above)];
    let across = share(&w);
    let rows = [mix(corners[0], corners[1], across), mix(corners[2], corners[3], across)];
    vec![mix(rows[0], rows[1], share(&h))]
}
