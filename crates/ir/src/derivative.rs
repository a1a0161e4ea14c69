//! Derivatives: the gradients of an op's arguments from those of its results, built in the op vocabulary.
//!
//! Only ops without a rule, and those of which the derivative is better written down than found through their rule,
//! have a [`Derivative`]: any other op is differentiable because what its rule calls is. They stand in
//! [`crate::ops::derivative`], by theme.

use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta, NodeId};
use crate::op::Op;
use std::cell::RefCell;

/// Builds the gradients of a call's arguments.
pub type DerivativeFn = for<'b> fn(&Gradient<'b>);

/// Builds the gradient of a call's first argument from its result's gradient, the argument and the result.
pub type UnaryFn = for<'b> fn(Value<'b>, Value<'b>, Value<'b>) -> Value<'b>;

/// What is known of an op's derivative.
#[derive(Clone, Copy)]
pub enum Slope {
    /// How the gradients are built.
    Given(DerivativeFn),
    /// How the gradient of the first argument is built.
    Unary(UnaryFn),
    /// Zero wherever there is one, and why.
    Zero(&'static str),
    /// None, and why.
    Refused(&'static str),
}

/// The derivative of one op.
#[derive(Clone, Copy)]
pub struct Derivative {
    /// The op's full name.
    pub op: &'static str,
    /// Arguments of small calls as in [`crate::OpDef::example`], for ops whose record has none.
    pub example: &'static str,
    /// The derivative.
    pub slope: Slope,
}

impl Derivative {
    /// A derivative, tested on examples (those of the op's record, if there are none here).
    pub const fn new(op: &'static str, example: &'static str, f: DerivativeFn) -> Derivative {
        Derivative { op, example, slope: Slope::Given(f) }
    }

    /// A derivative by the first argument, tested as in [`Derivative::new`].
    pub const fn unary(op: &'static str, example: &'static str, f: UnaryFn) -> Derivative {
        Derivative { op, example, slope: Slope::Unary(f) }
    }

    /// The derivative of an op through which no gradient flows.
    pub const fn zero(op: &'static str, why: &'static str) -> Derivative {
        Derivative { op, example: "", slope: Slope::Zero(why) }
    }

    /// What stands for the derivative of an op that has none: gradients that would flow through it are an error.
    pub const fn refused(op: &'static str, why: &'static str) -> Derivative {
        Derivative { op, example: "", slope: Slope::Refused(why) }
    }
}

/// A call with the gradients of its results, as a [`DerivativeFn`] sees it; what [`Call`] has is there as well.
pub struct Gradient<'b> {
    call: Call<'b>,
    result: Value<'b>,
    grads: Vec<Option<Value<'b>>>,
    wanted: Vec<NodeId>,
    given: RefCell<Vec<(NodeId, Value<'b>)>>,
}

impl<'b> std::ops::Deref for Gradient<'b> {
    type Target = Call<'b>;
    fn deref(&self) -> &Call<'b> {
        &self.call
    }
}

impl<'b> Gradient<'b> {
    /// The op's result.
    pub fn y(&self) -> Value<'b> {
        self.result
    }

    /// One of the op's several results.
    pub fn ys(&self, i: usize) -> Value<'b> {
        let known = self.b.with_graph(|g| {
            g.users(self.result.id()).into_iter().find(|u| {
                let n = g.node(*u);
                n.op().is_some_and(|o| o.name == "getitem") && n.args.get(1) == Some(&Arg::Int(i as i64))
            })
        });
        known.map_or_else(|| self.b.getitem(self.result, i), |id| self.b.value(id))
    }

    /// The gradient of the result, or of the first of several.
    pub fn g(&self) -> Value<'b> {
        self.gs(0)
    }

    /// The gradient of one of several results; zeros, if none flows into it.
    pub fn gs(&self, i: usize) -> Value<'b> {
        self.flow(i).unwrap_or_else(|| {
            let y = if matches!(self.result.meta(), Meta::Tuple(_)) { self.ys(i) } else { self.result };
            y.op("aten.full_like", vec![0i64.into()])
        })
    }

    /// The gradient of one of several results, if any flows into it.
    pub fn flow(&self, i: usize) -> Option<Value<'b>> {
        self.grads.get(i).copied().flatten()
    }

    /// Whether an argument's gradient is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.arg(name).nodes().iter().any(|n| self.wanted.contains(n))
    }

    /// Gives the gradient of an argument. It is summed over the dimensions along which the op repeated the argument,
    /// or repeated where it lacks some, and converted to the argument's type.
    pub fn give(&self, name: &str, gradient: Value<'b>) {
        self.give_at(name, 0, gradient);
    }

    /// [`Gradient::give`] for one of a list of tensors, counted without those that are none.
    pub fn give_at(&self, name: &str, i: usize, gradient: Value<'b>) {
        if let Some(&id) = self.arg(name).nodes().get(i).filter(|id| self.wanted.contains(id)) {
            let x = self.b.value(id);
            self.given.borrow_mut().push((id, fitted(gradient, &x.shape()).to(x.dtype())));
        }
    }
}

/// The gradients of the wanted nodes among a call's arguments, in the order in which they were given; several for one
/// node are to be added. `result` is the call's value, `grads` the gradients of its results in order.
///
/// # Errors
/// A call that its derivative does not admit.
pub fn gradients<'b>(
    slope: &Slope,
    result: Value<'b>,
    grads: Vec<Option<Value<'b>>>,
    wanted: Vec<NodeId>,
) -> Result<Vec<(NodeId, Value<'b>)>> {
    let b = result.builder();
    let (op, args, name) = b.with_graph(|g| {
        let n = g.node(result.id());
        (n.op(), n.args.clone(), n.name.clone())
    });
    let op: &'static Op = op.expect("invariant: gradients are taken of calls");
    let d = Gradient { call: Call { b, op, args, name }, result, grads, wanted, given: RefCell::default() };
    match slope {
        Slope::Given(f) => f(&d),
        Slope::Unary(f) => {
            let name = &op.schema.params[0].name;
            d.give(name, f(d.g(), d.tensor(name), d.y()));
        }
        Slope::Zero(_) => {}
        Slope::Refused(why) => d.fail(why),
    }
    b.error().map_or_else(|| Ok(d.given.into_inner()), Err)
}

/// The value in a shape that it was broadcast from, or that it can be broadcast to.
fn fitted<'b>(v: Value<'b>, shape: &[Dim]) -> Value<'b> {
    let v = sum_to(v, shape);
    let have = v.shape();
    let stretched = have.len() < shape.len() || have.iter().zip(shape).any(|(a, b)| a.is(1) && !b.is(1));
    if stretched { v.op("aten.expand", vec![shape.to_vec().into()]) } else { v }
}

/// The sum over the dimensions along which a tensor of this shape was repeated to that of the value.
pub fn sum_to<'b>(v: Value<'b>, shape: &[Dim]) -> Value<'b> {
    let have = v.shape();
    let Some(lead) = have.len().checked_sub(shape.len()) else { return v };
    let inner = (lead..have.len()).filter(|i| shape[i - lead].is(1) && !have[*i].is(1));
    let inner: Vec<usize> = inner.collect();
    let v = if inner.is_empty() { v } else { v.op("aten.sum.dim_IntList", vec![inner.into(), true.into()]) };
    let outer: Vec<usize> = (0..lead).collect();
    if outer.is_empty() { v } else { v.op("aten.sum.dim_IntList", vec![outer.into()]) }
}
