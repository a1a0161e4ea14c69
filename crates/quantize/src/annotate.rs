//! Annotation: patterns in order, each from the latest root backwards; the first match wins.

use crate::annotations::{Annotations, Float, Input, Unit, compute_nodes, is_compute};
use crate::error::{QuantizeError, Result};
use crate::plan::MissRow;
use crate::quantizer::{Override, Quantizer, UnitPattern};
use crate::select::Selection;
use crate::spec::{Scheme, Spec, SpecId};
use cleave_ir::{Arg, Graph, Kind, Meta, Node, NodeId};
use cleave_rewrite::Match;
use indexmap::{IndexMap, IndexSet};

/// A graph while units are claimed in it.
pub struct Annotator<'a> {
    g: &'a Graph,
    specs: Vec<Spec>,
    overrides: &'a [Override],
    selection: &'a Selection,
    /// The unit or float pattern that a node belongs to.
    owner: Vec<Option<String>>,
    excluded: Vec<Option<String>>,
    units: Vec<(Unit, bool)>,
    floats: Vec<Float>,
    misses: Vec<(NodeId, MissRow)>,
    /// Where in the list of specs those of the quantizer at work begin, and its name where it is one of several.
    first_spec: SpecId,
    of: Option<String>,
    /// Whether it takes what those before it leave in float.
    casts: bool,
    conflicts: IndexMap<(String, String), Vec<String>>,
    /// (pattern, root) of units that turned out to have unquantized inputs.
    rejected: &'a IndexSet<(String, NodeId)>,
}

/// Decides what is quantized and how.
///
/// # Errors
/// A quantizer that finds nothing, and a selector that selects nothing.
pub fn annotate(g: &Graph, quantizer: &dyn Quantizer, selection: &Selection) -> Result<Annotations> {
    let mut rejected = IndexSet::new();
    let mut reasons = vec![];
    loop {
        let mut a = Annotator::new(g, quantizer, selection, &rejected);
        quantizer.annotate(&mut a)?;
        a.units.sort_by_key(|(u, _)| u.root);
        let unfed = a.unfed();
        if unfed.is_empty() {
            a.misses.extend(reasons);
            return a.finish(quantizer);
        }
        reasons.extend(unfed.iter().map(|(root, miss)| (*root, miss.clone())));
        rejected.extend(unfed.into_iter().map(|(root, miss)| (miss.pattern, root)));
    }
}

