//! Spectra, windows, and images read at places that are computed.

use super::host::{Host, Known, cast};
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use cleave_ir::{Dim, Tensor, Value};
use cleave_numerics::DType;
use std::f64::consts::PI;

pub(super) const OPS: &[(&str, Map)] = &[
    ("DFT", dft),
    ("STFT", stft),
    ("HannWindow", |c| window(c, [0.5, -0.5, 0.0])),
    ("HammingWindow", |c| window(c, [25.0 / 46.0, -21.0 / 46.0, 0.0])),
    ("BlackmanWindow", |c| window(c, [0.42, -0.5, 0.08])),
    ("MelWeightMatrix", mel),
    ("GridSample", grid_sample),
    ("AffineGrid", affine_grid),
    ("Col2Im", col2im),
    ("DeformConv", deform_conv),
    ("Det", |c| {
        let x = c.value(0)?;
        c.one(c.call("aten.linalg_det", vec![x.into()]))
    }),
];

/// The longest transform, which is computed by a matrix.
const LONGEST: i64 = 4096;

fn constant<'b>(c: &Ctx<'b, '_>, name: &str, shape: &[usize], v: Vec<f32>, dtype: DType) -> Value<'b> {
    let t = cast(&Tensor::new(shape, v), dtype);
    c.node_of(&Known::Host(Host::tensor(&format!("{}.{name}", c.name), t)))
}

/// A dimension multiplied by a matrix `[to, from]`.
pub(super) fn along_axis<'b>(x: Value<'b>, m: Value<'b>, axis: usize) -> Value<'b> {
    let rank = x.rank();
    if axis + 1 == rank {
        return x.op("aten.linear", vec![m.into()]);
    }
    let swap = |v: Value<'b>| match axis + 2 == rank {
        true => v,
        false => v.op("aten.transpose.int", vec![axis.into(), (-2i64).into()]),
    };
    swap(m.op("aten.matmul", vec![swap(x).into()]))
}

/// How a transform goes.
struct Transform {
    length: i64,
    inverse: bool,
    onesided: bool,
}

/// The transform along `axis` of a tensor whose last dimension holds real and imaginary parts.
fn transformed<'b>(c: &Ctx<'b, '_>, x: Value<'b>, axis: usize, t: &Transform) -> Step<Value<'b>> {
    let n = t.length;
    let last = x.rank().saturating_sub(1);
    if x.rank() == 0 || !(1..=LONGEST).contains(&n) || axis >= last {
        return Err(format!("a transform of length {n} along axis {axis} of rank {}", x.rank()));
    }
    // As many elements as the transform takes, and as it gives.
    let half = n / 2 + 1;
    let (takes, gives) = match (t.inverse, t.onesided) {
        (true, true) => (half, n),
        (false, true) => (n, half),
        _ => (n, n),
    };
    let have = dim_of(x, axis).as_const().ok_or("a transform of an axis of unknown size")?;
    // Sums of many terms that nearly cancel, in f64.
    let dtype = x.dtype();
    let mut x = x.to(DType::F64);
    if have > takes {
        x = x.op("aten.slice.Tensor", vec![axis.into(), 0i64.into(), takes.into()]);
    } else if have < takes {
        let mut pads = vec![0i64; 2 * (x.rank() - axis)];
        let end = pads.len() - 1;
        pads[end] = takes - have;
        x = x.op("aten.constant_pad_nd", vec![pads.into(), 0.0.into()]);
    }
    let sign = if t.inverse { 1.0 } else { -1.0 };
    let scale = if t.inverse { 1.0 / n as f64 } else { 1.0 };
    let table = |f: fn(f64) -> f64, name: &str| {
        let one = |j: i64, k: i64| {
            // A half spectrum stands for both halves, but for its ends.
            let twice = t.inverse && t.onesided && k != 0 && 2 * k != n;
            let w = if twice { 2.0 * scale } else { scale };
            f(2.0 * PI * ((j * k) % n) as f64 / n as f64) * w
        };
        let v: Vec<f64> = (0..gives).flat_map(|j| (0..takes).map(move |k| one(j, k))).collect();
        let t = Tensor::new(&[gives as usize, takes as usize], v);
        c.node_of(&Known::Host(Host::tensor(&format!("{}.{name}", c.name), t)))
    };
    let (cos, sin) = (table(f64::cos, "cos"), table(f64::sin, "sin"));
    let part = |i: i64| x.op("aten.select.int", vec![last.into(), i.into()]);
    let times = |v: Value<'b>, m: Value<'b>| along_axis(v, m, axis);
    let re = part(0);
    let complex = dim_of(x, last).is(2);
    let mut real = times(re, cos);
    let mut imag = times(re, sin) * sign;
    if complex {
        let im = part(1);
        real = real - times(im, sin) * sign;
        imag = imag + times(im, cos);
    }
    if t.inverse && t.onesided {
        return Ok(real.to(dtype).op("aten.unsqueeze", vec![(-1i64).into()]));
    }
    Ok(c.b.call("aten.stack", vec![vec![real, imag].into(), (-1i64).into()]).to(dtype))
}

