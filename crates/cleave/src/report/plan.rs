//! The plan: units by the damage they do, what stayed float, and SQNR along the network.

use super::plot::{self, Axis, bar, figure, heads};
use super::units::{Unit, by_damage};
use crate::pipeline::Quantized;
use crate::text::decibels;
use cleave_quantize::{MissRow, PlanRow, Status};
use indexmap::IndexMap;
use maud::{Markup, html};

/// Below this many dB a value has an error of a third of itself; twice as many, of a tenth.
const POOR: f64 = 10.0;
/// Patterns that nearly took a node, of which so many are shown.
const MISSES: usize = 3;
/// Where the axis ends: what is beyond it is as good as exact.
const MOST: f64 = 60.0;

/// Units, those first that do the most damage.
pub fn units(units: &[Unit<'_>], checked: bool) -> Markup {
    let ranked = units.iter().any(|u| u.alone_db.is_some());
    html! {
        p {
            "A row for each unit: ops that are computed as one, without rounding in between. "
            @if checked {
                "SQNR is that of the unit's result in the quantized network, where all before it is quantized, too. "
            }
            @if ranked {
                "Alone is the least SQNR of the outputs when this unit and no other is quantized; by it rows are sorted, worst first."
            } @else if checked {
                "By it rows are sorted, worst first; what each unit alone does to the outputs, --sensitivity finds out."
            } @else {
                "Rows are in order of the network: nothing was checked."
            }
        }
        table id="units" {
            thead { tr {
                (heads(&["unit", ">place", "ops", "pattern"]))
                @if ranked { (heads(&[">alone"])) }
                (heads(&[">SQNR", "levels", ">scale", ">zero point", "remarks"]))
            } }
            tbody { @for u in by_damage(units) { (unit(u, ranked)) } }
        }
    }
}

fn unit(u: &Unit<'_>, ranked: bool) -> Markup {
    let folded = |r: &PlanRow| if r.status == Status::Folded { " (folded)" } else { "" };
    let ops: Vec<String> = u.rows.iter().map(|r| format!("{}{}", op(r), folded(r))).collect();
    html! {
        tr id={ "unit-" (u.place) } {
            th scope="row" { (u.name) }
            td class="n" { (u.place) }
            td { (ops.join(" + ")) }
            td { (u.rows.iter().find_map(|r| r.pattern.as_deref()).unwrap_or("")) }
            @if ranked { (sqnr(u.alone_db)) }
            (sqnr(u.sqnr_db))
            @match &u.levels {
                Some((l, group)) => {
                    td class="levels" { a href={ "#group-" (group) } { (l.range.dtype) "[" (l.range.min) ", " (l.range.max) "]" } }
                    td class="n" { (figure(l.scale)) }
                    td class="n" { (l.zero_point) }
                }
                None => { td { "stays float" } td class="n" { "–" } td class="n" { "–" } }
            }
            td class="why" { @for r in u.rows.iter().filter(|r| r.status != Status::Folded) { (remarks(r, true)) } }
        }
    }
}

/// Nodes in no unit.
pub fn floats(rows: &[&PlanRow]) -> Markup {
    html! {
        table {
            thead { tr { (heads(&["node", "op", "pattern", "why"])) } }
            tbody { @for r in rows { tr {
                th scope="row" { (r.node) }
                td { (op(r)) }
                td { (r.pattern.as_deref().unwrap_or("–")) }
                td class="why" { (remarks(r, false)) }
            } } }
        }
    }
}

fn op(r: &PlanRow) -> &str {
    let op = r.op.strip_prefix("aten.").unwrap_or(&r.op);
    op.strip_suffix(".default").unwrap_or(op)
}

/// Why a node is as it is, and what most nearly took it.
fn remarks(r: &PlanRow, named: bool) -> Markup {
    // The reason may tell of one of them.
    let told = |m: &MissRow| r.reason.as_ref().is_some_and(|why| why.ends_with(&format!("{}: {}", m.step, m.why)));
    let mut misses: Vec<&MissRow> = r.near_misses.iter().filter(|m| !told(m)).collect();
    misses.sort_by_key(|m| std::cmp::Reverse(m.matched));
    let more = misses.len().saturating_sub(MISSES);
    misses.truncate(MISSES);
    html! {
        @if let Some(why) = &r.reason { p { @if named { (r.node) ": " } (why) } }
        @for m in misses { p class="miss" { "nearly " (m.pattern) ", but at " (m.step) ": " (m.why) } }
        @if more > 0 { p class="miss" { (more) " more: cleave explain MODEL " (r.node) } }
    }
}

fn sqnr(db: Option<f64>) -> Markup {
    html! { td class="n" { (db.map_or("–".into(), decibels)) } }
}

/// Every value that is compared, in order of the network, with a bar.
pub fn layers(q: &Quantized, units: &[Unit<'_>]) -> Markup {
    let place = |name: &str| q.prepared.graph.find(name).map(|n| n.index());
    let mut all: Vec<(&str, f64)> = q.check.worst.iter().map(|(n, s)| (n.as_str(), s.sqnr_db)).collect();
    all.sort_by_cached_key(|(name, _)| place(name));
    let of: IndexMap<&str, &Unit<'_>> = units.iter().map(|u| (u.result, u)).collect();
    let most = all.iter().map(|(_, db)| *db).fold(10.0, f64::max).min(MOST);
    let axis = Axis::linear(0.0, (most / 10.0).ceil() * 10.0, Some(10.0));
    let class = |db: f64| {
        if db < POOR {
            "poor"
        } else if db < 2.0 * POOR {
            "fair"
        } else {
            "good"
        }
    };
    html! {
        p {
            "Float values beside quantized ones on " (q.check.samples) " calibration samples, from the inputs down. At 20 dB the error is a tenth \
             of the value, at 40 dB a hundredth. Bars are red below " (POOR) " dB and amber below " (2.0 * POOR) " dB."
        }
        table id="bars" {
            thead { tr { (heads(&["value", "of", ">SQNR"])) th scope="col" { (axis.head()) } } }
            tbody { @for (name, db) in &all { tr {
                th scope="row" { (name) }
                td { @match of.get(name) {
                    Some(u) => a href={ "#unit-" (u.place) } { (u.name) },
                    None => "input or float value",
                } }
                (sqnr(Some(*db)))
                td { (axis.row(plot::HEIGHT, bar(class(*db), 0.0, axis.at(*db), 2.0, 12.0))) }
            } } }
        }
    }
}