impl<'a> Annotator<'a> {
    fn new(
        g: &'a Graph,
        quantizer: &'a dyn Quantizer,
        selection: &'a Selection,
        rejected: &'a IndexSet<(String, NodeId)>,
    ) -> Annotator<'a> {
        let overrides = quantizer.overrides();
        let excluded = |n: &Node| {
            n.op()?;
            let own = overrides.iter().filter(|o| o.float).map(|o| &o.selector).filter(|s| s.selects(n)).last();
            selection.excludes(n).or(own).map(|s| format!("excluded by '{}'", s.text()))
        };
        Annotator {
            g,
            specs: quantizer.specs().to_vec(),
            overrides,
            selection,
            owner: vec![None; g.len()],
            excluded: g.nodes().map(|(_, n)| excluded(n)).collect(),
            units: vec![],
            floats: vec![],
            misses: vec![],
            first_spec: 0,
            of: None,
            casts: false,
            conflicts: IndexMap::new(),
            rejected,
        }
    }

    /// The graph.
    pub fn graph(&self) -> &'a Graph {
        self.g
    }

    /// Why a node may not become part of a unit: it is in one, or it is excluded.
    ///
    /// # Errors
    /// The reason.
    pub fn admit(&self, id: NodeId) -> std::result::Result<(), String> {
        if let Some(why) = &self.excluded[id.index()] {
            return Err(format!("{} is {why}", self.g.node(id).name));
        }
        match &self.owner[id.index()] {
            Some(o) => Err(format!("{} belongs to a {o}", self.g.node(id).name)),
            None => Ok(()),
        }
    }

    /// Lets one of several quantizers annotate: its specs begin at `first_spec`, its patterns get its name.
    pub(crate) fn within(&mut self, quantizer: &dyn Quantizer, first_spec: SpecId) -> Result<()> {
        let before = (self.first_spec, self.of.replace(quantizer.name().into()), self.casts);
        (self.first_spec, self.casts) = (first_spec, first_spec > 0 && quantizer.only_casts());
        let done = if self.casts { self.cast(quantizer) } else { quantizer.annotate(self) };
        (self.first_spec, self.of, self.casts) = before;
        done
    }

    /// Lets a quantizer take what those before it leave in float, by patterns or because a selector says so: what it
    /// takes is computed in float as well.
    fn cast(&mut self, quantizer: &dyn Quantizer) -> Result<()> {
        self.floats.iter().for_each(|f| self.owner[f.node.index()] = None);
        let none = vec![None; self.g.len()];
        let excluded = std::mem::replace(&mut self.excluded, none);
        let done = quantizer.annotate(self);
        self.excluded = excluded;
        for id in self.g.ids().filter(|id| self.owner[id.index()].is_some()) {
            // What reads floats by choice still does.
            if let Some(reason) = self.excluded[id.index()].clone() {
                self.floats.push(Float { node: id, reason, excluded: true });
            }
        }
        done
    }

    /// A pattern's name as plans have it.
    fn full_name(&self, pattern: &str) -> String {
        self.of.as_ref().map_or(pattern.into(), |q| format!("{q}:{pattern}"))
    }

    /// Notes where a pattern would have taken what another quantizer's unit has.
    fn note_conflict(&mut self, p: &UnitPattern, id: NodeId) {
        let (Some(mine), Some(owner)) = (&self.of, &self.owner[id.index()]) else { return };
        let Some((theirs, _)) = owner.split_once(':').filter(|(q, _)| q != mine) else { return };
        let excluded = |n: NodeId| self.excluded[n.index()].clone().map_or(Ok(()), Err);
        if !self.units.iter().any(|(u, _)| u.root == id) {
            return;
        }
        if p.float.is_none() && p.pattern.match_admitted(self.g, id, &excluded).is_ok() {
            let pair = (theirs.to_string(), mine.clone());
            let names = self.conflicts.entry(pair).or_default();
            if !names.contains(&self.g.node(id).name) {
                names.push(self.g.node(id).name.clone());
            }
        }
    }

    /// Claims all units that a pattern finds among the nodes that are free.
    pub fn apply(&mut self, p: &UnitPattern) {
        for id in self.g.ids().rev() {
            let Some(op) = self.g.node(id).op() else { continue };
            let through = self.g.node(id).args.first().and_then(|a| match a {
                Arg::Node(n) if op.name == "getitem" => self.g.node(*n).op(),
                _ => None,
            });
            if !p.pattern.may_start_at(op) && !through.is_some_and(|o| p.pattern.may_start_at(o)) {
                continue;
            }
            if self.of.is_some() && !self.casts {
                self.note_conflict(p, id);
            }
            let taken = self.owner[id.index()].is_some() || self.rejected.contains(&(self.full_name(&p.name), id));
            if taken || matches!(self.g.node(id).meta, Meta::Tuple(_)) {
                continue;
            }
            match p.pattern.match_admitted(self.g, id, &|n| self.admit(n)) {
                Ok(m) => {
                    if let Err(why) = self.take(p, &m) {
                        self.miss(id, p, "inputs", why, m.nodes.len());
                    }
                }
                Err(miss) if miss.matched > 0 => self.miss(id, p, &miss.step, miss.why, miss.matched),
                Err(_) => {}
            }
        }
    }

    fn miss(&mut self, id: NodeId, p: &UnitPattern, step: &str, why: String, matched: usize) {
        let pattern = self.full_name(&p.name);
        self.misses.push((id, MissRow { pattern, step: step.into(), why, matched }));
    }

    fn take(&mut self, p: &UnitPattern, m: &Match) -> std::result::Result<(), String> {
        if let Some(s) = self.selection.excludes_pattern(&self.full_name(&p.name)) {
            let reason = format!("excluded by '{}'", s.text());
            self.leave_float(m, &p.name, &reason, true);
            return Ok(());
        }
        let full = self.full_name(&p.name);
        let hits: Vec<&Override> =
            self.overrides.iter().filter(|o| o.float && o.selector.selects_pattern(&full)).collect();
        if let Some(o) = hits.first() {
            let reason = format!("excluded by '{}'", o.selector.text());
            self.leave_float(m, &p.name, &reason, true);
            return Ok(());
        }
        if !self.casts {
            self.selection.admits(&self.full_name(&p.name), m.nodes.iter().map(|n| self.g.node(*n)))?;
        }
        if let Some(reason) = &p.float {
            self.leave_float(m, &p.name, reason, false);
            return Ok(());
        }
        let mut inputs = vec![];
        for e in &m.edges {
            let Some(spec) = p.inputs.get(&e.capture).map(|s| self.replaced(*s, p, m)) else { continue };
            let Arg::Node(value) = e.value else { return Err(format!("{} is a number", e.capture)) };
            self.quantizable(value, &e.capture)?;
            let constant = self.g.constant(value).is_some();
            if self.specs[spec].of_weights() && !constant {
                return Err(format!("{} is not a constant", e.capture));
            }
            if matches!(self.specs[spec].scheme, Scheme::Dynamic(_)) && constant {
                return Err(format!("{} is a constant: its range is known before the model runs", e.capture));
            }
            inputs.push(Input { capture: e.capture.clone(), user: e.user, slot: e.slot, index: e.index, value, spec });
        }
        self.quantizable(m.root, "the result")?;
        let weighted = |n: &&NodeId| self.g.node(**n).op().is_some_and(|o| o.weight_axis.is_some());
        let compute = m.nodes.iter().find(weighted).or(m.nodes.first()).copied().unwrap_or(m.root);
        let shared = p.share.iter().find_map(|s| p.inputs.get(s)).map(|s| self.replaced(*s, p, m));
        let output = p.output.map(|s| self.replaced(s, p, m)).or(if p.share.iter().any(|s| s == "output") {
            shared
        } else {
            None
        });
        let unit = Unit {
            pattern: self.full_name(&p.name),
            nodes: m.nodes.clone(),
            root: m.root,
            compute,
            inputs,
            captures: p.inputs.iter().map(|(c, s)| (c.clone(), self.replaced(*s, p, m))).collect(),
            output,
            share: p.share.clone(),
            follows: p.follows,
            unread_float: p.unread_float,
        };
        self.put(unit, p.inherits);
        Ok(())
    }

    /// The spec that overrides of the matched nodes put in place of one.
    fn replaced(&self, spec: SpecId, p: &UnitPattern, m: &Match) -> SpecId {
        let mut spec = spec + self.first_spec;
        let full = self.full_name(&p.name);
        for o in self.overrides.iter().filter(|o| !o.float) {
            let mut nodes = m.nodes.iter().map(|n| self.g.node(*n));
            if o.selector.selects_pattern(&full) || nodes.any(|n| o.selector.selects(n)) {
                spec = o.replace.iter().find(|(from, _)| *from == spec).map_or(spec, |(_, to)| *to);
            }
        }
        spec
    }

    fn quantizable(&self, id: NodeId, what: &str) -> std::result::Result<(), String> {
        match &self.g.node(id).meta {
            Meta::Tensor(t) if t.dtype.is_float() => Ok(()),
            Meta::Tensor(t) => Err(format!("{what} is {}, not floating-point", t.dtype)),
            _ => Err(format!("{what} is not one tensor")),
        }
    }

    /// Claims a unit whose specs are by their place in [`Quantizer::specs`]. With `inherits`, the spec of what it
    /// shares is that of its first shared input's producer.
    ///
    /// # Errors
    /// A node of it that may not be part of a unit (see [`Annotator::admit`]), a spec that does not exist, or a unit
    /// that is not among the only ones to be quantized.
    pub fn claim(&mut self, unit: Unit, inherits: bool) -> std::result::Result<(), String> {
        unit.nodes.iter().try_for_each(|n| self.admit(*n))?;
        let mut unit = unit;
        unit.pattern = self.full_name(&unit.pattern);
        self.selection.admits(&unit.pattern, unit.nodes.iter().map(|n| self.g.node(*n)))?;
        let mut specs: Vec<&mut SpecId> = unit.inputs.iter_mut().map(|i| &mut i.spec).collect();
        specs.extend(unit.captures.values_mut());
        specs.extend(&mut unit.output);
        for s in specs {
            *s += self.first_spec;
            if *s >= self.specs.len() {
                return Err(format!("pattern {}: spec {s} does not exist", unit.pattern));
            }
        }
        self.put(unit, inherits);
        Ok(())
    }

    fn put(&mut self, unit: Unit, inherits: bool) {
        for n in &unit.nodes {
            self.owner[n.index()] = Some(format!("{} unit", unit.pattern));
        }
        self.units.push((unit, inherits));
    }

    fn leave_float(&mut self, m: &Match, pattern: &str, reason: &str, excluded: bool) {
        for n in &m.nodes {
            self.owner[n.index()] = Some(format!("pattern {pattern} that stays float"));
            self.floats.push(Float { node: *n, reason: reason.into(), excluded });
        }
    }

    /// Units that follow others and whose inputs are not all results of quantized units.
    fn unfed(&mut self) -> Vec<(NodeId, MissRow)> {
        let mut fed = vec![false; self.g.len()];
        let mut out = vec![];
        for (u, _) in &self.units {
            let from = |i: &&Input| !fed[i.value.index()] && self.g.constant(i.value).is_none();
            match u.inputs.iter().find(from).filter(|_| u.follows) {
                Some(i) => {
                    let node = self.g.node(i.value);
                    let why = match node.kind {
                        Kind::Placeholder => format!("{} is the input {}", i.capture, node.name),
                        _ => format!("{} comes from {}, which is not quantized", i.capture, node.name),
                    };
                    let (pattern, matched) = (u.pattern.clone(), u.nodes.len());
                    out.push((u.root, MissRow { pattern, step: "inputs".into(), why, matched }));
                }
                None => fed[u.root.index()] = true,
            }
        }
        out
    }

    fn finish(mut self, quantizer: &dyn Quantizer) -> Result<Annotations> {
        self.inherit();
        let compute = compute_nodes(self.g);
        if self.units.is_empty() {
            let best = self.misses.last();
            let hint = best.map(|(n, m)| {
                format!("; at {} pattern {} failed at {}: {}", self.g.node(*n).name, m.pattern, m.step, m.why)
            });
            self.selection.check_used()?;
            return Err(QuantizeError::Nothing {
                quantizer: quantizer.name().into(),
                compute: compute.len(),
                hint: hint.unwrap_or_default(),
            });
        }
        self.selection.check_used()?;
        self.overrides.iter().try_for_each(|o| o.selector.check_used())?;
        let mut floats = std::mem::take(&mut self.floats);
        // What one pattern left in float a later one may have taken.
        let mut taken = vec![false; self.g.len()];
        self.units.iter().flat_map(|(u, _)| &u.nodes).for_each(|n| taken[n.index()] = true);
        floats.retain(|f| is_compute(self.g.node(f.node)) && (f.excluded || !taken[f.node.index()]));
        for id in compute {
            if self.owner[id.index()].is_some() || floats.iter().any(|f| f.node == id) {
                continue;
            }
            let (reason, excluded) = match &self.excluded[id.index()] {
                Some(why) => (why.clone(), true),
                None => (self.why_float(id, quantizer.name()), false),
            };
            let excluded = excluded || !self.selection.only.is_empty();
            floats.push(Float { node: id, reason, excluded });
        }
        floats.sort_by_key(|f| f.node);
        self.misses.retain(|(n, _)| self.owner[n.index()].is_none());
        self.misses.sort_by_key(|(n, _)| *n);
        self.misses.dedup();
        Ok(Annotations {
            quantizer: quantizer.name().into(),
            divides: quantizer.divides(),
            unread_float: quantizer.leaves_unread_float(),
            fixed_gates: quantizer.fixes_gates(),
            specs: self.specs,
            units: self.units.into_iter().map(|(u, _)| u).collect(),
            floats,
            misses: self.misses,
            notes: self
                .conflicts
                .iter()
                .map(|((first, second), nodes)| {
                    let some = nodes.iter().rev().take(3).cloned().collect::<Vec<_>>().join(", ");
                    let more = if nodes.len() > 3 { ", …" } else { "" };
                    format!("conflict: {first} took {} units that {second} would take too ({some}{more})", nodes.len())
                })
                .collect(),
        })
    }

    fn why_float(&self, id: NodeId, quantizer: &str) -> String {
        // The pattern that came furthest tells most; one that matched but for its inputs, or a condition, before others.
        let own = self.misses.iter().filter(|(n, _)| *n == id).map(|(_, m)| m);
        let rank = |m: &&MissRow| (m.step == "inputs", m.matched, m.step.contains('('));
        match own.max_by_key(rank) {
            Some(m) if m.step == "inputs" => m.why.clone(),
            Some(m) => format!("pattern {} failed at {}: {}", m.pattern, m.step, m.why),
            None => {
                let op = self.g.node(id).op().map_or("", |o| o.base());
                format!("no pattern of quantizer {quantizer} takes {op} here")
            }
        }
    }

    /// Gives equal specs one number, and inheriting units the spec of their first shared input's producer.
    fn inherit(&mut self) {
        let canonical: Vec<SpecId> =
            self.specs.iter().map(|s| self.specs.iter().position(|o| o == s).unwrap_or_default()).collect();
        let mut out: Vec<Option<SpecId>> = vec![None; self.g.len()];
        for (u, inherits) in &mut self.units {
            u.inputs.iter_mut().for_each(|i| i.spec = canonical[i.spec]);
            u.captures.values_mut().for_each(|s| *s = canonical[*s]);
            u.output = u.output.map(|o| canonical[o]);
            let shared = u.inputs.iter().filter(|i| u.share.contains(&i.capture));
            let producer = shared.into_iter().find_map(|i| out[i.value.index()]);
            if let (true, Some(spec)) = (*inherits, producer) {
                u.inputs.iter_mut().filter(|i| u.share.contains(&i.capture)).for_each(|i| i.spec = spec);
                u.output = u.output.map(|_| spec);
            }
            out[u.root.index()] = u.output;
        }
    }
}
