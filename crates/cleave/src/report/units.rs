//! What is known of each quantized unit.

use super::levels::Levels;
use crate::pipeline::Quantized;
use crate::sensitivity::Sensitivity;
use cleave_quantize::{PlanRow, Status};
use indexmap::IndexMap;

/// A quantized unit: rows of the plan that belong together.
pub struct Unit<'a> {
    /// Its place in the network, from 1.
    pub place: usize,
    /// The node that does the work, by which it is known.
    pub name: &'a str,
    /// The node whose value is its result.
    pub result: &'a str,
    /// What is said of its nodes, in order.
    pub rows: Vec<&'a PlanRow>,
    /// How its result is quantized, by itself or for its consumers, and the group that it belongs to then.
    pub levels: Option<(Levels, usize)>,
    /// SQNR of its result in the quantized network, in dB; none where that stays float or nothing was checked.
    pub sqnr_db: Option<f64>,
    /// SQNR of the outputs when it alone is quantized, where that was asked for.
    pub alone_db: Option<f64>,
}

impl Unit<'_> {
    /// What it is sorted by: what it alone does to the outputs where that is known, else how far off its own result is.
    fn damage(&self) -> f64 {
        self.alone_db.or(self.sqnr_db).unwrap_or(f64::INFINITY)
    }
}

/// Units in order of the network, and the rows of nodes that are in none.
pub fn units<'a>(q: &'a Quantized, ranking: &[Sensitivity]) -> (Vec<Unit<'a>>, Vec<&'a PlanRow>) {
    let rows = &q.converted.plan.rows;
    let of = |r: &'a PlanRow| r.unit.as_deref().unwrap_or(&r.node);
    let quantized = rows.iter().filter(|r| r.status == Status::Quantized);
    let mut by_unit: IndexMap<&str, Vec<&PlanRow>> = quantized.map(|r| (of(r), vec![])).collect();
    let mut others = vec![];
    for r in rows {
        by_unit.get_mut(of(r)).unwrap_or(&mut others).push(r);
    }
    let p = &q.prepared;
    let levels = |result: &str| {
        let value = p.graph.find(result)?;
        let group =
            |l: &Levels| p.groups.iter().position(|g| g.values.contains(&value) && p.specs[g.spec].range == l.range);
        Levels::of(&q.converted.graph, result).find_map(|l| group(&l).map(|g| (l, g)))
    };
    let name = |n| p.graph.node(n).name.as_str();
    let results: IndexMap<&str, &str> = p.units.iter().map(|u| (name(u.compute), name(u.root))).collect();
    let sqnr: IndexMap<&str, f64> = q.check.worst.iter().map(|(n, s)| (n.as_str(), s.sqnr_db)).collect();
    let alone: IndexMap<&str, f64> = ranking.iter().map(|s| (s.node.as_str(), s.sqnr_db)).collect();
    let units = by_unit.into_iter().enumerate().map(|(i, (name, rows))| {
        let result = results.get(name).copied().unwrap_or(name);
        let (sqnr_db, alone_db) = (sqnr.get(result).copied(), alone.get(name).copied());
        Unit { place: i + 1, name, result, rows, levels: levels(result), sqnr_db, alone_db }
    });
    (units.collect(), others)
}

/// Those that do the most damage first.
pub fn by_damage<'u, 'a>(units: &'u [Unit<'a>]) -> Vec<&'u Unit<'a>> {
    let mut sorted: Vec<&Unit<'a>> = units.iter().collect();
    sorted.sort_by(|a, b| a.damage().total_cmp(&b.damage()));
    sorted
}