fn dft<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let axis =
        if c.opset < 20 { c.int("axis", 1)? } else { c.opt_ints(2)?.and_then(|a| a.first().copied()).unwrap_or(-2) };
    let axis = axis_of(axis, x.rank())?;
    let (inverse, onesided) = (c.flag("inverse", false)?, c.flag("onesided", false)?);
    let length = match c.opt_ints(1)?.and_then(|l| l.first().copied()) {
        Some(n) => n,
        None => {
            let n = dim_of(x, axis).as_const().ok_or("a transform of an axis of unknown size")?;
            if inverse && onesided { 2 * (n - 1) } else { n }
        }
    };
    c.one(transformed(c, x, axis, &Transform { length, inverse, onesided })?)
}

fn stft<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let mut x = c.value(0)?;
    let one = |i: usize| -> Step<Option<i64>> { Ok(c.opt_ints(i)?.and_then(|l| l.first().copied())) };
    let step = one(1)?.filter(|s| *s > 0).ok_or("frame_step is missing")?;
    let window = c.opt_value(2);
    let length = match (one(3)?, window) {
        (Some(n), _) => n,
        (None, Some(w)) => dim_of(w, 0).as_const().ok_or("a window of unknown size")?,
        (None, None) => return Err("neither window nor frame_length is given".into()),
    };
    if x.rank() == 2 {
        x = x.op("aten.unsqueeze", vec![(-1i64).into()]);
    }
    if x.rank() != 3 || length < 1 {
        return Err(format!("a signal of rank {} in frames of {length}", x.rank()));
    }
    // [batch, frames, parts, length] with the parts last again.
    let frames = x.op("aten.unfold", vec![1i64.into(), length.into(), step.into()]).permute(vec![0, 1, 3, 2]);
    let weighed = match window {
        Some(w) => frames * w.op("aten.reshape", vec![vec![-1i64, 1].into()]),
        None => frames,
    };
    let onesided = c.flag("onesided", true)?;
    c.one(transformed(c, weighed, 2, &Transform { length, inverse: false, onesided })?)
}

/// A sum of cosines of no, one and two periods.
fn window<'b>(c: &Ctx<'b, '_>, parts: [f64; 3]) -> Step<Vec<Known<'b>>> {
    let size = c.opt_ints(0)?.and_then(|s| s.first().copied()).filter(|s| (0..1 << 24).contains(s));
    let size = size.ok_or("input 0: expected a size")?;
    let period = if c.flag("periodic", true)? { size } else { size - 1 } as f64;
    let dtype = c.opt_dtype("output_datatype")?.unwrap_or(DType::F32);
    let at =
        |i: i64| (0..3).zip(parts).map(|(k, p)| p * (2.0 * PI * f64::from(k) * i as f64 / period).cos()).sum::<f64>();
    let v: Vec<f64> = (0..size).map(at).collect();
    c.folded(cast(&Tensor::new(&[v.len()], v), dtype))
}

