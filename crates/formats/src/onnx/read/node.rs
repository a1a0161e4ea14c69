//! A node of the file as the functions that read operators see it: arguments, attributes, and the calls
//! that it becomes. Which attributes were read is recorded; one that nobody read is an error.

use super::host::{Host, Known, widen};
use super::scope::Scope;
use crate::onnx::proto::{AttributeProto, AttributeType, GraphProto, NodeProto};
use crate::onnx::tensor::{bits_of, dtype_of, sparse_of, tensor_of};
use cleave_ir::{Arg, Builder, Dim, Meta, Tensor, Value, op};
use cleave_numerics::DType;
use std::cell::RefCell;
use std::rc::Rc;

/// The most sizes that one argument may give when it is run.
const MOST_SIZES: i64 = 64;

/// A result of reading one node; the error says what was expected and found.
pub type Step<T> = Result<T, String>;

/// Reads one operator: its results in order.
pub type Map = for<'b> fn(&Ctx<'b, '_>) -> Step<Vec<Known<'b>>>;

/// One node with its arguments.
pub struct Ctx<'b, 'm> {
    /// Where calls are built.
    pub b: &'b Builder,
    /// Version of the operator set.
    pub opset: i64,
    /// The name for the main call.
    pub name: String,
    /// The body in which the node stands.
    pub scope: &'m Scope<'b, 'm>,
    node: &'m NodeProto,
    inputs: Vec<Option<Known<'b>>>,
    read: Rc<RefCell<Vec<bool>>>,
}

impl<'b, 'm> Ctx<'b, 'm> {
    /// A node whose arguments are known.
    pub fn new(scope: &'m Scope<'b, 'm>, node: &'m NodeProto, inputs: Vec<Option<Known<'b>>>) -> Self {
        let wish = if node.name.is_empty() { node.output.first().unwrap_or(&node.op_type) } else { &node.name };
        let name = wish.trim_matches('/').to_string();
        let read = Rc::new(RefCell::new(vec![false; node.attribute.len()]));
        Ctx { b: scope.b, opset: scope.opset, name, scope, node, inputs, read }
    }

    /// The results that operator `op` of ONNX's own set has with this node's attributes and other arguments.
    ///
    /// # Errors
    /// An operator that is not read, and what it finds.
    pub fn as_if(&self, op: &str, inputs: Vec<Option<Known<'b>>>) -> Step<Vec<Known<'b>>> {
        let map = super::find("", op).ok_or_else(|| super::refused::why("", op))?;
        let (name, read) = (self.name.clone(), Rc::clone(&self.read));
        // Sets of others count their own versions.
        let opset = self.opt_int("opset")?.unwrap_or(self.opset);
        map(&Ctx { b: self.b, opset, name, scope: self.scope, node: self.node, inputs, read })
    }

    /// Attributes that nobody read. One of the oldest operators says which arguments may be overwritten.
    pub fn unread(&self) -> Vec<&'m str> {
        let read = self.read.borrow();
        let unread = self.node.attribute.iter().zip(read.iter()).filter(|(_, r)| !**r).map(|(a, _)| a.name.as_str());
        unread.filter(|name| *name != "consumed_inputs").collect()
    }

