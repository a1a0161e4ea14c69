//! Runs a program's steps over one chunk: the body that every instruction set compiles.
//!
//! A chunk is `rows × cols` elements, at most [`CHUNK`], packed in registers of L1; one step is one loop
//! over it. Loops run to a multiple of 64 elements, so that they have no tails; what stands behind the
//! chunk's end is stale and never stored.

use super::math::{MAGIC, max_ps, min_ps};
use super::ops::{Binary, Unary};
use super::program::{Input, MAX_REGISTERS, Output, Program, Quantize, Rounding, Src, Step};
use super::sink::Sink;
use cleave_numerics::reciprocal_per_tensor;

/// Elements of a register.
pub(crate) const CHUNK: usize = 512;

/// A register: one value for each element of a chunk.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Register(pub(crate) [f32; CHUNK]);

impl Register {
    pub(crate) const ZERO: Register = Register([0.0; CHUNK]);
}

/// The elements of an operand.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Floats.
    F32(&'a [f32]),
    /// Bytes.
    U8(&'a [u8]),
}

impl Data<'_> {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F32(x) => x.len(),
            Data::U8(x) => x.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a chunk lies in an input: element (r, c) is at `base + r · row + c · col`.
#[derive(Clone, Copy)]
pub(crate) struct InView<'a> {
    pub(crate) data: Data<'a>,
    pub(crate) base: usize,
    pub(crate) row: usize,
    pub(crate) col: usize,
}

/// Where a chunk lies in an output: element (r, c) is at `base + r · row + c`.
#[derive(Clone, Copy)]
pub(crate) struct OutView<'a> {
    pub(crate) data: Sink<'a>,
    pub(crate) base: usize,
    pub(crate) row: usize,
}

/// A chunk: its size and where its operands lie.
pub(crate) struct Frame<'v, 'a> {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) inputs: &'v [InView<'a>],
    pub(crate) outputs: &'v [OutView<'a>],
}

/// Runs all steps over one chunk.
#[inline(always)]
pub(crate) fn execute(program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) {
    let n = (frame.rows * frame.cols).next_multiple_of(64).min(CHUNK);
    let mut borrowed: Borrowed<'_> = [None; MAX_REGISTERS];
    for step in &program.steps {
        if let Some(dst) = step.target() {
            borrowed[dst] = None;
        }
        match *step {
            Step::Load { dst, input } => match frame.inputs[input].dense(frame, n) {
                Some(x) => borrowed[dst] = Some(x),
                None => load(program.inputs[input], frame, &frame.inputs[input], &mut regs[dst].0),
            },
            Step::Fill { dst, value } => regs[dst].0[..n].fill(value),
            Step::Unary { op, dst, src } => unary(op, regs, &borrowed, dst, src, n),
            Step::Binary { op, dst, a, b } => binary(op, regs, &borrowed, dst, a, b, n),
            Step::Select { dst, mask, a, b } => {
                let (d, others) = split(regs, &borrowed, dst);
                let (m, a, b) = (others.get(mask), others.get(a), others.get(b));
                for (((d, m), a), b) in d.0[..n].iter_mut().zip(&m[..n]).zip(&a[..n]).zip(&b[..n]) {
                    *d = if *m != 0.0 { *a } else { *b };
                }
            }
            Step::Store { src, output } => {
                let from = borrowed[src].unwrap_or(&regs[src].0);
                store(program.outputs[output], frame, &frame.outputs[output], from);
            }
        }
    }
}

/// Registers whose values are read where they lie: a dense f32 input is not copied.
type Borrowed<'a> = [Option<&'a [f32]>; MAX_REGISTERS];

impl<'a> InView<'a> {
    /// The chunk itself, if it is dense f32 and `n` elements may be read.
    #[inline(always)]
    fn dense(&self, frame: &Frame<'_, '_>, n: usize) -> Option<&'a [f32]> {
        let Data::F32(x) = self.data else { return None };
        let dense = self.col == 1 && (frame.rows == 1 || self.row == frame.cols);
        if dense { x.get(self.base..self.base + n) } else { None }
    }
}

/// All registers but one.
struct Others<'r> {
    before: &'r [Register],
    after: &'r [Register],
    borrowed: &'r Borrowed<'r>,
}

