//! Detectors: boxes chosen, and parts of images cut out by boxes.

use super::host::Known;
use super::node::{Ctx, Map, Step, dim_of};
use cleave_ir::{Arg, Dim, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[("NonMaxSuppression", non_max_suppression), ("RoiAlign", roi_align)];

fn non_max_suppression<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (boxes, scores) = (c.value(0)?, c.value(1)?);
    let most = c.opt_ints(2)?.and_then(|m| m.first().copied()).unwrap_or(0);
    let (overlap, least) = (c.opt_scalar(3)?.unwrap_or(0.0), c.opt_scalar(4)?);
    let centred = c.flag("center_point_box", false)?;
    let args = vec![boxes.into(), scores.into(), most.into(), Arg::Float(overlap), least.into(), centred.into()];
    c.one(c.call("onnx.NonMaxSuppression", args))
}

/// Means over samples in each cell of a grid laid over a box, each sample interpolated between four elements: a
/// product with one matrix of weights for each direction.
fn roi_align<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, rois, images) = (c.value(0)?, c.value(1)?, c.value(2)?);
    if (x.rank(), rois.rank(), images.rank()) != (4, 2, 1) {
        return Err(format!("inputs of ranks {}, {}, {}", x.rank(), rois.rank(), images.rank()));
    }
    if c.str("mode", "avg")? != "avg" {
        return Err("mode 'max' is not supported".into());
    }
    let (rows, columns) = (c.int("output_height", 1)?, c.int("output_width", 1)?);
    let (samples, scale) = (c.int("sampling_ratio", 0)?, c.float("spatial_scale", 1.0)?);
    if [rows, columns].iter().any(|n| !(1..1 << 12).contains(n)) || !(0..1 << 8).contains(&samples) {
        return Err(format!("a grid of {rows} by {columns} cells of {samples} samples"));
    }
    if samples == 0 {
        return Err("sampling_ratio 0, by which the size of a box decides the samples, is not supported".into());
    }
    let place = if c.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let aligned = c.str("coordinate_transformation_mode", place)? == "half_pixel";
    let boxes = rois * scale - if aligned { 0.5 } else { 0.0 };
    let line = |n: Dim| {
        let steps = vec![0i64.into(), n.into(), 1i64.into(), DType::I64.into()];
        c.b.call("aten.arange.start_step", steps).to(x.dtype())
    };
    // [boxes, cells · samples, size]: what each element weighs.
    let weights = |cells: i64, at: i64, size: Dim| -> Value<'b> {
        let edge = |i: i64| boxes.op("aten.slice.Tensor", vec![1i64.into(), i.into(), (i + 1).into()]);
        let (start, end) = (edge(at), edge(at + 2));
        let span = end - start;
        let span = if aligned { span } else { span.clamp(Some(1.0), None) };
        let share = (line((cells * samples).into()) + 0.5) / (cells * samples) as f64;
        let y = start + span * share;
        let low = y.op("aten.ge.Scalar", vec![Arg::Float(-1.0)]);
        let high = y.op("aten.le.Tensor", vec![size.clone().into()]);
        let inside = low.op("aten.logical_and", vec![high.into()]).to(x.dtype());
        let last = line(size.clone()).op("aten.amax", vec![vec![0i64].into()]);
        let y = y.clamp(Some(0.0), None).op("aten.minimum", vec![last.into()]).op("aten.unsqueeze", vec![2i64.into()]);
        let near = ((y - line(size)).abs().op("aten.rsub.Scalar", vec![1i64.into()])).relu();
        near * inside.op("aten.unsqueeze", vec![2i64.into()])
    };
    let over_channels = |w: Value<'b>| w.op("aten.unsqueeze", vec![1i64.into()]);
    let vertical = over_channels(weights(rows, 1, dim_of(x, 2)));
    let horizontal = over_channels(weights(columns, 0, dim_of(x, 3))).permute(vec![0, 1, 3, 2]);
    let each = x.op("aten.index_select", vec![0i64.into(), images.to(DType::I64).into()]);
    let y = vertical.op("aten.matmul", vec![each.into()]).op("aten.matmul", vec![horizontal.into()]);
    let grid = [rows, samples, columns, samples].map(Dim::from);
    let split = [vec![dim_of(rois, 0), dim_of(x, 1)], grid.to_vec()].concat();
    let y = y.op("aten.reshape", vec![split.into()]);
    c.one(c.call("aten.mean.dim", vec![y.into(), vec![3i64, 5].into(), false.into()]))
}