    /// The operator's name in the file.
    pub fn op_type(&self) -> &'m str {
        &self.node.op_type
    }

    /// Whether somebody may use result `i`.
    pub fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|o| !o.is_empty())
    }

    /// Number of results that the node names.
    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    /// The name of result `i` in the file.
    pub fn output_name(&self, i: usize) -> &'m str {
        self.node.output.get(i).map_or("", String::as_str)
    }

    /// Fails if a result past the first `n` is used.
    pub fn only(&self, n: usize) -> Step<()> {
        match (n..self.outputs()).find(|i| self.wants(*i)) {
            Some(i) => Err(format!("result {i} ('{}') is not supported", self.output_name(i))),
            None => Ok(()),
        }
    }

    // Arguments.

    /// Number of arguments, trailing empty ones included.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Argument `i`, if given.
    pub fn opt(&self, i: usize) -> Option<&Known<'b>> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// Argument `i`.
    pub fn known(&self, i: usize) -> Step<&Known<'b>> {
        self.opt(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// Argument `i` as a node of the graph.
    pub fn value(&self, i: usize) -> Step<Value<'b>> {
        Ok(self.node_of(self.known(i)?))
    }

    /// Argument `i` as a node of the graph, if given.
    pub fn opt_value(&self, i: usize) -> Option<Value<'b>> {
        self.opt(i).map(|k| self.node_of(k))
    }

    /// A value as a node of the graph.
    pub fn node_of(&self, k: &Known<'b>) -> Value<'b> {
        self.scope.node_of(k)
    }

    /// Argument `i`, if it is given and known while the graph is built.
    pub fn host(&self, i: usize) -> Option<&Host> {
        match self.opt(i)? {
            Known::Host(h) => Some(h),
            Known::Value(_) => None,
        }
    }

    /// All arguments, if all are known while the graph is built.
    pub fn hosts(&self) -> Option<Vec<&Host>> {
        self.inputs.iter().map(|k| if let Some(Known::Host(h)) = k { Some(h) } else { None }).collect()
    }

    /// Argument `i` as sizes, if given. Numbers that only running tells are sizes of their own.
    pub fn opt_dims(&self, i: usize) -> Step<Option<Vec<Dim>>> {
        let Some(k) = self.opt(i) else { return Ok(None) };
        if let Known::Host(h) = k {
            let dims = h.as_dims().ok_or_else(|| format!("input {i}: expected integers, found {}", h.dtype()));
            return dims.map(Some);
        }
        if let Some(t) = self.settled(i)? {
            let dims = Host::tensor("", t).as_dims().ok_or_else(|| format!("input {i}: expected integers"));
            return dims.map(Some);
        }
        let v = self.node_of(k);
        let count = match v.shape().as_slice() {
            _ if v.dtype().is_float() => None,
            [] => Some(1),
            [n] => n.as_const().filter(|n| (0..=MOST_SIZES).contains(n)),
            _ => None,
        };
        let count = count.ok_or_else(|| {
            format!(
                "input {i} ('{}') depends on the data; expected a constant or sizes computed from shapes",
                self.node.input.get(i).map_or("", String::as_str)
            )
        })?;
        let at = |j: i64| if v.rank() == 0 { v } else { v.op("aten.select.int", vec![0i64.into(), j.into()]) };
        let size = |j: i64| match at(j).op("aten._local_scalar_dense", vec![]).meta() {
            Meta::Int(d) => Ok(d),
            other => Err(format!("input {i}: expected integers, found {other:?}")),
        };
        (0..count).map(size).collect::<Step<Vec<_>>>().map(Some)
    }

    /// Argument `i` as sizes.
    pub fn dims(&self, i: usize) -> Step<Vec<Dim>> {
        self.opt_dims(i)?.ok_or_else(|| format!("input {i} is missing"))
    }

    /// Argument `i` as integers, if given.
    pub fn opt_ints(&self, i: usize) -> Step<Option<Vec<i64>>> {
        match self.opt(i) {
            None => return Ok(None),
            Some(Known::Value(_)) => {
                let t = self.constant(i)?;
                return Host::tensor("", t).as_ints().map(Some).ok_or_else(|| format!("input {i}: expected integers"));
            }
            Some(Known::Host(_)) => {}
        }
        let Some(dims) = self.opt_dims(i)? else { return Ok(None) };
        let ints = dims.iter().map(Dim::as_const).collect::<Option<_>>();
        ints.map(Some).ok_or_else(|| format!("input {i}: expected numbers, found sizes {dims:?}"))
    }

    /// Argument `i` as a tensor, if it is given and does not depend on the data.
    ///
    /// # Errors
    /// One that depends on inputs which could be given but are not yet.
    pub fn settled(&self, i: usize) -> Step<Option<Tensor>> {
        match self.opt(i) {
            Some(k) => self.scope.settled(k).map_err(|why| format!("input {i}: {why}")),
            None => Ok(None),
        }
    }

    /// Argument `i` as a constant tensor.
    pub fn constant(&self, i: usize) -> Step<Tensor> {
        self.known(i)?;
        self.settled(i)?.ok_or_else(|| {
            format!(
                "input {i} ('{}') depends on the data, expected a constant",
                self.node.input.get(i).map_or("", String::as_str)
            )
        })
    }

    /// Argument `i`, if given, as one number.
    pub fn opt_scalar(&self, i: usize) -> Step<Option<f64>> {
        if self.opt(i).is_none() {
            return Ok(None);
        }
        let t = Host::tensor("", self.constant(i)?);
        t.as_scalar().map(Some).ok_or_else(|| format!("input {i}: expected a constant of one element"))
    }

    /// Bits of an element of argument `i`, if they are less than a byte.
    pub fn bits(&self, i: usize) -> Option<u32> {
        self.scope.env.narrow.borrow().get(self.node.input.get(i)?).copied()
    }

    /// Says how many bits an element of result `i` has, if they are less than a byte.
    pub fn narrow(&self, i: usize, bits: Option<u32>) {
        if let (Some(bits), Some(name)) = (bits, self.node.output.get(i)) {
            self.scope.env.narrow.borrow_mut().insert(name.clone(), bits);
        }
    }

    // Attributes.

    fn attr(&self, name: &str, want: AttributeType) -> Step<Option<&'m AttributeProto>> {
        let Some(i) = self.node.attribute.iter().position(|a| a.name == name) else { return Ok(None) };
        self.read.borrow_mut()[i] = true;
        let a = &self.node.attribute[i];
        // Before IR version 2 the type was left out; the filled field tells it.
        let stated = AttributeType::try_from(a.r#type).unwrap_or(AttributeType::Undefined);
        let implied = match want {
            AttributeType::Float => a.f.is_some(),
            AttributeType::Int => a.i.is_some(),
            AttributeType::String => a.s.is_some(),
            AttributeType::Tensor => a.t.is_some(),
            _ => true,
        };
        match stated == want || (stated == AttributeType::Undefined && implied) {
            true => Ok(Some(a)),
            false => Err(format!("attribute '{name}': expected {want:?}, found {stated:?}")),
        }
    }

    /// Reads attributes that say nothing about an inference result.
    pub fn ignore(&self, names: &[&str]) {
        for (a, read) in self.node.attribute.iter().zip(self.read.borrow_mut().iter_mut()) {
            *read |= names.contains(&a.name.as_str());
        }
    }

    /// An integer attribute.
    pub fn opt_int(&self, name: &str) -> Step<Option<i64>> {
        Ok(self.attr(name, AttributeType::Int)?.map(|a| a.i.unwrap_or(0)))
    }

    /// An integer attribute with a default.
    pub fn int(&self, name: &str, default: i64) -> Step<i64> {
        Ok(self.opt_int(name)?.unwrap_or(default))
    }

    /// A flag: an integer attribute that is 0 or 1.
    pub fn flag(&self, name: &str, default: bool) -> Step<bool> {
        match self.int(name, i64::from(default))? {
            0 => Ok(false),
            1 => Ok(true),
            v => Err(format!("attribute '{name}': expected 0 or 1, found {v}")),
        }
    }

    /// A float attribute, in its shortest decimal form.
    pub fn opt_float(&self, name: &str) -> Step<Option<f64>> {
        Ok(self.attr(name, AttributeType::Float)?.map(|a| widen(a.f.unwrap_or(0.0))))
    }

    /// A float attribute with a default.
    pub fn float(&self, name: &str, default: f64) -> Step<f64> {
        Ok(self.opt_float(name)?.unwrap_or(default))
    }

    /// A list of floats.
    pub fn opt_floats(&self, name: &str) -> Step<Option<Vec<f32>>> {
        Ok(self.attr(name, AttributeType::Floats)?.map(|a| a.floats.clone()))
    }

    /// A list of integers.
    pub fn opt_list(&self, name: &str) -> Step<Option<Vec<i64>>> {
        Ok(self.attr(name, AttributeType::Ints)?.map(|a| a.ints.clone()))
    }

    /// A list of `n` integers with a default for each.
    pub fn list(&self, name: &str, n: usize, default: i64) -> Step<Vec<i64>> {
        let list = self.opt_list(name)?.unwrap_or_else(|| vec![default; n]);
        if list.len() == n {
            return Ok(list);
        }
        Err(format!("attribute '{name}': expected {n} integers, found {list:?}"))
    }

    /// A string attribute.
    pub fn opt_str(&self, name: &str) -> Step<Option<&'m str>> {
        let Some(a) = self.attr(name, AttributeType::String)? else { return Ok(None) };
        let text = std::str::from_utf8(a.s.as_deref().unwrap_or_default());
        text.map(Some).map_err(|_| format!("attribute '{name}': expected text"))
    }

    /// A string attribute with a default.
    pub fn str(&self, name: &str, default: &'m str) -> Step<&'m str> {
        Ok(self.opt_str(name)?.unwrap_or(default))
    }

    /// A list of strings.
    pub fn opt_strings(&self, name: &str) -> Step<Option<Vec<&'m str>>> {
        let Some(a) = self.attr(name, AttributeType::Strings)? else { return Ok(None) };
        let text = a.strings.iter().map(|s| std::str::from_utf8(s)).collect::<Result<_, _>>();
        text.map(Some).map_err(|_| format!("attribute '{name}': expected text"))
    }

    /// A tensor attribute.
    pub fn opt_tensor_attr(&self, name: &str) -> Step<Option<Tensor>> {
        match self.attr(name, AttributeType::Tensor)?.and_then(|a| a.t.as_ref()) {
            Some(t) if bits_of(i64::from(t.data_type)).is_some() => {
                self.narrow(0, bits_of(i64::from(t.data_type)));
                tensor_of(t, &mut self.scope.env.external.borrow_mut()).map(Some)
            }
            Some(t) => tensor_of(t, &mut self.scope.env.external.borrow_mut()).map(Some),
            None => Ok(None),
        }
    }

    /// A sparse tensor attribute, in full.
    pub fn opt_sparse(&self, name: &str) -> Step<Option<Tensor>> {
        match self.attr(name, AttributeType::SparseTensor)?.and_then(|a| a.sparse_tensor.as_ref()) {
            Some(s) => sparse_of(s, &mut self.scope.env.external.borrow_mut()).map(Some),
            None => Ok(None),
        }
    }

    /// A graph attribute.
    pub fn opt_graph(&self, name: &str) -> Step<Option<&'m GraphProto>> {
        Ok(self.attr(name, AttributeType::Graph)?.and_then(|a| a.g.as_deref()))
    }

    /// A graph attribute that must be there.
    pub fn graph(&self, name: &str) -> Step<&'m GraphProto> {
        self.opt_graph(name)?.ok_or_else(|| format!("attribute '{name}' is missing"))
    }

    /// An element type by number.
    pub fn opt_dtype(&self, name: &str) -> Step<Option<DType>> {
        self.opt_int(name)?.map(dtype_of).transpose()
    }

    // Results.

    /// The call that the node becomes, under its name.
    pub fn call(&self, op_name: &str, args: Vec<Arg>) -> Value<'b> {
        match op::find(op_name) {
            Ok(o) => self.b.call_op(o, args, Some(&self.name)),
            Err(_) => self.b.call(op_name, args),
        }
    }

    /// One value as the results of a node.
    pub fn one(&self, v: Value<'b>) -> Step<Vec<Known<'b>>> {
        Ok(vec![Known::Value(v)])
    }

    /// A known value as the results of a node.
    pub fn folded(&self, t: Tensor) -> Step<Vec<Known<'b>>> {
        Ok(vec![Known::Host(Host::tensor(self.output_name(0), t))])
    }

    /// Known sizes as the results of a node.
    pub fn sized(&self, dtype: DType, shape: Vec<usize>, dims: Vec<Dim>) -> Step<Vec<Known<'b>>> {
        Ok(vec![Known::Host(Host::dims(self.output_name(0), dtype, shape, dims))])
    }
}

/// A dimension number counted from the end if negative.
pub fn axis_of(axis: i64, rank: usize) -> Step<usize> {
    let n = i64::try_from(rank).map_err(|e| e.to_string())?;
    let a = if axis < 0 { axis.saturating_add(n) } else { axis };
    usize::try_from(a).ok().filter(|a| *a < rank).ok_or_else(|| format!("axis {axis} of a tensor of rank {rank}"))
}

/// A size of a value; one that an error did not make has none, and counts as 0.
pub fn dim_of(x: Value<'_>, i: usize) -> Dim {
    x.shape().get(i).cloned().unwrap_or(0.into())
}
