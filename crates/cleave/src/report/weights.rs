//! How far the channels of a weight differ: what one scale for each of them is good for.

use super::plot::{self, Axis, bar, figure, heads, line};
use cleave_ir::{NodeId, Tensor};
use cleave_quantize::{Prepared, Spec};
use indexmap::IndexSet;
use maud::{Markup, html};

/// A channel whose greatest magnitude is so small a part of the median is tiny.
const TINY: f64 = 1e-3;
/// Levels on either side of zero that a channel should reach.
const FEW: f64 = 8.0;
/// Channels that are named.
const NAMED: usize = 12;

/// The weight of a layer.
struct Weight<'a> {
    layer: &'a str,
    how: String,
    /// The greatest magnitude of each output channel.
    reach: Vec<f64>,
    /// The greatest level, where all channels have one scale.
    shared: Option<f64>,
}

/// The table; none if no unit has a weight.
pub fn table(p: &Prepared) -> Option<Markup> {
    let all = weights(p);
    let axis = Axis::log(all.iter().flat_map(|w| w.reach.iter().copied()));
    (!all.is_empty()).then(|| html! {
        p {
            "The greatest magnitude of each output channel of a weight: all of them from the thin line's one end to the \
             other, half of them in the bar, the median at the mark, on one logarithmic axis. The spread is the greatest \
             by the least that is not 0."
        }
        table {
            thead { tr {
                (heads(&["layer", "levels", ">channels", ">least", ">median", ">greatest", ">spread"]))
                th scope="col" { "magnitudes" (axis.head()) }
                (heads(&["remarkable"]))
            } }
            tbody { @for w in &all { (row(w, &axis)) } }
        }
    })
}

fn row(w: &Weight<'_>, axis: &Axis) -> Markup {
    let mut sorted = w.reach.clone();
    sorted.sort_by(f64::total_cmp);
    let of = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    let (least, median, most) = (of(0.0), of(0.5), of(1.0));
    let positive = sorted.iter().find(|v| **v > 0.0);
    let remarks = remarks(w, median, most);
    html! {
        tr {
            th scope="row" { (w.layer) }
            td class="how" { (w.how) }
            td class="n" { (w.reach.len()) }
            @for v in [least, median, most] { td class="n" { (figure(v)) } }
            td class="n" { @if let Some(v) = positive { "× " (figure((most / v * 10.0).round() / 10.0)) } @else { "–" } }
            td { (axis.row(plot::HEIGHT, html! {
                (bar("seen", axis.at(least), axis.at(most), 7.0, 2.0))
                (bar("covered", axis.at(of(0.25)), axis.at(of(0.75)), 4.0, 8.0))
                (line("limit", axis.at(median), 1.0, plot::HEIGHT - 1.0))
            })) }
            td { @for r in &remarks { p class="flag" { (r) } } }
        }
    }
}

/// Channels that have nothing, or next to nothing, to say.
fn remarks(w: &Weight<'_>, median: f64, most: f64) -> Vec<String> {
    let named = |what: String, is: &dyn Fn(f64) -> bool| {
        let found: Vec<String> =
            w.reach.iter().enumerate().filter(|(_, v)| is(**v)).map(|(c, _)| c.to_string()).collect();
        let more = if found.len() > NAMED { ", …" } else { "" };
        let list = found[..found.len().min(NAMED)].join(", ");
        (!found.is_empty()).then(|| format!("{} {what}: {list}{more}", found.len()))
    };
    let tiny = |v: f64| v > 0.0 && v < median * TINY;
    let few = |levels: f64| move |v: f64| v > 0.0 && !tiny(v) && v / most * levels < FEW;
    let flat = w.shared.and_then(|levels| named(format!("reach less than {FEW} of {levels} levels"), &few(levels)));
    let zero = named("of zeros".into(), &|v| v == 0.0);
    [zero, named("below a thousandth of the median".into(), &tiny), flat].into_iter().flatten().collect()
}

/// Weights of units in order, each once.
fn weights(p: &Prepared) -> Vec<Weight<'_>> {
    let mut met: IndexSet<(NodeId, usize)> = IndexSet::new();
    let mut all = vec![];
    for (u, i) in p.units.iter().flat_map(|u| u.inputs.iter().map(move |i| (u, i))) {
        let node = p.graph.node(i.user);
        let axis = node.op().filter(|o| o.schema.index("weight") == Some(i.slot)).and_then(|o| o.weight_axis);
        let (Some(axis), Some(t)) = (axis, p.graph.constant(i.value)) else { continue };
        if !t.is_empty() && axis < t.shape().len() && met.insert((i.value, axis)) {
            let spec: &Spec = &p.specs[i.spec];
            let shared = (!spec.of_weights()).then_some(f64::from(spec.range.max)).filter(|m| *m > 0.0);
            let layer = &p.graph.node(u.compute).name;
            all.push(Weight { layer, how: spec.describe(), reach: reach(t, axis), shared });
        }
    }
    all
}

fn reach(t: &Tensor, axis: usize) -> Vec<f64> {
    let (shape, x) = (t.shape(), t.to_f32());
    let mut most = vec![0.0f32; shape[axis]];
    let inner: usize = shape[axis + 1..].iter().product();
    for (i, row) in x.chunks(inner.max(1)).enumerate() {
        let c = i % shape[axis];
        most[c] = row.iter().fold(most[c], |m, v| m.max(v.abs()));
    }
    most.into_iter().map(f64::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_say_little_are_named() {
        let w = |reach: Vec<f64>, shared| Weight { layer: "conv", how: String::new(), reach, shared };
        let said = |w: &Weight<'_>| remarks(w, 1.0, 2.0);
        let mixed = vec![1.0, 0.0, 2.0, 0.0005, 1.0, 0.02];
        let few = "1 below a thousandth of the median: 3";
        assert_eq!(said(&w(mixed.clone(), None)), ["1 of zeros: 1", few]);
        let flat = "1 reach less than 8 of 127 levels: 5";
        assert_eq!(said(&w(mixed, Some(127.0))), ["1 of zeros: 1", few, flat]);
        assert_eq!(said(&w(vec![0.0; 13], None)), ["13 of zeros: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …"]);
        assert_eq!(reach(&Tensor::new(&[2, 3], vec![1.0f32, -5.0, 0.0, -2.0, 3.0, 0.0]), 1), [2.0, 5.0, 0.0]);
    }
}
