//! A model compiled for inputs of known shapes: steps, and where their operands lie.

use crate::error::{Result, RuntimeError};
use crate::kernel::{CopyKernel, Io, shift};
use crate::lower::lower;
use crate::memory::arena::{Request, place};
use crate::memory::carve::{Carved, MAX_WRITES, carve};
use crate::memory::{Buffer, Home, Span, Storage, Value, row_major, strides_in};
use crate::packing::{PackedWeights, make};
use crate::plan::Plan;
use crate::steps::{Stage, Step, Steps};
use cleave_ir::{Bytes, Graph, Tensor};
use cleave_kernels::{AlignedVec, Isa, ThreadPool};
use indexmap::IndexSet;
use std::ops::Range;
use std::sync::Arc;

/// Most ranges that a step reads without a list on the heap.
const MAX_READS: usize = 20;

/// A compiled model.
pub(crate) struct Compiled {
    stages: Vec<Stage>,
    buffers: Vec<Buffer>,
    /// Of each buffer in the arena; 0 for others.
    offsets: Vec<usize>,
    results: Vec<Value>,
    /// What it says of itself.
    pub(crate) plan: Plan,
    /// Bytes of scratch that its kernels share.
    pub(crate) scratch_bytes: usize,
}

/// An input's elements in row-major order, aligned for their type.
pub(crate) enum InputBytes<'a> {
    /// Where they are.
    Borrowed(&'a [u8]),
    /// Copied floats.
    Floats(Vec<f32>),
    /// Other elements, copied.
    Bytes(Vec<u8>),
}

impl<'a> InputBytes<'a> {
    /// A tensor's elements.
    pub(crate) fn of(t: &'a Tensor) -> InputBytes<'a> {
        use std::borrow::Cow;
        match t.elements::<f32>() {
            Some(Cow::Borrowed(s)) => InputBytes::Borrowed(bytemuck::cast_slice(s)),
            Some(Cow::Owned(v)) => InputBytes::Floats(v),
            None => match t.to_bytes() {
                Cow::Borrowed(b) => InputBytes::Borrowed(b),
                Cow::Owned(b) => InputBytes::Bytes(b),
            },
        }
    }

    /// The elements' bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            InputBytes::Borrowed(b) => b,
            InputBytes::Floats(v) => bytemuck::cast_slice(v),
            InputBytes::Bytes(b) => b,
        }
    }
}

/// What a run works in: shared by all models of a session.
pub(crate) struct Workspace<'a> {
    /// At least the plan's `arena_bytes`.
    pub(crate) arena: &'a mut Arc<Arena>,
    /// At least `scratch_bytes`.
    pub(crate) scratch: &'a mut [u8],
    /// Threads.
    pub(crate) pool: &'a ThreadPool,
}

/// What values lie in, lent to taps as it is: if one keeps a value, it keeps all of the arena, and the run goes on in
/// another.
#[derive(Clone, Default)]
pub(crate) struct Arena(pub(crate) AlignedVec<u8>);

impl Bytes for Arena {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Compiled {
    /// Compiles a graph whose sizes are numbers; its results from `first_tap` on are handed over by [`Compiled::run`].
    ///
    /// # Errors
    /// A call that neither a kernel nor the reference interpreter admits.
    pub(crate) fn new(
        g: &Arc<Graph>,
        isa: Isa,
        pool: &ThreadPool,
        first_tap: usize,
        packed: &PackedWeights,
    ) -> Result<Compiled> {
        let mut wide = IndexSet::new();
        let (mut stages, buffers, nodes, mut results) = loop {
            let (Steps { stages, buffers, nodes, .. }, results) = lower(g, isa, first_tap, packed, &wide)?;
            match make(stages, pool)? {
                Ok(stages) => break (stages, buffers, nodes, results),
                Err(overflows) => wide.extend(overflows),
            }
        };
        add_in_place(&mut stages, &buffers, &mut results);
        let (offsets, arena_bytes) = offsets(&stages, &buffers, &results);
        let steps = || stages.iter().filter_map(|s| if let Stage::Run(step) = s { Some(step) } else { None });
        let scratch_bytes = steps().map(|s| s.kernel.scratch_bytes(pool.threads())).max().unwrap_or(0);
        let constants = buffers.iter().filter(|b| matches!(b.home, Home::Constant(_))).map(|b| b.bytes).sum();
        let kernels = steps().map(|s| s.planned.clone()).collect();
        let plan = Plan { kernels, nodes, arena_bytes, constant_bytes: constants };
        Ok(Compiled { stages, buffers, offsets, results, plan, scratch_bytes })
    }