/// Triangles over the bins of a spectrum, evenly spaced on the mel scale.
fn mel<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let number = |i: usize| c.opt_scalar(i)?.ok_or_else(|| format!("input {i} is missing"));
    let (bins, length, rate) = (number(0)?, number(1)?, number(2)?);
    let (low, high) = (number(3)?, number(4)?);
    let dtype = c.opt_dtype("output_datatype")?.unwrap_or(DType::F32);
    let sensible = (0.0..65_536.0).contains(&bins) && (0.0..16_777_216.0).contains(&length) && rate > 0.0;
    if !sensible {
        return Err(format!("{bins} bins of {length} at {rate} a second"));
    }
    let (columns, rows) = (bins as usize, length as usize / 2 + 1);
    super::fold::limited(&[rows, columns])?;
    let of_hertz = |f: f64| 2595.0 * (f / 700.0).ln_1p() / 10f64.ln();
    let step = (of_hertz(high) - of_hertz(low)) / (bins + 2.0);
    let edge = |i: usize| {
        let hertz = 700.0 * ((i as f64 * step + of_hertz(low)) / 2595.0 * 10f64.ln()).exp_m1();
        ((length + 1.0) * hertz / rate).floor().max(0.0) as usize
    };
    let mut out = vec![0f64; rows * columns];
    let mut put = |j: usize, i: usize, v: f64| {
        if j < rows {
            out[j * columns + i] = v;
        }
    };
    for i in 0..columns {
        let (from, centre, to) = (edge(i), edge(i + 1), edge(i + 2));
        if centre == from {
            put(centre, i, 1.0);
        } else {
            (from..=centre.min(rows)).for_each(|j| put(j, i, (j - from) as f64 / (centre - from) as f64));
        }
        (centre..to.min(rows)).for_each(|j| put(j, i, (to - j) as f64 / (to - centre) as f64));
    }
    c.folded(cast(&Tensor::new(&[rows, columns], out), dtype))
}

fn grid_sample<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, grid) = (c.value(0)?, c.value(1)?);
    let mode = match c.str("mode", "linear")? {
        "linear" | "bilinear" => 0i64,
        "nearest" => 1,
        "cubic" | "bicubic" => 2,
        other => return Err(format!("attribute 'mode': found '{other}'")),
    };
    let padding = match c.str("padding_mode", "zeros")? {
        "zeros" => 0i64,
        "border" => 1,
        "reflection" => 2,
        other => return Err(format!("attribute 'padding_mode': found '{other}'")),
    };
    let align = c.flag("align_corners", false)?;
    c.one(c.call("aten.grid_sampler", vec![x.into(), grid.into(), mode.into(), padding.into(), align.into()]))
}

/// Places in [-1, 1] of all elements of an image, moved by a matrix for each of a batch.
fn affine_grid<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let theta = c.value(0)?;
    let size = c.opt_ints(1)?.ok_or("input 1 is missing")?;
    let align = c.flag("align_corners", false)?;
    let space: Vec<usize> = size.iter().skip(2).filter_map(|s| usize::try_from(*s).ok()).collect();
    if !(2..=3).contains(&space.len()) || space.len() + 2 != size.len() {
        return Err(format!("size {size:?}, expected 4 or 5 numbers"));
    }
    let count = super::fold::limited(&space)?;
    let (n, mut base) = (space.len(), vec![]);
    for at in 0..count {
        let (mut rest, mut place) = (at, vec![1f32]);
        for s in space.iter().rev() {
            let i = (rest % s) as f64;
            rest /= s;
            place.push(match align {
                true if *s > 1 => (2.0 * i / (*s as f64 - 1.0) - 1.0) as f32,
                true => -1.0,
                false => ((2.0 * i + 1.0) / *s as f64 - 1.0) as f32,
            });
        }
        base.extend(place[1..].iter().chain(&place[..1]));
    }
    let base = constant(c, "base", &[count, n + 1], base, theta.dtype());
    let grid = base.op("aten.matmul", vec![theta.permute(vec![0, 2, 1]).into()]);
    let shape = [
        vec![dim_of(theta, 0)],
        size[2..].iter().map(|s| Dim::from(*s)).collect(),
        vec![n.try_into().map(|n: i64| Dim::from(n)).unwrap_or(0.into())],
    ];
    c.one(c.call("aten.reshape", vec![grid.into(), shape.concat().into()]))
}

