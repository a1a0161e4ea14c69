//! Backends under one face, batches of any length, and the calibration's view of them.

use crate::error::{Error, Result};
use cleave_ir::{Graph, NodeId, Tensor};
use cleave_runtime::{Options, Session, reference};

/// Whatever runs a graph.
pub enum Backend {
    /// The fast one.
    Cpu(Box<Session>),
    /// The interpreter.
    Reference(Box<Graph>),
}

impl Backend {
    /// The backend of this name (`cpu` or `reference`) for a graph.
    ///
    /// # Errors
    /// An unknown name, or a graph that the backend refuses.
    pub fn new(name: &str, g: &Graph, options: Options) -> Result<Backend> {
        match name {
            "cpu" => Ok(Backend::Cpu(Box::new(Session::new(g, options)?))),
            "reference" => Ok(Backend::Reference(Box::new(g.clone()))),
            _ => Err(Error::other(format!("no backend '{name}' runs here; expected cpu or reference"))),
        }
    }

    /// Runs the graph, handing over the values of the tapped nodes.
    ///
    /// # Errors
    /// Inputs that the graph does not admit, or what running met.
    pub fn run(
        &mut self,
        inputs: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>> {
        Ok(match self {
            Backend::Cpu(s) => s.run_with_taps(inputs, taps, sink)?,
            Backend::Reference(g) => reference::run_with_taps(g, inputs, taps, sink)?,
        })
    }
}

/// How many samples the model's inputs hold: one batch, if the batch is a number; any number where it is a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Exactly so many rows in every input.
    Fixed(usize),
    /// As many as the caller likes.
    Free,
    /// Inputs without dimensions, or with different first dimensions: run as they are.
    None,
}

/// The batch of a graph's inputs.
pub fn batch_of(g: &Graph) -> Batch {
    let first: Vec<_> = g
        .placeholders()
        .into_iter()
        .map(|p| g.node(p).meta.as_tensor().and_then(|m| m.shape.first().cloned()))
        .collect();
    match first.split_first() {
        Some((Some(d), rest)) if rest.iter().all(|r| r.as_ref() == Some(d)) => match d.as_const() {
            Some(n) if n > 0 => Batch::Fixed(n as usize),
            Some(_) => Batch::None,
            None => Batch::Free,
        },
        _ => Batch::None,
    }
}

/// Runs inputs of which each holds a multiple of the model's batch, and joins the outputs.
///
/// # Errors
/// Inputs whose first dimension is no multiple of the batch, or what running met.
pub fn run_batched(
    g: &Graph,
    backend: &mut Backend,
    inputs: &[Tensor],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Tensor>> {
    const ROWS: usize = 16;
    let rows = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1);
    let same = inputs.iter().all(|t| t.shape().first() == Some(&rows));
    let step = match batch_of(g) {
        Batch::Fixed(n) if same && rows > n && rows.is_multiple_of(n) => n,
        Batch::Free if same && rows > ROWS => ROWS,
        _ => return backend.run(inputs, &[], &mut |_, _| {}),
    };
    let mut parts: Vec<Vec<Tensor>> = vec![];
    for start in (0..rows).step_by(step) {
        let part: Vec<Tensor> = inputs.iter().map(|t| slice_rows(t, start, (start + step).min(rows))).collect();
        parts.push(backend.run(&part, &[], &mut |_, _| {})?);
        progress((start + step).min(rows), rows);
    }
    let count = parts.first().map_or(0, Vec::len);
    (0..count).map(|i| join(&parts.iter().map(|p| &p[i]).collect::<Vec<_>>())).collect()
}

/// Rows `from..to` of the first dimension; the elements are shared.
pub fn slice_rows(t: &Tensor, from: usize, to: usize) -> Tensor {
    t.narrow(0, from, to - from)
}

/// Tensors joined along their first dimension.
pub(crate) fn join(parts: &[&Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| Error::other("no outputs to join"))?;
    let mut shape = first.shape().to_vec();
    if shape.is_empty() || parts.iter().any(|p| p.shape().get(1..) != Some(&shape[1..]) || p.dtype() != first.dtype()) {
        return Err(Error::other("batches cannot be joined: their shapes or element types differ; run one at a time"));
    }
    shape[0] = parts.iter().map(|p| p.shape()[0]).sum();
    let bytes: Vec<u8> = parts.iter().flat_map(|p| p.to_bytes().into_owned()).collect();
    Ok(Tensor::from_bytes(first.dtype(), shape, std::sync::Arc::new(bytes))?)
}

/// A [`Session`] as calibration sees it.
pub struct CpuEvaluator {
    options: Options,
    session: Option<Session>,
}

impl CpuEvaluator {
    /// Runs on the CPU backend.
    pub fn new(options: Options) -> CpuEvaluator {
        CpuEvaluator { options, session: None }
    }

    /// As many evaluators as it has threads, of one thread each, for samples side by side. They share packed weights with
    /// it.
    ///
    /// # Errors
    /// A graph that the backend refuses.
    pub fn side_by_side(&mut self, graph: &Graph) -> Result<Vec<CpuEvaluator>> {
        let options = Options { threads: 1, ..self.options };
        let threads = self.options.threads.max(1);
        let session = self.session_for(graph)?;
        let one = |_| CpuEvaluator { options, session: Some(session.beside(1)) };
        Ok((0..threads).map(one).collect())
    }

    fn session_for(&mut self, graph: &Graph) -> Result<&mut Session> {
        let session = match self.session.take().filter(|s| same(s.graph(), graph)) {
            Some(s) => s,
            None => Session::new(graph, self.options)?,
        };
        Ok(self.session.insert(session))
    }
}

/// Whether two graphs are one program on the same constants.
fn same(a: &Graph, b: &Graph) -> bool {
    a.nodes().map(|(_, n)| n).eq(b.nodes().map(|(_, n)| n))
        && a.metadata == b.metadata
        && a.constants.len() == b.constants.len()
        && a.constants.iter().all(|(name, t)| b.constants.get(name).is_some_and(|o| o.same_place(t)))
}

impl cleave_quantize::Evaluator for CpuEvaluator {
    fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> std::result::Result<Vec<Tensor>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.session_for(graph)?.run_with_taps(inputs, taps, sink)?)
    }
}
