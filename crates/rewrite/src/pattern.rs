//! A pattern with its names resolved against the op records.

use crate::error::{NearMiss, PatternError};
use crate::matcher::{self, Match};
use crate::parse::{self, Ast, CallSyntax, Syntax};
use crate::predicate::Predicate;
use cleave_ir::op::{self, Class};
use cleave_ir::{Graph, NodeId, Op};
use indexmap::{IndexMap, IndexSet};

/// Names that a pattern may use in place of an op, each with the ops or classes that it stands for.
pub type Alternatives = IndexMap<String, Vec<String>>;

/// The names of the op classes in patterns.
const CLASSES: [(&str, Class); 11] = [
    ("pointwise", Class::Pointwise),
    ("reduction", Class::Reduction),
    ("view", Class::View),
    ("strategic", Class::Strategic),
    ("pool", Class::Pool),
    ("norm", Class::Norm),
    ("move", Class::Move),
    ("creation", Class::Creation),
    ("quantizing", Class::Quantize),
    ("structural", Class::Structural),
    ("inert", Class::Inert),
];

/// What a resolved part of a pattern matches.
#[derive(Debug)]
pub(crate) enum Pat {
    Any,
    Capture { slot: usize, optional: bool },
    Number(f64),
    None,
    Bool(bool),
    Text(String),
    List { items: Vec<usize>, rest: Option<usize> },
    Call(CallPat),
}

/// A call: which ops it may be and what its arguments must match.
#[derive(Debug)]
pub(crate) struct CallPat {
    pub label: usize,
    pub shown: String,
    pub ops: Vec<&'static Op>,
    pub optional: bool,
    pub chain: bool,
    pub args: Vec<usize>,
    pub attrs: Vec<(String, usize)>,
    pub open: bool,
    pub extras: Option<usize>,
}

/// A pattern, ready to be matched.
#[derive(Debug)]
pub struct Pattern {
    text: String,
    pub(crate) parts: Vec<Pat>,
    pub(crate) root: usize,
    pub(crate) labels: Vec<String>,
    /// Captures of one value.
    pub(crate) captures: Vec<String>,
    /// Captures of lists.
    pub(crate) lists: Vec<String>,
    pub(crate) conditions: Vec<Predicate>,
    any: Alternatives,
}

impl Pattern {
    /// Parses an expression and resolves its names.
    ///
    /// # Errors
    /// Text that is no pattern; an op, class, alternative or attribute that does not exist; with line and column.
    pub fn parse(text: &str, any: &Alternatives) -> Result<Pattern, PatternError> {
        let ast = parse::parse(text)?;
        let mut r = Resolver { text, any, parts: vec![], labels: vec![], captures: vec![], lists: vec![] };
        let root = r.part(&ast)?;
        let called = matches!(r.parts[root], Pat::Call(_));
        if !called {
            return Err(PatternError::at(text, ast.at, "a pattern is the call of an op"));
        }
        if let Some(both) = r.labels.iter().find(|l| r.captures.contains(l) || r.lists.contains(l)) {
            return Err(PatternError::at(text, ast.at, format!("'{both}' names both an op and a capture")));
        }
        let doubled: Vec<String> = (1..r.labels.len())
            .filter(|i| r.labels[..*i].contains(&r.labels[*i]))
            .map(|i| r.labels[i].clone())
            .collect();
        let mut seen = IndexSet::new();
        // A name that stands for two nodes stands for neither: they need labels to be spoken of.
        let labels = r
            .labels
            .into_iter()
            .map(|l| {
                if doubled.contains(&l) { format!("{l} (no. {})", usize::from(!seen.insert(l.clone())) + 1) } else { l }
            })
            .collect();
        Ok(Pattern {
            text: text.into(),
            parts: r.parts,
            root,
            labels,
            captures: r.captures,
            lists: r.lists,
            conditions: vec![],
            any: any.clone(),
        })
    }

