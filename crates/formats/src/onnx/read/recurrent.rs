//! LSTM, GRU and RNN: one cell run along a sequence, step by step where its length is small and known, else by a
//! scan.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step, dim_of};
use super::quantized::around;
use super::scatter::reversed;
use cleave_ir::{Arg, Builder, Dim, Meta, Tensor, Value};
use cleave_numerics::DType;
use std::sync::Arc;

pub(super) const OPS: &[(&str, Map)] = &[
    ("LSTM", |c| recurrent(c, Kind::Lstm)),
    ("GRU", |c| recurrent(c, Kind::Gru)),
    ("RNN", |c| recurrent(c, Kind::Rnn)),
];

pub(super) const MICROSOFT: &[(&str, Map)] = &[("DynamicQuantizeLSTM", dynamic_lstm)];

/// The most steps that are written out.
const UNROLLED: i64 = 64;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lstm,
    Gru,
    Rnn,
}

impl Kind {
    /// How many gates the weights hold.
    fn gates(self) -> i64 {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Rnn => 1,
        }
    }

    /// How many states it carries.
    fn states(self) -> usize {
        if self == Kind::Lstm { 2 } else { 1 }
    }

    /// The functions of a direction if the file names none.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Kind::Lstm => &["sigmoid", "tanh", "tanh"],
            Kind::Gru => &["sigmoid", "tanh"],
            Kind::Rnn => &["tanh"],
        }
    }
}

/// A function with its numbers.
#[derive(Clone)]
struct Function {
    name: String,
    alpha: f64,
    beta: f64,
}

impl Function {
    fn of<'c>(&self, x: Value<'c>) -> Value<'c> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.as_str() {
            "relu" => x.relu(),
            "tanh" => x.tanh(),
            "affine" => x * alpha + beta,
            "leakyrelu" => x.op("aten.leaky_relu", vec![alpha.into()]),
            "thresholdedrelu" => x.op("aten.threshold", vec![alpha.into(), 0.0.into()]),
            "scaledtanh" => (x * beta).tanh() * alpha,
            "hardsigmoid" => (x * alpha + beta).clamp(Some(0.0), Some(1.0)),
            "elu" => x.op("aten.elu", vec![alpha.into()]),
            "softsign" => x / (x.abs() + 1i64),
            "softplus" => x.op("aten.softplus", vec![]),
            _ => x.sigmoid(),
        }
    }
}

/// The functions of all directions, each with its default numbers where the file gives none.
fn functions(c: &Ctx<'_, '_>, kind: Kind, directions: usize) -> Step<Vec<Function>> {
    let defaults = || kind.functions().iter().map(|s| (*s).to_string());
    let names: Vec<String> = match c.opt_strings("activations")? {
        Some(names) => names.into_iter().map(str::to_lowercase).collect(),
        None => (0..directions).flat_map(|_| defaults()).collect(),
    };
    if names.len() != directions * kind.functions().len() {
        return Err(format!("attribute 'activations': found {names:?}"));
    }
    let (alphas, betas) = (c.opt_floats("activation_alpha")?, c.opt_floats("activation_beta")?);
    let mut alphas = alphas.unwrap_or_default().into_iter().map(f64::from);
    let mut betas = betas.unwrap_or_default().into_iter().map(f64::from);
    let mut out = vec![];
    for name in names {
        let (alpha, beta) = match name.as_str() {
            "relu" | "tanh" | "sigmoid" | "softsign" | "softplus" => (None, None),
            "leakyrelu" => (Some(0.01), None),
            "thresholdedrelu" | "elu" => (Some(1.0), None),
            "affine" | "scaledtanh" => (Some(1.0), Some(if name == "affine" { 0.0 } else { 1.0 })),
            "hardsigmoid" => (Some(0.2), Some(0.5)),
            other => return Err(format!("activation '{other}' is not known")),
        };
        let alpha = alpha.map_or(0.0, |d| alphas.next().unwrap_or(d));
        let beta = beta.map_or(0.0, |d| betas.next().unwrap_or(d));
        out.push(Function { name, alpha, beta });
    }
    Ok(out)
}

