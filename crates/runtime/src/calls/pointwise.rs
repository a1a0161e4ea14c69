//! Pointwise ops as functions that programs know.

use super::{Args, Calls};
use cleave_ir::{Arg, NodeId};
use cleave_kernels::pointwise::{Binary, Unary};

/// What a call computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    /// A function of `self`.
    Unary(Unary),
    /// A function of two operands, the second multiplied by a number beforehand.
    Binary(Binary, f32),
}

/// What a program reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A number.
    Number(f32),
    /// A node's value.
    Node(NodeId),
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

impl Calls<'_> {
    /// What a call computes, if a program can: all its tensors are f32.
    pub(crate) fn form(&self, id: NodeId) -> Option<Form> {
        let (_, reader) = FORMS.iter().find(|(name, _)| *name == self.op(id))?;
        let floats = self.is_float(id) && self.reads(id).into_iter().all(|n| self.is_float(n));
        reader(&self.args(id)).filter(|form| floats && self.operands(id, *form).is_some())
    }

    /// What a program reads for a call of this form: one or two operands.
    pub(crate) fn operands(&self, id: NodeId, form: Form) -> Option<Vec<Operand>> {
        let count = if let Form::Unary(_) = form { 1 } else { 2 };
        let operands = self.g.node(id).args[..count].iter().map(|a| match a {
            Arg::Node(n) => Some(Operand::Node(*n)),
            Arg::Float(f) => Some(Operand::Number(*f as f32)),
            Arg::Int(i) => Some(Operand::Number(*i as f32)),
            _ => None,
        });
        operands.collect()
    }

    /// Bounds that a chain of clamps puts on a value; none if it is another chain.
    pub(crate) fn clamps(&self, nodes: &[NodeId]) -> Option<(f32, f32)> {
        nodes.iter().try_fold((f32::NEG_INFINITY, f32::INFINITY), |(lo, hi), n| match self.form(*n)? {
            Form::Unary(Unary::Relu) => Some((lo.max(0.0), hi.max(0.0))),
            Form::Unary(Unary::Clamp { lo: a, hi: b }) => Some((lo.max(a).min(b), hi.max(a).min(b))),
            _ => None,
        })
    }
}
