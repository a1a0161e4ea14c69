//! Op records: what an op is called, takes, returns, means and may be broken into.

use crate::builder::{Call, Value};
use crate::derivative::Derivative;
use crate::error::{IrError, Result};
use crate::graph::Meta;
use crate::schema::Schema;
use indexmap::IndexMap;
use std::sync::LazyLock;

/// What kind of work an op does; patterns and backends speak of classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Each output element depends on the elements at its own place.
    Pointwise,
    /// Elements are combined along dimensions.
    Reduction,
    /// The same elements under another shape or order; no arithmetic.
    View,
    /// Compute-heavy with kernels of its own: never broken up above prims.
    Strategic,
    /// Windows over space: pooling.
    Pool,
    /// Normalizations and softmax.
    Norm,
    /// Elements are moved or repeated: cat, pad, resize, gather.
    Move,
    /// A tensor is made from nothing.
    Creation,
    /// Float to integer levels and back.
    Quantize,
    /// Tuples and sizes.
    Structural,
    /// Has no effect on an inference result.
    Inert,
}

/// How strictly two implementations of an op may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// The same bits.
    Exact,
    /// A few units in the last place.
    Rounding,
    /// Reordered sums or approximated functions.
    Approximate,
}

/// The levels on which an op may stand, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels(u8);

impl Levels {
    /// What was written.
    pub const TORCH: Levels = Levels(1);
    /// ATen in functional form.
    pub const ATEN: Levels = Levels(2);
    /// The Core ATen set.
    pub const CORE: Levels = Levels(4);
    /// Type promotion and broadcasting explicit.
    pub const PRIMS: Levels = Levels(8);
    /// Everywhere.
    pub const ALL: Levels = Levels(15);

    /// Union of two sets.
    pub const fn and(self, other: Levels) -> Levels {
        Levels(self.0 | other.0)
    }

    /// Whether the sets have a level in common.
    pub const fn meets(self, other: Levels) -> bool {
        self.0 & other.0 != 0
    }
}

/// Shapes and types of an op's results from those of its arguments.
pub type InferFn = fn(&Call<'_>) -> Result<Meta>;

/// An op in terms of others: an ordinary function in the op vocabulary. It returns the op's results in order.
pub type RuleFn = for<'b> fn(&Call<'b>) -> Vec<Value<'b>>;

/// When the empty table, which only makes a graph functional, applies an op's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functional {
    /// The op is kept unless a table names it.
    Keep,
    /// The op aliases or mutates, or its eval form is another op: every table breaks it up.
    Always,
}

/// The record of one op. Written as a `static` beside its rule and listed once in [`crate::ops::ALL`].
pub struct OpDef {
    /// Full name, as torch has it: `aten.conv2d.default`.
    pub name: &'static str,
    /// torch's schema.
    pub schema: &'static str,
    /// Kind of work.
    pub class: Class,
    /// Where it may stand.
    pub levels: Levels,
    /// Whether the first two arguments may be exchanged.
    pub commutative: bool,
    /// How strictly results are compared.
    pub accuracy: Accuracy,
    /// Parameters that a pattern which does not mention them holds to their default.
    pub must_default: &'static [&'static str],
    /// The output-channel axis of the weight operand, for ops that have one.
    pub weight_axis: Option<usize>,
    /// Shapes and types; where absent, the rule is run on metadata alone.
    pub infer: Option<InferFn>,
    /// The op in terms of others.
    pub rule: Option<RuleFn>,
    /// Whether functional form alone asks for the rule.
    pub functional: Functional,
    /// Arguments of small calls, by which the rule is tested, `|` between calls: what the text form has, with a
    /// tensor as its type: `f32[2, 3], i64[4]<3, none, 0.5`. Behind a float type, `>0` says that elements are positive,
    /// `<1` that they lie in (-1, 1), `!` that they are distinct; behind an integer type, `<n` that they are 0 to n - 1.
    /// [`crate::example`] makes graphs and inputs of them.
    pub example: &'static str,
    /// Whether raising finds the op again by the trace of its rule on the example.
    pub raisable: bool,
}

impl OpDef {
    /// What a record has unless it says otherwise.
    pub const BASE: OpDef = OpDef {
        name: "",
        schema: "() -> ()",
        class: Class::Pointwise,
        levels: Levels::TORCH.and(Levels::ATEN),
        commutative: false,
        accuracy: Accuracy::Exact,
        must_default: &[],
        weight_axis: None,
        infer: None,
        rule: None,
        functional: Functional::Keep,
        example: "",
        raisable: false,
    };
}

/// A listed op: its record with the schema parsed. Compared by identity.
pub struct Op {
    /// The record.
    pub def: &'static OpDef,
    /// The parsed schema.
    pub schema: Schema,
    /// The derivative, if it is not found through the rule.
    pub derivative: Option<Derivative>,
}

impl Op {
    /// The name without a trailing `.default`, as the text form prints it.
    pub fn short(&self) -> &'static str {
        self.def.name.strip_suffix(".default").unwrap_or(self.def.name)
    }

    /// The bare name, without namespace and overload: `conv2d`.
    pub fn base(&self) -> &'static str {
        let name = self.def.name.split_once('.').map_or(self.def.name, |(_, n)| n);
        name.split_once('.').map_or(name, |(n, _)| n)
    }
}

impl std::ops::Deref for Op {
    type Target = OpDef;
    fn deref(&self) -> &OpDef {
        self.def
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self.def, other.def)
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.def.name)
    }
}

static REGISTRY: LazyLock<IndexMap<&'static str, Op>> = LazyLock::new(|| {
    let mut map = IndexMap::new();
    let derivatives: IndexMap<&str, Derivative> =
        crate::ops::derivative::all().into_iter().map(|d| (d.op, d)).collect();
    for def in crate::ops::ALL.iter().copied().flatten().copied().flatten() {
        let schema = Schema::parse(def.schema).unwrap_or_else(|e| panic!("schema of {}: {e}", def.name));
        assert!(
            map.insert(def.name, Op { def, schema, derivative: derivatives.get(def.name).copied() }).is_none(),
            "{} is listed twice",
            def.name
        );
    }
    map
});

/// All listed ops, in the order of the list.
pub fn all() -> impl Iterator<Item = &'static Op> {
    REGISTRY.values()
}

/// The op with this name; `.default` may be left out.
///
/// # Errors
/// A name that no record has.
pub fn find(name: &str) -> Result<&'static Op> {
    let op = REGISTRY.get(name).or_else(|| REGISTRY.get(format!("{name}.default").as_str()));
    op.ok_or_else(|| IrError::UnknownOp(name.into()))
}

static OVERLOADS: LazyLock<IndexMap<&'static str, Vec<&'static Op>>> = LazyLock::new(|| {
    let mut map: IndexMap<_, Vec<_>> = IndexMap::new();
    all().filter(|o| !o.name.starts_with("prims.")).for_each(|o| map.entry(o.base()).or_default().push(o));
    map
});

/// The ops with this bare name (`conv2d`, `add`): its overloads. Prims go by their full names only.
pub fn overloads(base: &str) -> &'static [&'static Op] {
    OVERLOADS.get(base).map_or(&[], |ops| ops)
}