/// What a step does besides its weights.
struct Cell {
    kind: Kind,
    hidden: i64,
    functions: Vec<Function>,
    clip: Option<f64>,
    coupled: bool,
    linear_before_reset: bool,
    peepholes: bool,
    masked: bool,
    /// Whether the state is quantized by its own range before it meets the weights.
    dynamic: bool,
}

/// The weights of a step as values of the graph in which it stands: recurrent ones, their bias where it is apart, and
/// peepholes.
#[derive(Clone, Copy)]
struct Weights<'c> {
    r: Value<'c>,
    bias: Value<'c>,
    peep: Value<'c>,
}

impl Cell {
    /// One step: `x` is the input's part of all gates, with biases. Gives the states, of which the first is the output.
    fn step<'c>(&self, x: Value<'c>, state: &[Value<'c>], w: Weights<'c>, inside: Option<Value<'c>>) -> Vec<Value<'c>> {
        let n = self.hidden;
        let part = |v: Value<'c>, i: i64| {
            v.op("aten.slice.Tensor", vec![(-1i64).into(), (i * n).into(), ((i + 1) * n).into()])
        };
        let clip = |v: Value<'c>| self.clip.map_or(v, |c| v.clamp(Some(-c), Some(c)));
        let f = |i: usize, v: Value<'c>| self.functions[i].of(clip(v));
        let seen = |h: Value<'c>| if self.dynamic { around(h) } else { h };
        let times = |h: Value<'c>, r: Value<'c>| seen(h).op("aten.linear", vec![r.into()]);
        let rows = |i: i64, to: i64| w.r.op("aten.slice.Tensor", vec![0i64.into(), (i * n).into(), (to * n).into()]);
        let h = state[0];
        let next = match self.kind {
            Kind::Rnn => vec![f(0, x + times(h, w.r))],
            Kind::Gru => {
                let zr = times(h, rows(0, 2));
                let gate = |i| f(0, part(x, i) + part(zr, i));
                let (z, r) = (gate(0), gate(1));
                let inner = match self.linear_before_reset {
                    true => r * (times(h, rows(2, 3)) + w.bias),
                    false => times(r * h, rows(2, 3)) + w.bias,
                };
                let new = f(1, part(x, 2) + inner);
                vec![(z.op("aten.rsub.Scalar", vec![1i64.into()])) * new + z * h]
            }
            Kind::Lstm => {
                let cell = state[1];
                let all = x + times(h, w.r);
                // Gates stand as input, output, forget, cell; so do peepholes.
                let seen = |i: i64, c: Value<'c>| match self.peepholes {
                    true => part(all, i) + part(w.peep, i) * c,
                    false => part(all, i),
                };
                let i = f(0, seen(0, cell));
                let forget = match self.coupled {
                    true => i.op("aten.rsub.Scalar", vec![1i64.into()]),
                    false => f(0, seen(2, cell)),
                };
                let next = forget * cell + i * f(1, part(all, 3));
                let o = f(0, seen(1, next));
                vec![o * self.functions[2].of(next), next]
            }
        };
        // Past its end a sequence keeps its state.
        match inside {
            Some(m) => {
                next.iter().zip(state).map(|(a, b)| m.op("aten.where.self", vec![(*a).into(), (*b).into()])).collect()
            }
            None => next,
        }
    }
}

/// A layer's arguments, the sequence along the first dimension.
struct Layer<'b> {
    kind: Kind,
    x: Value<'b>,
    /// Weights of the input and of the state, for each direction `[gates, …]`.
    w: Vec<Value<'b>>,
    r: Vec<Value<'b>>,
    dynamic: bool,
    hidden: i64,
    lens: Option<Value<'b>>,
    batch_first: bool,
    functions: Vec<Function>,
}

fn recurrent<'b>(c: &Ctx<'b, '_>, kind: Kind) -> Step<Vec<Known<'b>>> {
    let pick = |i: usize| -> Step<Vec<_>> {
        let v = c.value(i)?;
        let constant = c.host(i).and_then(|h| Some((&h.name, h.as_tensor()?)));
        let one = |d: i64| match (constant, usize::try_from(d)) {
            (Some((name, t)), Ok(at)) => {
                let part = t.narrow(0, at, 1).reshape(&t.shape()[1..]);
                c.node_of(&Known::Host(Host::tensor(&format!("{name}.{d}"), part)))
            }
            _ => v.op("aten.select.int", vec![0i64.into(), d.into()]),
        };
        Ok((0..directions(c, v)?).map(one).collect())
    };
    layers(c, kind, [pick(1)?, pick(2)?], false)
}

