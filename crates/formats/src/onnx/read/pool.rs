//! Pooling.

use super::conv::Window;
use super::host::{Host, Known};
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Dim, Tensor, Value};

pub(super) const OPS: &[(&str, Map)] = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("GlobalAveragePool", |c| {
        let x = c.value(0)?;
        if x.rank() == 4 {
            return c.one(c.call("aten.adaptive_avg_pool2d", vec![x.into(), vec![1i64, 1].into()]));
        }
        c.one(c.call("aten.mean.dim", vec![x.into(), spatial(x).into(), true.into()]))
    }),
    ("GlobalMaxPool", |c| {
        let x = c.value(0)?;
        c.one(c.call("aten.amax", vec![x.into(), spatial(x).into(), true.into()]))
    }),
];

/// The numbers of the dimensions behind batch and channel.
fn spatial(x: Value<'_>) -> Vec<i64> {
    (0i64..).zip(x.shape()).skip(2).map(|(i, _)| i).collect()
}

/// A pooling op over two dimensions; over one, the input gets another of size 1.
struct Pool<'b> {
    x: Value<'b>,
    flat: bool,
    window: Window,
    ceil: bool,
}

impl<'b> Pool<'b> {
    fn read(c: &Ctx<'b, '_>) -> Step<Pool<'b>> {
        let mut x = c.value(0)?;
        let kernel = c.opt_list("kernel_shape")?.ok_or("attribute 'kernel_shape' is missing")?;
        if x.rank() != kernel.len() + 2 {
            return Err(format!("kernel {kernel:?} on an input of rank {}", x.rank()));
        }
        let mut window = Window::read(c, x, kernel)?;
        let flat = window.kernel.len() == 1;
        if flat {
            x = x.op("aten.unsqueeze", vec![2i64.into()]);
            for list in [&mut window.kernel, &mut window.stride, &mut window.dilation] {
                list.insert(0, 1);
            }
            window.before.insert(0, 0.into());
            window.after.insert(0, 0.into());
        }
        if window.kernel.len() != 2 {
            return Err(format!("{} spatial dimensions, expected 1 or 2", window.kernel.len()));
        }
        Ok(Pool { x, flat, window, ceil: c.flag("ceil_mode", false)? })
    }

    /// The padding that torch admits: the same on both sides and at most half a window.
    fn padding(&self) -> Option<Vec<i64>> {
        self.window.symmetric().filter(|p| p.iter().zip(&self.window.kernel).all(|(p, k)| p * 2 <= *k))
    }

    /// Pads explicitly so that every window that torch would see in `ceil_mode` lies inside.
    fn padded(&mut self, value: f64) -> Step<()> {
        if self.ceil {
            for i in 0..2 {
                let w = &self.window;
                let (n, s) = (&self.x.shape()[2 + i], w.stride[i]);
                let reach = (w.kernel[i] - 1) * w.dilation[i] + 1;
                let span = n.clone() + w.before[i].clone() + w.after[i].clone() - reach.into();
                let Some((span, n)) = span.as_const().zip(n.as_const()) else {
                    return Err("ceil_mode with these pads on an input of unknown size is not supported".into());
                };
                let mut places = (span + s - 1).div_euclid(s) + 1;
                // A window must not start past the input and what is padded before it.
                if (places - 1) * s >= n + w.before[i].as_const().unwrap_or(0) {
                    places -= 1;
                }
                let more = ((places - 1) * s - span).max(0);
                self.window.after[i] = self.window.after[i].clone() + more.into();
            }
            self.ceil = false;
        }
        self.x = self.window.pad(self.x, value);
        Ok(())
    }

    fn done(&self, c: &Ctx<'b, '_>, y: Value<'b>) -> Step<Vec<Known<'b>>> {
        c.one(if self.flat { y.op("aten.squeeze.dims", vec![vec![2i64].into()]) } else { y })
    }
}

fn max_pool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    c.only(1)?;
    c.ignore(&["storage_order"]);
    let mut p = Pool::read(c)?;
    let padding = match p.padding() {
        Some(padding) => padding,
        None => {
            p.padded(f64::NEG_INFINITY)?;
            vec![0, 0]
        }
    };
    let (w, x) = (&p.window, Arg::from(p.x));
    let args = vec![
        x,
        w.kernel.clone().into(),
        w.stride.clone().into(),
        padding.into(),
        w.dilation.clone().into(),
        p.ceil.into(),
    ];
    p.done(c, c.call("aten.max_pool2d", args))
}

fn average_pool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let mut p = Pool::read(c)?;
    let counts_pad = c.flag("count_include_pad", false)?;
    if p.window.dilation.iter().any(|d| *d != 1) {
        return Err(format!("dilations {:?} are not supported", p.window.dilation));
    }
    let call = |p: &Pool<'b>, padding: Vec<i64>, counts: bool, divisor: Arg| {
        let (k, s): (Arg, Arg) = (p.window.kernel.clone().into(), p.window.stride.clone().into());
        c.call("aten.avg_pool2d", vec![p.x.into(), k, s, padding.into(), p.ceil.into(), counts.into(), divisor])
    };
    if let Some(padding) = p.padding() {
        // Without padding both ways of counting are one; torch's default is the plainer graph.
        let counts = counts_pad || (padding == [0, 0] && !p.ceil);
        return p.done(c, call(&p, padding, counts, Arg::None));
    }
    let counts = counts(&p, counts_pad)?;
    p.padded(0.0)?;
    let sum = call(&p, vec![0, 0], true, Arg::Int(1));
    let counts = c.node_of(&Known::Host(Host::tensor(&format!("{}.counts", c.name), counts)));
    p.done(c, sum / counts)
}

/// How many elements each window has: of the input, or with the padding that the file asks for.
fn counts(p: &Pool<'_>, with_pads: bool) -> Step<Tensor> {
    let w = &p.window;
    let mut rows: Vec<Vec<f32>> = vec![];
    for i in 0..2 {
        let known = |d: &Dim| d.as_const().ok_or("pads that depend on an unknown size are not supported");
        let (n, before, after) = (known(&p.x.shape()[2 + i])?, known(&w.before[i])?, known(&w.after[i])?);
        let (k, s) = (w.kernel[i], w.stride[i]);
        let span = n + before + after - k;
        if span < 0 || n > 1 << 24 {
            return Err(format!("window {k} does not fit into {n}"));
        }
        let mut places = if p.ceil { (span + s - 1) / s + 1 } else { span / s + 1 };
        if p.ceil && (places - 1) * s >= n + before {
            places -= 1;
        }
        if places > 1 << 16 {
            return Err(format!("{places} windows along a dimension"));
        }
        let (low, high) = if with_pads { (-before, n + after) } else { (0, n) };
        let inside = |o: i64| {
            let start = o * s - before;
            ((start + k).min(high) - start.max(low)).max(1) as f32
        };
        rows.push((0..places).map(inside).collect());
    }
    let (h, v) = (rows[0].len(), rows[1].len());
    let data = rows[0].iter().flat_map(|a| rows[1].iter().map(move |b| a * b)).collect();
    Ok(Tensor::new(&[h, v], data))
}
