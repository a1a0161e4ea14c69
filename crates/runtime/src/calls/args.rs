//! A call's arguments by name: what is not of the type asked for is none.

use cleave_ir::{Arg, Node, NodeId};
use cleave_numerics::DType;

/// The arguments of a call.
pub(super) struct Args<'g> {
    pub(super) node: &'g Node,
}

impl<'g> Args<'g> {
    fn arg(&self, name: &str) -> &'g Arg {
        self.node.arg(name).unwrap_or(&Arg::None)
    }

    /// A node.
    pub(super) fn tensor(&self, name: &str) -> Option<NodeId> {
        if let Arg::Node(n) = self.arg(name) { Some(*n) } else { None }
    }

    /// An integer.
    pub(super) fn int(&self, name: &str) -> Option<i64> {
        if let Arg::Int(i) = self.arg(name) { Some(*i) } else { None }
    }

    /// A list.
    pub(super) fn list(&self, name: &str) -> Option<&'g [Arg]> {
        if let Arg::List(l) = self.arg(name) { Some(l) } else { None }
    }

    /// Integers.
    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.list(name)?.iter().map(|a| if let Arg::Int(i) = a { Some(*i) } else { None }).collect()
    }

    /// Sizes: integers that are not negative, one standing for all `n`.
    pub(super) fn sizes(&self, name: &str, n: usize) -> Option<Vec<usize>> {
        let v: Vec<usize> = self.ints(name)?.into_iter().map(|i| usize::try_from(i).ok()).collect::<Option<_>>()?;
        match v.as_slice() {
            [one] if n > 1 => Some(vec![*one; n]),
            v if v.len() == n => Some(v.to_vec()),
            _ => None,
        }
    }

    /// A number.
    pub(super) fn float(&self, name: &str) -> Option<f32> {
        match self.arg(name) {
            Arg::Float(f) => Some(*f as f32),
            Arg::Int(i) => Some(*i as f32),
            _ => None,
        }
    }

    /// An element type.
    pub(super) fn dtype(&self, name: &str) -> Option<DType> {
        if let Arg::DType(d) = self.arg(name) { Some(*d) } else { None }
    }

    /// A bool.
    pub(super) fn bool(&self, name: &str) -> bool {
        *self.arg(name) == Arg::Bool(true)
    }

    /// A string.
    pub(super) fn str(&self, name: &str) -> &'g str {
        if let Arg::Str(s) = self.arg(name) { s } else { "" }
    }

    /// Whether nothing was given.
    pub(super) fn is_none(&self, name: &str) -> bool {
        *self.arg(name) == Arg::None
    }

    /// A dimension, or a place in one, counted from the end if negative.
    pub(super) fn axis(&self, name: &str, rank: usize) -> Option<usize> {
        wrap(self.int(name)?, rank)
    }

    /// Dimensions as [`Args::axis`], in their order.
    pub(super) fn axes(&self, name: &str, rank: usize) -> Option<Vec<usize>> {
        self.ints(name)?.into_iter().map(|d| wrap(d, rank)).collect()
    }
}

/// A dimension, counted from the end if negative.
pub(super) fn wrap(axis: i64, rank: usize) -> Option<usize> {
    let a = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(a).ok().filter(|a| *a < rank)
}
