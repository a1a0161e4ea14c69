//! Ways to quantize a graph, and how well each does.

use super::check::{self, Check, Gain};
use super::seen::Seen;
use super::{Samples, Settings};
use crate::error::{Error, Result};
use cleave_quantize::{Converted, Prepared, Statistics, Status};
use cleave_runtime::Session;

/// A way to quantize a graph, and how well it does.
pub(super) struct Attempt {
    /// The float graph that it is measured by.
    pub(super) prepared: Prepared,
    pub(super) converted: Converted,
    pub(super) check: Check,
    /// Whether layers are equalized.
    pub(super) equalized: bool,
    /// What runs it, where it was measured.
    pub(super) session: Option<Session>,
}

impl Attempt {
    /// Converts a graph, `prepared` or that with other biases, and measures the result by `prepared`. Weights that `like`
    /// has packed are not packed again.
    pub(super) fn new(
        prepared: Prepared,
        (graph, like): (Option<&Prepared>, Option<&Session>),
        statistics: &Statistics,
        seen: Option<&Seen>,
        samples: Option<&(impl Samples + ?Sized)>,
        settings: &Settings,
    ) -> Result<Attempt> {
        let converted = cleave_quantize::convert(graph.unwrap_or(&prepared), statistics)?;
        if converted.plan.count(Status::Quantized) == 0 {
            // What a pattern had taken says more than what none did.
            let mut rows = converted.plan.rows.iter().filter(|r| r.reason.is_some()).collect::<Vec<_>>();
            rows.sort_by_key(|r| r.pattern.is_none());
            let first = rows.first().and_then(|r| Some((&r.node, r.reason.as_ref()?)));
            let why = first.map_or(String::new(), |(n, why)| format!("; {n}: {why}"));
            return Err(Error::NothingLeft(why));
        }
        let (Some(seen), Some(samples)) = (seen, samples) else {
            return Ok(Attempt { prepared, converted, check: Check::default(), equalized: false, session: None });
        };
        let mut session = match like {
            Some(like) => like.for_another(&converted.graph)?,
            None => Session::new(&converted.graph, settings.run)?,
        };
        let check = check::outputs(seen, &prepared.graph, &mut session, samples, settings)?;
        Ok(Attempt { prepared, converted, check, equalized: false, session: Some(session) })
    }

    /// With biases corrected, if that is better.
    pub(super) fn corrected(
        self,
        statistics: &Statistics,
        seen: Option<&Seen>,
        samples: Option<&(impl Samples + ?Sized)>,
        settings: &Settings,
    ) -> Result<Attempt> {
        let better = cleave_quantize::correct_biases(&self.prepared, &self.converted.graph, statistics);
        let Some((other, biases)) = better else { return Ok(self) };
        let by = (Some(&other), self.session.as_ref());
        let other = Attempt::new(self.prepared.clone(), by, statistics, seen, samples, settings)?;
        Ok(self.or(other, "bias_correction", biases))
    }

    /// The other, for which this was done, if its outputs are better. Where nothing is checked, what usually helps is
    /// done.
    pub(super) fn or(self, mut other: Attempt, method: &'static str, places: usize) -> Attempt {
        let done = match method {
            "equalization" => "pairs of layers share out the ranges of the channels between them",
            _ => "biases make up for what rounding the weights does on average",
        };
        if self.check.samples == 0 {
            other.converted.plan.notes.push(format!("{method}: {places} {done}"));
            return other;
        }
        let sqnr_db = [self.check.mean_sqnr(), other.check.mean_sqnr()];
        let [was, is] = sqnr_db;
        let kept = is > was;
        let mut best = if kept { other } else { self };
        best.converted.plan.notes.push(match kept {
            true => format!("{method}: {places} {done}; outputs {was:.1} → {is:.1} dB"),
            false => format!("{method} is not used: where {places} {done}, outputs go from {was:.1} to {is:.1} dB"),
        });
        best.check.gains.push(Gain { method: method.into(), places, sqnr_db, kept });
        best
    }
}
