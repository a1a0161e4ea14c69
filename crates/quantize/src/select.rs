//! Selectors: which nodes a user's option speaks of.

use crate::error::{QuantizeError, Result};
use cleave_ir::Node;
use glob::Pattern;
use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Op,
    Module,
    Node,
    Pattern,
    Any,
}

/// One selector: `op:softmax`, `module:head.*`, `node:conv2d_5`, `pattern:cat`; without a prefix it may be
/// an op, a module path or a node, with `*`, `?` and `[…]` as usual.
#[derive(Clone, Debug)]
pub struct Selector {
    text: String,
    kind: Kind,
    glob: Pattern,
    used: Cell<bool>,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// An unknown prefix, or a glob that is none.
    pub fn parse(text: &str) -> Result<Selector> {
        let fail = |why: String| QuantizeError::Selector { selector: text.into(), why };
        let (kind, body) = match text.split_once(':') {
            None => (Kind::Any, text),
            Some(("op", b)) => (Kind::Op, b),
            Some(("module", b)) => (Kind::Module, b),
            Some(("node", b)) => (Kind::Node, b),
            Some(("pattern", b)) => (Kind::Pattern, b),
            Some((p, _)) => return Err(fail(format!("unknown prefix '{p}': expected op, module, node or pattern"))),
        };
        if body.is_empty() {
            return Err(fail("it is empty".into()));
        }
        if body.contains(['{', '}']) {
            return Err(fail("braces do not stand for alternatives: give a selector for each alternative".into()));
        }
        let glob = Pattern::new(body).map_err(|e| fail(format!("{} at character {}", e.msg, e.pos)))?;
        Ok(Selector { text: text.into(), kind, glob, used: Cell::new(false) })
    }

    /// The selector as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it selects a node, by op, module path or name.
    pub fn selects(&self, node: &Node) -> bool {
        let op = || node.op().is_some_and(|o| [o.base(), o.short(), o.name].iter().any(|n| self.glob.matches(n)));
        let module = || !node.origin.module.is_empty() && self.glob.matches(&node.origin.module);
        let name = || self.glob.matches(&node.name);
        let hit = match self.kind {
            Kind::Op => op(),
            Kind::Module => module(),
            Kind::Node => name(),
            Kind::Pattern => false,
            Kind::Any => op() || module() || name(),
        };
        if hit {
            self.used.set(true);
        }
        hit
    }

    /// Fails if it has selected nothing.
    pub(crate) fn check_used(&self) -> Result<()> {
        if self.used.get() {
            return Ok(());
        }
        Err(QuantizeError::Selector {
            selector: self.text.clone(),
            why: format!(
                "it selects no node of the graph ({}); `cleave explain MODEL` lists them",
                match self.kind {
                    Kind::Op => "ops were compared",
                    Kind::Module => "module paths were compared",
                    Kind::Node => "names of nodes were compared",
                    Kind::Pattern => "patterns that matched were compared",
                    Kind::Any => "ops, module paths and names of nodes were compared",
                }
            ),
        })
    }

    /// Whether it selects what a pattern matched.
    pub(crate) fn selects_pattern(&self, pattern: &str) -> bool {
        // Of several quantizers, a pattern's name has its quantizer's before it.
        let own = pattern.rsplit_once(':').map_or(pattern, |(_, own)| own);
        let hit = self.kind == Kind::Pattern && (self.glob.matches(pattern) || self.glob.matches(own));
        if hit {
            self.used.set(true);
        }
        hit
    }
}

/// What a user takes out of a quantizer's hands.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What stays float.
    pub float: Vec<Selector>,
    /// If there are any: the units that are quantized, and no others.
    pub only: Vec<Selector>,
}

impl Selection {
    /// A selection of what stays float.
    ///
    /// # Errors
    /// The first selector that is none.
    pub fn float<S: AsRef<str>>(selectors: &[S]) -> Result<Selection> {
        Selection::new(selectors, &[])
    }

    /// A selection of what stays float, and of the only units that do not.
    ///
    /// # Errors
    /// The first selector that is none.
    pub fn new<S: AsRef<str>>(float: &[S], only: &[S]) -> Result<Selection> {
        let parse = |l: &[S]| l.iter().map(|s| Selector::parse(s.as_ref())).collect::<Result<_>>();
        Ok(Selection { float: parse(float)?, only: parse(only)? })
    }

    /// Whether units may be claimed here: why not, if `only` speaks of others.
    pub(crate) fn admits<'n>(
        &self,
        pattern: &str,
        nodes: impl Iterator<Item = &'n Node> + Clone,
    ) -> std::result::Result<(), String> {
        let hit = |s: &Selector| {
            let by_node = nodes.clone().filter(|n| s.selects(n)).count() > 0;
            s.selects_pattern(pattern) || by_node
        };
        if self.only.is_empty() || self.only.iter().filter(|s| hit(s)).count() > 0 {
            return Ok(());
        }
        let only: Vec<String> = self.only.iter().map(|s| format!("'{}'", s.text())).collect();
        Err(format!("not selected: only {} is quantized", only.join(", ")))
    }

    /// The selector that keeps a node float.
    pub(crate) fn excludes(&self, node: &Node) -> Option<&Selector> {
        // Every selector is asked, so that each learns whether it selects anything.
        let hits: Vec<&Selector> = self.float.iter().filter(|s| s.selects(node)).collect();
        hits.first().copied()
    }

    /// The selector that keeps a pattern's matches float.
    pub(crate) fn excludes_pattern(&self, pattern: &str) -> Option<&Selector> {
        let hits: Vec<&Selector> = self.float.iter().filter(|s| s.selects_pattern(pattern)).collect();
        hits.first().copied()
    }

    /// Fails if a selector selected nothing.
    pub(crate) fn check_used(&self) -> Result<()> {
        self.float.iter().chain(&self.only).try_for_each(Selector::check_used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;

    #[test]
    fn selectors_speak_of_ops_modules_and_names() {
        let mut g = text::parse("graph(%x: f32[2]) {\n %relu_7 = aten.relu(%x)\n return %relu_7\n}").unwrap();
        let id = g.find("relu_7").unwrap();
        g.set_origin(id, cleave_ir::Origin { sources: vec![], module: "head.act".into() });
        let hit = |s: &str| Selector::parse(s).unwrap().selects(g.node(id));
        assert_eq!(
            [
                "op:relu",
                "op:aten.relu",
                "module:head.*",
                "node:relu_7",
                "relu_?",
                "head*",
                "op:relu_7",
                "module:head",
                "pattern:relu"
            ]
            .map(hit),
            [true, true, true, true, true, true, false, false, false]
        );
        for (text, why) in [("op:[relu", "invalid range pattern"), ("{conv2d,relu}", "a selector for each alternative")]
        {
            assert!(Selector::parse(text).unwrap_err().to_string().contains(why), "{text}");
        }
        assert!(Selector::parse("modul:x").unwrap_err().to_string().contains("unknown prefix 'modul'"));
        let unused = Selection::float(&["op:softmax"]).unwrap();
        assert!(unused.excludes(g.node(id)).is_none());
        assert!(unused.check_used().unwrap_err().to_string().starts_with("selector 'op:softmax': it selects no node"));
    }
}
