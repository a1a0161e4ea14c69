//! Boxes chosen among many: what detectors end in and ATen lacks.

use super::infer::ensure;
use crate::dim::Dim;
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

/// For each image and class the boxes of the greatest scores that overlap none of those chosen before by more than a
/// share of their union: rows of image, class and box. Boxes are `[images, boxes, 4]`, two corners (y first) or centre
/// and size (x first); scores are `[images, classes, boxes]`, and count if they are greater than the threshold.
pub static NON_MAX_SUPPRESSION: OpDef = OpDef {
    name: "onnx.NonMaxSuppression",
    schema: "(Tensor boxes, Tensor scores, int max_output_boxes_per_class, float iou_threshold, float? score_threshold, bool center_point_box) -> Tensor",
    class: Class::Move,
    levels: Levels::ALL,
    infer: Some(|c| {
        let (boxes, scores) = (c.meta("boxes")?, c.meta("scores")?);
        let fits = boxes.shape.len() == 3 && scores.shape.len() == 3 && boxes.shape[2].as_const().is_none_or(|n| n == 4);
        ensure(c, fits, || format!("boxes of shape {:?}, scores of shape {:?}", boxes.shape, scores.shape))?;
        Ok(Meta::tensor(DType::I64, vec![Dim::unknown(0), 3.into()]))
    }),
    ..OpDef::BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&NON_MAX_SUPPRESSION]];