/// How many directions a weight has.
fn directions(c: &Ctx<'_, '_>, v: Value<'_>) -> Step<i64> {
    let count = dim_of(v, 0).as_const().filter(|n| v.rank() == 3 && (1..=2).contains(n));
    count.ok_or_else(|| format!("weight of shape {:?} of {}, expected 1 or 2 directions", v.shape(), c.op_type()))
}

/// An LSTM that quantizes its input and, step by step, its state by their own ranges. Weights are levels
/// `[directions, in, gates]`, with a scale for each direction or for each gate's element.
fn dynamic_lstm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let weights = [dynamic_weight(c, 1, 8)?, dynamic_weight(c, 2, 10)?];
    layers(c, Kind::Lstm, weights, true)
}

/// Weight `i` of each direction as `[gates, in]`, dequantized by scale `s` and the zero point behind it.
fn dynamic_weight<'b>(c: &Ctx<'b, '_>, i: usize, s: usize) -> Step<Vec<Value<'b>>> {
    let host = |i: usize| c.host(i).and_then(Host::as_tensor).ok_or_else(|| format!("input {i}: expected a constant"));
    let (w, scale, zero) = (host(i)?, host(s)?, host(s + 1)?);
    let ways = usize::try_from(directions(c, c.value(i)?)?).map_err(|e| e.to_string())?;
    let gates = w.shape()[2];
    let each = |t: &Tensor| match t.len() {
        n if n == ways => Ok(1),
        n if n == ways * gates => Ok(gates),
        n => Err(format!("input {s}: {n} scales for {ways} directions of {gates} columns")),
    };
    if each(scale)? != each(zero)? {
        return Err(format!("scale of shape {:?}, zero point of another", scale.shape()));
    }
    let (low, high) = w.dtype().int_range().ok_or_else(|| format!("input {i}: expected levels"))?;
    let name = &c.host(i).ok_or("no weight")?.name;
    let constant = |d: usize, what: &str, t| c.node_of(&Known::Host(Host::tensor(&format!("{name}.{d}.{what}"), t)));
    let along = |d: usize, v: &[f64], n: usize| (0..gates).map(|g| v[d * n + g % n]).collect::<Vec<_>>();
    let (scales, zeros, n) = (scale.to_f64(), zero.to_f64(), each(scale)?);
    let one = |d: usize| {
        let levels = w.narrow(0, d, 1).reshape(&w.shape()[1..]).permute(&[1, 0]);
        let scale = along(d, &scales, n).into_iter().map(|v| v as f32).collect::<Vec<f32>>();
        let zero = along(d, &zeros, n).into_iter().map(|v| v as i64).collect::<Vec<i64>>();
        let args = vec![
            constant(d, "scale", Tensor::new(&[gates], scale)).into(),
            constant(d, "zero_point", Tensor::new(&[gates], zero)).into(),
            0i64.into(),
            i64::from(low).into(),
            i64::from(high).into(),
            w.dtype().into(),
        ];
        constant(d, "levels", levels).op("quantized_decomposed.dequantize_per_channel", args)
    };
    Ok((0..ways).map(one).collect())
}

