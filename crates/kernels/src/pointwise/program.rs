//! Programs: how they are written down, and their compiled form over a few registers.

use super::ops::{Binary, Unary};
use crate::KernelError;
use cleave_numerics::{quantize_div, quantize_recip, reciprocal_per_tensor};

/// Most inputs of a program.
pub const MAX_INPUTS: usize = 16;
/// Most outputs of a program.
pub const MAX_OUTPUTS: usize = 4;
/// Most values of a program that are alive at once.
pub const MAX_REGISTERS: usize = 16;

/// How an input's elements become f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// As they are.
    F32,
    /// `(f32(q) - zero_point) · scale`
    U8 {
        /// Step.
        scale: f32,
        /// The integer that means 0.
        zero_point: i32,
    },
}

/// Whose rounding a quantization follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// torch: `rne(x · f32(1 / scale))`, see `cleave_numerics::quantize_recip`.
    Recip,
    /// ONNX: `rne(x / scale)`, see `cleave_numerics::quantize_div`.
    Div,
}

/// `clamp(rne(x / scale) + zero_point, qmin, qmax)`, u8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantize {
    /// Step.
    pub scale: f32,
    /// The integer that means 0; 0..=255.
    pub zero_point: i32,
    /// Least integer; 0..=255.
    pub qmin: i32,
    /// Greatest integer; 0..=255.
    pub qmax: i32,
    /// Multiply by the reciprocal, or divide.
    pub rounding: Rounding,
}

impl Quantize {
    /// Over the whole of u8.
    pub fn u8(scale: f32, zero_point: i32, rounding: Rounding) -> Quantize {
        Quantize { scale, zero_point, qmin: 0, qmax: 255, rounding }
    }

    /// One value, by the definition in `cleave_numerics`.
    pub fn eval(&self, x: f32) -> u8 {
        let q = match self.rounding {
            Rounding::Recip => {
                quantize_recip(x, reciprocal_per_tensor(self.scale), self.zero_point, self.qmin, self.qmax)
            }
            Rounding::Div => quantize_div(x, self.scale, self.zero_point, self.qmin, self.qmax),
        };
        q as u8
    }

    /// # Errors
    /// Bounds or zero point outside u8, or bounds in the wrong order.
    pub fn check(&self) -> Result<(), KernelError> {
        let u8s = 0..=255;
        let inside = [self.zero_point, self.qmin, self.qmax].iter().all(|v| u8s.contains(v));
        if inside && self.qmin <= self.qmax {
            return Ok(());
        }
        let Quantize { zero_point, qmin, qmax, .. } = self;
        let why = format!(
            "expected 0 <= qmin <= qmax <= 255 and a zero point among them, found [{qmin}, {qmax}] and {zero_point}"
        );
        Err(KernelError::invalid("quantization to u8", why))
    }
}

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Output {
    /// The value.
    F32,
    /// The value, quantized.
    U8(Quantize),
}

/// A value of a program being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Val(usize);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    Input(usize),
    Const(f32),
    Unary(Unary, usize),
    Binary(Binary, usize, usize),
    Select(usize, usize, usize),
}

impl Node {
    fn args(self) -> impl Iterator<Item = usize> {
        let (a, b, c) = match self {
            Node::Input(_) | Node::Const(_) => (None, None, None),
            Node::Unary(_, a) => (Some(a), None, None),
            Node::Binary(_, a, b) => (Some(a), Some(b), None),
            Node::Select(m, a, b) => (Some(m), Some(a), Some(b)),
        };
        [a, b, c].into_iter().flatten()
    }
}

/// A source: a register, or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Src {
    Reg(usize),
    Imm(f32),
}

/// One pass over a chunk. `dst` is never among the sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Load { dst: usize, input: usize },
    Fill { dst: usize, value: f32 },
    Unary { op: Unary, dst: usize, src: usize },
    Binary { op: Binary, dst: usize, a: Src, b: Src },
    Select { dst: usize, mask: usize, a: usize, b: usize },
    Store { src: usize, output: usize },
}

/// A compiled program: immutable, to be run on any chunk of any tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) registers: usize,
    /// Bounds of the sum of its two float inputs, if it is nothing else: what a residual is.
    pub(crate) sum: Option<(f32, f32)>,
    /// What it applies to its one float input, if it is nothing else and one of those that networks apply most.
    pub(crate) activation: Option<Unary>,
}