impl<'r> Others<'r> {
    #[inline(always)]
    fn get(&self, index: usize) -> &'r [f32] {
        match (self.borrowed[index], self.before.get(index)) {
            (Some(x), _) => x,
            (None, Some(r)) => &r.0,
            (None, None) => &self.after[index - self.before.len() - 1].0,
        }
    }
}

/// The register that is written, and the others.
#[inline(always)]
fn split<'r>(regs: &'r mut [Register], borrowed: &'r Borrowed<'r>, dst: usize) -> (&'r mut Register, Others<'r>) {
    let (before, rest) = regs.split_at_mut(dst);
    let (d, after) = rest.split_at_mut(1);
    (&mut d[0], Others { before, after, borrowed })
}

#[inline(always)]
fn map1(regs: &mut [Register], borrowed: &Borrowed<'_>, dst: usize, src: usize, n: usize, f: impl Fn(f32) -> f32) {
    let (d, others) = split(regs, borrowed, dst);
    for (d, s) in d.0[..n].iter_mut().zip(&others.get(src)[..n]) {
        *d = f(*s);
    }
}

#[inline(always)]
fn map2(
    regs: &mut [Register],
    borrowed: &Borrowed<'_>,
    dst: usize,
    a: Src,
    b: Src,
    n: usize,
    f: impl Fn(f32, f32) -> f32,
) {
    match (a, b) {
        (Src::Reg(a), Src::Reg(b)) => {
            let (d, others) = split(regs, borrowed, dst);
            for ((d, a), b) in d.0[..n].iter_mut().zip(&others.get(a)[..n]).zip(&others.get(b)[..n]) {
                *d = f(*a, *b);
            }
        }
        (Src::Reg(a), Src::Imm(b)) => map1(regs, borrowed, dst, a, n, |x| f(x, b)),
        (Src::Imm(a), Src::Reg(b)) => map1(regs, borrowed, dst, b, n, |x| f(a, x)),
        (Src::Imm(a), Src::Imm(b)) => regs[dst].0[..n].fill(f(a, b)),
    }
}

/// One loop for each op: within it the op is a constant, so that `eval` is straight-line code.
#[inline(always)]
fn unary(op: Unary, regs: &mut [Register], borrowed: &Borrowed<'_>, dst: usize, src: usize, n: usize) {
    macro_rules! each {
        ($($name:ident $({ $($field:ident),* })?),* $(,)?) => {
            match op {
                $(Unary::$name $({ $($field),* })? =>
                    map1(regs, borrowed, dst, src, n, |x| Unary::$name $({ $($field),* })?.eval(x)),)*
            }
        };
    }
    each!(
        Neg,
        Abs,
        Relu,
        Clamp { lo, hi },
        HardSwish,
        HardSigmoid,
        HardSigmoidAffine { alpha, beta },
        Sigmoid,
        Silu,
        Tanh,
        Exp,
        Log,
        Erf,
        Gelu,
        GeluTanh,
        LeakyRelu { slope },
        Sqrt,
        Rsqrt,
        Reciprocal,
        Floor,
        Ceil,
        Trunc,
        Round,
        Sign,
    );
}

#[inline(always)]
fn binary(op: Binary, regs: &mut [Register], borrowed: &Borrowed<'_>, dst: usize, a: Src, b: Src, n: usize) {
    macro_rules! each {
        ($($name:ident),* $(,)?) => {
            match op {
                $(Binary::$name => map2(regs, borrowed, dst, a, b, n, |x, y| Binary::$name.eval(x, y)),)*
            }
        };
    }
    each!(Add, Sub, Mul, Div, Max, Min, Pow, Lt, Le, Eq, Ne);
}

#[inline(always)]
fn load(input: Input, frame: &Frame<'_, '_>, view: &InView<'_>, to: &mut [f32; CHUNK]) {
    match (view.data, input) {
        (Data::F32(x), _) if view.col == 1 && frame.rows > 1 && view.row != frame.cols => {
            for (r, to) in to[..frame.rows * frame.cols].chunks_exact_mut(frame.cols).enumerate() {
                copy_row(&x[view.base + r * view.row..][..frame.cols], to);
            }
        }
        (Data::F32(x), _) => load_with(frame, view, x, to, |v| v),
        (Data::U8(x), Input::U8 { scale, zero_point }) => {
            let zero = zero_point as f32;
            load_with(frame, view, x, to, |q| (f32::from(q) - zero) * scale);
        }
        // Checked when operands are bound.
        (Data::U8(x), Input::F32) => load_with(frame, view, x, to, f32::from),
    }
}

