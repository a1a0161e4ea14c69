//! Boxes chosen among many.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, ArrayView1, Ix3, s};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[("onnx.NonMaxSuppression", non_max_suppression)];

fn non_max_suppression(c: &Ctx<'_>) -> Result<Value> {
    let of = |name: &str| -> Result<_> {
        c.array(name)?.to_f64().into_dimensionality::<Ix3>().map_err(|e| c.err(format!("argument '{name}': {e}")))
    };
    let (boxes, scores) = (of("boxes")?, of("scores")?);
    let most = usize::try_from(c.int("max_output_boxes_per_class")?).unwrap_or(0);
    let (overlap, least) = (c.float("iou_threshold")?, c.opt_float("score_threshold")?);
    let centred = c.bool("center_point_box")?;
    let (images, count, sides) = boxes.dim();
    if sides != 4 || scores.dim().0 != images || scores.dim().2 != count {
        return Err(c.err(format!("boxes of shape {:?}, scores of shape {:?}", boxes.shape(), scores.shape())));
    }
    let mut rows: Vec<i64> = vec![];
    for image in 0..images {
        let all: Vec<[f64; 4]> = (0..count).map(|i| corners(boxes.slice(s![image, i, ..]), centred)).collect();
        for class in 0..scores.dim().1 {
            let score = |i: usize| scores[[image, class, i]];
            let mut order: Vec<usize> = (0..count).filter(|i| least.is_none_or(|l| score(*i) > l)).collect();
            order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
            let mut chosen: Vec<usize> = vec![];
            for i in order {
                if chosen.len() == most {
                    break;
                }
                if chosen.iter().all(|j| shared(&all[i], &all[*j]) <= overlap) {
                    chosen.push(i);
                    rows.extend([image, class, i].map(|v| v as i64));
                }
            }
        }
    }
    let shape = vec![rows.len() / 3, 3];
    let data = ArrayD::from_shape_vec(shape, rows).map_err(|e| c.err(e.to_string()))?;
    Ok(Value::Array(Array::int(DType::I64, data)))
}

/// Least and greatest coordinates.
fn corners(b: ArrayView1<'_, f64>, centred: bool) -> [f64; 4] {
    match centred {
        true => [b[0] - b[2] / 2.0, b[1] - b[3] / 2.0, b[0] + b[2] / 2.0, b[1] + b[3] / 2.0],
        false => [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])],
    }
}

/// The common area of two boxes as a share of that which both cover.
fn shared(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.0);
    let area = |x: &[f64; 4]| (x[2] - x[0]) * (x[3] - x[1]);
    let common = side(0) * side(1);
    let union = area(a) + area(b) - common;
    if common <= 0.0 || union <= 0.0 { 0.0 } else { f64::from((common / union) as f32) }
}
