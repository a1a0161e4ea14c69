//! The model under construction, and one node of the graph on its way into it.

use super::args::Args;
use crate::onnx::proto::{AttributeProto, NodeProto};
use cleave_ir::{Arg, Dim, Graph, Node, NodeId, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// What all graphs of a model have in common: constants stand in the outermost, and names are unique.
#[derive(Default)]
pub struct Whole {
    /// Constants by name.
    pub constants: IndexMap<String, Tensor>,
    /// Constants that are stored in four bits.
    pub narrow: BTreeSet<String>,
    /// Names of values and of nodes that are taken.
    taken: BTreeSet<String>,
    /// Constants that were made for arguments, by what they hold.
    made: IndexMap<String, String>,
    /// Constants of graphs by their names there: where several graphs have one, it is written once.
    given: IndexMap<String, (String, Tensor)>,
}

/// What has been written so far of a graph.
pub struct Writer<'g> {
    /// The graph that is written.
    pub g: &'g Graph,
    /// The operator set.
    pub opset: i64,
    /// Calls.
    pub nodes: Vec<NodeProto>,
    /// What it shares with graphs around it and inside.
    pub whole: Whole,
    /// Names of each node's results.
    values: IndexMap<NodeId, Vec<String>>,
    /// Names of results as the outside knows them.
    wanted: IndexMap<NodeId, String>,
    /// Where each symbolic size can be read off: a value and one of its dimensions.
    sizes: IndexMap<Dim, (String, usize)>,
    /// Symbolic sizes that are values already.
    read: IndexMap<Dim, String>,
}

impl<'g> Writer<'g> {
    /// Nothing yet; the names of inputs and results are taken.
    pub fn new(g: &'g Graph, opset: i64) -> Writer<'g> {
        let mut wanted = IndexMap::new();
        for (id, name) in g.results().into_iter().zip(&g.output_names) {
            if matches!(g.node(id).kind, cleave_ir::Kind::Call(_)) {
                wanted.entry(id).or_insert_with(|| name.clone());
            }
        }
        let taken = g.input_names.iter().chain(&g.output_names).cloned().collect();
        let whole = Whole { taken, ..Whole::default() };
        Writer { wanted, whole, ..Writer::bare(g, opset) }
    }

    fn bare(g: &'g Graph, opset: i64) -> Writer<'g> {
        let (values, wanted, sizes, read) = (IndexMap::new(), IndexMap::new(), IndexMap::new(), IndexMap::new());
        Writer { g, opset, nodes: vec![], whole: Whole::default(), values, wanted, sizes, read }
    }

    /// A writer of a graph inside this one, with the calls and names so far, until it [leaves](Writer::leave).
    pub fn inside<'i>(&mut self, g: &'i Graph) -> Writer<'i> {
        let (nodes, whole) = (std::mem::take(&mut self.nodes), std::mem::take(&mut self.whole));
        Writer { nodes, whole, ..Writer::bare(g, self.opset) }
    }

    /// Gives calls and names back.
    pub fn leave(self, outer: &mut Writer<'_>) {
        (outer.nodes, outer.whole) = (self.nodes, self.whole);
    }

    /// A name that nothing has yet.
    pub fn fresh(&mut self, wish: &str) -> String {
        let numbered = (1..).map(|i| format!("{wish}_{i}"));
        let name = std::iter::once(wish.to_string()).chain(numbered).find(|n| !self.whole.taken.contains(n));
        let name = name.expect("invariant: there are endless numbers");
        self.whole.taken.insert(name.clone());
        name
    }

    /// Notes the names of a node's results.
    pub fn set(&mut self, id: NodeId, names: Vec<String>) {
        if let (Some(meta), [name]) = (self.g.node(id).meta.as_tensor(), names.as_slice()) {
            for (i, d) in meta.shape.iter().enumerate().filter(|(_, d)| d.as_const().is_none()) {
                self.sizes.entry(d.clone()).or_insert_with(|| (name.clone(), i));
            }
        }
        self.values.insert(id, names);
    }