/// All directions, by weights `[gates, …]` for each of input and state.
fn layers<'b>(c: &Ctx<'b, '_>, kind: Kind, [w, r]: [Vec<Value<'b>>; 2], dynamic: bool) -> Step<Vec<Known<'b>>> {
    let mut x = c.value(0)?;
    let batch_first = c.flag("layout", false)?;
    if x.rank() != 3 {
        return Err(format!("input of rank {}, expected 3", x.rank()));
    }
    if batch_first {
        x = x.permute(vec![1, 0, 2]);
    }
    let ways: &[bool] = match c.str("direction", "forward")?.to_lowercase().as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(format!("attribute 'direction': found '{other}'")),
    };
    if [&w, &r].iter().any(|v| v.len() != ways.len()) {
        return Err(format!("weights of {} directions, expected {}", w.len(), ways.len()));
    }
    let hidden = dim_of(r[0], 1).as_const().filter(|h| *h > 0).ok_or("weights of unknown size")?;
    c.opt_int("hidden_size")?;
    c.ignore(&["output_sequence"]);
    let (functions, lens) = (functions(c, kind, ways.len())?, c.opt_value(4).map(|l| l.to(DType::I64)));
    let layer = Layer { kind, x, w, r, dynamic, hidden, lens, batch_first, functions };
    let mut outs = vec![];
    let mut finals = vec![vec![]; kind.states()];
    for (d, back) in ways.iter().enumerate() {
        let (last, y) = layer.one_way(c, d, *back)?;
        outs.push(y);
        finals.iter_mut().zip(last).for_each(|(all, v)| all.push(v));
    }
    let stack = |all: Vec<Value<'b>>, at: i64| c.b.call("aten.stack", vec![all.into(), at.into()]);
    let mut y = stack(outs, 1);
    if batch_first {
        y = y.permute(vec![2, 0, 1, 3]);
    }
    let last = finals.into_iter().map(|all| stack(all, if batch_first { 1 } else { 0 }));
    Ok([y].into_iter().chain(last).map(Known::Value).collect())
}

impl<'b> Layer<'b> {
    fn cell(&self, c: &Ctx<'b, '_>, d: usize) -> Step<Cell> {
        let (kind, per) = (self.kind, self.kind.functions().len());
        Ok(Cell {
            kind,
            hidden: self.hidden,
            functions: self.functions[d * per..(d + 1) * per].to_vec(),
            clip: c.opt_float("clip")?,
            coupled: kind == Kind::Lstm && c.flag("input_forget", false)?,
            linear_before_reset: kind == Kind::Gru && c.flag("linear_before_reset", false)?,
            peepholes: kind == Kind::Lstm && c.opt(7).is_some(),
            masked: self.lens.is_some(),
            dynamic: self.dynamic,
        })
    }

    /// The biases of a direction: what is added to the input's part, and what a GRU adds to its new state inside.
    fn biases(&self, b: Value<'b>) -> (Value<'b>, Option<Value<'b>>) {
        let (hidden, gates) = (self.hidden, self.kind.gates() * self.hidden);
        let cut =
            |v: Value<'b>, from: i64, to: i64| v.op("aten.slice.Tensor", vec![0i64.into(), from.into(), to.into()]);
        let (input, recurrent) = (cut(b, 0, gates), cut(b, gates, 2 * gates));
        if self.kind != Kind::Gru {
            return (input + recurrent, None);
        }
        let outer = cut(recurrent, 0, 2 * hidden);
        let outer = outer.op("aten.constant_pad_nd", vec![vec![0, hidden].into(), 0.0.into()]);
        (input + outer, Some(cut(recurrent, 2 * hidden, gates)))
    }

    /// One direction: its last states, and the outputs of all steps.
    fn one_way(&self, c: &Ctx<'b, '_>, d: usize, back: bool) -> Step<(Vec<Value<'b>>, Value<'b>)> {
        let (x, hidden) = (self.x, self.hidden);
        let (time, batch) = (dim_of(x, 0), dim_of(x, 1));
        let pick = |v: Value<'b>| v.op("aten.select.int", vec![0i64.into(), d.into()]);
        let turn = |v: Value<'b>, last: Dim| match (back, self.lens) {
            (false, _) => Ok(v),
            (true, None) => Ok(v.op("aten.flip", vec![vec![0i64].into()])),
            (true, Some(l)) => reversed(c, v, l, 1, 0, &[time.clone(), batch.clone(), last]),
        };
        let zeros = |size: Vec<Dim>| c.b.call("aten.full", vec![size.into(), 0.0.into(), x.dtype().into()]);
        let init = |i: usize| match c.opt_value(i) {
            Some(v) => pick(if self.batch_first { v.permute(vec![1, 0, 2]) } else { v }),
            None => zeros(vec![batch.clone(), hidden.into()]),
        };
        let start: Vec<Value<'b>> = (0..self.kind.states()).map(|i| init(5 + i)).collect();
        let cell = self.cell(c, d)?;
        let (bias, apart) = c.opt_value(3).map(|b| self.biases(pick(b))).unzip();
        let peep = c.opt_value(7).filter(|_| cell.peepholes).map(pick);
        let w = self.w[d];
        let turned = turn(x, dim_of(x, 2))?;
        let seen = if self.dynamic { around(turned) } else { turned };
        let gates = seen.op("aten.linear", vec![w.into(), bias.into()]);
        let inner = apart.flatten().unwrap_or_else(|| zeros(vec![hidden.into()]));
        let weights = Weights { r: self.r[d], bias: inner, peep: peep.unwrap_or(w) };
        let mask = self.lens.map(|l| {
            let steps = vec![0i64.into(), time.clone().into(), 1i64.into(), DType::I64.into()];
            let at = c.b.call("aten.arange.start_step", steps).op("aten.reshape", vec![vec![-1i64, 1, 1].into()]);
            at.op("aten.lt.Tensor", vec![l.op("aten.reshape", vec![vec![1i64, -1, 1].into()]).into()])
        });
        let (last, mut y) = along(c, &cell, gates, start, weights, mask)?;
        if let Some(m) = mask {
            y = m.op("aten.where.ScalarOther", vec![y.into(), 0.0.into()]);
        }
        Ok((last, turn(y, hidden.into())?))
    }
}

