//! What is remarkable about calibrated values, for the plan's notes.

use crate::calibrate::{Observed, Statistics};
use crate::observe::Observer;
use crate::prepare::Prepared;
use crate::settle::Settled;

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
    for ((group, o), q) in p.groups.iter().zip(observed).zip(&s.qparams) {
        let spec = &p.specs[group.spec];
        let Some(name) = o.values.first().filter(|_| spec.observed()) else { continue };
        let Some((min, max)) = o.observer.extrema() else { continue };
        if o.left_out > 0 {
            notes.push(format!("{name}: {} values that are NaN or infinite were left out of its range", o.left_out));
        }
        if q.is_none() {
            if min == 0.0 && max == 0.0 {
                notes.push(format!("{name} is always 0 in calibration: a dead tensor, left float"));
            } else {
                notes.push(format!("{name} spans [{min}, {max}]: a mask, left float"));
            }
        } else if min == max {
            notes.push(format!("{name} is always {min} in calibration: a constant"));
        } else if let (Some((lo, hi)), Some((from, to))) = (nearly_all(&o.observer), o.observer.range(spec))
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

/// The range of 99.99 % of the values, where that is known of many.
fn nearly_all(o: &Observer) -> Option<(f32, f32)> {
    match o {
        Observer::Histogram(h) if h.count() >= MANY => h.percentile(99.99),
        _ => None,
    }
}
