//! Building graphs by calling ops, so that a rule reads as its formula.
//!
//! The first error sticks: calls after it do nothing, and [`Builder::finish`] returns it. Rules may
//! therefore be written without `?`.

mod call;
mod value;

pub use call::Call;

use crate::dim::Dim;
use crate::error::{IrError, Result};
use crate::graph::{Arg, ConstKind, Graph, Kind, Meta, Node, NodeId, Origin, SymbolRange};
use crate::op::{self, Op, RuleFn};
use crate::schema::{Param, Returns, Type};
use crate::strides::Strides;
use crate::tensor::Tensor;
use indexmap::IndexMap;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A graph under construction.
#[derive(Default)]
pub struct Builder {
    graph: RefCell<Graph>,
    error: RefCell<Option<IrError>>,
    origin: RefCell<Origin>,
    depth: Cell<usize>,
    strides: RefCell<Strides>,
    rules: RefCell<Option<Rules>>,
    /// Results of calls with several that a rule made: what stands for the call, by its number.
    several: RefCell<Vec<Vec<NodeId>>>,
}

/// The rule of an op, if calls of it are to be broken up as they are built; none keeps them.
pub type Rules = Rc<dyn Fn(&Op) -> Option<RuleFn>>;

/// A value in a [`Builder`]. Arithmetic operators call the ops that they stand for.
#[derive(Clone, Copy)]
pub struct Value<'b> {
    b: &'b Builder,
    id: NodeId,
}

/// Rules that call ops which have rules, and so on: deeper they lead in circles.
const DEPTH: usize = 64;

/// Stands for the value that an erroneous call did not make.
fn poison_id() -> NodeId {
    NodeId::end()
}

/// Ids from here up to the poisoned one stand for results of a call that a rule made.
const SEVERAL: usize = u32::MAX as usize / 2;

impl Builder {
    /// An empty graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Goes on with a graph.
    pub fn from_graph(graph: Graph) -> Builder {
        Builder { graph: RefCell::new(graph), ..Builder::default() }
    }

    /// The finished graph.
    ///
    /// # Errors
    /// The first error that a call met.
    pub fn finish(self) -> Result<Graph> {
        match self.error.into_inner() {
            Some(e) => Err(e),
            None => Ok(self.graph.into_inner()),
        }
    }

    /// The first error so far.
    pub fn error(&self) -> Option<IrError> {
        self.error.borrow().clone()
    }

    /// Records an error, unless there is one already.
    pub fn fail(&self, e: IrError) {
        self.error.borrow_mut().get_or_insert(e);
    }

    /// Looks at the graph so far.
    pub fn with_graph<R>(&self, f: impl FnOnce(&Graph) -> R) -> R {
        f(&self.graph.borrow())
    }

    /// Changes the graph: its names, constants or symbols.
    pub fn edit<R>(&self, f: impl FnOnce(&mut Graph) -> R) -> R {
        f(&mut self.graph.borrow_mut())
    }

    /// Calls from now on are broken up by these rules as they are built, those that the rules make too.
    pub fn expand_by(&self, rules: Rules) {
        *self.rules.borrow_mut() = Some(rules);
    }

    /// What the rules made of a call, if there is one for the op and it does not decline by making nothing.
    ///
    /// # Errors
    /// What the rule met, or rules that lead in circles.
    pub fn expanded<'b>(&'b self, op: &'static Op, args: &[Arg], name: &str) -> Result<Option<Vec<Value<'b>>>> {
        let rules = self.rules.borrow().clone();
        let Some(rule) = rules.and_then(|r| r(op)) else { return Ok(None) };
        let depth = self.depth.get();
        if depth >= DEPTH {
            return Err(IrError::Call { op: op.name.into(), node: name.into(), why: "rules lead in circles".into() });
        }
        self.depth.set(depth + 1);
        let made = self.apply(op, rule, args, name);
        self.depth.set(depth);
        Ok(Some(made?).filter(|m| !m.is_empty() || op.schema.returns == Returns::None))
    }