    /// The ops that a name means in this pattern: one of its alternatives, a class or an op; none if nothing.
    pub(crate) fn named(&self, name: &str) -> Vec<&'static Op> {
        self.any.get(name).map_or_else(|| named(name), |list| list.iter().flat_map(|n| named(n)).collect())
    }

    /// The pattern with a condition that a match must fulfil besides.
    ///
    /// # Errors
    /// A predicate, label, capture or attribute that does not exist, at line and column of `condition`.
    pub fn with_condition(mut self, condition: &str) -> Result<Pattern, PatternError> {
        let p = Predicate::parse(condition, &self)?;
        self.conditions.push(p);
        Ok(self)
    }

    /// The text that the pattern was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Names of the captured values, lists among them, in order of appearance.
    pub fn captures(&self) -> impl Iterator<Item = &str> {
        self.captures.iter().chain(&self.lists).map(String::as_str)
    }

    /// Whether a capture is one of a list.
    pub fn is_list(&self, capture: &str) -> bool {
        self.lists.iter().any(|l| l == capture)
    }

    /// Labels of the matched calls, given or from the op's name.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(String::as_str)
    }

    /// The ops that a label may stand for.
    pub fn ops(&self, label: &str) -> &[&'static Op] {
        let named = |p: &Pat| matches!(p, Pat::Call(c) if self.labels[c.label] == label);
        match self.parts.iter().find(|p| named(p)) {
            Some(Pat::Call(c)) => &c.ops,
            _ => &[],
        }
    }

    /// Of a match, the nodes that the pattern names by their ops, and not as a link of a chain.
    pub fn named_nodes(&self, m: &Match) -> Vec<NodeId> {
        let named = |p: &Pat| match p {
            Pat::Call(c) if !c.chain => m.node(&self.labels[c.label]),
            _ => None,
        };
        self.parts.iter().filter_map(named).collect()
    }

    /// Whether a match may be rooted at a call of this op.
    pub fn may_start_at(&self, op: &Op) -> bool {
        let mut at = self.root;
        while let Pat::Call(c) = &self.parts[at] {
            if c.ops.contains(&op) {
                return true;
            }
            match c.args.first() {
                Some(inner) if c.optional || c.chain => at = *inner,
                _ => return false,
            }
        }
        false
    }

    /// Matches the pattern with its outermost call at `root`.
    ///
    /// # Errors
    /// How far it got and what failed.
    pub fn match_at(&self, g: &Graph, root: NodeId) -> Result<Match, NearMiss> {
        self.match_admitted(g, root, &|_| Ok(()))
    }

    /// [`Pattern::match_at`] over the nodes that `admit` lets take part; its error says why a node may not.
    ///
    /// # Errors
    /// How far it got and what failed.
    pub fn match_admitted(
        &self,
        g: &Graph,
        root: NodeId,
        admit: &dyn Fn(NodeId) -> Result<(), String>,
    ) -> Result<Match, NearMiss> {
        matcher::run(self, g, root, admit)
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

struct Resolver<'a> {
    text: &'a str,
    any: &'a Alternatives,
    parts: Vec<Pat>,
    labels: Vec<String>,
    captures: Vec<String>,
    lists: Vec<String>,
}

fn intern(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.into());
        names.len() - 1
    })
}

