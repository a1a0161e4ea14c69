//! Pointwise ops as steps of programs.

use super::fuse::{Region, Sink};
use super::{Args, Deferred, Lower, Stage, State, Step};
use crate::error::Result;
use crate::kernel::{Kernel, PointwiseKernel, ThenKernel};
use crate::memory::{Storage, Value, row_major};
use cleave_ir::{Arg, Class, Graph, Node, NodeId};
use cleave_kernels::pointwise::{Binary, Builder, Input, Output, Pointwise, Program, Unary, Val};
use cleave_numerics::DType;
use indexmap::IndexMap;

/// What a call computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// A function of `self`.
    Unary(Unary),
    /// A function of two operands, the second multiplied by a number beforehand.
    Binary(Binary, f32),
}

type Reader = fn(&Args<'_>) -> Option<Form>;

macro_rules! plain {
    ($op:ident) => {
        |_| Some(Form::Unary(Unary::$op))
    };
}

/// The ops that programs know.
static FORMS: &[(&str, Reader)] = &[
    ("aten.relu.default", plain!(Relu)),
    ("aten.relu6.default", |_| Some(Form::Unary(Unary::Clamp { lo: 0.0, hi: 6.0 }))),
    ("aten.hardtanh.default", |a| Some(Form::Unary(Unary::Clamp { lo: a.float("min_val")?, hi: a.float("max_val")? }))),
    ("aten.clamp.default", |a| {
        let bound = |name: &str, none: f32| if a.is_none(name) { Some(none) } else { a.float(name) };
        Some(Form::Unary(Unary::Clamp { lo: bound("min", f32::NEG_INFINITY)?, hi: bound("max", f32::INFINITY)? }))
    }),
    ("aten.clamp_min.default", |a| Some(Form::Unary(Unary::Clamp { lo: a.float("min")?, hi: f32::INFINITY }))),
    ("aten.clamp_max.default", |a| Some(Form::Unary(Unary::Clamp { lo: f32::NEG_INFINITY, hi: a.float("max")? }))),
    ("aten.hardswish.default", plain!(HardSwish)),
    ("aten.hardsigmoid.default", plain!(HardSigmoid)),
    ("aten.sigmoid.default", plain!(Sigmoid)),
    ("aten.silu.default", plain!(Silu)),
    ("aten.gelu.default", |a| {
        Some(Form::Unary(if a.str("approximate") == "tanh" { Unary::GeluTanh } else { Unary::Gelu }))
    }),
    ("aten.leaky_relu.default", |a| Some(Form::Unary(Unary::LeakyRelu { slope: a.float("negative_slope")? }))),
    ("aten.tanh.default", plain!(Tanh)),
    ("aten.exp.default", plain!(Exp)),
    ("aten.log.default", plain!(Log)),
    ("aten.erf.default", plain!(Erf)),
    ("aten.sqrt.default", plain!(Sqrt)),
    ("aten.rsqrt.default", plain!(Rsqrt)),
    ("aten.reciprocal.default", plain!(Reciprocal)),
    ("aten.neg.default", plain!(Neg)),
    ("aten.abs.default", plain!(Abs)),
    ("aten.floor.default", plain!(Floor)),
    ("aten.ceil.default", plain!(Ceil)),
    ("aten.round.default", plain!(Round)),
    ("aten.trunc.default", plain!(Trunc)),
    ("aten.sign.default", plain!(Sign)),
    ("aten.add.Tensor", |a| Some(Form::Binary(Binary::Add, a.float("alpha")?))),
    ("aten.sub.Tensor", |a| Some(Form::Binary(Binary::Sub, a.float("alpha")?))),
    ("aten.mul.Tensor", |_| Some(Form::Binary(Binary::Mul, 1.0))),
    ("aten.div.Tensor", |_| Some(Form::Binary(Binary::Div, 1.0))),
    ("aten.pow.Tensor_Scalar", |_| Some(Form::Binary(Binary::Pow, 1.0))),
    ("aten.pow.Tensor_Tensor", |_| Some(Form::Binary(Binary::Pow, 1.0))),
    ("aten.maximum.default", |_| Some(Form::Binary(Binary::Max, 1.0))),
    ("aten.minimum.default", |_| Some(Form::Binary(Binary::Min, 1.0))),
];

/// What a call computes, if a program can: all its tensors are f32.
pub(crate) fn form(g: &Graph, id: NodeId) -> Option<Form> {
    let node = g.node(id);
    let name = node.op()?.name;
    let f32s = |n: &NodeId| g.node(*n).meta.as_tensor().is_some_and(|t| t.dtype == DType::F32);
    let floats = f32s(&id) && node.args.iter().flat_map(Arg::nodes).all(|n| f32s(&n));
    let reader = FORMS.iter().find(|(n, _)| *n == name).map(|(_, f)| f)?;
    if floats { reader(&Args { node }) } else { None }
}

/// Whether a program can compute the call.
pub(crate) fn is_pointwise(g: &Graph, id: NodeId) -> bool {
    form(g, id).is_some()
}

/// The call's operands: one or two.
pub(crate) fn operands(node: &Node, form: Form) -> &[Arg] {
    match form {
        Form::Unary(_) => &node.args[..1],
        Form::Binary(..) => &node.args[..2],
    }
}

/// Defers a pointwise call.
pub(crate) fn defer(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some(form) = form(l.g, id) else { return Ok(false) };
    let shape = l.shape(id)?;
    for arg in operands(l.g.node(id), form).iter().flat_map(Arg::nodes) {
        // A small value that is repeated is computed once, not for each element.
        if matches!(l.state(arg), State::Deferred(_)) && l.shape(arg)? != shape {
            l.value(arg)?;
        }
    }
    l.set(id, State::Deferred(Deferred::Pointwise));
    Ok(true)
}

/// A program with the nodes that its inputs stand for.
pub(crate) struct Compiled {
    pub(crate) program: Program,
    pub(crate) leaves: Vec<NodeId>,
}

/// Compiles a region; an anchor's result is the program's input 0. None if it exceeds what a program can hold.
pub(crate) fn compile(
    l: &Lower<'_>,
    root: NodeId,
    region: &Region,
    anchor: Option<NodeId>,
    sink: &Sink,
) -> Option<Compiled> {
    let mut b = Builder::default();
    let mut values: IndexMap<NodeId, Val> = IndexMap::new();
    let mut leaves = vec![];
    if let Some(a) = anchor {
        values.insert(a, b.input(Input::F32));
    }
    for id in &region.nodes {
        let form = form(l.g, *id)?;
        let args: Vec<Val> = operands(l.g.node(*id), form)
            .iter()
            .map(|a| operand(l, a, &mut b, &mut values, &mut leaves))
            .collect::<Option<_>>()?;
        let value = match form {
            Form::Unary(u) => b.unary(u, args[0]),
            Form::Binary(op, alpha) => {
                let factor = if alpha == 1.0 { None } else { Some(b.constant(alpha)) };
                let right = factor.map_or(args[1], |f| b.binary(Binary::Mul, args[1], f));
                b.binary(op, args[0], right)
            }
        };
        values.insert(*id, value);
    }
    let result = operand(l, &Arg::Node(root), &mut b, &mut values, &mut leaves)?;
    b.store(result, sink.output());
    Some(Compiled { program: b.build().ok()?, leaves })
}

fn operand(
    l: &Lower<'_>,
    arg: &Arg,
    b: &mut Builder,
    values: &mut IndexMap<NodeId, Val>,
    leaves: &mut Vec<NodeId>,
) -> Option<Val> {
    let id = match arg {
        Arg::Node(n) => *n,
        Arg::Float(f) => return Some(b.constant(*f as f32)),
        Arg::Int(i) => return Some(b.constant(*i as f32)),
        _ => return None,
    };
    if let Some(v) = values.get(&id) {
        return Some(*v);
    }
    let input = match l.state(id) {
        State::Constant(t) if t.len() == 1 => {
            let v = b.constant(t.to_f32()[0]);
            values.insert(id, v);
            return Some(v);
        }
        State::Dequant(_, quant) if !l.floats.contains_key(&id) => {
            Input::U8 { scale: quant.q.scale, zero_point: quant.q.zero_point }
        }
        _ => Input::F32,
    };
    leaves.push(id);
    let v = b.input(input);
    values.insert(id, v);
    Some(v)
}

/// The value that a program reads for a leaf: levels as they are stored, or floats.
pub(crate) fn leaf(l: &mut Lower<'_>, id: NodeId) -> Result<Value> {
    match l.state(id) {
        State::Dequant(v, _) if !l.floats.contains_key(&id) => Ok(v.clone()),
        _ => l.value(id),
    }
}

/// Emits a region without anchor as one kernel. None if it exceeds what a program can hold.
pub(crate) fn emit(l: &mut Lower<'_>, root: NodeId, region: &Region, sink: &Sink) -> Result<Option<Value>> {
    let Some(compiled) = compile(l, root, region, None, sink) else { return Ok(None) };
    emit_program(l, root, region, sink, compiled, "poi_fused").map(Some)
}

/// Emits a program over whole tensors.
pub(crate) fn emit_program(
    l: &mut Lower<'_>,
    root: NodeId,
    region: &Region,
    sink: &Sink,
    compiled: Compiled,
    stem: &str,
) -> Result<Value> {
    let shape = l.shape(root)?;
    let leaves = compiled.leaves.iter().map(|n| leaf(l, *n)).collect::<Result<Vec<_>>>()?;
    let order = l.order_for(sink.node(root), &leaves, &shape);
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let order = if out.is_dense(&order) { order } else { out.order() };
    let pick = |v: &[usize]| order.iter().map(|d| v[*d]).collect::<Vec<_>>();
    let mut strides = vec![];
    for v in &leaves {
        let seen = v.broadcast(&shape).ok_or_else(|| l.unsupported(root, "an operand does not broadcast"))?;
        strides.push(pick(&seen.strides));
    }
    let body = Pointwise::new(l.isa, compiled.program, &pick(&shape), &strides, &[pick(&out.strides)])?;
    let nodes = sink.covers(&region.nodes);
    let kernel = PointwiseKernel { body };
    let reads: Vec<&Value> = leaves.iter().collect();
    if compiled.leaves.iter().all(|n| is_reduced(l, *n)) && l.follows(&reads) {
        l.join(kernel, &reads, &out, &nodes);
    } else {
        let name = l.fused_name(stem, &nodes);
        l.step(Box::new(kernel), &reads, &out, &name, &nodes);
    }
    Ok(out)
}

/// Whether a node's value is a result of a reduction.
fn is_reduced(l: &Lower<'_>, id: NodeId) -> bool {
    let op = |id: NodeId| l.g.node(id).op();
    let item = op(id).is_some_and(|o| o.base() == "getitem");
    let made = l.g.node(id).args.first().filter(|_| item).and_then(|a| a.nodes().first().copied());
    op(made.unwrap_or(id)).is_some_and(|o| o.class == Class::Reduction)
}

impl Lower<'_> {
    /// Whether these values are what the last kernel wrote, and nothing else.
    fn follows(&self, reads: &[&Value]) -> bool {
        let Some(Stage::Run(Step { writes, .. })) = self.stages.last() else { return false };
        let [made] = writes.as_slice() else { return false };
        !reads.is_empty() && reads.iter().all(|v| made.covers(&v.span()))
    }

    /// Appends a program to the last kernel, all of whose operands it made: its few results are still at hand.
    fn join(&mut self, then: PointwiseKernel, reads: &[&Value], out: &Value, nodes: &[NodeId]) {
        let Some(Stage::Run(step)) = self.stages.pop() else { return };
        let made = &step.writes[0];
        let parts = reads.iter().map(|v| v.span().range).map(|r| r.start - made.range.start..r.end - made.range.start);
        let kernel = Box::new(ThenKernel { parts: parts.collect(), first: step.kernel, then });
        let (old, mut planned) = (step.planned.name.clone(), step.planned);
        let (stem, number) = old.rsplit_once('_').unwrap_or((&old, "0"));
        planned.name = format!("{}_{number}", self.fused_name(stem, nodes));
        planned.kernel = kernel.name();
        planned.nodes.extend(nodes.iter().map(|n| self.g.node(*n).name.clone()));
        planned.bytes += out.len() * out.storage.size();
        for kernel in self.nodes.values_mut().filter(|k| **k == old) {
            kernel.clone_from(&planned.name);
        }
        for n in nodes {
            self.nodes.insert(self.g.node(*n).name.clone(), planned.name.clone());
        }
        let writes = [step.writes, vec![out.span()]].concat();
        self.stages.push(Stage::Run(Step { kernel, reads: step.reads, writes, planned }));
    }

    /// The order in which a pointwise result is stored: that of its operands, channels last if they differ.
    pub(crate) fn order_for(&self, root: NodeId, leaves: &[Value], shape: &[usize]) -> Vec<usize> {
        let last = Lower::spatial_order(shape.len());
        let whole = || leaves.iter().filter(|v| v.shape == shape);
        let wants = shape.len() >= 3 && self.g.users(root).iter().any(|u| self.is_spatial(*u));
        if whole().any(Value::is_channels_last) || wants {
            return last;
        }
        whole().next().map_or_else(|| row_major(shape.len()), Value::order)
    }

    /// Whether a node, or what reads its dequantized value, works on pixels of channels.
    fn is_spatial(&self, id: NodeId) -> bool {
        let Some(op) = self.g.node(id).op() else { return false };
        match op.class {
            Class::Quantize => self.g.users(id).iter().any(|u| self.is_spatial(*u)),
            Class::Pool => self.shape(id).is_ok_and(|s| s.len() == 4),
            Class::Strategic => op.base().starts_with("conv"),
            _ => false,
        }
    }

    /// A kernel's name without number: the stem and the ops that it covers.
    pub(crate) fn fused_name(&self, stem: &str, nodes: &[NodeId]) -> String {
        let mut name = stem.to_string();
        for op in nodes.iter().filter_map(|n| self.g.node(*n).op()) {
            let base = match op.base() {
                "quantize_per_tensor" => "quantize",
                "dequantize_per_tensor" => "dequantize",
                base => base,
            };
            name = format!("{name}_{base}");
        }
        name
    }
}

impl Sink {
    /// What a program stores.
    pub(crate) fn output(&self) -> Output {
        match self {
            Sink::Float => Output::F32,
            Sink::Quantize(_, quant) => Output::U8(quant.q),
        }
    }

    /// How the result is stored.
    pub(crate) fn storage(&self) -> Storage {
        match self {
            Sink::Float => Storage::F32,
            Sink::Quantize(_, quant) => quant.storage,
        }
    }
}
