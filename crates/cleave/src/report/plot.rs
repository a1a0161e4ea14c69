//! Axes that rows of a table share, and figures in words.

use maud::{Markup, html};

/// Width of a plot in pixels.
pub const WIDTH: f64 = 220.0;
/// Height of a plot in a row.
pub const HEIGHT: f64 = 16.0;

/// Figures of an axis are so many pixels apart.
const APART: f64 = 40.0;

/// How values become places.
#[derive(Clone, Copy)]
enum Bend {
    Linear,
    Log,
    /// Linear near zero and logarithmic beyond this magnitude, on both sides.
    Signed(f64),
}

/// An axis from left to right.
pub struct Axis {
    bend: Bend,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// From one value to another, with a tick every `step`, or without ticks.
    pub fn linear(from: f64, to: f64, step: Option<f64>) -> Axis {
        let ticks = step.map_or(vec![], |s| (0..=((to - from) / s) as usize).map(|i| from + i as f64 * s).collect());
        Axis { bend: Bend::Linear, from, to, ticks }
    }

    /// Over positive values, with a tick at each power of ten.
    pub fn log(values: impl Iterator<Item = f64>) -> Axis {
        let (from, to) = values.filter(|v| *v > 0.0).fold((f64::MAX, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        let (first, last) = if to > 0.0 { (decade(from), decade(to) + 1) } else { (0, 1) };
        let ticks: Vec<f64> = (first..=last).map(|e| 10f64.powi(e)).collect();
        Axis { bend: Bend::Log, from: ticks[0], to: ticks[ticks.len() - 1], ticks }
    }

    /// Over values of either sign: linear up to where the smallest one lies, then logarithmic. At most four decades.
    pub fn signed(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let (from, to) = values.clone().fold((0.0f64, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        let most = to.max(-from);
        let least = values.map(f64::abs).filter(|v| *v > 0.0).fold(most, f64::min);
        if most == 0.0 {
            return Axis::linear(-1.0, 1.0, Some(1.0));
        }
        let (first, last) = (decade(least).max(decade(most) - 4), decade(most));
        let ticks = [0.0].into_iter().chain((first..=last).flat_map(|e| [-(10f64.powi(e)), 10f64.powi(e)]));
        let ticks = ticks.filter(|t| (from..=to).contains(t)).collect();
        Axis { bend: Bend::Signed(10f64.powi(first)), from, to, ticks }
    }

    fn bent(&self, v: f64) -> f64 {
        match self.bend {
            Bend::Linear => v,
            Bend::Log => v.max(self.from).log10(),
            Bend::Signed(unit) => v.signum() * (1.0 + v.abs() / unit).log10(),
        }
    }

    /// Where a value stands, in pixels; what lies outside, at the end.
    pub fn at(&self, v: f64) -> f64 {
        let (from, to) = (self.bent(self.from), self.bent(self.to));
        let share = if to > from { (self.bent(v) - from) / (to - from) } else { 0.5 };
        (share.clamp(0.0, 1.0) * WIDTH * 10.0).round() / 10.0
    }

    /// The ticks' figures, for the head of a column; those that would lie on others are left out.
    pub fn head(&self) -> Markup {
        let mut shown: Vec<f64> = vec![];
        for t in &self.ticks {
            if shown.iter().all(|s| (self.at(*s) - self.at(*t)).abs() >= APART) {
                shown.push(*t);
            }
        }
        let middle = |x: f64| (x > 12.0) as usize + (x > WIDTH - 12.0) as usize;
        html! {
            svg class="plot" width=(WIDTH) height="14" viewBox={ "0 0 " (WIDTH) " 14" } aria-hidden="true" {
                @for t in &shown {
                    text x=(self.at(*t)) y="11" text-anchor=(["start", "middle", "end"][middle(self.at(*t))]) { (figure(*t)) }
                }
            }
        }
    }

    /// A row's plot: marks on the ticks' lines.
    pub fn row(&self, height: f64, marks: Markup) -> Markup {
        html! {
            svg class="plot" width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) } aria-hidden="true" {
                @for t in &self.ticks { (line("tick", self.at(*t), 0.0, height)) }
                (marks)
            }
        }
    }
}

/// The power of ten at or below a positive value.
fn decade(v: f64) -> i32 {
    v.log10().floor() as i32
}

/// A line from one height to another.
pub fn line(class: &str, x: f64, from: f64, to: f64) -> Markup {
    html! { path class=(class) d={ "M" (x) " " (from) "V" (to) } {} }
}

/// A box between two places, however near they are.
pub fn bar(class: &str, from: f64, to: f64, y: f64, height: f64) -> Markup {
    let width = ((to - from).max(1.0) * 10.0).round() / 10.0;
    html! { rect class=(class) x=(from) y=(y) width=(width) height=(height) {} }
}

/// Heads of columns; `>` stands before those of figures.
pub fn heads(names: &[&str]) -> Markup {
    html! {
        @for name in names {
            @match name.strip_prefix('>') {
                Some(name) => th scope="col" class="n" { (name) },
                None => th scope="col" { (name) },
            }
        }
    }
}

/// A number with four digits that count.
pub fn figure(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0".into() } else { v.to_string() };
    }
    let rounded: f64 = format!("{v:.3e}").parse().expect("invariant: a number as it was written");
    if (1e-4..1e6).contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// A range in words.
pub fn range(r: Option<(f64, f64)>) -> String {
    r.map_or("–".into(), |(a, b)| format!("{} … {}", figure(a), figure(b)))
}

/// A share in percent: small ones are not none, and great ones are not all.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p == 0.0 || p == 100.0 => format!("{} %", p.abs()),
        p if p < 0.001 => "< 0.001 %".into(),
        p if p < 1.0 => format!("{p:.3} %"),
        p => format!("{:.1} %", p.min(99.9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let all = [0.0, -0.023_528_9, 6.0, 123_456.0, 1.0e-7, 0.1 + 0.2, 2_000_000.0].map(figure);
        assert_eq!(all, ["0", "-0.02353", "6", "123500", "1e-7", "0.3", "2e6"]);
        assert_eq!(
            [-0.0, 1e-7, 0.0012, 0.5, 0.9999, 1.0].map(percent),
            ["0 %", "< 0.001 %", "0.120 %", "50.0 %", "99.9 %", "100 %"]
        );
    }

    #[test]
    fn axes_reach_from_end_to_end() {
        let a = Axis::linear(0.0, 40.0, Some(10.0));
        assert_eq!([-5.0, 0.0, 10.0, 40.0, f64::INFINITY].map(|v| a.at(v)), [0.0, 0.0, 55.0, WIDTH, WIDTH]);
        let a = Axis::log([0.0, 0.02, 3.0].into_iter());
        assert_eq!((a.ticks.clone(), a.at(0.1), a.at(0.0)), (vec![0.01, 0.1, 1.0, 10.0], 73.3, 0.0));
        let a = Axis::signed([-6.0, 0.0, 60.0].into_iter());
        assert_eq!(a.ticks, [0.0, -1.0, 1.0, 10.0]);
        assert!(a.at(-6.0) == 0.0 && a.at(60.0) == WIDTH && a.at(0.0) < a.at(1.0));
        assert_eq!(Axis::signed([0.0].into_iter()).at(0.0), WIDTH / 2.0);
    }
}
