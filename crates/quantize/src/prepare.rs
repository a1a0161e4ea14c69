//! Prepare: batch norm folded, and the values to observe put into groups that have one scale and zero point.

use crate::annotations::{Annotations, Unit, compute_nodes};
use crate::error::Result;
use crate::fold;
use crate::plan::{Plan, PlanRow, Status};
use crate::spec::{Scheme, Spec, SpecId};
use crate::weights::Known;
use cleave_ir::{Class, Graph, NodeId};
use indexmap::IndexMap;

/// A group by its place in [`Prepared::groups`].
pub type GroupId = usize;

/// Values that are quantized by one scale and zero point.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// How.
    pub spec: SpecId,
    /// All values in it.
    pub values: Vec<NodeId>,
    /// Those that are observed while the graph runs. Constants are observed once, and the same elements
    /// under another shape not again.
    pub observed: Vec<NodeId>,
}

/// A graph that is ready for calibration.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The graph, in float, with batch norms folded.
    pub graph: Graph,
    /// Whether quantizing divides by the scale.
    pub divides: bool,
    /// Whether results that no quantized unit reads are left float.
    pub unread_float: bool,
    /// Whether gates are multiplied in fixed point.
    pub fixed_gates: bool,
    /// All specs.
    pub specs: Vec<Spec>,
    /// Units, in terms of [`Prepared::graph`].
    pub units: Vec<Unit>,
    /// Groups of values.
    pub groups: Vec<Group>,
    /// The group of a value under a spec.
    pub sites: IndexMap<(NodeId, SpecId), GroupId>,
    /// Nodes that a selector keeps float, in terms of [`Prepared::graph`].
    pub(crate) excluded: Vec<NodeId>,
    /// Rows of the plan, each with its unit.
    pub(crate) rows: Vec<(PlanRow, Option<usize>)>,
    pub(crate) quantizer: String,
    pub(crate) notes: Vec<String>,
    /// Weights of this graph, and of copies with other biases, that were quantized before.
    pub(crate) known: Known,
}

impl Prepared {
    /// The values that the observers want to see, in topological order.
    pub fn taps(&self) -> Vec<NodeId> {
        let mut taps: Vec<NodeId> = self.groups.iter().flat_map(|g| g.observed.iter().copied()).collect();
        taps.sort();
        taps.dedup();
        taps
    }

    /// Whether anything has to be learnt from data: weights, and activations whose scale is computed as the model
    /// runs, need none.
    pub fn needs_data(&self) -> bool {
        self.groups.iter().any(|g| !g.observed.is_empty())
    }

    /// The plan so far: what is to be quantized, without numbers.
    pub fn plan(&self) -> Plan {
        Plan {
            quantizer: self.quantizer.clone(),
            rows: self.rows.iter().map(|(r, _)| r.clone()).collect(),
            notes: self.notes.clone(),
        }
    }
}

/// Folds batch norms and places observers.
///
/// # Errors
/// None that an annotated graph can cause.
pub fn prepare(g: &Graph, a: &Annotations) -> Result<Prepared> {
    let folded = fold::fold_batch_norms(g);
    let at = |n: NodeId| folded.map[n.index()];
    let mut units: Vec<Unit> = a.units.iter().map(|u| remap(u, &at)).collect();
    for (u, old) in units.iter_mut().zip(&a.units) {
        if folded.into.iter().any(|(_, conv)| old.nodes.contains(conv)) {
            follow_fold(&folded.graph, &a.specs, u);
        }
    }
    let (groups, sites) = group(&folded.graph, &a.specs, &units);
    let excluded = a.floats.iter().filter(|f| f.excluded).map(|f| at(f.node)).collect();
    let rows = rows(g, a, &folded);
    Ok(Prepared {
        graph: folded.graph,
        divides: a.divides,
        unread_float: a.unread_float,
        fixed_gates: a.fixed_gates,
        specs: a.specs.clone(),
        units,
        groups,
        sites,
        excluded,
        rows,
        quantizer: a.quantizer.clone(),
        notes: a.notes.clone(),
        known: Known::default(),
    })
}

pub(crate) fn remap(u: &Unit, at: &dyn Fn(NodeId) -> NodeId) -> Unit {
    let mut u = u.clone();
    u.nodes = u.nodes.iter().map(|n| at(*n)).collect();
    u.nodes.sort();
    u.nodes.dedup();
    (u.root, u.compute) = (at(u.root), at(u.compute));
    for i in &mut u.inputs {
        (i.user, i.value) = (at(i.user), at(i.value));
    }
    u
}

/// After a fold the weight is another constant, and there is a bias where there may have been none.
fn follow_fold(g: &Graph, specs: &[Spec], u: &mut Unit) {
    let node = g.node(u.compute);
    let operand = |name: &str| {
        let slot = node.op()?.schema.index(name)?;
        Some((slot, *node.args.get(slot)?.nodes().first()?))
    };
    for name in ["weight", "bias"] {
        let Some((slot, value)) = operand(name) else { continue };
        match u.inputs.iter_mut().find(|i| i.user == u.compute && i.slot == slot) {
            Some(i) => i.value = value,
            None => {
                let derived = u.captures.iter().find(|(_, s)| matches!(specs[**s].scheme, Scheme::Derived { .. }));
                if let (Some((capture, spec)), "bias") = (derived, name) {
                    u.inputs.push(crate::annotations::Input {
                        capture: capture.clone(),
                        user: u.compute,
                        slot,
                        index: None,
                        value,
                        spec: *spec,
                    });
                }
            }
        }
    }
}

