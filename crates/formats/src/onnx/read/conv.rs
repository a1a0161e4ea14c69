//! Convolutions.

use super::host::Known;
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Dim, Value};

pub(super) const OPS: &[(&str, Map)] = &[("Conv", conv), ("ConvTranspose", conv_transpose)];

/// How far a window reaches and where it starts.
pub(super) struct Window {
    pub kernel: Vec<i64>,
    pub stride: Vec<i64>,
    pub dilation: Vec<i64>,
    /// Padding before and after each dimension.
    pub before: Vec<Dim>,
    pub after: Vec<Dim>,
}

impl Window {
    /// The attributes that all window operators share, for `n` spatial dimensions of `x`.
    pub fn read(c: &Ctx<'_, '_>, x: Value<'_>, kernel: Vec<i64>) -> Step<Window> {
        let n = kernel.len();
        let (stride, dilation) = (c.list("strides", n, 1)?, c.list("dilations", n, 1)?);
        let all = kernel.iter().chain(&stride).chain(&dilation);
        if n == 0 || all.clone().any(|v| !(1..1 << 31).contains(v)) {
            return Err(format!("kernel {kernel:?}, strides {stride:?}, dilations {dilation:?}: expected positive"));
        }
        let pads = c.list("pads", 2 * n, 0)?;
        if pads.iter().any(|p| !(0..1 << 31).contains(p)) {
            return Err(format!("pads {pads:?}: expected at least 0"));
        }
        let to_dims = |v: &[i64]| v.iter().map(|p| Dim::from(*p)).collect::<Vec<_>>();
        let mut w = Window { kernel, stride, dilation, before: to_dims(&pads[..n]), after: to_dims(&pads[n..]) };
        match c.str("auto_pad", "NOTSET")? {
            "NOTSET" | "" => {}
            "VALID" => {
                w.before = to_dims(&vec![0; n]);
                w.after = w.before.clone();
            }
            how @ ("SAME_UPPER" | "SAME_LOWER") => w.same(&x.shape(), how == "SAME_UPPER")?,
            other => return Err(format!("attribute 'auto_pad': found '{other}'")),
        }
        Ok(w)
    }

    /// Pads so that there are `ceil(size / stride)` places, the odd one after (upper) or before.
    fn same(&mut self, shape: &[Dim], upper: bool) -> Step<()> {
        let lead = shape.len().checked_sub(self.kernel.len()).ok_or("input of too low a rank")?;
        for (i, n) in shape[lead..].iter().enumerate() {
            let (s, reach) = (self.stride[i], (self.kernel[i] - 1) * self.dilation[i] + 1);
            let places = (n.clone() + (s - 1).into()).floor_div(&s.into());
            let total = (places - 1.into()) * s.into() + reach.into() - n.clone();
            let total = if s == 1 { total } else { total.max_of(&0.into()) };
            let less = total.floor_div(&2.into());
            let more = total - less.clone();
            (self.before[i], self.after[i]) = if upper { (less, more) } else { (more, less) };
        }
        Ok(())
    }

    /// The padding, if it is the same number before and after every dimension.
    pub fn symmetric(&self) -> Option<Vec<i64>> {
        if self.before != self.after {
            return None;
        }
        self.before.iter().map(Dim::as_const).collect()
    }

    /// The input with the padding put around it.
    pub fn pad<'b>(&self, x: Value<'b>, value: impl Into<Arg>) -> Value<'b> {
        let pairs = self.before.iter().zip(&self.after).rev();
        let pads: Vec<Dim> = pairs.flat_map(|(b, a)| [b.clone(), a.clone()]).collect();
        x.op("aten.constant_pad_nd", vec![pads.into(), value.into()])
    }
}

/// The kernel's size: the weight's, with which the attribute must agree.
fn kernel(c: &Ctx<'_, '_>, w: Value<'_>) -> Step<Vec<i64>> {
    let shape = w.shape();
    let size = shape.iter().skip(2).map(Dim::as_const).collect::<Option<Vec<_>>>();
    let size = size.filter(|s| !s.is_empty()).ok_or_else(|| format!("weight of shape {shape:?}"))?;
    match c.opt_list("kernel_shape")? {
        Some(k) if k != size => Err(format!("kernel_shape {k:?}, weight {shape:?}")),
        _ => Ok(size),
    }
}

/// torch's op for so many spatial dimensions.
fn op_for(base: &str, n: usize) -> Step<String> {
    match n {
        1..=3 => {
            Ok(if base == "conv" || n == 1 { format!("aten.{base}{n}d") } else { format!("aten.{base}{n}d.input") })
        }
        _ => Err(format!("{n} spatial dimensions, expected 1 to 3")),
    }
}

fn conv<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (op, args) = conv_args(c, c.value(0)?, c.value(1)?, c.opt_value(2))?;
    c.one(c.call(&op, args))
}

/// torch's convolution and its arguments for a node with the attributes of Conv.
pub(super) fn conv_args<'b>(
    c: &Ctx<'b, '_>,
    mut x: Value<'b>,
    w: Value<'b>,
    bias: Option<Value<'b>>,
) -> Step<(String, Vec<Arg>)> {
    let window = Window::read(c, x, kernel(c, w)?)?;
    let groups = c.int("group", 1)?;
    let padding = window.symmetric().unwrap_or_else(|| {
        x = window.pad(x, 0.0);
        vec![0; window.kernel.len()]
    });
    let op = op_for("conv", window.kernel.len())?;
    let args = vec![
        x.into(),
        w.into(),
        bias.into(),
        window.stride.into(),
        padding.into(),
        window.dilation.into(),
        groups.into(),
    ];
    Ok((op, args))
}