impl Program {
    /// Its inputs, in the order in which they were declared.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// Its outputs, in the order in which they were stored.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Passes over a chunk, loads and stores among them: a measure of its cost.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// `store(op(load))`, the simplest program.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn unary(input: Input, op: Unary, output: Output) -> Result<Program, KernelError> {
        let mut b = Builder::default();
        let x = b.input(input);
        let y = b.unary(op, x);
        b.store(y, output);
        b.build()
    }

    /// `store(op(load, load))`.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn binary(inputs: [Input; 2], op: Binary, output: Output) -> Result<Program, KernelError> {
        let mut b = Builder::default();
        let (x, y) = (b.input(inputs[0]), b.input(inputs[1]));
        let z = b.binary(op, x, y);
        b.store(z, output);
        b.build()
    }
}

/// Writes a program, value by value.
///
/// ```
/// use cleave_kernels::pointwise::*;
/// let mut b = Builder::default();
/// let (x, r) = (b.input(Input::F32), b.input(Input::U8 { scale: 0.1, zero_point: 3 }));
/// let sum = b.binary(Binary::Add, x, r);
/// let y = b.unary(Unary::HardSwish, sum);
/// b.store(y, Output::U8(Quantize::u8(0.2, 0, Rounding::Div)));
/// assert_eq!(b.build()?.inputs().len(), 2);
/// # Ok::<(), cleave_kernels::KernelError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    nodes: Vec<Node>,
    inputs: Vec<Input>,
    stores: Vec<(usize, Output)>,
}

impl Builder {
    fn push(&mut self, node: Node) -> Val {
        self.nodes.push(node);
        Val(self.nodes.len() - 1)
    }

    /// The next input.
    pub fn input(&mut self, input: Input) -> Val {
        self.inputs.push(input);
        self.push(Node::Input(self.inputs.len() - 1))
    }

    /// A number.
    pub fn constant(&mut self, value: f32) -> Val {
        self.push(Node::Const(value))
    }

    /// A function of one value.
    pub fn unary(&mut self, op: Unary, a: Val) -> Val {
        self.push(Node::Unary(op, a.0))
    }

    /// A function of two values. Powers with a few constant exponents become products and roots, as in torch.
    pub fn binary(&mut self, op: Binary, a: Val, b: Val) -> Val {
        let exponent = match (op, self.nodes.get(b.0)) {
            (Binary::Pow, Some(Node::Const(e))) => *e,
            _ => f32::NAN,
        };
        if exponent == 1.0 {
            a
        } else if exponent == 2.0 || exponent == 3.0 || exponent == -2.0 {
            let square = self.push(Node::Binary(Binary::Mul, a.0, a.0));
            match exponent {
                2.0 => square,
                3.0 => self.push(Node::Binary(Binary::Mul, square.0, a.0)),
                _ => self.push(Node::Unary(Unary::Reciprocal, square.0)),
            }
        } else if exponent == 0.5 {
            self.unary(Unary::Sqrt, a)
        } else if exponent == -0.5 {
            self.unary(Unary::Rsqrt, a)
        } else if exponent == -1.0 {
            self.unary(Unary::Reciprocal, a)
        } else {
            self.push(Node::Binary(op, a.0, b.0))
        }
    }

    /// `a` where `mask` is not 0, else `b`.
    pub fn select(&mut self, mask: Val, a: Val, b: Val) -> Val {
        self.push(Node::Select(mask.0, a.0, b.0))
    }

    /// Quantizes to u8 and back without storing: what a q/dq pair inside a chain means.
    /// Rounding follows `q`; `f32(1/scale)` where it multiplies.
    pub fn fake_quantize(&mut self, a: Val, q: &Quantize) -> Val {
        let (op, factor) = match q.rounding {
            Rounding::Recip => (Binary::Mul, reciprocal_per_tensor(q.scale)),
            Rounding::Div => (Binary::Div, q.scale),
        };
        let factor = self.constant(factor);
        let scaled = self.binary(op, a, factor);
        // NaN quantizes to the zero point, which means 0.
        let (ordered, zero) = (self.binary(Binary::Eq, scaled, scaled), self.constant(0.0));
        let number = self.select(ordered, scaled, zero);
        let rounded = self.unary(Unary::Round, number);
        let (lo, hi) = ((q.qmin - q.zero_point) as f32, (q.qmax - q.zero_point) as f32);
        let clamped = self.unary(Unary::Clamp { lo, hi }, rounded);
        let scale = self.constant(q.scale);
        self.binary(Binary::Mul, clamped, scale)
    }