    /// One value for what a rule made.
    fn bundled(&self, op: &Op, made: Vec<Value<'_>>) -> Value<'_> {
        match (op.schema.returns, made.as_slice()) {
            (Returns::One | Returns::Int | Returns::Scalar, [one]) => self.value(one.id),
            _ => {
                let mut several = self.several.borrow_mut();
                several.push(made.into_iter().map(Value::id).collect());
                self.value(NodeId::new(SEVERAL + several.len() - 1))
            }
        }
    }

    /// The results that an id stands for.
    fn results_of(&self, id: NodeId) -> Option<Vec<NodeId>> {
        if id == poison_id() { None } else { self.several.borrow().get(id.index().checked_sub(SEVERAL)?).cloned() }
    }

    /// Nodes made from now on come from here.
    pub fn set_origin(&self, origin: Origin) {
        *self.origin.borrow_mut() = origin;
    }

    /// An input with this name for the outside.
    pub fn placeholder(&self, name: &str, meta: Meta) -> Value<'_> {
        let v = self.push(name, Kind::Placeholder, "", vec![], meta);
        self.edit(|g| g.input_names.push(name.into()));
        v
    }

    /// A constant under this name; the name is made unique. A tensor that lies at the same place under
    /// the same name is one constant.
    pub fn constant(&self, target: &str, kind: ConstKind, t: Tensor) -> Value<'_> {
        let meta = Meta::tensor(t.dtype(), t.shape().iter().map(|n| Dim::from(*n)).collect());
        let target = self.edit(|g| {
            let mut name = target.to_string();
            let mut n = 1;
            while g.constants.get(&name).is_some_and(|old| !old.same_place(&t)) {
                name = format!("{target}_{n}");
                n += 1;
            }
            g.constants.insert(name.clone(), t);
            name
        });
        let name = target.replace(['.', '/', ':'], "_");
        self.push(&name, Kind::GetAttr(kind), &target, vec![], meta)
    }

    /// Calls an op by name with arguments for its leading parameters; the rest take their defaults.
    pub fn call(&self, op: &str, args: Vec<Arg>) -> Value<'_> {
        match op::find(op) {
            Ok(o) => self.call_op(o, args, None),
            Err(e) => {
                self.fail(e);
                self.poison()
            }
        }
    }

    /// Calls an op; the node is named `name` if given, else after the op.
    pub fn call_op(&self, op: &'static Op, args: Vec<Arg>, name: Option<&str>) -> Value<'_> {
        let poisoned = args.iter().flat_map(Arg::nodes).any(|n| n == poison_id());
        if poisoned || self.error.borrow().is_some() {
            return self.poison();
        }
        let name = name.unwrap_or(op.base());
        if let (Some(Arg::Node(several)), true) = (args.first(), op.name == "getitem")
            && let Some(items) = self.results_of(*several)
        {
            let index = if let Some(Arg::Int(i)) = args.get(1) { usize::try_from(*i).ok() } else { None };
            return match index.and_then(|i| items.get(i)) {
                Some(id) => self.value(*id),
                None => {
                    let why = format!("result {:?} of {}", args.get(1), items.len());
                    self.fail(IrError::Call { op: op.name.into(), node: name.into(), why });
                    self.poison()
                }
            };
        }
        let resolved = self.complete(op, args, name).and_then(|args| match self.expanded(op, &args, name)? {
            Some(made) => Ok(Err(self.bundled(op, made))),
            None => Ok(Ok((self.infer(op, &args, name)?, args))),
        });
        match resolved {
            Ok(Err(made)) => made,
            Ok(Ok((meta, args))) => {
                let meta = self.name_unknown(&meta);
                self.push(name, Kind::Call(op), "", args, meta)
            }
            Err(e) => {
                self.fail(e);
                self.poison()
            }
        }
    }

    /// A call's arguments with defaults filled in, and type and shape of its results: sizes that depend on data
    /// are [`Dim::unknown`].
    ///
    /// # Errors
    /// Arguments that the op does not admit.
    pub fn resolve(&self, op: &'static Op, args: Vec<Arg>, name: &str) -> Result<(Vec<Arg>, Meta)> {
        let args = self.complete(op, args, name)?;
        let meta = self.infer(op, &args, name)?;
        Ok((args, meta))
    }

    /// Names what inference does not know: `u0`, `u1`, … as torch has it.
    fn name_unknown(&self, meta: &Meta) -> Meta {
        let mut names: IndexMap<String, Dim> = IndexMap::new();
        for s in meta.dims().iter().flat_map(Dim::symbols).filter(|s| s.starts_with('?')) {
            names.entry(s).or_insert_with(|| {
                let fresh = self.edit(|g| {
                    let free = (0..).map(|n| format!("u{n}")).find(|n| !g.symbols.contains_key(n));
                    let name = free.expect("invariant: there are more numbers than symbols");
                    g.symbols.insert(name.clone(), SymbolRange { min: 0, max: None });
                    name
                });
                Dim::symbol(&fresh)
            });
        }
        if names.is_empty() {
            return meta.clone();
        }
        meta.map_dims(&mut |d| d.substitute(&|s| names.get(s).cloned()))
    }

    /// Appends a call whose arguments are complete and whose meta is known, as a reader or a copy has them.
    pub fn push_call(&self, op: &'static Op, args: Vec<Arg>, name: &str, meta: Meta) -> Value<'_> {
        self.push(name, Kind::Call(op), "", args, meta)
    }

    /// One result of a call that has several.
    pub fn getitem<'b>(&'b self, tuple: Value<'b>, index: usize) -> Value<'b> {
        self.call("getitem", vec![tuple.into(), Arg::Int(index as i64)])
    }

    /// Ends the graph with its results, named for the outside.
    pub fn output(&self, results: &[(String, Value<'_>)]) {
        if results.iter().any(|(_, v)| v.id == poison_id()) {
            return;
        }
        let args = results.iter().map(|(_, v)| Arg::Node(v.id)).collect();
        self.push("output", Kind::Output, "", args, Meta::None);
        self.edit(|g| g.output_names = results.iter().map(|(n, _)| n.clone()).collect());
    }

    /// The value of a node that is in the graph.
    pub fn value(&self, id: NodeId) -> Value<'_> {
        Value { b: self, id }
    }

    fn poison(&self) -> Value<'_> {
        Value { b: self, id: poison_id() }
    }

    fn push(&self, name: &str, kind: Kind, target: &str, args: Vec<Arg>, meta: Meta) -> Value<'_> {
        let origin = self.origin.borrow().clone();
        let node = Node { name: name.into(), kind, target: target.into(), args, meta, origin };
        Value { b: self, id: self.graph.borrow_mut().push(node) }
    }

    /// Fills in defaults and brings arguments to the form that the schema names.
    fn complete(&self, op: &'static Op, args: Vec<Arg>, name: &str) -> Result<Vec<Arg>> {
        let fail = |why: String| IrError::Call { op: op.name.into(), node: name.into(), why };
        let params = &op.schema.params;
        if args.len() > params.len() {
            return Err(fail(format!("expected at most {} arguments, found {}", params.len(), args.len())));
        }
        let mut given = args.into_iter();
        params.iter().map(|p| complete_arg(p, given.next()).map_err(&fail)).collect()
    }

    /// Type and shape of a call's results: by the record's function, or by the rule run on metadata alone.
    ///
    /// # Errors
    /// Arguments that the op does not admit.
    pub fn infer(&self, op: &'static Op, args: &[Arg], name: &str) -> Result<Meta> {
        let call = Call { b: self, op, args: args.to_vec(), name: name.into() };
        if let Some(f) = op.infer {
            return f(&call);
        }
        let rule = op.rule.ok_or_else(|| call.err("the op has neither shape function nor rule"))?;
        let scratch = Builder::new();
        scratch.depth.set(self.depth.get() + 1);
        if scratch.depth.get() > 32 {
            return Err(call.err("its rule leads back to itself"));
        }
        let args: Vec<Arg> = args
            .iter()
            .map(|a| a.map_nodes(&mut |n| scratch.placeholder("x", self.with_graph(|g| g.node(n).meta.clone())).into()))
            .collect();
        // The caller's symbols stay apart from those that are named on the way.
        let known: Vec<String> = scratch.with_graph(|g| {
            let metas = g.nodes().flat_map(|(_, n)| n.meta.dims());
            metas.chain(args.iter().flat_map(Arg::dims)).flat_map(|d| d.symbols()).collect()
        });
        scratch.edit(|g| g.symbols.extend(known.iter().map(|s| (s.clone(), SymbolRange { min: 0, max: None }))));
        let results = rule(&Call { b: &scratch, op, args, name: name.into() });
        if let Some(e) = scratch.error() {
            return Err(call.err(&e.to_string()));
        }
        let metas: Vec<Meta> = results.iter().map(|v| scratch.with_graph(|g| g.node(v.id).meta.clone())).collect();
        // What was named on the way is not known to the caller.
        let made: Vec<String> =
            scratch.with_graph(|g| g.symbols.keys().filter(|s| !known.contains(s)).cloned().collect());
        let unknown = |s: &str| made.iter().position(|m| m == s).map(Dim::unknown);
        let metas: Vec<Meta> = metas.iter().map(|m| m.map_dims(&mut |d| d.substitute(&unknown))).collect();
        match (op.schema.returns, metas.len()) {
            (Returns::Tuple(_) | Returns::List, _) => Ok(Meta::Tuple(metas)),
            (_, 1) => Ok(metas.into_iter().next().unwrap_or(Meta::None)),
            (_, n) => Err(call.err(&format!("its rule gave {n} results"))),
        }
    }

    /// Runs an op's rule into this graph.
    ///
    /// # Errors
    /// An op without a rule, or what the rule met.
    pub fn apply_rule<'b>(&'b self, op: &'static Op, args: &[Arg], name: &str) -> Result<Vec<Value<'b>>> {
        let call = Call { b: self, op, args: args.to_vec(), name: name.into() };
        let rule = op.rule.ok_or_else(|| call.err("the op has no rule"))?;
        self.apply(op, rule, args, name)
    }

    /// Runs a rule that stands for an op into this graph.
    ///
    /// # Errors
    /// What the rule met.
    pub fn apply<'b>(&'b self, op: &'static Op, rule: RuleFn, args: &[Arg], name: &str) -> Result<Vec<Value<'b>>> {
        let results = rule(&Call { b: self, op, args: args.to_vec(), name: name.into() });
        self.error().map_or(Ok(results), Err)
    }
}

