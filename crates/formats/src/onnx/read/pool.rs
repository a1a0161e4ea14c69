//! Pooling.

use super::conv::Window;
use super::host::{Host, Known};
use super::node::{Ctx, Map, Step, dim_of};
use cleave_ir::{Arg, Dim, Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("LpPool", lp_pool),
    ("MaxUnpool", max_unpool),
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
    ("GlobalLpPool", |c| {
        let (x, p) = (c.value(0)?, c.int("p", 2)?);
        let args = vec![x.into(), Arg::Float(p as f64), spatial(x).into(), true.into()];
        c.one(c.call("aten.linalg_vector_norm", args))
    }),
];

/// The numbers of the dimensions behind batch and channel.
fn spatial(x: Value<'_>) -> Vec<i64> {
    (0i64..).zip(x.shape()).skip(2).map(|(i, _)| i).collect()
}

/// A pooling op over two or three dimensions; over one, the input gets another of size 1.
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
        if window.kernel.len() > 3 {
            return Err(format!("{} spatial dimensions, expected 1 to 3", window.kernel.len()));
        }
        Ok(Pool { x, flat, window, ceil: c.flag("ceil_mode", false)? })
    }

    /// Number of dimensions of the window.
    fn rank(&self) -> usize {
        self.window.kernel.len()
    }

    /// How far a window reaches in a dimension.
    fn reach(&self, i: usize) -> i64 {
        (self.window.kernel[i] - 1) * self.window.dilation[i] + 1
    }

    /// The padding that torch admits: the same on both sides and at most half a window.
    fn padding(&self) -> Option<Vec<i64>> {
        let kernel = &self.window.kernel;
        self.window.symmetric().filter(|p| p.iter().zip(kernel).all(|(p, k)| p * 2 <= *k))
    }

    /// Pads explicitly so that every window that torch would see in `ceil_mode` lies inside.
    fn padded(&mut self, value: f64) -> Step<()> {
        if self.ceil {
            for i in 0..self.rank() {
                let w = &self.window;
                let (n, s) = (dim_of(self.x, 2 + i), w.stride[i]);
                let span = n.clone() + w.before[i].clone() + w.after[i].clone() - self.reach(i).into();
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
        let value = match self.x.dtype() {
            d if d.is_float() => Arg::Float(value),
            d => Arg::Int(if value == 0.0 { 0 } else { d.int_range().map_or(i64::MIN, |(low, _)| low.into()) }),
        };
        self.x = self.window.pad(self.x, value);
        Ok(())
    }

    /// Sums over each window, the padding put around the input already.
    fn sums(&self, c: &Ctx<'b, '_>) -> Value<'b> {
        let shape = self.x.shape();
        let planes: Dim = shape.iter().take(2).cloned().product();
        let rest: Vec<Dim> = shape.iter().skip(2).cloned().collect();
        let x = self.x.op("aten.reshape", vec![[vec![planes, 1.into()], rest].concat().into()]);
        let ones = [vec![1i64, 1], self.window.kernel.clone()].concat();
        let ones = c.b.call("aten.full", vec![ones.into(), 1.0.into(), x.dtype().into()]);
        let (s, d) = (self.window.stride.clone().into(), self.window.dilation.clone().into());
        let args = vec![x.into(), ones.into(), Arg::None, s, vec![0i64; self.rank()].into(), d];
        let y = c.b.call(&format!("aten.conv{}d", self.rank()), args);
        let sizes = [shape.into_iter().take(2).collect(), y.shape().into_iter().skip(2).collect::<Vec<_>>()].concat();
        y.op("aten.reshape", vec![sizes.into()])
    }

    fn done(&self, c: &Ctx<'b, '_>, y: Value<'b>) -> Step<Vec<Known<'b>>> {
        c.one(self.flattened(y))
    }

    fn flattened(&self, y: Value<'b>) -> Value<'b> {
        if self.flat { y.op("aten.squeeze.dims", vec![vec![2i64].into()]) } else { y }
    }
}

fn max_pool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let columns = c.flag("storage_order", false)?;
    let mut p = Pool::read(c)?;
    let n = p.rank();
    let padding = match p.padding() {
        Some(padding) => padding,
        None if c.wants(1) => return Err("indices with padding that differs before and after are not supported".into()),
        None => {
            p.padded(f64::NEG_INFINITY)?;
            vec![0; n]
        }
    };
    let (w, x) = (&p.window, Arg::from(p.x));
    let (kernel, stride): (Arg, Arg) = (w.kernel.clone().into(), w.stride.clone().into());
    let args = vec![x, kernel, stride, padding.into(), w.dilation.clone().into(), p.ceil.into()];
    if !c.wants(1) {
        return p.done(c, c.call(&format!("aten.max_pool{n}d"), args));
    }
    let both = c.call(&format!("aten.max_pool{n}d_with_indices"), args);
    let (y, mut at) = (c.b.getitem(both, 0), c.b.getitem(both, 1));
    // torch counts in each plane, ONNX through the whole tensor.
    let sizes: Vec<Dim> = (2..2 + n).map(|i| dim_of(p.x, i)).collect();
    let plane: Dim = sizes.iter().cloned().product();
    if columns && n == 2 {
        let (h, w) = (sizes[0].clone(), sizes[1].clone());
        let row = at.op("aten.div.Tensor_mode", vec![w.clone().into(), "floor".into()]);
        let column = at.op("aten.remainder.Tensor", vec![w.into()]);
        at = column.op("aten.mul.Tensor", vec![h.into()]) + row;
    }
    let planes = dim_of(p.x, 0) * dim_of(p.x, 1);
    let steps = vec![0i64.into(), (planes * plane.clone()).into(), plane.into(), DType::I64.into()];
    let first = c.b.call("aten.arange.start_step", steps);
    let shape = [vec![dim_of(p.x, 0), dim_of(p.x, 1)], vec![1.into(); n]].concat();
    at = at + first.op("aten.reshape", vec![shape.into()]);
    Ok(vec![Known::Value(p.flattened(y)), Known::Value(p.flattened(at))])
}

fn average_pool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let mut p = Pool::read(c)?;
    let n = p.rank();
    let counts_pad = c.flag("count_include_pad", false)?;
    let dilated = p.window.dilation.iter().any(|d| *d != 1);
    let call = |p: &Pool<'b>, padding: Vec<i64>, counts: bool, divisor: Arg| {
        let (k, s): (Arg, Arg) = (p.window.kernel.clone().into(), p.window.stride.clone().into());
        let args = vec![p.x.into(), k, s, padding.into(), p.ceil.into(), counts.into(), divisor];
        c.call(&format!("aten.avg_pool{n}d"), args)
    };
    if let Some(padding) = p.padding().filter(|_| !dilated) {
        // Without padding both ways of counting are one; torch's default is the plainer graph.
        let counts = counts_pad || (padding.iter().all(|p| *p == 0) && !p.ceil);
        return p.done(c, call(&p, padding, counts, Arg::None));
    }
    let counts = counts(&p, counts_pad)?;
    p.padded(0.0)?;
    let sum = if dilated { p.sums(c) } else { call(&p, vec![0; n], true, Arg::Int(1)) };
    let counts = c.node_of(&Known::Host(Host::tensor(&format!("{}.counts", c.name), counts)));
    p.done(c, sum / counts)
}