    /// The name of a node's one result.
    pub fn name(&self, id: NodeId) -> Result<String, String> {
        let missing = || format!("'{}' has no value that could be written", self.g.node(id).name);
        self.values.get(&id).and_then(|n| n.first()).cloned().ok_or_else(missing)
    }

    /// The names of a node's results.
    pub fn names(&self, id: NodeId) -> &[String] {
        self.values.get(&id).map_or(&[], Vec::as_slice)
    }

    /// A constant under a name like this one.
    pub fn constant(&mut self, wish: &str, t: Tensor) -> String {
        let name = self.fresh(wish);
        self.whole.constants.insert(name.clone(), t);
        name
    }

    /// A constant that a graph has under this name.
    pub fn given(&mut self, target: &str, t: &Tensor) -> String {
        if let Some((name, _)) = self.whole.given.get(target).filter(|(_, own)| own.same_place(t)) {
            return name.clone();
        }
        let name = self.constant(target, t.clone());
        self.whole.given.insert(target.into(), (name.clone(), t.clone()));
        name
    }

    /// Notes the value of one element that a symbolic size is.
    pub fn read_off(&mut self, dim: &Dim, value: &str) {
        self.read.insert(dim.clone(), value.into());
    }

    /// A constant for an argument; equal ones are one.
    pub fn literal(&mut self, wish: &str, t: Tensor) -> String {
        let key = format!("{} {:?} {:?}", t.dtype(), t.shape(), t.to_bytes());
        if let Some(name) = self.whole.made.get(&key) {
            return name.clone();
        }
        let name = self.constant(wish, t);
        self.whole.made.insert(key, name.clone());
        name
    }

    /// A call with one result of this name.
    pub fn call(&mut self, op: &str, node: &str, inputs: Vec<String>, output: &str, attrs: Vec<AttributeProto>) {
        self.nodes.push(NodeProto {
            input: inputs,
            output: vec![output.into()],
            name: node.into(),
            op_type: op.into(),
            attribute: attrs,
            ..NodeProto::default()
        });
    }
}

/// One node of the graph on its way into the model.
pub struct Out<'w, 'g> {
    /// The model.
    pub w: &'w mut Writer<'g>,
    /// The node.
    pub id: NodeId,
    /// The node.
    pub node: &'g Node,
    /// Its arguments.
    pub args: Args<'g>,
}

impl<'w, 'g> Out<'w, 'g> {
    /// A node of the writer's graph.
    pub fn new(w: &'w mut Writer<'g>, id: NodeId) -> Self {
        let g = w.g;
        let node = g.node(id);
        Out { w, id, node, args: Args::new(g, node) }
    }

