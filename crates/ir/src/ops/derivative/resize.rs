//! Resizing, which is linear: its gradient has an op of its own, and that one's gradient is resizing again.

use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.upsample_nearest1d.vec", "", resized),
    Derivative::new("aten.upsample_nearest1d.default", "", resized),
    Derivative::new("aten.upsample_nearest1d_backward.default", "f32[1, 2, 5], [5], [1, 2, 3]", back),
    Derivative::new("aten.upsample_nearest2d.vec", "", resized),
    Derivative::new("aten.upsample_nearest2d.default", "", resized),
    Derivative::new("aten.upsample_nearest2d_backward.default", "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2]", back),
    Derivative::new("aten.upsample_nearest3d.vec", "", resized),
    Derivative::new("aten.upsample_nearest3d.default", "", resized),
    Derivative::new("aten.upsample_nearest3d_backward.default", "f32[1, 1, 3, 2, 5], [3, 2, 5], [1, 1, 2, 2, 3]", back),
    Derivative::new("aten._upsample_nearest_exact1d.vec", "", resized),
    Derivative::new("aten._upsample_nearest_exact1d.default", "", resized),
    Derivative::new("aten._upsample_nearest_exact1d_backward.default", "f32[1, 2, 5], [5], [1, 2, 3]", back),
    Derivative::new("aten._upsample_nearest_exact2d.vec", "", resized),
    Derivative::new("aten._upsample_nearest_exact2d.default", "", resized),
    Derivative::new("aten._upsample_nearest_exact2d_backward.default", "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2]", back),
    Derivative::new("aten._upsample_nearest_exact3d.vec", "", resized),
    Derivative::new("aten._upsample_nearest_exact3d.default", "", resized),
    Derivative::new(
        "aten._upsample_nearest_exact3d_backward.default",
        "f32[1, 1, 3, 2, 5], [3, 2, 5], [1, 1, 2, 2, 3]",
        back,
    ),
    Derivative::new("aten.upsample_linear1d.vec", "", resized),
    Derivative::new("aten.upsample_linear1d.default", "", resized),
    Derivative::new("aten.upsample_linear1d_backward.default", "f32[1, 2, 5], [5], [1, 2, 3], false", back),
    Derivative::new("aten.upsample_bilinear2d.vec", "", resized),
    Derivative::new("aten.upsample_bilinear2d.default", "", resized),
    Derivative::new("aten.upsample_bilinear2d_backward.default", "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2], false", back),
    Derivative::new("aten.upsample_trilinear3d.vec", "", resized),
    Derivative::new("aten.upsample_trilinear3d.default", "", resized),
    Derivative::new(
        "aten.upsample_trilinear3d_backward.default",
        "f32[1, 1, 3, 2, 5], [3, 2, 5], [1, 1, 2, 2, 3], false",
        back,
    ),
    Derivative::new("aten.upsample_bicubic2d.vec", "", resized),
    Derivative::new("aten.upsample_bicubic2d.default", "", resized),
    Derivative::new("aten.upsample_bicubic2d_backward.default", "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2], false", back),
    Derivative::new("aten._upsample_bilinear2d_aa.vec", "", resized),
    Derivative::new(
        "aten._upsample_bilinear2d_aa.default",
        "f32[1, 1, 4, 3], [2, 2], false | f32[1, 1, 3, 2], [5, 3], true",
        resized,
    ),
    Derivative::new(
        "aten._upsample_bilinear2d_aa_backward.default",
        "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2], false",
        back,
    ),
    Derivative::new("aten._upsample_bicubic2d_aa.vec", "", resized),
    Derivative::new(
        "aten._upsample_bicubic2d_aa.default",
        "f32[1, 1, 4, 3], [2, 2], false | f32[1, 1, 3, 2], [5, 3], true",
        resized,
    ),
    Derivative::new(
        "aten._upsample_bicubic2d_aa_backward.default",
        "f32[1, 1, 5, 3], [5, 3], [1, 1, 3, 2], false",
        back,
    ),
];

/// By lists or by single scales, the backward takes sizes and single scales.
fn resized(d: &Gradient<'_>) {
    let lists = d.op.schema.index("scale_factors").is_some();
    let image = if lists { "input" } else { "self" };
    let x = d.tensor(image);
    let space: Vec<_> = d.y().shape().into_iter().skip(2).collect();
    let mut args: Vec<Arg> = vec![space.clone().into(), x.shape().into()];
    args.extend(d.op.schema.index("align_corners").map(|_| d.arg("align_corners").clone()));
    match d.arg(if lists { "scale_factors" } else { image }) {
        Arg::List(scales) => args.extend(scales.iter().cloned()),
        Arg::None => args.extend(space.iter().map(|_| Arg::None)),
        _ => args.extend(d.args.iter().skip(args.len()).cloned()),
    }
    d.give(image, d.g().op(&format!("aten.{}_backward", d.op.base()), args));
}

fn back(d: &Gradient<'_>) {
    let forward = format!("aten.{}.default", d.op.base().trim_end_matches("_backward"));
    let rest = d.args.iter().enumerate().skip(1).filter(|(i, _)| *i != 2).map(|(_, a)| a.clone());
    d.give("grad_output", d.g().op(&forward, rest.collect()));
}
