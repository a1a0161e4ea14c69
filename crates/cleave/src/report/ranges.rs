//! Observed values of each group: extrema beside what is quantized, and histograms.

use super::levels::Levels;
use super::plot::{self, Axis, bar, figure, heads, line, percent};
use crate::error::Result;
use crate::pipeline::Quantized;
use cleave_ir::NodeId;
use cleave_quantize::observe::Observer;
use maud::{Markup, html};
use std::fmt::Write;

/// Columns of a histogram, each 4 pixels wide.
const COLUMNS: usize = 55;
/// Height of a histogram in pixels, and of the figures above it.
const HEIGHT: f64 = 42.0;
const TOP: f64 = 13.0;

/// The values of a group.
struct Range<'a> {
    group: usize,
    names: Vec<&'a str>,
    how: String,
    seen: Option<(f64, f64)>,
    covered: Option<(f64, f64)>,
    /// Between neighbouring levels.
    step: f64,
    /// Middles of the observer's bins, and how many values they hold.
    bins: Vec<(f64, f64)>,
    zeros: Option<f64>,
}

/// The table; none if nothing was observed.
pub fn table(q: &Quantized) -> Result<Option<Markup>> {
    let all = ranges(q)?;
    let axis = Axis::signed(all.iter().flat_map(|r| [r.seen, r.covered]).flatten().flat_map(|(a, b)| [a, b]));
    Ok((!all.is_empty()).then(|| html! {
        p {
            "Values that have one scale together are a group. The thin line reaches from the least to the greatest value \
             that was observed, the bar over what the levels cover; all rows have one axis, linear near 0 and logarithmic \
             beyond. Histograms have an axis each, over both ranges, and logarithmic heights; red lines are the ends of \
             what is covered, and what lies more than half a step beyond is clipped."
        }
        table {
            thead { tr {
                (heads(&["values", "levels", ">observed", ">covered", ">clipped", ">zeros"]))
                th scope="col" { "range" (axis.head()) }
                (heads(&["histogram"]))
            } }
            tbody { @for r in &all { (row(r, &axis)) } }
        }
    }))
}

fn row(r: &Range<'_>, axis: &Axis) -> Markup {
    let share = |n: Option<f64>| n.map_or("–".into(), percent);
    html! {
        tr id={ "group-" (r.group) } {
            th scope="row" { (r.names.join(", ")) }
            td class="how" { (r.how) }
            td class="n" { (plot::range(r.seen)) }
            td class="n" { @if r.covered.is_some() { (plot::range(r.covered)) } @else { "stays float" } }
            td class="n" { (share(r.clipped())) }
            td class="n" { (share(r.zeros)) }
            td { (axis.row(plot::HEIGHT, html! {
                @if let Some((a, b)) = r.covered { (bar("covered", axis.at(a), axis.at(b), 4.0, 8.0)) }
                @if let Some((a, b)) = r.seen { (bar("seen", axis.at(a), axis.at(b), 7.0, 2.0)) }
            })) }
            td { @if r.bins.is_empty() { "the observer keeps the range alone" } @else { (histogram(r)) } }
        }
    }
}

impl Range<'_> {
    /// The share of values that are further from what is covered than rounding takes them, to the observer's bins.
    fn clipped(&self) -> Option<f64> {
        let (from, to) = self.covered.map(|(a, b)| (a - self.step / 2.0, b + self.step / 2.0))?;
        let all: f64 = self.bins.iter().map(|(_, n)| n).sum();
        let outside = self.bins.iter().filter(|(v, _)| *v < from || *v > to);
        (all > 0.0).then(|| outside.map(|(_, n)| n).sum::<f64>() / all)
    }
}

/// Bins put together into columns between the ends of both ranges.
fn histogram(r: &Range<'_>) -> Markup {
    let ends = [r.seen, r.covered].into_iter().flatten();
    let (from, to) = ends.fold((f64::MAX, f64::MIN), |(a, b), (c, d)| (a.min(c), b.max(d)));
    let axis = Axis::linear(from, to, None);
    let mut columns = [0.0f64; COLUMNS];
    for (v, n) in &r.bins {
        columns[((axis.at(*v) / plot::WIDTH * COLUMNS as f64) as usize).min(COLUMNS - 1)] += n;
    }
    let most = columns.iter().fold(1.0f64, |a, b| a.max(*b)).ln_1p();
    let mut d = format!("M0 {HEIGHT}");
    for n in columns {
        let y = (HEIGHT - (HEIGHT - TOP) * n.ln_1p() / most).round();
        write!(d, "V{y}h{}", plot::WIDTH / COLUMNS as f64).expect("invariant: writing to a string");
    }
    axis.row(
        HEIGHT,
        html! {
            path class="bins" d={ (d) "V" (HEIGHT) "z" } {}
            @if let Some((a, b)) = r.covered {
                @for x in [axis.at(a), axis.at(b)] { (line("limit", x.clamp(1.0, plot::WIDTH - 1.0), TOP, HEIGHT)) }
            }
            text x="0" y="10" { (figure(from)) }
            text x=(plot::WIDTH) y="10" text-anchor="end" { (figure(to)) }
        },
    )
}

/// All groups that are observed, or whose levels are given, in order of the network.
fn ranges(q: &Quantized) -> Result<Vec<Range<'_>>> {
    let p = &q.prepared;
    let observed = q.used_statistics().of_groups(p)?;
    let one = |(group, (g, o)): (usize, (&cleave_quantize::Group, cleave_quantize::Observed))| {
        let spec = &p.specs[g.spec];
        let names: Vec<&str> = g.values.iter().map(|v| p.graph.node(*v).name.as_str()).collect();
        let levels = names.iter().find_map(|n| Levels::of(&q.converted.graph, n).find(|l| l.range == spec.range));
        let (covered, step) = levels.map_or((None, 0.0), |l| (Some(l.covered()), l.scale));
        let seen = o.observer.extrema().map(|(a, b)| (f64::from(a), f64::from(b)));
        let bins = bins(&o.observer, seen);
        let all: f64 = bins.iter().map(|(_, n)| n).sum();
        let zeros = match &o.observer {
            Observer::Histogram(h) if all > 0.0 => Some(h.zeros() as f64 / all),
            _ => None,
        };
        let first = g.values.first().map_or(0, |v| NodeId::index(*v));
        (first, Range { group, names, how: spec.describe(), seen, covered, step, bins, zeros })
    };
    let all = p.groups.iter().zip(observed).enumerate().map(one);
    let mut all: Vec<(usize, Range<'_>)> = all.filter(|(_, r)| r.seen.is_some() || r.covered.is_some()).collect();
    all.sort_by_key(|(first, _)| *first);
    Ok(all.into_iter().map(|(_, r)| r).collect())
}

fn bins(o: &Observer, seen: Option<(f64, f64)>) -> Vec<(f64, f64)> {
    let Some((min, max)) = seen else { return vec![] };
    match o {
        Observer::Histogram(h) => {
            // The outermost bins end at the extrema.
            let middle = |i: i32| ((f64::from(i) + 0.5) * h.width()).clamp(min, max);
            (-2048..2048).filter(|i| h.bin(*i) > 0).map(|i| (middle(i), h.bin(i) as f64)).collect()
        }
        Observer::TorchHistogram(h) => {
            let width = (max - min) / h.bins().len() as f64;
            let bins = h.bins().iter().enumerate().filter(|(_, n)| **n > 0.0);
            bins.map(|(i, n)| (min + (i as f64 + 0.5) * width, f64::from(*n))).collect()
        }
        Observer::Minmax(_) | Observer::MovingAverage(_) => vec![],
    }
}