    /// Stores a value as the next output.
    pub fn store(&mut self, a: Val, output: Output) {
        self.stores.push((a.0, output));
    }

    /// Compiles: values that reach no store are dropped, inputs are loaded where they are first used.
    ///
    /// # Errors
    /// No output, more than [`MAX_INPUTS`], [`MAX_OUTPUTS`] or [`MAX_REGISTERS`], a quantization outside u8,
    /// or a value of another builder.
    pub fn build(&self) -> Result<Program, KernelError> {
        let bad = |why: String| KernelError::invalid("pointwise program", why);
        if self.inputs.len() > MAX_INPUTS || self.stores.len() > MAX_OUTPUTS || self.stores.is_empty() {
            let (i, o) = (self.inputs.len(), self.stores.len());
            return Err(bad(format!(
                "expected at most {MAX_INPUTS} inputs and 1 to {MAX_OUTPUTS} outputs, found {i} and {o}"
            )));
        }
        let foreign = |(at, node): (usize, &Node)| node.args().any(|a| a >= at);
        if self.nodes.iter().enumerate().any(foreign) || self.stores.iter().any(|(v, _)| *v >= self.nodes.len()) {
            return Err(bad("a value belongs to another builder".into()));
        }
        for (_, output) in &self.stores {
            if let Output::U8(q) = output {
                q.check()?;
            }
        }
        let schedule = self.schedule();
        let (steps, registers) = allocate(&schedule, self.nodes.len());
        if registers > MAX_REGISTERS {
            return Err(bad(format!("{registers} values are alive at once, expected at most {MAX_REGISTERS}")));
        }
        let outputs: Vec<Output> = self.stores.iter().map(|(_, o)| *o).collect();
        let outputs_f32 = outputs == [Output::F32];
        let sum = bounded_sum(&schedule).filter(|_| outputs_f32 && self.inputs == [Input::F32; 2]);
        let activation = activation(&schedule).filter(|_| outputs_f32 && self.inputs == [Input::F32]);
        Ok(Program { steps, inputs: self.inputs.clone(), outputs, registers, sum, activation })
    }

    /// Steps over one virtual register for each value, in order of need.
    fn schedule(&self) -> Vec<Step> {
        let mut live = vec![false; self.nodes.len()];
        self.stores.iter().for_each(|(v, _)| live[*v] = true);
        // Users stand behind what they use: one pass from the back finds all.
        for at in (0..self.nodes.len()).rev() {
            if live[at] {
                self.nodes[at].args().for_each(|a| live[a] = true);
            }
        }
        let (mut steps, mut done) = (Vec::new(), vec![false; self.nodes.len()]);
        for (at, node) in self.nodes.iter().enumerate() {
            let lazy = matches!(node, Node::Input(_) | Node::Const(_));
            let stored = self.stores.iter().any(|(v, _)| *v == at);
            if live[at] && (!lazy || stored) {
                self.emit(at, &mut steps, &mut done);
            }
        }
        steps
    }

    fn emit(&self, at: usize, steps: &mut Vec<Step>, done: &mut [bool]) {
        let node = self.nodes[at];
        let immediates = matches!(node, Node::Binary(..));
        for a in node.args() {
            let lazy = matches!(self.nodes[a], Node::Input(_) | Node::Const(_));
            let immediate = immediates && matches!(self.nodes[a], Node::Const(_));
            if lazy && !immediate && !done[a] {
                self.emit(a, steps, done);
            }
        }
        if done[at] {
            return;
        }
        done[at] = true;
        let src = |v: usize| match self.nodes[v] {
            Node::Const(c) => Src::Imm(c),
            _ => Src::Reg(v),
        };
        steps.push(match node {
            Node::Input(input) => Step::Load { dst: at, input },
            Node::Const(value) => Step::Fill { dst: at, value },
            Node::Unary(op, a) => Step::Unary { op, dst: at, src: a },
            Node::Binary(op, a, b) => Step::Binary { op, dst: at, a: src(a), b: src(b) },
            Node::Select(mask, a, b) => Step::Select { dst: at, mask, a, b },
        });
        let stores = self.stores.iter().enumerate().filter(|(_, (v, _))| *v == at);
        steps.extend(stores.map(|(output, _)| Step::Store { src: at, output }));
    }
}