    /// Runs all steps; `tap` receives each tapped value as soon as it is there.
    ///
    /// # Errors
    /// A kernel that refuses its operands, named.
    pub(crate) fn run(
        &self,
        work: &mut Workspace<'_>,
        inputs: &[InputBytes<'_>],
        tap: &mut dyn FnMut(usize, &Tensor),
        timed: Option<&mut Vec<std::time::Duration>>,
    ) -> Result<Vec<Tensor>> {
        let _hold = work.pool.hold();
        let mut timed = timed;
        for stage in &self.stages {
            match stage {
                Stage::Run(step) => {
                    let start = timed.is_some().then(std::time::Instant::now);
                    self.step(step, work, inputs).map_err(|e| e.at(&step.planned.name))?;
                    if let (Some(list), Some(start)) = (timed.as_deref_mut(), start) {
                        list.push(start.elapsed());
                    }
                }
                Stage::Tap(index, value) => tap(*index, &self.shown(value, work, inputs)?),
            }
        }
        self.results.iter().map(|v| self.tensor(v, work.arena, inputs)).collect()
    }

    fn step(&self, step: &Step, work: &mut Workspace<'_>, inputs: &[InputBytes<'_>]) -> Result<()> {
        let mut ranges: [Range<usize>; MAX_WRITES] = Default::default();
        let n = step.writes.len().min(MAX_WRITES);
        for (range, span) in ranges.iter_mut().zip(&step.writes) {
            *range = self.range(span);
        }
        let (carved, mut slices) = carve(&mut Arc::make_mut(work.arena).0, &ranges[..n]);
        let mut fixed: [&[u8]; MAX_READS] = [&[]; MAX_READS];
        let more: Vec<&[u8]>;
        let reads = if step.reads.len() <= MAX_READS {
            for (slot, span) in fixed.iter_mut().zip(&step.reads) {
                *slot = self.read(span, &carved, inputs);
            }
            &fixed[..step.reads.len()]
        } else {
            more = step.reads.iter().map(|span| self.read(span, &carved, inputs)).collect();
            &more
        };
        step.kernel.run(&mut Io { pool: work.pool, reads, writes: &mut slices[..n], scratch: work.scratch })
    }

    /// Bytes of the arena.
    fn range(&self, span: &Span) -> Range<usize> {
        let at = self.offsets[span.buffer];
        at + span.range.start..at + span.range.end
    }

    fn read<'a>(&'a self, span: &Span, carved: &Carved<'a>, inputs: &'a [InputBytes<'_>]) -> &'a [u8] {
        match &self.buffers[span.buffer].home {
            Home::Arena => carved.read(&self.range(span)),
            Home::Input(i) => &inputs[*i].bytes()[span.range.clone()],
            Home::Constant(v) => &v[span.range.clone()],
        }
    }

    /// A value as a tap sees it: without gaps in the order in which it lies, where it lies; or row-major.
    fn shown(&self, value: &Value, work: &mut Workspace<'_>, inputs: &[InputBytes<'_>]) -> Result<Tensor> {
        let in_place = matches!(self.buffers[value.buffer].home, Home::Arena) && value.reach() == value.len();
        if !in_place || !matches!(value.storage, Storage::F32 | Storage::U8) {
            return self.tensor(value, work.arena, inputs);
        }
        let offset = self.range(&value.span()).start / value.storage.size();
        let (dtype, storage) = (value.storage.dtype(), Arc::<Arena>::clone(work.arena));
        Ok(Tensor::view(dtype, value.shape.clone(), value.strides.clone(), offset, storage)?)
    }