/// How many elements each window has: of the input, or with the padding that the file asks for.
fn counts(p: &Pool<'_>, with_pads: bool) -> Step<Tensor> {
    let w = &p.window;
    let mut all: (Vec<usize>, Vec<f32>) = (vec![], vec![1.0]);
    for i in 0..p.rank() {
        let known = |d: &Dim| d.as_const().ok_or("pads that depend on an unknown size are not supported");
        let (n, before, after) = (known(&dim_of(p.x, 2 + i))?, known(&w.before[i])?, known(&w.after[i])?);
        let (k, s, d) = (w.kernel[i], w.stride[i], w.dilation[i]);
        let span = n + before + after - p.reach(i);
        if span < 0 || n > 1 << 24 || k > 1 << 16 {
            return Err(format!("window {k} does not fit into {n}"));
        }
        let mut places = if p.ceil { (span + s - 1) / s + 1 } else { span / s + 1 };
        if p.ceil && (places - 1) * s >= n + before {
            places -= 1;
        }
        if places > 1 << 12 || all.1.len() > 1 << 20 {
            return Err(format!("{places} windows along a dimension"));
        }
        let (low, high) = if with_pads { (-before, n + after) } else { (0, n) };
        let inside = |o: i64| {
            let at = (0..k).map(|j| o * s - before + j * d);
            at.filter(|v| (low..high).contains(v)).count().max(1) as f32
        };
        let row: Vec<f32> = (0..places).map(inside).collect();
        all.0.push(row.len());
        all.1 = all.1.iter().flat_map(|a| row.iter().map(move |b| a * b)).collect();
    }
    Ok(Tensor::new(&all.0, all.1))
}

/// The p-th root of the sum of p-th powers.
fn lp_pool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let exponent = c.int("p", 2)?;
    let mut p = Pool::read(c)?;
    p.padded(0.0)?;
    p.x = p.x.abs().op("aten.pow.Tensor_Scalar", vec![exponent.into()]);
    let y = p.sums(c).op("aten.pow.Tensor_Scalar", vec![Arg::Float(1.0 / exponent as f64)]);
    p.done(c, y)
}

/// Elements back at the places from which they were taken, the rest zero.
fn max_unpool<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, at) = (c.value(0)?, c.value(1)?.to(DType::I64));
    let kernel = c.opt_list("kernel_shape")?.ok_or("attribute 'kernel_shape' is missing")?;
    let n = kernel.len();
    let (stride, pads) = (c.list("strides", n, 1)?, c.list("pads", 2 * n, 0)?);
    if x.rank() != n + 2 || kernel.iter().chain(&stride).chain(&pads).any(|v| !(0..1 << 31).contains(v)) {
        return Err(format!("kernel {kernel:?}, strides {stride:?}, pads {pads:?} on rank {}", x.rank()));
    }
    let mut shape = vec![dim_of(x, 0), dim_of(x, 1)];
    for i in 0..n {
        let reach = Dim::from(kernel[i] - pads[i] - pads[n + i]);
        shape.push((dim_of(x, 2 + i) - 1.into()) * stride[i].into() + reach);
    }
    let count: Dim = shape.iter().cloned().product();
    let zeros = c.b.call("aten.full", vec![vec![count].into(), 0.0.into(), x.dtype().into()]);
    let flat = |v: Value<'b>| v.op("aten.reshape", vec![vec![-1i64].into()]);
    let y = zeros.op("aten.scatter.src", vec![0i64.into(), flat(at).into(), flat(x).into()]);
    let mut y = y.op("aten.reshape", vec![shape.clone().into()]);
    if let Some(wanted) = c.opt_dims(2)? {
        if wanted.len() != shape.len() {
            return Err(format!("output_shape {wanted:?} of rank {}", wanted.len()));
        }
        let more = wanted.into_iter().zip(shape).rev().take(n).flat_map(|(w, s)| [Dim::from(0), w - s]);
        y = y.op("aten.constant_pad_nd", vec![more.collect::<Vec<_>>().into(), 0.0.into()]);
    }
    c.one(y)
}