    /// Sizes of a tensor.
    pub fn shape(&self, id: NodeId) -> Result<&'g [Dim], String> {
        self.w.g.tensor_meta(id).map(|m| m.shape.as_slice()).map_err(|e| e.to_string())
    }

    /// Element type of a tensor.
    pub fn dtype(&self, id: NodeId) -> Result<DType, String> {
        self.w.g.tensor_meta(id).map(|m| m.dtype).map_err(|e| e.to_string())
    }

    /// The name of a tensor argument.
    pub fn input(&self, name: &str) -> Result<String, String> {
        self.w.name(self.args.tensor(name)?)
    }

    /// The name of a tensor argument; empty if it is not given.
    pub fn opt_input(&self, name: &str) -> Result<String, String> {
        self.args.opt_tensor(name)?.map_or(Ok(String::new()), |id| self.w.name(id))
    }

    /// A tensor or number argument as a value of an element type.
    pub fn operand(&mut self, name: &str, dtype: DType) -> Result<String, String> {
        match self.args.get(name)? {
            Arg::Node(id) if self.w.g.node(*id).meta.as_tensor().is_some() => {
                let (value, from) = (self.w.name(*id)?, self.dtype(*id)?);
                Ok(if from == dtype { value } else { self.cast(&value, dtype) })
            }
            Arg::Float(_) | Arg::Int(_) | Arg::Bool(_) => {
                let v = self.args.float(name)?;
                Ok(self.number(v, dtype))
            }
            _ => {
                let d = self.args.dim(name)?;
                let value = self.size(&d)?;
                Ok(if dtype == DType::I64 { value } else { self.cast(&value, dtype) })
            }
        }
    }

    /// A value in another element type.
    pub fn cast(&mut self, value: &str, dtype: DType) -> String {
        let to = super::args::int("to", i64::from(crate::onnx::tensor::code_of(dtype)));
        self.push("Cast", vec![value.into()], vec![to])
    }

    /// A number as a constant without dimensions.
    pub fn number(&mut self, v: f64, dtype: DType) -> String {
        let t = crate::onnx::read::cast(&Tensor::scalar(v), dtype);
        self.w.literal(&format!("const_{}", short(v)), t)
    }

    /// Integers as a constant of one dimension.
    pub fn ints(&mut self, v: &[i64]) -> String {
        let wish = v.iter().map(i64::to_string).collect::<Vec<_>>().join("_").replace('-', "m");
        self.w.literal(&format!("ints_{}", wish.get(..24).unwrap_or(&wish)), Tensor::new(&[v.len()], v.to_vec()))
    }

    /// Sizes as a value of one dimension: a constant, or read off values that have them.
    pub fn sizes(&mut self, dims: &[Dim]) -> Result<String, String> {
        if let Some(v) = dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
            return Ok(self.ints(&v));
        }
        let parts = dims.iter().map(|d| self.size(d)).collect::<Result<Vec<_>, _>>()?;
        if parts.len() == 1 {
            return Ok(parts[0].clone());
        }
        Ok(self.push("Concat", parts, vec![super::args::int("axis", 0)]))
    }

    /// One size as a value of one element.
    pub fn size(&mut self, dim: &Dim) -> Result<String, String> {
        if let Some(v) = dim.as_const() {
            return Ok(self.ints(&[v]));
        }
        if let Some(name) = self.w.read.get(dim) {
            return Ok(name.clone());
        }
        let place = self.w.sizes.get(dim).cloned();
        let (value, axis) = place.ok_or_else(|| format!("size {dim} is not the size of any value before it"))?;
        let shape = self.push("Shape", vec![value], vec![]);
        let at = self.ints(&[i64::try_from(axis).map_err(|e| e.to_string())?]);
        let name = self.push("Gather", vec![shape, at], vec![super::args::int("axis", 0)]);
        self.w.read_off(dim, &name);
        Ok(name)
    }

    /// A call on the way to the result; its value's name.
    pub fn push(&mut self, op: &str, inputs: Vec<String>, attrs: Vec<AttributeProto>) -> String {
        let name = self.w.fresh(&format!("{}_{}", self.node.name, op.to_lowercase()));
        self.w.call(op, &name, inputs, &name, attrs);
        name
    }

    /// The name for the result of this node.
    fn result_name(&mut self) -> String {
        match self.w.wanted.get(&self.id).cloned() {
            Some(name) => name,
            None => self.w.fresh(&self.node.name),
        }
    }

    /// The call that gives the result.
    pub fn done(&mut self, op: &str, inputs: Vec<String>, attrs: Vec<AttributeProto>) -> Result<(), String> {
        let mut inputs = inputs;
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        let name = self.result_name();
        self.w.call(op, &self.node.name, inputs, &name, attrs);
        self.w.set(self.id, vec![name]);
        Ok(())
    }

    /// The call that gives several results.
    pub fn done_tuple(&mut self, op: &str, inputs: Vec<String>, count: usize, attrs: Vec<AttributeProto>) {
        let names: Vec<String> = (0..count).map(|i| self.w.fresh(&format!("{}_{i}", self.node.name))).collect();
        self.w.nodes.push(NodeProto {
            input: inputs,
            output: names.clone(),
            name: self.node.name.clone(),
            op_type: op.into(),
            attribute: attrs,
            ..NodeProto::default()
        });
        self.w.set(self.id, names);
    }

    /// The result is a value that is there already.
    pub fn alias(&mut self, value: String) -> Result<(), String> {
        self.w.set(self.id, vec![value]);
        Ok(())
    }
}

/// A number as part of a name.
fn short(v: f64) -> String {
    v.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(16).collect()
}