#[inline(always)]
fn load_with<T: Copy>(
    frame: &Frame<'_, '_>,
    view: &InView<'_>,
    from: &[T],
    to: &mut [f32; CHUNK],
    f: impl Fn(T) -> f32,
) {
    let (rows, cols) = (frame.rows, frame.cols);
    if view.col == 0 && (rows == 1 || view.row == 0) {
        to[..rows * cols].fill(f(from[view.base]));
    } else if view.col == 1 && (rows == 1 || view.row == cols) {
        let from = &from[view.base..view.base + rows * cols];
        to[..rows * cols].iter_mut().zip(from).for_each(|(t, v)| *t = f(*v));
    } else {
        for (r, to) in to[..rows * cols].chunks_exact_mut(cols).enumerate() {
            let start = view.base + r * view.row;
            match view.col {
                0 => to.fill(f(from[start])),
                1 => to.iter_mut().zip(&from[start..start + cols]).for_each(|(t, v)| *t = f(*v)),
                step => to.iter_mut().zip(from[start..].iter().step_by(step)).for_each(|(t, v)| *t = f(*v)),
            }
        }
    }
}

#[inline(always)]
fn store(output: Output, frame: &Frame<'_, '_>, view: &OutView<'_>, from: &[f32]) {
    let (rows, cols) = (frame.rows, frame.cols);
    // Tightly packed rows are one row.
    let (rows, cols) = if view.row == cols { (1, rows * cols) } else { (rows, cols) };
    for r in 0..rows {
        let from = &from[r * cols..(r + 1) * cols];
        let start = view.base + r * view.row;
        match output {
            Output::F32 => copy_row(from, view.data.f32s(start, cols)),
            Output::U8(q) => quantize_slice(&q, from, view.data.u8s(start, cols)),
        }
    }
}

/// Copies a row. Those of a panel of a product are so short that a call would take longer.
#[inline(always)]
fn copy_row(from: &[f32], to: &mut [f32]) {
    const PANEL: usize = 32;
    match (<&[f32; PANEL]>::try_from(from), <&mut [f32; PANEL]>::try_from(&mut *to)) {
        (Ok(from), Ok(to)) => *to = *from,
        _ => to.copy_from_slice(from),
    }
}

/// Quantizes a slice, with the bits of [`Quantize::eval`].
#[inline(always)]
pub(crate) fn quantize_slice(q: &Quantize, from: &[f32], to: &mut [u8]) {
    let one = Quantizer::new(q);
    match q.rounding {
        Rounding::Recip => {
            let inv = reciprocal_per_tensor(q.scale);
            to.iter_mut().zip(from).for_each(|(t, x)| *t = one.round(*x * inv));
        }
        Rounding::Div => to.iter_mut().zip(from).for_each(|(t, x)| *t = one.round(*x / q.scale)),
    }
}

/// `round_clamp` to u8 in a form that vectorises everywhere: clamping to integers before rounding equals
/// clamping after it, and inside ±255 adding 1.5·2²³ rounds half to even.
#[derive(Clone, Copy)]
pub(crate) struct Quantizer {
    lo: f32,
    hi: f32,
    bias: u32,
}

impl Quantizer {
    #[inline(always)]
    pub(crate) fn new(q: &Quantize) -> Quantizer {
        let (lo, hi) = ((q.qmin - q.zero_point) as f32, (q.qmax - q.zero_point) as f32);
        Quantizer { lo, hi, bias: (q.zero_point as u32).wrapping_sub(MAGIC.to_bits()) }
    }

    /// `clamp(rne(v) + zero_point)`; NaN counts as 0.
    #[inline(always)]
    pub(crate) fn round(self, v: f32) -> u8 {
        self.round_number(if v.is_nan() { 0.0 } else { v })
    }

    /// [`Quantizer::round`] of what is no NaN.
    #[inline(always)]
    pub(crate) fn round_number(self, v: f32) -> u8 {
        let v = min_ps(self.hi, max_ps(self.lo, v));
        (v + MAGIC).to_bits().wrapping_add(self.bias) as u8
    }
}