fn complete_arg(p: &Param, given: Option<Arg>) -> std::result::Result<Arg, String> {
    let missing = || format!("argument '{}' is missing", p.name);
    let arg = match given.or_else(|| p.default.clone()) {
        None | Some(Arg::None) if p.optional => return Ok(Arg::None),
        None => return Err(missing()),
        Some(a) => a,
    };
    let wrong = |a: &Arg| Err(format!("argument '{}': expected {:?}, found {a:?}", p.name, p.ty));
    Ok(match (p.ty, arg) {
        (Type::IntList(Some(n)), Arg::List(l)) if l.len() == 1 && n > 1 => Arg::List(vec![l[0].clone(); n]),
        (Type::IntList(n), a @ (Arg::Int(_) | Arg::Dim(_) | Arg::Node(_))) => Arg::List(vec![a; n.unwrap_or(1)]),
        (Type::Float, Arg::Int(i)) => Arg::Float(i as f64),
        // torch's tracer records `x + 1` as add.Tensor with a number in the tensor's place.
        (Type::Tensor, a @ (Arg::Node(_) | Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Dim(_)))
        | (Type::Int, a @ (Arg::Int(_) | Arg::Dim(_) | Arg::Node(_)))
        | (Type::Float, a @ (Arg::Float(_) | Arg::Node(_)))
        | (Type::Scalar, a @ (Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) | Arg::Node(_) | Arg::Dim(_)))
        | (Type::Bool, a @ Arg::Bool(_))
        | (Type::Str, a @ (Arg::Str(_) | Arg::Int(_)))
        | (Type::DType, a @ Arg::DType(_))
        | (Type::Graph, a @ Arg::Graph(_)) => a,
        (Type::TensorList | Type::IntList(_) | Type::FloatList | Type::BoolList, a @ Arg::List(_)) => a,
        (_, a) => return wrong(&a),
    })
}
