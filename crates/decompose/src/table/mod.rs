//! Tables: which ops are broken up, each with the reason.
//!
//! A table is composed in three steps: start from a level, add what the backend also wants broken up,
//! remove what it lowers better itself. Which ops a level breaks up follows from their records; only the
//! steps after it name ops.

mod inductor;

use crate::error::{DecomposeError, Result};
use cleave_ir::op::{self, Functional, Levels, Op, RuleFn};
use indexmap::IndexMap;

/// What a table does with an op, and why.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whether a rule is run.
    pub decompose: bool,
    /// The rule, if it is another than the one in the op's record.
    pub rule: Option<RuleFn>,
    /// Why.
    pub reason: String,
    /// Which step decided: the table started from, `add`, `remove`, or `command line`.
    pub step: &'static str,
}

/// A map from op overloads to what is done with them. Ops that it does not name are kept.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub doc: String,
    /// The level on which its graphs stand; once composed with a backend's wishes, none in particular.
    pub level: Levels,
    /// Whether sizes in arguments become nodes that compute them, as in torch's graphs.
    pub sizes_as_nodes: bool,
    entries: IndexMap<&'static str, Entry>,
}

const MUTATES: &str = "functional form: it writes to its argument";
const ALIASES: &str = "functional form: another op says the same without aliasing";

/// One op in a step of composition.
struct Step {
    op: &'static str,
    reason: &'static str,
    rule: Option<RuleFn>,
}

impl Step {
    /// The op, with the rule in its record.
    const fn own(op: &'static str, reason: &'static str) -> Step {
        Step { op, reason, rule: None }
    }

    /// The op, with a rule of the table's own.
    const fn with(op: &'static str, reason: &'static str, rule: RuleFn) -> Step {
        Step { op, reason, rule: Some(rule) }
    }
}

/// What the CPU backend also wants broken up.
const CPU_ADD: &[Step] = &[
    Step::own(
        "aten._native_batch_norm_legit_no_training",
        "what folding left is a product and a sum per channel: a pointwise program",
    ),
    Step::own("aten.split_with_sizes", "its parts are slices, which are views"),
    Step::own("aten.stack", "concatenation writes into place"),
];

/// What the CPU backend lowers better itself.
const CPU_REMOVE: &[Step] = &[
    Step::own("aten.conv1d", "has a kernel of its own"),
    Step::own("aten.conv2d", "has a kernel of its own"),
    Step::own("aten.conv3d", "has a kernel of its own"),
    Step::own("aten.conv_transpose1d", "has a kernel of its own"),
    Step::own("aten.conv_transpose2d.input", "has a kernel of its own"),
    Step::own("aten.conv_transpose3d.input", "has a kernel of its own"),
    Step::own("aten.linear", "its weight is packed once; as addmm it would have to be recognised again"),
    Step::own("aten.max_pool2d", "one result is needed; the indices are not"),
    Step::own("aten.max_pool3d", "one result is needed; the indices are not"),
    Step::own("aten.adaptive_avg_pool2d", "one kernel for all sizes"),
    Step::own("aten.adaptive_avg_pool3d", "one kernel for all sizes"),
    Step::own("aten.softmax.int", "one kernel, three passes over a row in cache"),
    Step::own("aten.log_softmax.int", "one kernel, three passes over a row in cache"),
    Step::own("aten.layer_norm", "one kernel, two passes over a row in cache"),
    Step::own("aten.hardswish", "one instruction of a pointwise program, or a table of 256 bytes"),
    Step::own("aten.hardsigmoid", "one instruction of a pointwise program, or a table of 256 bytes"),
    Step::own("aten.silu", "one instruction of a pointwise program, or a table of 256 bytes"),
];

impl Table {
    /// A table that breaks up nothing.
    fn new(name: &str, doc: &str) -> Table {
        Table {
            name: name.into(),
            doc: doc.into(),
            level: Levels::ATEN,
            sizes_as_nodes: false,
            entries: IndexMap::new(),
        }
    }

    /// What functional form needs and no more.
    pub fn empty() -> Table {
        let mut t = Table::new("empty", "functional form only: in-place ops, aliases and inert ops go");
        t.sizes_as_nodes = true;
        for o in op::all().filter(|o| o.functional == Functional::Always && o.rule.is_some()) {
            t.set(o, true, if o.schema.mutates() { MUTATES } else { ALIASES }, "empty");
        }
        t
    }

    /// Down to Core ATen.
    pub fn core() -> Table {
        let mut t = Table::empty().down_to(Levels::CORE, "core", "not in Core ATen");
        t.doc = "Core ATen: torch's default table".into();
        t
    }

    /// As deep as rules go.
    pub fn prims() -> Table {
        let mut t = Table::core().down_to(Levels::PRIMS, "prims", "not a prim");
        t.doc = "as deep as rules go".into();
        t.sizes_as_nodes = false;
        t
    }