    /// A value as a row-major tensor.
    fn tensor(&self, value: &Value, arena: &mut Arc<Arena>, inputs: &[InputBytes<'_>]) -> Result<Tensor> {
        let (carved, _) = carve(&mut Arc::make_mut(arena).0, &[]);
        let from = self.read(&value.span(), &carved, inputs);
        let order = row_major(value.shape.len());
        let strides = strides_in(&value.shape, &order);
        let dense = Value { offset: 0, strides, ..value.clone() };
        let copy = CopyKernel::new(value, &dense);
        if value.storage == Storage::F32 {
            let mut to = vec![0f32; value.len()];
            copy.run_on(from, bytemuck::cast_slice_mut(&mut to));
            return Ok(Tensor::new(&value.shape, to));
        }
        let mut to = vec![0u8; value.len() * value.storage.size()];
        copy.run_on(from, &mut to);
        shift(value.storage, &mut to);
        Ok(Tensor::from_bytes(value.storage.dtype(), value.shape.clone(), Arc::new(to))?)
    }
}

/// The first and the last stage at which each buffer is written or read.
fn lives(stages: &[Stage], buffers: usize, results: &[Value]) -> Vec<Option<(usize, usize)>> {
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; buffers];
    let mut seen = |buffer: usize, at: usize| {
        let life = lives[buffer].get_or_insert((at, at));
        life.1 = life.1.max(at);
    };
    for (at, stage) in stages.iter().enumerate() {
        match stage {
            Stage::Run(step) => step.writes.iter().chain(&step.reads).for_each(|s| seen(s.buffer, at)),
            Stage::Tap(_, value) => seen(value.buffer, at),
        }
    }
    results.iter().for_each(|v| seen(v.buffer, stages.len()));
    lives
}

/// Has kernels add to a residual in place where nobody needs it any more: its buffer is the result's, too.
fn add_in_place(stages: &mut [Stage], buffers: &[Buffer], results: &mut [Value]) {
    let lives = lives(stages, buffers.len(), results);
    // What each buffer has become.
    let mut home: Vec<usize> = (0..buffers.len()).collect();
    for (at, stage) in stages.iter_mut().enumerate() {
        let step = match stage {
            Stage::Run(step) => step,
            Stage::Tap(_, value) => {
                value.buffer = home[value.buffer];
                continue;
            }
        };
        if let ([to], Some(index)) = (&step.writes[..], step.kernel.adds_to()) {
            let from = &step.reads[index];
            let whole = |s: &Span| s.range == (0..buffers[s.buffer].bytes);
            let others = step.reads.iter().filter(|s| s.buffer == from.buffer).count() - 1;
            let in_arena = |s: &Span| matches!(buffers[s.buffer].home, Home::Arena);
            let ends = lives[from.buffer].is_some_and(|(_, last)| last == at);
            let begins = lives[to.buffer].is_some_and(|(first, _)| first == at);
            let same = from.range == to.range && whole(from) && whole(to) && in_arena(from) && in_arena(to);
            if ends && begins && same && others == 0 {
                home[to.buffer] = home[from.buffer];
                step.reads.remove(index);
                step.kernel.add_in_place();
                step.planned.in_place = true;
            }
        }
        step.reads.iter_mut().chain(&mut step.writes).for_each(|s| s.buffer = home[s.buffer]);
    }
    results.iter_mut().for_each(|v| v.buffer = home[v.buffer]);
}

/// Offsets of buffers in the arena, by their first write and last read, and the bytes of the arena.
fn offsets(stages: &[Stage], buffers: &[Buffer], results: &[Value]) -> (Vec<usize>, usize) {
    let lives = lives(stages, buffers.len(), results);
    let alive = |b: usize| lives[b].filter(|_| matches!(buffers[b].home, Home::Arena));
    let planned: Vec<usize> = (0..buffers.len()).filter(|b| alive(*b).is_some()).collect();
    let requests = planned.iter().filter_map(|b| {
        let (first, last) = alive(*b)?;
        Some(Request { bytes: buffers[*b].bytes, first, last })
    });
    let (places, total) = place(&requests.collect::<Vec<_>>());
    let mut offsets = vec![0; buffers.len()];
    planned.iter().zip(places).for_each(|(b, at)| offsets[*b] = at);
    (offsets, total)
}

impl RuntimeError {
    /// The error with the kernel that met it.
    fn at(self, kernel: &str) -> RuntimeError {
        match self {
            RuntimeError::Kernel(source) => RuntimeError::Step { kernel: kernel.into(), source },
            other => other,
        }
    }
}
