//! The nodes of one graph or function body being read: names with what is known of them, and what lies around.

use super::host::{Data, Host, Known, Made};
use super::node::{Ctx, Step};
use super::order::{free_names, order};
use crate::error::Problems;
use crate::onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use crate::onnx::tensor::{External, bits_of, sparse_of, tensor_of};
use cleave_ir::{Arg, Builder, ConstKind, Dim, Graph, IrError, Kind, Meta, NodeId, Origin, SymbolRange, Tensor, Value};
use indexmap::{IndexMap, IndexSet};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The most nodes that are read, those of functions once for each call.
const MOST_NODES: usize = 200_000;
/// How deep graphs and functions may stand in one another.
const DEEPEST: usize = 24;
/// The most elements that are folded while reading, unless the file itself has a quarter as many.
const FOLDED: usize = 1 << 27;
/// The most elements of all values on the way to a constant that is evaluated.
const EVALUATED: usize = 1 << 24;

/// The most elements of a value, which is more than the largest layer of VGG has, or so many times those of inputs and
/// constants.
const MOST_ELEMENTS: usize = 120_000_000;
const GROWTH: usize = 32;

/// Runs a graph without inputs.
pub type Evaluate<'m> = &'m dyn Fn(&Graph) -> Result<Vec<Tensor>, String>;

/// A function by domain, name and overload.
pub type Functions<'m> = IndexMap<(&'m str, &'m str, &'m str), &'m FunctionProto>;

/// What holds for the whole file.
pub struct Env<'m> {
    /// Functions that nodes may call.
    pub functions: Functions<'m>,
    /// Files beside the model.
    pub external: RefCell<External>,
    /// Evaluates constant expressions, if somebody can.
    pub evaluate: Option<Evaluate<'m>>,
    /// Values that inputs may be given.
    pub available: &'m [(String, Tensor)],
    /// Inputs whose values decide what is read.
    pub needed: RefCell<IndexSet<String>>,
    /// Whether the sizes of inputs decide it.
    pub sized: Cell<bool>,
    /// Bits of an element, for values whose type is held by a wider one.
    pub narrow: RefCell<IndexMap<String, u32>>,
    /// Elements of the main graph's inputs, as far as they are known.
    pub inputs: usize,
    /// Nodes read so far.
    pub nodes: Cell<usize>,
    /// Elements of constants in the file, and of those computed from them.
    pub elements: Cell<(usize, usize)>,
}

impl<'m> Env<'m> {
    /// The function of the file that a node calls.
    pub fn function(&self, n: &NodeProto) -> Option<&'m FunctionProto> {
        let domain = if n.domain == "ai.onnx" { "" } else { n.domain.as_str() };
        self.functions.get(&(domain, n.op_type.as_str(), n.overload.as_str())).copied()
    }
}

/// What all scopes that build into one graph share.
#[derive(Default)]
pub struct Shared<'b> {
    /// Constants that are nodes already.
    pub made: Made<'b>,
    /// Values that were evaluated.
    evaluated: RefCell<IndexMap<NodeId, Tensor>>,
}

/// The names of one body.
pub struct Scope<'b, 'm> {
    /// What holds for the file.
    pub env: &'m Env<'m>,
    /// Where calls are built.
    pub b: &'b Builder,
    /// Version of ONNX's own operator set.
    pub opset: i64,
    /// What is known of each name.
    pub known: IndexMap<String, Known<'b>>,
    /// What is shared with other scopes of the same graph.
    pub shared: Rc<Shared<'b>>,
    /// The body around, whose names hold here too.
    parent: Option<&'m Scope<'b, 'm>>,
    /// In a function: what its caller says of its attributes.
    pub attributes: Option<&'m IndexMap<&'m str, &'m AttributeProto>>,
    /// How many bodies lie around.
    depth: usize,
    /// Whether the graph being built is the file's main one.
    main: bool,
}

/// What graphs that are arguments take from around.
pub struct Capture<'b> {
    /// Names with what is known of them.
    free: Vec<(String, Known<'b>)>,
    /// The operands that follow the graphs' own: values, then sizes.
    pub args: Vec<Arg>,
    /// Symbols that are operands.
    sizes: Vec<String>,
    /// All symbols in there.
    used: IndexSet<String>,
}

