//! What Core ATen has for semantic ops.

use crate::raise::RuleDef;
use cleave_ir::{Arg, Value};
use cleave_rewrite::Bound;

fn conv<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let pick = |n: &str| m.arg_of("convolution", n);
    let rank = m.value("w")?.rank();
    let transposed = pick("transposed") == Arg::Bool(true);
    let name = match (rank, transposed) {
        (3, false) => "aten.conv1d",
        (4, false) => "aten.conv2d",
        (5, false) => "aten.conv3d",
        (3, true) => "aten.conv_transpose1d",
        (4, true) => "aten.conv_transpose2d.input",
        (5, true) => "aten.conv_transpose3d.input",
        _ => return Err(format!("a weight of rank {rank}")),
    };
    let mut args: Vec<Arg> = ["input", "weight", "bias", "stride", "padding"].map(pick).to_vec();
    match transposed {
        true => args.extend(["output_padding", "groups", "dilation"].map(pick)),
        false => args.extend(["dilation", "groups"].map(pick)),
    }
    Ok(m.b.call(name, args))
}

/// `convolution` by rank and direction.
pub static CONV: RuleDef = RuleDef {
    name: "conv",
    doc: "Core ATen's convolution is conv1d, conv2d, conv3d or a transposed one.",
    spellings: &["convolution(x, w)"],
    any: &[],
    conditions: &[],
    build: conv,
    example: (
        "graph(%x: f32[1, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 3, 3]
  %y = aten.convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  return %y
}",
        "graph(%x: f32[1, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 3, 3]
  %conv2d = aten.conv2d(%x, %w, none, [1, 1], [1, 1]): f32[1, 4, 8, 8]
  return %conv2d \"y\"
}",
    ),
};

/// `_native_batch_norm_legit_no_training` and its first result.
pub static BATCH_NORM: RuleDef = RuleDef {
    name: "batch_norm",
    doc: "The first result of Core ATen's batch norm at inference.",
    spellings: &["n:_native_batch_norm_legit_no_training(x)"],
    any: &[],
    conditions: &[],
    build: |m| {
        let pick = |n: &str| m.arg_of("n", n);
        let mut args: Vec<Arg> = ["input", "weight", "bias", "running_mean", "running_var"].map(pick).to_vec();
        args.extend([false.into(), pick("momentum"), pick("eps"), false.into()]);
        Ok(m.b.call("aten.batch_norm", args))
    },
    example: (
        "graph(%x: f32[1, 4, 2, 2]) {
  %v = buffer \"v\": f32[4]
  %n = aten._native_batch_norm_legit_no_training(%x, none, none, %v, %v, 0.1, 1e-5)
  %y = getitem(%n, 0)
  return %y
}",
        "graph(%x: f32[1, 4, 2, 2]) {
  %v = buffer \"v\": f32[4]
  %batch_norm = aten.batch_norm(%x, none, none, %v, %v, false, 0.1, 1e-5, false): f32[1, 4, 2, 2]
  return %batch_norm \"y\"
}",
    ),
};

/// `native_layer_norm` and its first result.
pub static LAYER_NORM: RuleDef = RuleDef {
    name: "layer_norm",
    doc: "The first result of Core ATen's layer norm.",
    spellings: &["n:native_layer_norm(x)"],
    any: &[],
    conditions: &[],
    build: |m| {
        let args = ["input", "normalized_shape", "weight", "bias", "eps"].map(|n| m.arg_of("n", n));
        Ok(m.b.call("aten.layer_norm", args.to_vec()))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %n = aten.native_layer_norm(%x, [4], %w, %w, 1e-6)
  %y = getitem(%n, 0)
  return %y
}",
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %layer_norm = aten.layer_norm(%x, [4], %w, %w, 1e-6): f32[2, 4]
  return %layer_norm \"y\"
}",
    ),
};

/// `max_pool2d_with_indices` and its first result.
pub static MAX_POOL: RuleDef = RuleDef {
    name: "max_pool",
    doc: "The first result of max pooling with indices.",
    spellings: &["p:max_pool2d_with_indices(x)", "p:max_pool3d_with_indices(x)"],
    any: &[],
    conditions: &[],
    build: |m| {
        let names = ["self", "kernel_size", "stride", "padding", "dilation", "ceil_mode"];
        let three = m.node("p").and_then(|n| n.op()).is_some_and(|o| o.base().contains("3d"));
        let name = if three { "aten.max_pool3d" } else { "aten.max_pool2d" };
        Ok(m.b.call(name, names.map(|n| m.arg_of("p", n)).to_vec()))
    },
    example: (
        "graph(%x: f32[1, 4, 4, 4]) {
  %p = aten.max_pool2d_with_indices(%x, [2, 2], [2, 2])
  %y = getitem(%p, 0)
  return %y
}",
        "graph(%x: f32[1, 4, 4, 4]) {
  %max_pool2d = aten.max_pool2d(%x, [2, 2], [2, 2]): f32[1, 4, 2, 2]
  return %max_pool2d \"y\"
}",
    ),
};

