//! How quantizing went, as a page that needs nothing besides itself: what was decided, how near the values are, ranges,
//! weights, and the graph. It has no scripts, and shows nothing only where a mouse points. The same inputs give the same
//! bytes.

mod levels;
mod plan;
mod plot;
mod ranges;
mod units;
mod weights;

use crate::draw;
use crate::error::Result;
use crate::pipeline::Quantized;
use crate::provenance::Provenance;
use crate::sensitivity::Sensitivity;
use crate::text::{bytes, decibels, printable};
use cleave_quantize::Status;
use maud::{Markup, PreEscaped, html};
use plot::{figure, heads, percent};
use units::Unit;

const STYLE: &str = include_str!("page.css");
const META: &str = "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width\"/>\n";
/// Drawings of more bytes are left out: a browser has trouble with them, and a reader, too.
const MOST_DRAWN: usize = 2 << 20;

/// What the page is about.
pub struct Report<'a> {
    /// The quantized model.
    pub quantized: &'a Quantized,
    /// How it was made.
    pub provenance: &'a Provenance,
    /// What each unit alone does to the outputs; empty where nobody asked.
    pub sensitivity: &'a [Sensitivity],
    /// What became of it: the file that was written, or why there is none.
    pub outcome: std::result::Result<String, String>,
}