/// Makes a carried graph's results of those of the file's graph and of its operands.
pub type Finish<'f> = dyn for<'c> Fn(Vec<Value<'c>>, &[Value<'c>]) -> Step<Vec<Value<'c>>> + 'f;

/// What a value depends on.
enum Sources {
    /// Inputs of the graph, by name.
    Inputs(Vec<String>),
    /// Constants alone: the nodes on the way, in order.
    Constants(Vec<NodeId>),
    /// Sizes or chance.
    Unknown,
}

impl<'b, 'm> Scope<'b, 'm> {
    /// The main graph's.
    pub fn new(env: &'m Env<'m>, b: &'b Builder, opset: i64) -> Self {
        let (known, shared) = (IndexMap::new(), Rc::default());
        Scope { env, b, opset, known, shared, parent: None, attributes: None, depth: 0, main: true }
    }

    /// A body inside this one.
    fn inner<'c>(&self, b: &'c Builder, shared: Rc<Shared<'c>>) -> Step<Scope<'c, 'm>> {
        if self.depth >= DEEPEST {
            return Err(format!("graphs and functions stand in one another more than {DEEPEST} deep"));
        }
        let Scope { env, opset, attributes, main, .. } = *self;
        let (known, depth) = (IndexMap::new(), self.depth + 1);
        Ok(Scope { env, b, opset, known, shared, parent: None, attributes, depth, main })
    }

    /// What is known of a name, here or around.
    pub fn find(&self, name: &str) -> Option<&Known<'b>> {
        self.known.get(name).or_else(|| self.parent.and_then(|p| p.find(name)))
    }

    /// The initializers that some node or result uses.
    pub fn initializers(&mut self, graph: &GraphProto, nodes: &[&NodeProto], problems: &mut Problems) {
        let mut used: BTreeSet<&str> = graph.output.iter().map(|o| o.name.as_str()).collect();
        nodes.iter().for_each(|n| used.extend(super::order::uses(n)));
        let mut note = |name: &str, read: Result<Tensor, String>| match read {
            Ok(tensor) => {
                let (file, folded) = self.env.elements.get();
                self.env.elements.set((file + tensor.len(), folded));
                let mut host = Host::tensor(name, tensor);
                host.kind = ConstKind::Param;
                self.known.insert(name.into(), Known::Host(host));
            }
            Err(why) => problems.push("", "", format!("initializer '{name}': {why}")),
        };
        for t in graph.initializer.iter().filter(|t| used.contains(t.name.as_str())) {
            if let Some(bits) = bits_of(i64::from(t.data_type)) {
                self.env.narrow.borrow_mut().insert(t.name.clone(), bits);
            }
            note(&t.name, tensor_of(t, &mut self.env.external.borrow_mut()));
        }
        for s in &graph.sparse_initializer {
            let name = s.values.as_ref().map_or("", |v| v.name.as_str());
            if used.contains(name) {
                note(name, sparse_of(s, &mut self.env.external.borrow_mut()));
            }
        }
    }

    /// Reads one node; the error leaves out which.
    pub fn read(&mut self, n: &NodeProto) -> Step<()> {
        let resolved: NodeProto;
        let n = if n.attribute.iter().any(|a| !a.ref_attr_name.is_empty()) {
            let attribute = n.attribute.iter().filter_map(|a| self.resolve(a)).collect();
            resolved = NodeProto { attribute, ..n.clone() };
            &resolved
        } else {
            n
        };
        self.env.nodes.set(self.env.nodes.get() + 1);
        if self.env.nodes.get() > MOST_NODES {
            return Err(format!("more than {MOST_NODES} nodes, those of functions counted for each call"));
        }
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            _ => self.find(name).cloned().map(Some).ok_or_else(|| format!("value '{name}' is not there")),
        };
        let inputs = n.input.iter().map(find).collect::<Step<Vec<_>>>()?;
        self.b.set_origin(Origin { sources: vec![label(n).into()], module: module(n) });
        let results = match self.env.function(n) {
            Some(f) => self.call(n, f, inputs)?,
            None => {
                let map =
                    super::find(&n.domain, &n.op_type).ok_or_else(|| super::refused::why(&n.domain, &n.op_type))?;
                let ctx = Ctx::new(self, n, inputs);
                let results = map(&ctx)?;
                if let Some(e) = self.b.error() {
                    return Err(match e {
                        IrError::Call { op, why, .. } => format!("as {op}: {why}"),
                        other => other.to_string(),
                    });
                }
                let unread = ctx.unread();
                if !unread.is_empty() {
                    return Err(format!("attribute '{}' is not supported", unread.join("', '")));
                }
                results
            }
        };
        self.count_folded(n, &results)?;
        self.in_proportion(&results)?;
        for (i, name) in n.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let value = results.get(i).ok_or_else(|| format!("result {i} ('{name}') is not supported"))?;
            self.known.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    /// Values must stay in proportion to the model's inputs and constants.
    fn in_proportion(&self, results: &[Known<'b>]) -> Step<()> {
        let most = MOST_ELEMENTS.max(self.env.elements.get().0.saturating_add(self.env.inputs).saturating_mul(GROWTH));
        for r in results {
            if let Known::Value(v) = r
                && elements(&v.meta()).is_none_or(|n| n > most)
            {
                return Err(format!("a result of shape {:?} is too large for the model", v.shape()));
            }
        }
        Ok(())
    }

    /// Constant expressions must stay in proportion to the file.
    fn count_folded(&self, n: &NodeProto, results: &[Known<'b>]) -> Step<()> {
        if matches!(n.op_type.as_str(), "Identity" | "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze") {
            return Ok(());
        }
        let made: usize = results.iter().map(|r| if let Known::Host(h) = r { h.len() } else { 0 }).sum();
        let (mut file, mut folded) = self.env.elements.get();
        *(if n.op_type == "Constant" { &mut file } else { &mut folded }) += made;
        self.env.elements.set((file, folded));
        if folded > FOLDED.max(file.saturating_mul(4)) {
            return Err(format!("constant expressions have more than {folded} elements"));
        }
        Ok(())
    }

    /// Reads nodes and gives what is known of these names.
    fn body<'n>(&mut self, nodes: &[&'n NodeProto], outputs: impl Iterator<Item = &'n str>) -> Step<Vec<Known<'b>>> {
        for n in nodes {
            self.read(n).map_err(|why| format!("in node '{}' ({}): {why}", label(n), n.op_type))?;
        }
        let find = |name: &str| self.find(name).cloned().ok_or_else(|| format!("result '{name}' is defined nowhere"));
        outputs.map(find).collect()
    }

    /// Reads a graph's nodes in here, its inputs being known.
    fn graph(&mut self, graph: &GraphProto) -> Step<Vec<Known<'b>>> {
        let mut problems = Problems::new();
        let outputs = || graph.output.iter().map(|o| o.name.as_str());
        let constants = graph.initializer.iter().map(|t| t.name.as_str());
        let sparse = graph.sparse_initializer.iter().filter_map(|s| Some(s.values.as_ref()?.name.as_str()));
        let own: BTreeSet<&str> = constants.chain(sparse).collect();
        let nodes = order(&graph.node, outputs(), &|n| own.contains(n) || self.find(n).is_some(), &mut problems);
        if problems.is_empty() {
            self.initializers(graph, &nodes, &mut problems);
        }
        match problems.first() {
            Some(p) => Err(p.to_string()),
            None => self.body(&nodes, outputs()),
        }
    }

    /// A graph's results on these operands, its nodes put into the graph being built.
    pub fn inline(&'m self, graph: &GraphProto, operands: Vec<Known<'b>>) -> Step<Vec<Known<'b>>> {
        let mut inner = self.inner(self.b, self.shared.clone())?;
        inner.parent = Some(self);
        if operands.len() != graph.input.len() {
            return Err(format!("a graph of {} inputs on {} operands", graph.input.len(), operands.len()));
        }
        inner.known.extend(graph.input.iter().map(|v| v.name.clone()).zip(operands));
        inner.graph(graph)
    }

    /// A call of a function of the file.
    fn call(&self, n: &NodeProto, f: &FunctionProto, inputs: Vec<Option<Known<'b>>>) -> Step<Vec<Known<'b>>> {
        let defaults = f.attribute_proto.iter().chain(&n.attribute);
        let attributes: IndexMap<&str, &AttributeProto> = defaults.map(|a| (a.name.as_str(), a)).collect();
        let mut inner = Scope { attributes: Some(&attributes), ..self.inner(self.b, self.shared.clone())? };
        let own = f.opset_import.iter().find(|o| o.domain.is_empty() || o.domain == "ai.onnx");
        inner.opset = own.map_or(self.opset, |o| o.version);
        if inputs.len() > f.input.len() {
            return Err(format!("a function of {} inputs on {} operands", f.input.len(), inputs.len()));
        }
        // An operand that is left out is left out in the body too.
        let absent: BTreeSet<&str> = f
            .input
            .iter()
            .enumerate()
            .filter(|(i, _)| !matches!(inputs.get(*i), Some(Some(_))))
            .map(|(_, n)| n.as_str())
            .collect();
        inner.known.extend(f.input.iter().cloned().zip(inputs).filter_map(|(n, k)| Some((n, k?))));
        let body: Vec<NodeProto> = f.node.iter().map(|n| without(n, &absent)).collect();
        let mut problems = Problems::new();
        let outputs = || f.output.iter().map(String::as_str).filter(|o| !o.is_empty());
        let nodes = order(&body, outputs(), &|n| inner.known.contains_key(n), &mut problems);
        if let Some(p) = problems.first() {
            return Err(p.to_string());
        }
        inner.body(&nodes, outputs())
    }

    /// An attribute with the value that the caller of the function gives it; none if the caller gives none.
    fn resolve(&self, a: &AttributeProto) -> Option<AttributeProto> {
        if a.ref_attr_name.is_empty() {
            return Some(a.clone());
        }
        let given = self.attributes.and_then(|all| all.get(a.ref_attr_name.as_str()))?;
        Some(AttributeProto { name: a.name.clone(), ..(*given).clone() })
    }

    /// What graphs take from around, if their own operands have these names and metas.
    pub fn capture(&self, graphs: &[&GraphProto], own: &[&str], metas: &[Meta]) -> Capture<'b> {
        let names: IndexSet<&str> = graphs.iter().flat_map(|g| free_names(g)).filter(|n| !own.contains(n)).collect();
        let free: Vec<(String, Known<'b>)> =
            names.into_iter().filter_map(|n| Some((n.to_string(), self.find(n)?.clone()))).collect();
        let mut args: Vec<Arg> = vec![];
        let mut all = metas.to_vec();
        for (_, k) in &free {
            if let Known::Value(v) = k {
                args.push((*v).into());
                all.push(v.meta());
            }
        }
        // Symbols that are no size of an operand by themselves are operands of their own.
        let mut used: IndexSet<String> = all.iter().flat_map(Meta::dims).flat_map(|d| d.symbols()).collect();
        for (_, k) in &free {
            if let Known::Host(Host { data: Data::Dims(_, _, dims), .. }) = k {
                used.extend(dims.iter().flat_map(Dim::symbols));
            }
        }
        let plain: BTreeSet<String> =
            all.iter().flat_map(Meta::dims).filter_map(|d| d.as_symbol().map(str::to_string)).collect();
        let sizes: Vec<String> = used.iter().filter(|s| !plain.contains(*s)).cloned().collect();
        args.extend(sizes.iter().map(|s| Arg::from(Dim::symbol(s))));
        Capture { free, args, sizes, used }
    }

    /// A graph of its own on `operands` and what was captured; `finish` makes its results of what the file's graph
    /// gives and of the operands.
    pub fn carried(
        &self,
        graph: &GraphProto,
        capture: &Capture<'b>,
        operands: &[(&str, Meta)],
        finish: &Finish<'_>,
    ) -> Step<Graph> {
        let b = Builder::new();
        let mut inner = Scope { main: false, ..self.inner(&b, Rc::default())? };
        let range = |s: &String| self.b.with_graph(|g| g.symbols.get(s).copied());
        let free = SymbolRange { min: 0, max: None };
        b.edit(|g| g.symbols.extend(capture.used.iter().map(|s| (s.clone(), range(s).unwrap_or(free)))));
        let own: Vec<Value<'_>> = operands.iter().map(|(name, meta)| b.placeholder(name, meta.clone())).collect();
        for (name, k) in &capture.free {
            let k = match k {
                Known::Value(v) => Known::Value(b.placeholder(name, v.meta())),
                Known::Host(h) => Known::Host(h.clone()),
            };
            inner.known.insert(name.clone(), k);
        }
        for s in &capture.sizes {
            b.placeholder(s, Meta::Int(Dim::symbol(s)));
        }
        inner.known.extend(operands.iter().zip(&own).map(|((n, _), v)| ((*n).to_string(), Known::Value(*v))));
        let results = inner.graph(graph)?.iter().map(|k| inner.node_of(k)).collect();
        let results: Vec<(String, Value<'_>)> =
            finish(results, &own)?.into_iter().enumerate().map(|(i, v)| (format!("{i}"), own_node(&b, v))).collect();
        b.output(&results);
        drop(inner);
        b.finish().map_err(|e| e.to_string())
    }

    /// A value as a node of the graph.
    pub fn node_of(&self, k: &Known<'b>) -> Value<'b> {
        match k {
            Known::Value(v) => *v,
            Known::Host(h) => h.materialise(self.b, &self.shared.made),
        }
    }

    /// A value that does not depend on the data, as a tensor; none if it does.
    ///
    /// # Errors
    /// A value that depends on inputs which could be given, but are not yet; what evaluating it meets.
    pub fn settled(&self, k: &Known<'b>) -> Step<Option<Tensor>> {
        self.evaluated(k, true)
    }

    /// A value that depends on constants alone, as a tensor; none of any other.
    ///
    /// # Errors
    /// What evaluating it meets.
    pub fn constant(&self, k: &Known<'b>) -> Step<Option<Tensor>> {
        self.evaluated(k, false)
    }

    fn evaluated(&self, k: &Known<'b>, ask: bool) -> Step<Option<Tensor>> {
        let v = match k {
            Known::Host(h) => return Ok(h.as_tensor().cloned()),
            Known::Value(v) => *v,
        };
        if let Some(t) = self.shared.evaluated.borrow().get(&v.id()) {
            return Ok(Some(t.clone()));
        }
        match self.b.with_graph(|g| sources(g, v.id())) {
            Sources::Inputs(names) if self.main && ask => {
                if names.iter().all(|n| self.env.available.iter().any(|(a, _)| a == n)) {
                    let message = format!("depends on the values of '{}'", names.join("', '"));
                    self.env.needed.borrow_mut().extend(names);
                    return Err(message);
                }
                Ok(None)
            }
            Sources::Constants(nodes) => {
                let Some(evaluate) = self.env.evaluate else { return Ok(None) };
                let g = self.b.with_graph(|g| extracted(g, &nodes)).map_err(|e| e.to_string())?;
                let Some(g) = g else { return Ok(None) };
                let t = evaluate(&g)?.into_iter().next();
                if let Some(t) = &t {
                    self.shared.evaluated.borrow_mut().insert(v.id(), t.clone());
                }
                Ok(t)
            }
            _ => Ok(None),
        }
    }
}

/// A result of a graph that is carried must be a node of its own, not an operand.
fn own_node<'b>(b: &'b Builder, v: Value<'b>) -> Value<'b> {
    let operand = b.with_graph(|g| matches!(g.node(v.id()).kind, Kind::Placeholder));
    if operand { v.op("aten.alias", vec![]) } else { v }
}

/// The node with arguments of these names left out.
fn without(n: &NodeProto, absent: &BTreeSet<&str>) -> NodeProto {
    let mut n = n.clone();
    n.input.iter_mut().filter(|i| absent.contains(i.as_str())).for_each(String::clear);
    n
}

fn sources(g: &Graph, of: NodeId) -> Sources {
    let mut seen: BTreeSet<NodeId> = BTreeSet::from([of]);
    let mut open = vec![of];
    let (mut inputs, mut unknown) = (vec![], false);
    while let Some(id) = open.pop() {
        let node = g.node(id);
        match node.kind {
            Kind::Placeholder => {
                let at = g.placeholders().iter().position(|p| *p == id).unwrap_or(0);
                inputs.extend(g.input_names.get(at).cloned());
            }
            Kind::Call(op) => {
                unknown |= node.args.iter().any(|a| !a.dims().is_empty()) || op.base().contains("rand");
            }
            Kind::GetAttr(_) | Kind::Output => {}
        }
        open.extend(node.args.iter().flat_map(Arg::nodes).filter(|n| seen.insert(*n)));
    }
    match (inputs.is_empty(), unknown) {
        (false, _) => Sources::Inputs(inputs),
        (true, true) => Sources::Unknown,
        (true, false) => Sources::Constants(seen.into_iter().collect()),
    }
}

/// How many elements a value has, sizes that are not known counting as 1; none if there are too many to count.
pub fn elements(m: &Meta) -> Option<usize> {
    let size = |d: &Dim| d.as_const().map_or(Some(1), |n| usize::try_from(n).ok());
    m.dims().iter().try_fold(1usize, |a, d| a.checked_mul(size(d)?))
}

/// These nodes as a graph of their own, whose result is the last; none if it would compute too much.
fn extracted(g: &Graph, nodes: &[NodeId]) -> cleave_ir::Result<Option<Graph>> {
    let total = nodes.iter().try_fold(0usize, |a, n| a.checked_add(elements(&g.node(*n).meta)?));
    if total.is_none_or(|t| t > EVALUATED) {
        return Ok(None);
    }
    let b = Builder::new();
    let mut map: IndexMap<NodeId, NodeId> = IndexMap::new();
    for id in nodes {
        let node = g.node(*id);
        let args = node.args.iter().map(|a| a.map_nodes(&mut |n| map.get(&n).map_or(Arg::None, |m| Arg::Node(*m))));
        let v = match node.kind {
            Kind::Call(op) => b.push_call(op, args.collect(), &node.name, node.meta.clone()),
            Kind::GetAttr(kind) => match g.constant(*id) {
                Some(t) => b.constant(&node.target, kind, t.clone()),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        map.insert(*id, v.id());
    }
    if let Some(last) = nodes.last().and_then(|n| map.get(n)) {
        b.output(&[("value".into(), b.value(*last))]);
    }
    b.finish().map(Some)
}

/// What a node is called in messages: by its name, or by its first result's.
pub fn label(n: &NodeProto) -> &str {
    if n.name.is_empty() { n.output.first().map_or("", String::as_str) } else { &n.name }
}

/// The dotted path of the module that a node stood in: what torch's exporter notes of it, else what its name says.
fn module(n: &NodeProto) -> String {
    let noted = n.metadata_props.iter().find(|p| p.key == "pkg.torch.onnx.name_scopes");
    // A list as Python prints it, from the outermost module to the node itself.
    let scopes: Option<Vec<&str>> = noted.map(|p| p.value.split('\'').skip(1).step_by(2).collect());
    match scopes.as_deref() {
        Some([.., module, _]) => (*module).into(),
        _ => module_of(&n.name),
    }
}

/// The dotted module path in a name such as `/layer1/layer1.0/conv1/Conv`. A part that goes on where the
/// one before it ended replaces it.
fn module_of(name: &str) -> String {
    let Some((path, _)) = name.trim_start_matches('/').rsplit_once('/') else { return String::new() };
    let mut parts: Vec<&str> = vec![];
    for part in path.split('/').filter(|p| !p.is_empty()) {
        if parts.last().is_some_and(|last| part.strip_prefix(last).is_some_and(|rest| rest.starts_with('.'))) {
            parts.pop();
        }
        parts.push(part);
    }
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::{module, module_of};
    use crate::onnx::proto::{NodeProto, StringStringEntryProto};

    #[test]
    fn module_paths_are_put_together_from_names() {
        assert_eq!(module_of("/layer1/layer1.0/conv1/Conv"), "layer1.0.conv1");
        assert_eq!(module_of("/features/features.0/features.0.0/Conv"), "features.0.0");
        assert_eq!(module_of("/features/0/Conv"), "features.0");
        assert_eq!(module_of("/layer2/layer2.0/downsample/downsample.0/Conv"), "layer2.0.downsample.0");
        assert_eq!(module_of("conv2d_0.tmp_0"), "");
        let value = "['', 'layer1', 'layer1.0', 'layer1.0.bn1', 'batch_norm']".to_string();
        let noted = StringStringEntryProto { key: "pkg.torch.onnx.name_scopes".into(), value };
        let node = NodeProto { metadata_props: vec![noted], ..Default::default() };
        assert_eq!((module(&node).as_str(), module(&NodeProto::default()).as_str()), ("layer1.0.bn1", ""));
    }
}