    /// The CPU backend's: strategic ops, pooling, softmax and norms whole, the rest pointwise programs.
    pub fn cpu() -> Table {
        let mut t = Table::core().add(CPU_ADD).remove(CPU_REMOVE);
        t.name = "cpu".into();
        t.doc = "the CPU backend: kernels for what is heavy, pointwise programs for the rest".into();
        t.sizes_as_nodes = false;
        t
    }

    /// The functional form for files: semantic ops stay whole, so that other runtimes recognise them.
    pub fn semantic() -> Table {
        let mut t = Table::empty();
        t.name = "semantic".into();
        t.doc = "for files: functional, semantic ops whole".into();
        t.sizes_as_nodes = false;
        t.level = Levels::ALL;
        let whole = "other runtimes recognise it as it is";
        for name in ["aten.batch_norm", "aten.flatten.using_ints", "aten.reshape"] {
            t.set(listed(name), false, whole, "remove");
        }
        t
    }

    /// The table with whatever has a rule and is not among what a backend has broken up as well.
    #[must_use]
    pub fn without(mut self, has: impl Fn(&Op) -> bool, reason: &str) -> Table {
        for o in op::all().filter(|o| o.rule.is_some() && !has(o) && !o.schema.mutates()) {
            if !self.decomposes(o) {
                self.set(o, true, reason, "add");
            }
        }
        self
    }

    /// For a backend that has these ops and no others: whatever else has a rule is broken up.
    ///
    /// # Errors
    /// A name that no op has.
    pub fn supporting(name: &str, ops: &[&str]) -> Result<Table> {
        let mut t = Table::empty();
        t.name = name.into();
        t.doc = format!("a backend of {} ops", ops.len());
        t.sizes_as_nodes = false;
        t.level = Levels::ALL;
        let kept = ops.iter().map(|n| op::find(n).map_err(|_| DecomposeError::UnknownOp(n.to_string())));
        let kept = kept.collect::<Result<Vec<_>>>()?;
        for o in op::all().filter(|o| o.rule.is_some() && !kept.contains(o)) {
            t.set(o, true, "the backend does not have it", "add");
        }
        for o in kept {
            t.set(o, false, "the backend has it", "remove");
        }
        Ok(t)
    }

    fn down_to(mut self, level: Levels, name: &'static str, reason: &str) -> Table {
        self.name = name.into();
        self.level = level;
        for o in op::all().filter(|o| !o.levels.meets(level) && o.rule.is_some()) {
            if !self.decomposes(o) {
                self.set(o, true, reason, name);
            }
        }
        self
    }

    fn add(mut self, steps: &[Step]) -> Table {
        self.level = Levels::ALL;
        for s in steps {
            let entry = Entry { decompose: true, rule: s.rule, reason: s.reason.into(), step: "add" };
            self.entries.insert(listed(s.op).def.name, entry);
        }
        self
    }

    fn remove(mut self, steps: &[Step]) -> Table {
        self.level = Levels::ALL;
        for s in steps {
            self.set(listed(s.op), false, s.reason, "remove");
        }
        self
    }

    fn set(&mut self, o: &'static Op, decompose: bool, reason: &str, step: &'static str) {
        self.entries.insert(o.def.name, Entry { decompose, rule: None, reason: reason.into(), step });
    }

    /// The rule by which the table breaks the op up, if it does.
    pub fn rule(&self, o: &Op) -> Option<RuleFn> {
        let entry = self.entries.get(o.def.name).filter(|e| e.decompose)?;
        entry.rule.or(o.rule)
    }

    /// The built-in table with this name.
    ///
    /// # Errors
    /// A name that there is not.
    pub fn named(name: &str) -> Result<Table> {
        let all = tables();
        let known = all.iter().map(|t| t.name.clone()).collect::<Vec<_>>().join(", ");
        let found = all.into_iter().find(|t| t.name == name);
        found.ok_or_else(|| DecomposeError::UnknownTable { name: name.into(), known })
    }

    /// The table with ops broken up or kept in addition. An op is named in full (`aten.mul.Tensor`), without
    /// `.default` (`aten.conv2d`), or by its bare name for all its overloads (`conv2d`).
    ///
    /// # Errors
    /// An unknown op, an op without a rule, one that cannot be kept, and a wish that changes nothing.
    pub fn amend(mut self, decompose: &[String], keep: &[String]) -> Result<Table> {
        for name in decompose {
            let ops: Vec<_> = resolve(name)?.into_iter().filter(|o| o.rule.is_some()).collect();
            if ops.is_empty() {
                return Err(DecomposeError::NoRule(name.clone()));
            }
            if ops.iter().all(|o| self.decomposes(o)) {
                return Err(DecomposeError::AlreadyDecomposed { table: self.name, op: name.clone() });
            }
            for o in ops {
                self.set(o, true, "asked for", "command line");
            }
        }
        for name in keep {
            let ops: Vec<_> = resolve(name)?.into_iter().filter(|o| self.decomposes(o)).collect();
            if ops.is_empty() {
                return Err(DecomposeError::AlreadyKept { table: self.name, op: name.clone() });
            }
            if let Some(o) = ops.iter().find(|o| o.schema.mutates()) {
                return Err(DecomposeError::NotFunctional(o.def.name.into()));
            }
            self.level = Levels::ALL;
            for o in ops {
                self.set(o, false, "asked for", "command line");
            }
        }
        Ok(self)
    }