/// `_adaptive_avg_pool2d`.
pub static AVG_POOL: RuleDef = RuleDef {
    name: "adaptive_avg_pool",
    doc: "Core ATen's adaptive pooling.",
    spellings: &["p:_adaptive_avg_pool2d(x)"],
    any: &[],
    conditions: &[],
    build: |m| Ok(m.value("x")?.op("aten.adaptive_avg_pool2d", vec![m.arg_of("p", "output_size")])),
    example: (
        "graph(%x: f32[1, 4, 4, 4]) {\n %y = aten._adaptive_avg_pool2d(%x, [2, 2])\n return %y\n}",
        "graph(%x: f32[1, 4, 4, 4]) {
  %adaptive_avg_pool2d = aten.adaptive_avg_pool2d(%x, [2, 2]): f32[1, 4, 2, 2]
  return %adaptive_avg_pool2d \"y\"
}",
    ),
};

/// A mean over height and width that keeps them.
pub static GLOBAL_POOL: RuleDef = RuleDef {
    name: "global_pool",
    doc: "A mean over the last two of four dimensions that keeps them is global average pooling.",
    spellings: &[
        "mean(x, [-1, -2], keepdim=true, dtype=none)",
        "mean(x, [-2, -1], keepdim=true, dtype=none)",
        "mean(x, [2, 3], keepdim=true, dtype=none)",
        "mean(x, [3, 2], keepdim=true, dtype=none)",
    ],
    any: &[],
    conditions: &["rank(x) == 4", "floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.adaptive_avg_pool2d", vec![vec![1i64, 1].into()])),
    example: (
        "graph(%x: f32[1, 4, 4, 4]) {\n %y = aten.mean.dim(%x, [-1, -2], true)\n return %y\n}",
        "graph(%x: f32[1, 4, 4, 4]) {
  %adaptive_avg_pool2d = aten.adaptive_avg_pool2d(%x, [1, 1]): f32[1, 4, 1, 1]
  return %adaptive_avg_pool2d \"y\"
}",
    ),
};

/// A mean over depth, height and width that keeps them.
pub static GLOBAL_POOL3D: RuleDef = RuleDef {
    name: "global_pool3d",
    doc: "A mean over the last three of five dimensions that keeps them is global average pooling.",
    spellings: &["mean(x, [-1, -2, -3], keepdim=true, dtype=none)", "mean(x, [2, 3, 4], keepdim=true, dtype=none)"],
    any: &[],
    conditions: &["rank(x) == 5", "floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.adaptive_avg_pool3d", vec![vec![1i64, 1, 1].into()])),
    example: (
        "graph(%x: f32[1, 4, 2, 4, 4]) {\n %y = aten.mean.dim(%x, [-1, -2, -3], true)\n return %y\n}",
        "graph(%x: f32[1, 4, 2, 4, 4]) {
  %adaptive_avg_pool3d = aten.adaptive_avg_pool3d(%x, [1, 1, 1]): f32[1, 4, 1, 1, 1]
  return %adaptive_avg_pool3d \"y\"
}",
    ),
};

/// `_softmax`.
pub static SOFTMAX: RuleDef = RuleDef {
    name: "softmax",
    doc: "Core ATen's softmax.",
    spellings: &["s:_softmax(x, half_to_float=false)"],
    any: &[],
    conditions: &[],
    build: |m| Ok(m.value("x")?.op("aten.softmax.int", vec![m.arg_of("s", "dim")])),
    example: (
        "graph(%x: f32[2, 4]) {\n %y = aten._softmax(%x, -1, false)\n return %y\n}",
        "graph(%x: f32[2, 4]) {\n  %softmax = aten.softmax.int(%x, -1): f32[2, 4]\n  return %softmax \"y\"\n}",
    ),
};

/// `_log_softmax`.
pub static LOG_SOFTMAX: RuleDef = RuleDef {
    name: "log_softmax",
    doc: "Core ATen's logarithm of softmax.",
    spellings: &["s:_log_softmax(x, half_to_float=false)"],
    any: &[],
    conditions: &[],
    build: |m| Ok(m.value("x")?.op("aten.log_softmax.int", vec![m.arg_of("s", "dim")])),
    example: (
        "graph(%x: f32[2, 4]) {\n %y = aten._log_softmax(%x, -1, false)\n return %y\n}",
        "graph(%x: f32[2, 4]) {\n  %log_softmax = aten.log_softmax.int(%x, -1): f32[2, 4]\n  return %log_softmax \"y\"\n}",
    ),
};
