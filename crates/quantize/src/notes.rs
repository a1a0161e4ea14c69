//! What is remarkable about calibrated values, for the plan's notes.

use crate::annotations::Unit;
use crate::calibrate::{Observed, Statistics, overflows};
use crate::observe::Observer;
use crate::prepare::Prepared;
use crate::settle::{self, Settled};
use crate::spec::Scheme;
use cleave_numerics::DType;
use half::f16;

/// An extremum so many times as far from zero as nearly all values is an outlier.
const OUTLIER: f32 = 8.0;
/// How many values it takes to speak of outliers.
const MANY: u64 = 10_000;

/// Notes on samples that were left out, and on values that are dead, constant, not finite or have outliers.
pub(crate) fn notes(p: &Prepared, stats: &Statistics, observed: &[Observed], s: &Settled) -> Vec<String> {
    let mut notes = vec![];
    if stats.skipped > 0 {
        let all = stats.samples + stats.skipped;
        notes.push(format!("{} of {all} calibration samples were left out for NaN or infinities", stats.skipped));
    }
    notes.extend(wide(p, s));
    notes.extend(overflow_note(p, stats));
    for (id, ((group, o), q)) in p.groups.iter().zip(observed).zip(&s.qparams).enumerate() {
        let spec = &p.specs[group.spec];
        let Some(name) = o.values.first().filter(|_| spec.watched()) else { continue };
        let Some((min, max)) = o.observer.extrema() else { continue };
        if o.left_out > 0 {
            notes.push(format!("{name}: {} values that are NaN or infinite were left out of its range", o.left_out));
        }
        if spec.scheme == Scheme::Cast {
            notes.extend(settle::cast(p, id, min, max).err().map(|why| format!("{name} {why}: left in f32")));
        } else if q.is_none() {
            if min == 0.0 && max == 0.0 {
                notes.push(format!("{name} is always 0 in calibration: a dead tensor, left float"));
            } else {
                notes.push(format!("{name} spans [{min}, {max}]: a mask, left float"));
            }
        } else if min == max && spec.observed() {
            notes.push(format!("{name} is always {min} in calibration: a constant"));
        } else if let (Some((lo, hi)), Some((from, to))) = (nearly_all(&o.observer), o.observer.range(spec))
            && spec.observed()
            && max.max(-min) > OUTLIER * hi.max(-lo)
        {
            notes.push(format!(
                "{name} has outliers: it reaches {} where 99.99 % lie within [{lo:.4}, {hi:.4}]; quantized over \
                 [{from:.4}, {to:.4}]",
                if -min > max { min } else { max }
            ));
        }
    }
    notes
}

/// Values that a runtime which computes in half could not hold.
fn overflow_note(p: &Prepared, stats: &Statistics) -> Option<String> {
    let all = overflows(p, stats);
    let each: Vec<String> = all.iter().map(|o| format!("{} ({}) reaches {}", o.node, o.op, o.reach)).collect();
    (!each.is_empty()).then(|| {
        format!(
            "overflow: in calibration {} results exceed {}, the most that f16 holds; they are computed in f32 here, but \
             would overflow in a runtime that computes in f16: {}",
            each.len(),
            f16::MAX,
            each.join(", ")
        )
    })
}

/// Units of 16-bit levels, for which the CPU backend has no integer kernels.
fn wide(p: &Prepared, s: &Settled) -> Option<String> {
    let wide = |u: &&Unit| u.inputs.iter().any(|i| matches!(p.specs[i.spec].range.dtype, DType::I16 | DType::U16));
    let kept = p.units.iter().zip(&s.dropped).filter(|(_, why)| why.is_none()).map(|(u, _)| u);
    let mut names = kept.filter(wide).map(|u| p.graph.node(u.compute).name.as_str());
    let (first, others) = (names.next()?, names.count());
    let all = if others == 0 { first.into() } else { format!("{first} and {others} other units") };
    Some(format!("{all}: the CPU backend dequantizes 16-bit levels and computes in float"))
}

/// The range of 99.99 % of the values, where that is known of many.
fn nearly_all(o: &Observer) -> Option<(f32, f32)> {
    match o {
        Observer::Histogram(h) if h.count() >= MANY => h.percentile(99.99),
        _ => None,
    }
}