fn conv_transpose<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, w, bias) = (c.value(0)?, c.value(1)?, c.opt_value(2));
    let k = kernel(c, w)?;
    let n = k.len();
    let (stride, dilation) = (c.list("strides", n, 1)?, c.list("dilations", n, 1)?);
    let extra = c.list("output_padding", n, 0)?;
    let groups = c.int("group", 1)?;
    if stride.iter().chain(&dilation).any(|v| !(1..1 << 31).contains(v)) || extra.iter().any(|v| *v < 0) {
        return Err(format!("strides {stride:?}, dilations {dilation:?}, output_padding {extra:?}"));
    }
    let crop = crops(c, &x.shape(), &k, &stride, &dilation, &extra)?;
    let op = op_for("conv_transpose", n)?;
    let call = |padding: Vec<i64>, extra: Vec<i64>| {
        let dilation: Arg = dilation.clone().into();
        let stride: Arg = stride.clone().into();
        c.call(
            &op,
            vec![x.into(), w.into(), bias.into(), stride, padding.into(), extra.into(), groups.into(), dilation],
        )
    };
    // torch's padding crops both ends alike, and its output_padding must be less than stride or dilation.
    let legal = extra.iter().zip(stride.iter().zip(&dilation)).all(|(e, (s, d))| *e < *s.max(d));
    let even: Option<Vec<i64>> = crop.iter().map(|(b, a)| (b == a && *b >= 0).then_some(*b)).collect();
    if let (Some(padding), true) = (even, legal) {
        return c.one(call(padding, extra));
    }
    // The full result, filled up or cropped at either end; the bias is the value of what is filled up, so
    // only crops keep it inside the convolution.
    let mut y = call(vec![0; n], vec![0; n]);
    let grow: Vec<i64> = crop.iter().zip(&extra).map(|((_, a), e)| (e - a).max(0)).collect();
    if grow.iter().any(|g| *g > 0) {
        if bias.is_some() {
            return Err("output_padding past the result of a transposed convolution with bias is not supported".into());
        }
        let pads: Vec<i64> = grow.iter().rev().flat_map(|g| [0, *g]).collect();
        y = y.op("aten.constant_pad_nd", vec![pads.into(), 0.0.into()]);
    }
    for (i, ((before, after), e)) in crop.iter().zip(&extra).enumerate() {
        let cut = (after - e).max(0);
        if *before < 0 {
            return Err(format!("pads {crop:?}: expected at least 0"));
        }
        if *before > 0 || cut > 0 {
            let axis = i64::try_from(i + 2).map_err(|e| e.to_string())?;
            let end = y.shape().get(i + 2).cloned().unwrap_or(0.into()) - cut.into();
            y = y.op("aten.slice.Tensor", vec![axis.into(), (*before).into(), end.into()]);
        }
    }
    c.one(y)
}

/// What is cropped before and after each dimension of the full result, from `pads`, `auto_pad` or
/// `output_shape`.
fn crops(
    c: &Ctx<'_, '_>,
    shape: &[Dim],
    k: &[i64],
    stride: &[i64],
    dilation: &[i64],
    extra: &[i64],
) -> Step<Vec<(i64, i64)>> {
    let n = k.len();
    let pads = c.list("pads", 2 * n, 0)?;
    if pads.iter().chain(extra).any(|p| p.unsigned_abs() >= 1 << 31) {
        return Err(format!("pads {pads:?}, output_padding {extra:?}"));
    }
    let auto = c.str("auto_pad", "NOTSET")?;
    let wanted = c.opt_list("output_shape")?;
    if wanted.is_none() && matches!(auto, "NOTSET" | "" | "VALID") {
        let keep = if auto == "VALID" { 0 } else { 1 };
        return Ok((0..n).map(|i| (keep * pads[i], keep * pads[n + i])).collect());
    }
    let lead = shape.len().checked_sub(n).ok_or("input of too low a rank")?;
    let wanted = wanted.map(|w| w[w.len().saturating_sub(n)..].to_vec());
    if wanted.as_ref().is_some_and(|w| w.len() != n || w.iter().any(|v| v.unsigned_abs() >= 1 << 31)) {
        return Err(format!("output_shape {wanted:?} for {n} dimensions"));
    }
    let mut out = vec![];
    for i in 0..n {
        let reach = (k[i] - 1) * dilation[i] + 1;
        let size = shape[lead + i].as_const();
        let total = match (&wanted, size) {
            (Some(w), Some(size)) => stride[i].saturating_mul(size - 1).saturating_add(extra[i] + reach - w[i]),
            (Some(_), None) => return Err("output_shape for an input of unknown size is not supported".into()),
            (None, _) => extra[i] + reach - stride[i],
        };
        let (less, more) = (total.max(0) / 2, total.max(0) - total.max(0) / 2);
        // A result that is larger than the full one is filled up after it.
        let short = total.min(0);
        out.push(if auto == "SAME_UPPER" { (less, more + short) } else { (more, less + short) });
    }
    Ok(out)
}
