//! Values: what is known of them, and the ops that operators stand for.

use super::{Builder, Value, poison_id};
use crate::dim::Dim;
use crate::graph::{Arg, Meta, NodeId};
use crate::strides;
use cleave_numerics::DType;

impl<'b> Value<'b> {
    /// The node.
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Where it is built.
    pub fn builder(self) -> &'b Builder {
        self.b
    }

    /// What is known of the value; of an erroneous one, nothing.
    pub fn meta(self) -> Meta {
        if self.id == poison_id() {
            return Meta::None;
        }
        if let Some(items) = self.b.results_of(self.id) {
            return Meta::Tuple(items.into_iter().map(|id| self.b.value(id).meta()).collect());
        }
        self.b.with_graph(|g| g.node(self.id).meta.clone())
    }

    /// Sizes; of something other than a tensor, none.
    pub fn shape(self) -> Vec<Dim> {
        self.meta().as_tensor().map(|t| t.shape.clone()).unwrap_or_default()
    }

    /// Number of dimensions.
    pub fn rank(self) -> usize {
        self.shape().len()
    }

    /// Element type; of something other than a tensor, f32.
    pub fn dtype(self) -> DType {
        self.meta().as_tensor().map_or(DType::F32, |t| t.dtype)
    }

    /// Strides in elements as torch would lay the value; of something other than a tensor, none.
    pub fn strides(self) -> Vec<Dim> {
        if self.id == poison_id() {
            return vec![];
        }
        self.b.strides.borrow_mut().of(&self.b.graph.borrow(), self.id).unwrap_or_default()
    }

    /// Whether torch would lay the elements in row-major order without gaps.
    pub fn is_contiguous(self) -> bool {
        strides::is_contiguous(&self.shape(), &self.strides())
    }

    /// Calls an op on this value and further arguments.
    pub fn op(self, op: &str, rest: Vec<Arg>) -> Value<'b> {
        let mut args = vec![Arg::Node(self.id)];
        args.extend(rest);
        self.b.call(op, args)
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:literal),* $(,)?) => {
        impl<'b> Value<'b> { $($(#[$doc])* pub fn $name(self) -> Value<'b> { self.op($op, vec![]) })* }
    };
}

unary! {
    /// e to the power of each element.
    exp => "aten.exp", /// Error function.
    erf => "aten.erf", /// Hyperbolic tangent.
    tanh => "aten.tanh", /// Logistic function.
    sigmoid => "aten.sigmoid", /// Square root.
    sqrt => "aten.sqrt", /// One over the square root.
    rsqrt => "aten.rsqrt", /// max(x, 0).
    relu => "aten.relu", /// One over each element.
    reciprocal => "aten.reciprocal", /// Absolute value.
    abs => "aten.abs",
}

impl<'b> Value<'b> {
    /// Elements held between bounds.
    pub fn clamp(self, min: Option<f64>, max: Option<f64>) -> Value<'b> {
        self.op("aten.clamp", vec![min.into(), max.into()])
    }

    /// The elements as this type, as `aten._to_copy`; the value itself if it is of the type.
    pub fn to(self, dtype: DType) -> Value<'b> {
        if self.dtype() == dtype { self } else { self.op("aten._to_copy", vec![dtype.into()]) }
    }

    /// The same elements in this shape.
    pub fn view(self, shape: Vec<Dim>) -> Value<'b> {
        self.op("aten.view", vec![shape.into()])
    }

    /// Dimensions in another order.
    pub fn permute(self, order: Vec<i64>) -> Value<'b> {
        self.op("aten.permute", vec![order.into()])
    }
}

macro_rules! binary {
    ($($tr:ident $f:ident $tensor:literal $scalar:literal;)*) => { $(
        impl<'b> std::ops::$tr for Value<'b> {
            type Output = Value<'b>;
            fn $f(self, o: Value<'b>) -> Value<'b> { self.op($tensor, vec![o.into()]) }
        }
        impl<'b> std::ops::$tr<f64> for Value<'b> {
            type Output = Value<'b>;
            fn $f(self, o: f64) -> Value<'b> { self.op($scalar, vec![Arg::Float(o)]) }
        }
        impl<'b> std::ops::$tr<i64> for Value<'b> {
            type Output = Value<'b>;
            fn $f(self, o: i64) -> Value<'b> { self.op($scalar, vec![Arg::Int(o)]) }
        }
    )* };
}

binary! {
    Add add "aten.add.Tensor" "aten.add.Tensor";
    Sub sub "aten.sub.Tensor" "aten.sub.Tensor";
    Mul mul "aten.mul.Tensor" "aten.mul.Tensor";
    Div div "aten.div.Tensor" "aten.div.Tensor";
}

macro_rules! arg_from {
    ($($t:ty, $v:ident => $e:expr;)*) => { $(impl From<$t> for Arg { fn from($v: $t) -> Arg { $e } })* };
}

arg_from! {
    i64, v => Arg::Int(v);
    usize, v => Arg::Int(v as i64);
    f64, v => Arg::Float(v);
    bool, v => Arg::Bool(v);
    &str, v => Arg::Str(v.into());
    DType, v => Arg::DType(v);
    NodeId, v => Arg::Node(v);
    Value<'_>, v => Arg::Node(v.id);
}

impl<T: Into<Arg>> From<Option<T>> for Arg {
    fn from(v: Option<T>) -> Arg {
        v.map_or(Arg::None, Into::into)
    }
}

impl<T: Into<Arg>> From<Vec<T>> for Arg {
    fn from(v: Vec<T>) -> Arg {
        Arg::List(v.into_iter().map(Into::into).collect())
    }
}