    /// Whether the table breaks the op up.
    pub fn decomposes(&self, o: &Op) -> bool {
        self.entries.get(o.def.name).is_some_and(|e| e.decompose)
    }

    /// What the table says of ops that it names, in order of the steps.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.entries.iter().map(|(n, e)| (*n, e))
    }

    /// How many overloads are broken up, and how many were removed from the table.
    pub fn counts(&self) -> (usize, usize) {
        let broken = self.entries.values().filter(|e| e.decompose).count();
        (broken, self.entries.len() - broken)
    }
}

/// An op that a step of a built-in table names.
fn listed(name: &str) -> &'static Op {
    op::find(name).expect("invariant: built-in tables name listed ops")
}

fn resolve(name: &str) -> Result<Vec<&'static Op>> {
    if let Ok(o) = op::find(name) {
        return Ok(vec![o]);
    }
    match op::overloads(name.strip_prefix("aten.").unwrap_or(name)) {
        [] => Err(DecomposeError::UnknownOp(name.into())),
        ops => Ok(ops.to_vec()),
    }
}

/// The built-in tables, shallow to deep.
pub fn tables() -> Vec<Table> {
    vec![Table::empty(), Table::semantic(), Table::cpu(), Table::core(), Table::inductor(), Table::prims()]
}

impl std::fmt::Display for Table {
    /// Counts, then what the backend added and removed, then what the levels below it break up.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (broken, kept) = self.counts();
        let mut steps: IndexMap<&str, Vec<(&str, &Entry)>> = IndexMap::new();
        for (name, e) in self.entries() {
            steps.entry(e.step).or_default().push((name, e));
        }
        let counts: Vec<String> = steps.iter().map(|(step, e)| format!("{step} {}", e.len())).collect();
        writeln!(f, "table {}: {}", self.name, self.doc)?;
        writeln!(f, "{broken} overloads broken up, {kept} kept whole")?;
        writeln!(f, "by step: {}", counts.join(", "))?;
        for (step, entries) in steps.iter().rev() {
            writeln!(f, "\n{step}")?;
            for (name, e) in entries {
                let what = if e.decompose { "break" } else { "keep " };
                writeln!(f, "  {what}  {name:<58} {}", e.reason)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(op: &str) -> Vec<String> {
        vec![op.to_string()]
    }

    #[test]
    fn steps_give_their_reasons() {
        let t = Table::cpu();
        let entry = |n: &str| t.entries().find(|(name, _)| *name == n).map(|(_, e)| e.clone());
        let conv = entry("aten.conv2d.default").unwrap();
        assert_eq!((conv.decompose, conv.step), (false, "remove"));
        let norm = entry("aten._native_batch_norm_legit_no_training.default").unwrap();
        assert_eq!((norm.decompose, norm.step), (true, "add"));
        assert!(t.entries().all(|(_, e)| !e.reason.is_empty()));
        assert!(t.to_string().contains("keep   aten.conv2d.default"));
    }

    #[test]
    fn strategic_ops_stay_whole_above_prims() {
        for t in [Table::empty(), Table::core(), Table::cpu()] {
            for name in ["aten.convolution", "aten.mm", "aten.bmm", "aten.addmm"] {
                assert!(!t.decomposes(op::find(name).unwrap()), "{name} in {}", t.name);
            }
        }
    }

    #[test]
    fn amending_says_what_it_cannot_do() {
        let t = Table::empty();
        let e = |d: &[String], k: &[String]| t.clone().amend(d, k).unwrap_err().to_string();
        assert_eq!(e(&wish("hardswosh"), &[]), "unknown op 'hardswosh'; `cleave ops` lists them");
        assert_eq!(e(&wish("aten.mm"), &[]), "op 'aten.mm' has no rule to decompose it by");
        assert_eq!(e(&[], &wish("hardswish")), "table 'empty' keeps 'hardswish' as it is; --keep changes nothing");
        assert_eq!(
            e(&wish("batch_norm"), &[]),
            "table 'empty' breaks up 'batch_norm' as it is; --decompose changes nothing"
        );
        assert!(e(&[], &wish("aten.relu_")).contains("cannot keep it"));
        let amended = t.amend(&wish("hardswish"), &wish("aten.flatten.using_ints")).unwrap();
        assert!(amended.decomposes(op::find("aten.hardswish").unwrap()));
        assert!(!amended.decomposes(op::find("aten.flatten.using_ints").unwrap()));
        assert_eq!(
            Table::named("inductor2").unwrap_err().to_string(),
            "unknown table 'inductor2'; there are: empty, semantic, cpu, core, inductor, prims"
        );
    }
}