/// Blocks added up at the places of the image from which they would be taken.
fn col2im<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let (image, block) = (c.opt_ints(1)?.ok_or("input 1 is missing")?, c.opt_ints(2)?.ok_or("input 2 is missing")?);
    let n = image.len();
    let (stride, dilation, pads) = (c.list("strides", n, 1)?, c.list("dilations", n, 1)?, c.list("pads", 2 * n, 0)?);
    let positive = image.iter().chain(&block).chain(&stride).chain(&dilation).all(|v| (1..1 << 24).contains(v));
    if block.len() != n || n == 0 || !positive || pads.iter().any(|p| !(0..1 << 24).contains(p)) || x.rank() != 3 {
        return Err(format!(
            "image {image:?}, block {block:?}, strides {stride:?}, dilations {dilation:?}, pads {pads:?}"
        ));
    }
    let full: Vec<i64> = (0..n).map(|i| image[i] + pads[i] + pads[n + i]).collect();
    let places: Vec<i64> = (0..n).map(|i| (full[i] - (block[i] - 1) * dilation[i] - 1) / stride[i] + 1).collect();
    let as_sizes =
        |v: &[i64]| v.iter().map(|s| usize::try_from(*s).map_err(|e| e.to_string())).collect::<Step<Vec<_>>>();
    let elements = super::fold::limited(&as_sizes(&[block.as_slice(), &places].concat())?)?;
    let total = i64::try_from(super::fold::limited(&as_sizes(&full)?)?).map_err(|e| e.to_string())?;
    let blocks: i64 = places.iter().product();
    let mut index = vec![];
    for e in 0..i64::try_from(elements).map_err(|e| e.to_string())? {
        let (mut k, mut p, mut at, mut width) = (e / blocks, e % blocks, 0, 1);
        for i in (0..n).rev() {
            at += ((k % block[i]) * dilation[i] + (p % places[i]) * stride[i]) * width;
            (k, p, width) = (k / block[i], p / places[i], width * full[i]);
        }
        index.push(at);
    }
    let index = Tensor::new(&[index.len()], index);
    let index = c.node_of(&Known::Host(Host::tensor(&format!("{}.index", c.name), index)));
    let channels = dim_of(x, 1).floor_div(&block.iter().product::<i64>().into());
    let lead = vec![dim_of(x, 0), channels];
    let flat = x.op("aten.reshape", vec![[lead.clone(), vec![Dim::from(-1)]].concat().into()]);
    let zeros =
        c.b.call("aten.full", vec![[lead.clone(), vec![total.into()]].concat().into(), 0.0.into(), x.dtype().into()]);
    let y = zeros.op("aten.index_add", vec![2i64.into(), index.into(), flat.into()]);
    let mut y = y.op("aten.reshape", vec![[lead, full.iter().map(|f| Dim::from(*f)).collect()].concat().into()]);
    for i in 0..n {
        if pads[i] + pads[n + i] > 0 {
            y = y.op("aten.slice.Tensor", vec![(i + 2).into(), pads[i].into(), (pads[i] + image[i]).into()]);
        }
    }
    c.one(y)
}