/// Union-find over sites: (value, spec) pairs.
struct Sites {
    index: IndexMap<(NodeId, SpecId), usize>,
    parent: Vec<usize>,
}

impl Sites {
    fn site(&mut self, value: NodeId, spec: SpecId) -> usize {
        let next = self.parent.len();
        let i = *self.index.entry((value, spec)).or_insert(next);
        if i == next {
            self.parent.push(next);
        }
        i
    }

    fn find(&self, mut i: usize) -> usize {
        while self.parent[i] != i {
            i = self.parent[i];
        }
        i
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

/// Groups of sites, and where each site's group is.
type Grouped = (Vec<Group>, IndexMap<(NodeId, SpecId), GroupId>);

/// Sites of the units, joined where a pattern shares them.
pub(crate) fn group(g: &Graph, specs: &[Spec], units: &[Unit]) -> Grouped {
    let mut sites = Sites { index: IndexMap::new(), parent: vec![] };
    let plain =
        |s: SpecId| !specs[s].of_weights() && !matches!(specs[s].scheme, Scheme::Derived { .. } | Scheme::Dynamic(_));
    let mut again = vec![false; g.len()];
    for u in units {
        let mut first: Option<usize> = None;
        let mut shared = |sites: &mut Sites, name: &str, site: usize, spec: SpecId, of: &mut Option<SpecId>| {
            // A value under another spec cannot share: a dq→q pair stands between.
            if !u.share.iter().any(|s| s == name) || *of.get_or_insert(spec) != spec {
                return;
            }
            match first {
                Some(f) => sites.join(f, site),
                None => first = Some(site),
            }
        };
        let mut spec_of = None;
        for i in u.inputs.iter().filter(|i| plain(i.spec)) {
            let site = sites.site(i.value, i.spec);
            shared(&mut sites, &i.capture, site, i.spec, &mut spec_of);
        }
        if let Some(o) = u.output {
            let site = sites.site(u.root, o);
            shared(&mut sites, "output", site, o, &mut spec_of);
            let same_elements = u.share.iter().any(|s| s == "output")
                && g.node(u.compute).op().is_some_and(|op| op.class == Class::View)
                && u.nodes.len() == 1;
            again[u.root.index()] = same_elements && !specs[o].observer.depends_on_order();
        }
    }
    collect(g, specs, &sites, &again)
}

fn collect(g: &Graph, specs: &[Spec], sites: &Sites, again: &[bool]) -> Grouped {
    let mut groups: Vec<Group> = vec![];
    let mut of_root: IndexMap<usize, GroupId> = IndexMap::new();
    let mut where_is = IndexMap::new();
    for (i, (&(value, spec), _)) in sites.index.iter().enumerate() {
        let id = *of_root.entry(sites.find(i)).or_insert_with(|| {
            groups.push(Group { spec, values: vec![], observed: vec![] });
            groups.len() - 1
        });
        groups[id].values.push(value);
        if specs[spec].watched() && g.constant(value).is_none() && !again[value.index()] {
            groups[id].observed.push(value);
        }
        where_is.insert((value, spec), id);
    }
    for group in &mut groups {
        for list in [&mut group.values, &mut group.observed] {
            list.sort();
            list.dedup();
        }
    }
    (groups, where_is)
}

/// Rows of the plan for the compute nodes of the graph that was annotated.
fn rows(g: &Graph, a: &Annotations, folded: &fold::Folded) -> Vec<(PlanRow, Option<usize>)> {
    let row = |id: NodeId| {
        let node = g.node(id);
        let unit = a.units.iter().position(|u| u.nodes.contains(&id));
        let mut row = PlanRow {
            node: node.name.clone(),
            op: node.op().map_or("", |o| o.short()).into(),
            status: if unit.is_some() { Status::Quantized } else { Status::Float },
            pattern: unit.map(|u| a.units[u].pattern.clone()),
            unit: unit.map(|u| g.node(a.units[u].compute).name.clone()),
            qparams: None,
            group: None,
            reason: a.floats.iter().find(|f| f.node == id).map(|f| f.reason.clone()),
            near_misses: a.misses.iter().filter(|(n, _)| *n == id).map(|(_, m)| m.clone()).collect(),
        };
        if let Some((_, conv)) = folded.into.iter().find(|(bn, _)| *bn == id) {
            row.status = Status::Folded;
            row.reason = Some(format!("folded into {}", g.node(*conv).name));
        }
        if let Some((_, why)) = folded.declined.iter().find(|(bn, _)| *bn == id) {
            row.reason = Some(why.clone());
        }
        (row, unit)
    };
    compute_nodes(g).into_iter().map(row).collect()
}