impl Resolver<'_> {
    fn part(&mut self, ast: &Ast) -> Result<usize, PatternError> {
        let p = match &ast.node {
            Syntax::Any => Pat::Any,
            Syntax::None => Pat::None,
            Syntax::Bool(b) => Pat::Bool(*b),
            Syntax::Number(n) => Pat::Number(*n),
            Syntax::Text(s) => Pat::Text(s.clone()),
            Syntax::Capture { name, optional } => {
                Pat::Capture { slot: self.capture(name, ast.at)?, optional: *optional }
            }
            Syntax::List { items, rest } => {
                let items = items.iter().map(|i| self.part(i)).collect::<Result<_, _>>()?;
                let rest = rest.as_ref().map(|r| self.list(r, ast.at)).transpose()?;
                Pat::List { items, rest }
            }
            Syntax::Call(c) => Pat::Call(self.call(c)?),
        };
        self.parts.push(p);
        Ok(self.parts.len() - 1)
    }

    fn capture(&mut self, name: &str, at: usize) -> Result<usize, PatternError> {
        if self.lists.iter().any(|l| l == name) {
            return Err(PatternError::at(self.text, at, format!("'{name}' is a list elsewhere in the pattern")));
        }
        Ok(intern(&mut self.captures, name))
    }

    fn list(&mut self, name: &str, at: usize) -> Result<usize, PatternError> {
        if self.captures.iter().any(|l| l == name) || self.lists.iter().any(|l| l == name) {
            return Err(PatternError::at(self.text, at, format!("'{name}' is captured elsewhere in the pattern")));
        }
        Ok(intern(&mut self.lists, name))
    }

    fn call(&mut self, c: &CallSyntax) -> Result<CallPat, PatternError> {
        let fail = |at, why: String| Err(PatternError::at(self.text, at, why));
        let mut ops: Vec<&'static Op> = vec![];
        for head in std::iter::once(&c.head).chain(&c.others) {
            for name in self.any.get(head).map_or(std::slice::from_ref(head), Vec::as_slice) {
                let found = named(name);
                if found.is_empty() && name == head {
                    return fail(c.head_at, format!("unknown op, class or alternative '{head}'"));
                }
                if found.is_empty() {
                    return fail(c.head_at, format!("unknown op '{name}' in any.{head}"));
                }
                ops.extend(found);
            }
        }
        let wrapped = if c.chain { 1 } else { c.args.len() };
        if ops.iter().all(|o| o.schema.params.len() < wrapped) {
            return fail(c.head_at, format!("{} arguments, but '{}' takes fewer", c.args.len(), c.head));
        }
        if (c.optional || c.chain) && c.args.is_empty() {
            return fail(c.head_at, "an optional call needs what it is called on".into());
        }
        if c.chain && (c.args.len() != 1 || !c.attrs.is_empty() || c.open) {
            return fail(c.head_at, "a chain takes one pattern and a list of extras".into());
        }
        if c.extras.is_some() && !c.chain {
            return fail(c.head_at, "only a chain has extras".into());
        }
        for (at, name, _) in &c.attrs {
            if ops.iter().all(|o| o.schema.index(name).is_none()) {
                return fail(*at, format!("'{}' has no parameter '{name}'", c.head));
            }
        }
        let label = c.label.clone().unwrap_or_else(|| c.head.clone());
        self.labels.push(label);
        let label = self.labels.len() - 1;
        let args = c.args.iter().map(|a| self.part(a)).collect::<Result<_, _>>()?;
        let attrs = c.attrs.iter().map(|(_, n, a)| Ok((n.clone(), self.part(a)?))).collect::<Result<_, _>>()?;
        let extras = c.extras.as_ref().map(|e| self.list(e, c.head_at)).transpose()?;
        Ok(CallPat {
            label,
            shown: std::iter::once(c.head.as_str())
                .chain(c.others.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join("|"),
            ops,
            optional: c.optional,
            chain: c.chain,
            args,
            attrs,
            open: c.open,
            extras,
        })
    }
}

/// The functional ops that a name in a pattern means: a class, a bare name, or a name in full.
pub(crate) fn named(name: &str) -> Vec<&'static Op> {
    if let Some((_, class)) = CLASSES.iter().find(|(n, _)| *n == name) {
        return op::all().filter(|o| o.class == *class && !o.schema.mutates()).collect();
    }
    let mut ops = op::overloads(name).to_vec();
    if ops.is_empty() {
        ops.extend(op::find(name).ok());
    }
    ops.retain(|o| !o.schema.mutates());
    ops
}