/// A convolution of two dimensions whose elements are read at places that are moved by offsets.
fn deform_conv<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, w, offset) = (c.value(0)?, c.value(1)?, c.value(2)?);
    let known = |v: Value<'b>| v.shape().iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (Some(xs), Some(ws), Some(os)) = (known(x), known(w), known(offset)) else {
        return Err("a deformable convolution of unknown size is not supported".into());
    };
    let ([_, channels, h, width], [out, _, kh, kw], [batch, _, oh, ow]) = (xs.as_slice(), ws.as_slice(), os.as_slice())
    else {
        return Err(format!("inputs of shapes {xs:?}, {ws:?}, {os:?}"));
    };
    let (stride, dilation, pads) = (c.list("strides", 2, 1)?, c.list("dilations", 2, 1)?, c.list("pads", 4, 0)?);
    let (groups, sets) = (c.int("group", 1)?, c.int("offset_group", 1)?);
    c.opt_list("kernel_shape")?;
    let all = stride.iter().chain(&dilation).chain(&pads).chain([kh, kw, oh, ow]);
    if all.clone().any(|v| !(0..1 << 16).contains(v)) || !(1..1 << 16).contains(&sets) {
        return Err(format!("strides {stride:?}, dilations {dilation:?}, pads {pads:?}, {sets} sets of offsets"));
    }
    let taps = kh * kw;
    if groups < 1
        || sets < 1
        || channels % groups != 0
        || channels % sets != 0
        || out % groups != 0
        || sets * taps > 4096
    {
        return Err(format!("{channels} channels in {groups} groups and {sets} sets of offsets, {taps} taps"));
    }
    let line = |n: i64, s: i64, first: i64| -> Vec<f32> { (0..n).map(|i| (i * s + first) as f32).collect() };
    let pick = |v: Value<'b>, i: i64| v.op("aten.select.int", vec![1i64.into(), i.into()]);
    let mut parts = vec![];
    for s in 0..sets {
        let each = channels / sets;
        let xs = x.op("aten.slice.Tensor", vec![1i64.into(), (s * each).into(), ((s + 1) * each).into()]);
        for k in 0..taps {
            let (i, j) = (k / kw, k % kw);
            let rows =
                constant(c, "rows", &[*oh as usize, 1], line(*oh, stride[0], i * dilation[0] - pads[0]), x.dtype());
            let columns =
                constant(c, "columns", &[*ow as usize], line(*ow, stride[1], j * dilation[1] - pads[1]), x.dtype());
            let at = 2 * (s * taps + k);
            // Places as shares of the image from -1 to 1.
            let share = |v: Value<'b>, n: i64| v * (2.0 / (n - 1).max(1) as f64) - 1.0;
            let y = share(pick(offset, at) + rows, *h);
            let z = share(pick(offset, at + 1) + columns, *width);
            let grid = c.b.call("aten.stack", vec![vec![z, y].into(), (-1i64).into()]);
            let mut v = xs.op("aten.grid_sampler", vec![grid.into(), 0i64.into(), 0i64.into(), true.into()]);
            if let Some(m) = c.opt_value(4) {
                v = v * pick(m, s * taps + k).op("aten.unsqueeze", vec![1i64.into()]);
            }
            parts.push(v);
        }
    }
    // [batch, sets, taps, channels, places] as rows of each group's weights.
    let all = c.b.call("aten.stack", vec![parts.into(), 1i64.into()]);
    let split = vec![*batch, sets, taps, channels / sets, oh * ow];
    let all = all.op("aten.reshape", vec![split.into()]).permute(vec![0, 1, 3, 2, 4]);
    let all = all.op("aten.reshape", vec![vec![*batch, groups, channels / groups * taps, oh * ow].into()]);
    let w = w.op("aten.reshape", vec![vec![groups, out / groups, channels / groups * taps].into()]);
    let y = w.op("aten.matmul", vec![all.into()]).op("aten.reshape", vec![vec![*batch, *out, *oh, *ow].into()]);
    c.one(match c.opt_value(3) {
        Some(b) => y + b.op("aten.reshape", vec![vec![-1i64, 1, 1].into()]),
        None => y,
    })
}
