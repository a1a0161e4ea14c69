//! A program over whole tensors: strided, broadcast operands of any rank up to 8.

use super::exec::{CHUNK, Data, Frame, InView, OutView, Register};
use super::isa::execute_on;
use super::program::{Input, MAX_INPUTS, MAX_OUTPUTS, Output, Program};
use super::sink::Sink;
use crate::{Isa, KernelError, SharedMut, ThreadPool};
use std::ops::Range;

/// Most dimensions of an iteration space.
pub const MAX_RANK: usize = 8;
/// Below this many elements a second thread does not pay.
const SERIAL: usize = 16 * 1024;

/// The elements of an output.
#[derive(Debug)]
pub enum DataMut<'a> {
    /// Floats.
    F32(&'a mut [f32]),
    /// Bytes.
    U8(&'a mut [u8]),
}

/// A program bound to an iteration space: built once, run without allocation.
#[derive(Clone, Debug)]
pub struct Pointwise {
    isa: Isa,
    program: Program,
    dims: Vec<Dim>,
    /// Elements that each input and each output must have.
    reach: Vec<usize>,
    rows_per_tile: usize,
    cols_per_tile: usize,
    tiles: usize,
}

/// One dimension after merging: its size and every operand's step (inputs first).
#[derive(Clone, Debug, PartialEq)]
struct Dim {
    size: usize,
    steps: Vec<usize>,
}

/// Row-major strides of a dense tensor.
pub fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// Strides of a dense tensor of `shape` seen as `target`, by the rules of NumPy: 0 where it is repeated.
///
/// # Errors
/// Shapes that do not broadcast.
pub fn broadcast_strides(shape: &[usize], target: &[usize]) -> Result<Vec<usize>, KernelError> {
    let refuse = || KernelError::invalid("broadcast", format!("{shape:?} does not broadcast to {target:?}"));
    let lead = target.len().checked_sub(shape.len()).ok_or_else(refuse)?;
    let mut strides = vec![0; target.len()];
    for (i, stride) in dense_strides(shape).into_iter().enumerate() {
        if shape[i] == target[lead + i] {
            strides[lead + i] = stride;
        } else if shape[i] != 1 {
            return Err(refuse());
        }
    }
    Ok(strides)
}

impl Pointwise {
    /// Binds a program to the space `dims`. Every input and output has one stride a dimension, in elements;
    /// 0 repeats an input. The innermost dimension that outputs have must be contiguous in all of them.
    ///
    /// # Errors
    /// A rank above [`MAX_RANK`], a count of operands that is not the program's, or an output that is repeated
    /// or not contiguous in the innermost dimension.
    pub fn new(
        isa: Isa,
        program: Program,
        dims: &[usize],
        inputs: &[Vec<usize>],
        outputs: &[Vec<usize>],
    ) -> Result<Pointwise, KernelError> {
        let bad = |why: String| Err(KernelError::invalid("pointwise operands", why));
        let (ni, no) = (program.inputs.len(), program.outputs.len());
        if inputs.len() != ni || outputs.len() != no || dims.len() > MAX_RANK {
            let found = (inputs.len(), outputs.len(), dims.len());
            return bad(format!(
                "expected {ni} inputs, {no} outputs and a rank of at most {MAX_RANK}, found {found:?}"
            ));
        }
        if let Some(s) = inputs.iter().chain(outputs).find(|s| s.len() != dims.len()) {
            return bad(format!("expected one stride for each of {} dimensions, found {s:?}", dims.len()));
        }
        let operands: Vec<&[usize]> = inputs.iter().chain(outputs).map(Vec::as_slice).collect();
        let reach = operands.iter().map(|s| reach(dims, s)).collect();
        let merged = merge(dims, &operands);
        let outputs_at = |d: &Dim| d.steps[ni..].to_vec();
        let last = merged.last().filter(|d| d.size > 1);
        if last.is_some_and(|d| outputs_at(d).iter().any(|s| *s != 1)) {
            return bad(format!("outputs must be contiguous in the innermost dimension, found strides {outputs:?}"));
        }
        if merged.iter().any(|d| d.size > 1 && outputs_at(d).contains(&0)) {
            return bad(format!("outputs must not be repeated, found strides {outputs:?} over {dims:?}"));
        }
        let (rows, cols) = (merged[merged.len() - 2].size, merged[merged.len() - 1].size);
        let cols_per_tile = cols.clamp(1, CHUNK);
        let rows_per_tile = (CHUNK / cols_per_tile).clamp(1, rows.max(1));
        let outer: usize = merged[..merged.len() - 2].iter().map(|d| d.size).product();
        let tiles = outer * rows.div_ceil(rows_per_tile) * cols.div_ceil(cols_per_tile);
        Ok(Pointwise { isa, program, dims: merged, reach, rows_per_tile, cols_per_tile, tiles })
    }

    /// Dense operands of one length.
    ///
    /// # Errors
    /// As [`Pointwise::new`].
    pub fn flat(isa: Isa, program: Program, len: usize) -> Result<Pointwise, KernelError> {
        let (inputs, outputs) = (vec![vec![1]; program.inputs.len()], vec![vec![1]; program.outputs.len()]);
        Pointwise::new(isa, program, &[len], &inputs, &outputs)
    }

    /// Dense outputs of shape `dims`; inputs of the given shapes, broadcast as NumPy does.
    ///
    /// # Errors
    /// As [`Pointwise::new`], or shapes that do not broadcast.
    pub fn broadcast(
        isa: Isa,
        program: Program,
        dims: &[usize],
        inputs: &[Vec<usize>],
    ) -> Result<Pointwise, KernelError> {
        let inputs = inputs.iter().map(|s| broadcast_strides(s, dims)).collect::<Result<Vec<_>, _>>()?;
        let outputs = vec![dense_strides(dims); program.outputs.len()];
        Pointwise::new(isa, program, dims, &inputs, &outputs)
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs it: operands in the program's order, each at least as long as its strides reach.
    ///
    /// # Errors
    /// An operand that is missing, too short or of the wrong type.
    pub fn run(&self, pool: &ThreadPool, inputs: &[Data<'_>], outputs: &mut [DataMut<'_>]) -> Result<(), KernelError> {
        let (ni, no) = (self.program.inputs.len(), self.program.outputs.len());
        KernelError::exactly("pointwise inputs", ni, inputs.len())?;
        KernelError::exactly("pointwise outputs", no, outputs.len())?;
        let mut sinks = [Sink::U8(SharedMut::new(&mut [])); MAX_OUTPUTS];
        for (sink, output) in sinks.iter_mut().zip(outputs) {
            *sink = match output {
                DataMut::F32(y) => Sink::F32(SharedMut::new(y)),
                DataMut::U8(y) => Sink::U8(SharedMut::new(y)),
            };
        }
        let sinks = &sinks[..no];
        check_types(&self.program, inputs.iter().copied(), sinks.iter().copied())?;
        let lengths = inputs.iter().map(Data::len).chain(sinks.iter().map(Sink::len));
        for (reach, found) in self.reach.iter().zip(lengths) {
            KernelError::at_least("pointwise operand", *reach, found)?;
        }
        if self.tiles == 0 {
            return Ok(());
        }
        let elements = self.tiles * self.rows_per_tile * self.cols_per_tile;
        let tasks = if elements < SERIAL { 1 } else { pool.threads().min(self.tiles) };
        pool.run(tasks, &|task| {
            let tiles = task * self.tiles / tasks..(task + 1) * self.tiles / tasks;
            with_registers(self.program.registers, |regs| self.run_tiles(tiles, inputs, sinks, regs));
        });
        Ok(())
    }

    fn run_tiles(&self, tiles: Range<usize>, inputs: &[Data<'_>], sinks: &[Sink<'_>], regs: &mut [Register]) {
        let (ni, rank) = (inputs.len(), self.dims.len());
        let (row_dim, col_dim) = (&self.dims[rank - 2], &self.dims[rank - 1]);
        let mut ins = [InView { data: Data::U8(&[]), base: 0, row: 0, col: 0 }; MAX_INPUTS];
        for (i, (view, data)) in ins.iter_mut().zip(inputs).enumerate() {
            *view = InView { data: *data, base: 0, row: row_dim.steps[i], col: col_dim.steps[i] };
        }
        let mut outs = [OutView { data: Sink::U8(SharedMut::new(&mut [])), base: 0, row: 0 }; MAX_OUTPUTS];
        for (o, (view, data)) in outs.iter_mut().zip(sinks).enumerate() {
            *view = OutView { data: *data, base: 0, row: row_dim.steps[ni + o] };
        }
        for tile in tiles {
            let (from, [rows, cols]) = self.tile(tile);
            let at = |i: usize| from.iter().zip(&self.dims).map(|(index, dim)| index * dim.steps[i]).sum();
            ins[..ni].iter_mut().enumerate().for_each(|(i, view)| view.base = at(i));
            outs[..sinks.len()].iter_mut().enumerate().for_each(|(o, view)| view.base = at(ni + o));
            let frame = Frame { rows, cols, inputs: &ins[..ni], outputs: &outs[..sinks.len()] };
            execute_on(self.isa, &self.program, &frame, regs);
        }
    }

    /// Where a tile begins in each dimension, and its rows and columns.
    fn tile(&self, tile: usize) -> ([usize; MAX_RANK], [usize; 2]) {
        let rank = self.dims.len();
        let (row_size, col_size) = (self.dims[rank - 2].size, self.dims[rank - 1].size);
        let (row_tiles, col_tiles) = (row_size.div_ceil(self.rows_per_tile), col_size.div_ceil(self.cols_per_tile));
        let (row, col) = (tile / col_tiles % row_tiles * self.rows_per_tile, tile % col_tiles * self.cols_per_tile);
        let mut from = [0; MAX_RANK];
        (from[rank - 2], from[rank - 1]) = (row, col);
        let mut rest = tile / col_tiles / row_tiles;
        for (index, dim) in from.iter_mut().zip(&self.dims[..rank - 2]).rev() {
            (*index, rest) = (rest % dim.size, rest / dim.size);
        }
        (from, [self.rows_per_tile.min(row_size - row), self.cols_per_tile.min(col_size - col)])
    }
}

/// Elements that strides reach over `dims`: the last index and one.
fn reach(dims: &[usize], strides: &[usize]) -> usize {
    if dims.contains(&0) {
        return 0;
    }
    dims.iter().zip(strides).map(|(d, s)| (d - 1) * s).sum::<usize>() + 1
}

/// Dimensions of size 1 dropped, and neighbours joined where every operand runs through both in one step;
/// at least two remain.
fn merge(dims: &[usize], operands: &[&[usize]]) -> Vec<Dim> {
    let mut out: Vec<Dim> = Vec::new();
    for (i, size) in dims.iter().copied().enumerate().filter(|(_, size)| *size != 1) {
        let steps: Vec<usize> = operands.iter().map(|s| s[i]).collect();
        match out.last_mut() {
            Some(last) if last.steps.iter().zip(&steps).all(|(outer, inner)| *outer == inner * size) => {
                *last = Dim { size: last.size * size, steps };
            }
            _ => out.push(Dim { size, steps }),
        }
    }
    while out.len() < 2 {
        let steps = if out.is_empty() { vec![1; operands.len()] } else { vec![0; operands.len()] };
        out.insert(0, Dim { size: 1, steps });
    }
    out
}

/// # Errors
/// An operand whose elements are not of the program's type.
pub(super) fn check_types<'a>(
    program: &Program,
    inputs: impl Iterator<Item = Data<'a>>,
    outputs: impl Iterator<Item = Sink<'a>>,
) -> Result<(), KernelError> {
    for (kind, data) in program.inputs.iter().zip(inputs) {
        match (kind, data) {
            (Input::F32, Data::U8(_)) => return Err(KernelError::DType { what: "pointwise input", expected: "f32" }),
            (Input::U8 { .. }, Data::F32(_)) => {
                return Err(KernelError::DType { what: "pointwise input", expected: "u8" });
            }
            _ => {}
        }
    }
    for (kind, sink) in program.outputs.iter().zip(outputs) {
        match (kind, sink) {
            (Output::F32, Sink::U8(_)) => return Err(KernelError::DType { what: "pointwise output", expected: "f32" }),
            (Output::U8(_), Sink::F32(_)) => {
                return Err(KernelError::DType { what: "pointwise output", expected: "u8" });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Registers on the stack, of the next size up.
pub(super) fn with_registers<R>(count: usize, f: impl FnOnce(&mut [Register]) -> R) -> R {
    match count {
        0..=2 => f(&mut [Register::ZERO; 2]),
        3..=4 => f(&mut [Register::ZERO; 4]),
        5..=8 => f(&mut [Register::ZERO; 8]),
        _ => f(&mut [Register::ZERO; 16]),
    }
}