/// The bounds of a program that loads two values, adds them, perhaps bounds the sum, and stores it.
fn bounded_sum(steps: &[Step]) -> Option<(f32, f32)> {
    let [Step::Load { dst: x, .. }, Step::Load { dst: y, .. }, Step::Binary { op: Binary::Add, dst, a, b }, rest @ ..] =
        steps
    else {
        return None;
    };
    if (*a, *b) != (Src::Reg(*x), Src::Reg(*y)) && (*a, *b) != (Src::Reg(*y), Src::Reg(*x)) {
        return None;
    }
    match rest {
        [Step::Store { src, .. }] if src == dst => Some((f32::NEG_INFINITY, f32::INFINITY)),
        [Step::Unary { op, dst: bounded, src }, Step::Store { src: stored, .. }] if src == dst && stored == bounded => {
            match op {
                Unary::Relu => Some((0.0, f32::INFINITY)),
                Unary::Clamp { lo, hi } => Some((*lo, *hi)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The one op of a program that loads a value, applies it, and stores the result, if tiles have a loop for it.
fn activation(steps: &[Step]) -> Option<Unary> {
    match steps {
        [Step::Load { dst: x, .. }, Step::Unary { op, dst, src }, Step::Store { src: stored, .. }]
            if src == x && stored == dst =>
        {
            Some(*op).filter(|op| matches!(op, Unary::HardSwish | Unary::Sigmoid | Unary::Silu | Unary::Gelu))
        }
        _ => None,
    }
}

/// Virtual registers to real ones: a register is free after its value's last use.
fn allocate(steps: &[Step], values: usize) -> (Vec<Step>, usize) {
    let mut last = vec![0; values];
    for (at, step) in steps.iter().enumerate() {
        step.sources(|v| last[v] = at);
    }
    let (mut home, mut free, mut count) = (vec![0; values], Vec::new(), 0);
    let mut out = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        if let Some(v) = step.target() {
            home[v] = free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            });
        }
        out.push(step.renamed(&home));
        let mut freed = Vec::new();
        step.sources(|v| {
            if last[v] == at && !freed.contains(&v) {
                freed.push(v);
            }
        });
        free.extend(freed.into_iter().map(|v| home[v]));
    }
    (out, count)
}

impl Step {
    pub(crate) fn target(self) -> Option<usize> {
        match self {
            Step::Load { dst, .. }
            | Step::Fill { dst, .. }
            | Step::Unary { dst, .. }
            | Step::Binary { dst, .. }
            | Step::Select { dst, .. } => Some(dst),
            Step::Store { .. } => None,
        }
    }

    fn sources(self, mut f: impl FnMut(usize)) {
        match self {
            Step::Load { .. } | Step::Fill { .. } => {}
            Step::Unary { src, .. } | Step::Store { src, .. } => f(src),
            Step::Binary { a, b, .. } => [a, b].into_iter().for_each(|s| {
                if let Src::Reg(v) = s {
                    f(v);
                }
            }),
            Step::Select { mask, a, b, .. } => [mask, a, b].into_iter().for_each(f),
        }
    }

    fn renamed(self, home: &[usize]) -> Step {
        let src = |s: Src| match s {
            Src::Reg(v) => Src::Reg(home[v]),
            imm => imm,
        };
        match self {
            Step::Load { dst, input } => Step::Load { dst: home[dst], input },
            Step::Fill { dst, value } => Step::Fill { dst: home[dst], value },
            Step::Unary { op, dst, src } => Step::Unary { op, dst: home[dst], src: home[src] },
            Step::Binary { op, dst, a, b } => Step::Binary { op, dst: home[dst], a: src(a), b: src(b) },
            Step::Select { dst, mask, a, b } => {
                Step::Select { dst: home[dst], mask: home[mask], a: home[a], b: home[b] }
            }
            Step::Store { src, output } => Step::Store { src: home[src], output },
        }
    }
}