impl Report<'_> {
    /// The page.
    ///
    /// # Errors
    /// Statistics that do not belong to the model.
    pub fn html(&self) -> Result<String> {
        let q = self.quantized;
        let (units, others) = units::units(q, self.sensitivity);
        let checked = q.check.samples > 0;
        let sections = [
            ("outputs", "Outputs", checked.then(|| self.outputs())),
            ("notes", "Notes", (!q.converted.plan.notes.is_empty()).then(|| self.notes())),
            ("plan", "Plan: units by damage", Some(plan::units(&units, checked))),
            ("float", "Left in float", (!others.is_empty()).then(|| plan::floats(&others))),
            ("sqnr", "SQNR along the network", checked.then(|| plan::layers(q, &units))),
            ("ranges", "Ranges and histograms", ranges::table(q)?),
            ("weights", "Channels of the weights", weights::table(&q.prepared)),
            ("graph", "Graph", Some(self.graph(&units)?)),
        ];
        let sections: Vec<_> = sections.into_iter().filter_map(|(id, title, body)| Some((id, title, body?))).collect();
        Ok(self.page(&sections).into_string().chars().map(printable).collect())
    }

    fn page(&self, sections: &[(&str, &str, Markup)]) -> Markup {
        let name = &self.provenance.source.name;
        html! {
            (PreEscaped("<!DOCTYPE html>\n"))
            html lang="en" {
                head {
                    (PreEscaped(META))
                    title { (name) ", quantized" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header { h1 { (name) ", quantized" } (self.summary()) }
                    nav aria-label="Contents" { ul {
                        @for (id, title, _) in sections { li { a href={ "#" (id) } { (title) } } }
                    } }
                    main {
                        @for (id, title, body) in sections {
                            section id=(id) {
                                h2 { (title) }
                                div class="scroll" role="region" aria-label=(title) tabindex="0" { (body) }
                            }
                        }
                    }
                }
            }
        }
    }

    /// The result at a glance, and where it comes from.
    fn summary(&self) -> Markup {
        let (q, p) = (self.quantized, self.provenance);
        let [all, quantized] = p.nodes;
        let float = q.converted.plan.count(Status::Float);
        let c = &p.calibration;
        let skipped = if c.skipped > 0 { format!(", {} left out", c.skipped) } else { String::new() };
        let runs: Vec<String> = c.data.iter().map(|r| format!("{} [{}..{}]", r.data.name, r.from, r.to)).collect();
        let runs = if runs.is_empty() { String::new() } else { format!(" of {}", runs.join(", ")) };
        html! {
            p class="top" { strong { (quantized) " of " (all) " ops quantized" } ", " (float) " left in float" }
            @match q.check.worst_output() {
                Some((name, db)) => p class="top" {
                    "Output " (name) ": " strong { (decibels(db)) }
                    @if q.check.outputs.len() > 1 { ", the worst of " (q.check.outputs.len()) }
                },
                None => p class="top" { "Not checked: float and quantized outputs are compared where there is data." },
            }
            @match &self.outcome {
                Ok(what) => p { (what) },
                Err(why) => p class="failed" { strong { "No model was written: " } (why) },
            }
            dl {
                dt { "made of" } dd { (p.source.name) " " span class="hash" { "SHA-256 " (p.source.sha256) } }
                dt { "by" } dd { (p.tool) ", quantizer " (p.quantizer) }
                @for (option, of) in [("float", &p.float), ("only", &p.only)] {
                    @if !of.is_empty() { dt { "--" (option) } dd { (of.join(" ")) } }
                }
                dt { "calibrated" } dd { @if c.samples > 0 { (c.samples) " samples" (runs) (skipped) } @else { "on nothing" } }
                dt { "checked" } dd { (q.check.samples) " samples" }
            }
        }
    }

    fn outputs(&self) -> Markup {
        let check = &self.quantized.check;
        html! {
            table {
                thead { tr {
                    (heads(&["output", ">SQNR", ">centred SQNR", ">cosine"]))
                    (heads(&[">greatest error", ">error, RMS", ">same greatest element"]))
                } }
                tbody { @for (name, s) in &check.outputs { tr {
                    th scope="row" { (name) }
                    td class="n" { (decibels(s.sqnr_db)) }
                    td class="n" { (decibels(s.centred_sqnr_db)) }
                    td class="n" { (format!("{:.6}", s.cosine)) }
                    td class="n" { (figure(s.max_abs)) }
                    td class="n" { (figure(s.rms)) }
                    td class="n" { (percent(s.top1_agreement)) }
                } } }
            }
            p {
                "SQNR is the ratio of signal to quantization noise, 10·log10(Σa² / Σ(a−b)²) of float values a and quantized \
                 values b; centred, of what varies from sample to sample."
            }
            @if !check.gains.is_empty() {
                table {
                    thead { tr { (heads(&["method", ">places", ">outputs without", ">with", "used"])) } }
                    tbody { @for g in &check.gains { tr {
                        th scope="row" { (g.method.replace('_', " ")) }
                        td class="n" { (g.places) }
                        @for db in g.sqnr_db { td class="n" { (decibels(db)) } }
                        td { (if g.kept { "yes" } else { "no" }) }
                    } } }
                }
            }
        }
    }

    fn notes(&self) -> Markup {
        html! { ul { @for n in &self.quantized.converted.plan.notes { li { (n) } } } }
    }

    /// The float graph as it is calibrated, with what became of each node.
    fn graph(&self, units: &[Unit<'_>]) -> Result<Markup> {
        let g = &self.quantized.prepared.graph;
        let mut comments = vec![None; g.len()];
        for u in units {
            let Some(at) = g.find(u.result) else { continue };
            let pattern = u.rows.iter().find_map(|r| r.pattern.as_deref()).unwrap_or_default();
            let db = u.sqnr_db.map_or(String::new(), |db| format!(": {}", decibels(db)));
            comments[at.index()] = Some(format!("{pattern}{db}"));
        }
        let rows = &self.quantized.converted.plan.rows;
        let float = rows.iter().filter(|r| r.status == Status::Float).filter_map(|r| g.find(&r.node));
        let stage = draw::Stage::new("float", g).with_comments(comments).plain(float, "left in float");
        let svg = draw::draw(&[stage], &draw::Options::default())?.svg();
        Ok(html! {
            @if svg.len() > MOST_DRAWN {
                p {
                    "The drawing would take " (bytes(svg.len() as u64))
                    "; cleave show MODEL --stage prepared -o graph.svg makes it."
                }
            } @else {
                details open="open" {
                    summary {
                        "What is quantized is filled, with its unit's pattern and the SQNR of its result; batch norms are folded"
                    }
                    (PreEscaped(svg))
                }
            }
        })
    }
}