/// The cell along a sequence: the last states, and the outputs of all steps.
fn along<'b>(
    c: &Ctx<'b, '_>,
    cell: &Cell,
    x: Value<'b>,
    mut state: Vec<Value<'b>>,
    w: Weights<'b>,
    mask: Option<Value<'b>>,
) -> Step<(Vec<Value<'b>>, Value<'b>)> {
    if let Some(n) = dim_of(x, 0).as_const().filter(|n| (1..=UNROLLED).contains(n)) {
        let mut outs: Vec<Value<'b>> = vec![];
        for t in 0..n {
            let at = |v: Value<'b>| v.op("aten.select.int", vec![0i64.into(), t.into()]);
            state = cell.step(at(x), &state, w, mask.map(at));
            outs.push(state[0]);
        }
        return Ok((state, c.b.call("aten.stack", vec![outs.into(), 0i64.into()])));
    }
    let slice = |v: Value<'b>| Meta::tensor(v.dtype(), v.shape().into_iter().skip(1).collect());
    let xs: Vec<Value<'b>> = [x].into_iter().chain(mask).collect();
    let fixed = [w.r, w.bias, w.peep];
    let metas: Vec<Meta> = (state.iter().map(|v| v.meta()))
        .chain(xs.iter().map(|v| slice(*v)))
        .chain(fixed.iter().map(|v| v.meta()))
        .collect();
    let b = Builder::new();
    // Sizes that are expressions are symbols of their own inside.
    let inner = cleave_ir::subgraph::placeholder_metas(&metas);
    let symbols: Vec<String> = inner.iter().flat_map(Meta::dims).flat_map(|d| d.symbols()).collect();
    b.edit(|g| {
        let range = cleave_ir::SymbolRange { min: 0, max: None };
        g.symbols.extend(symbols.into_iter().map(|s| (s, range)));
    });
    let values: Vec<Value<'_>> =
        inner.into_iter().enumerate().map(|(i, m)| b.placeholder(&format!("operand_{i}"), m)).collect();
    let (states, rest) = values.split_at(state.len());
    let (slices, fixed_inside) = rest.split_at(xs.len());
    let [r, bias, peep] = *fixed_inside else { return Err("expected three weights".into()) };
    let next = cell.step(slices[0], states, Weights { r, bias, peep }, slices.get(1).copied().filter(|_| cell.masked));
    let mut results: Vec<(String, Value<'_>)> =
        next.iter().enumerate().map(|(i, v)| (format!("state_{i}"), *v)).collect();
    results.push(("output".into(), next[0].op("aten.alias", vec![])));
    b.output(&results);
    let g = b.finish().map_err(|e| e.to_string())?;
    let count = state.len();
    let args = vec![Arg::Graph(Arc::new(g)), state.into(), xs.into(), fixed.to_vec().into()];
    let all = c.call("higher_order.scan", args);
    Ok(((0..count).map(|i| c.b.getitem(all, i)).collect(), c.b.getitem(all, count)))
}
