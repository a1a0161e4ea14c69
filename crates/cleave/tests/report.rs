//! The page of `cleave quantize --report`: what it says, and that it needs nothing besides itself.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave::pipeline::{self, Quantized, Settings};
use cleave::provenance::{Provenance, Source};
use cleave::report::Report;
use cleave::sensitivity::{Sensitivity, sensitivity};
use cleave_ir::{Graph, Kind, Tensor, text};
use common::{cleave, error, json};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeSet;
use std::path::Path;

fn quantized(g: &Graph, samples: &[Tensor], quantizer: &str) -> Quantized {
    let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
    pipeline::quantize(g, samples, &settings, &mut |_, _, _| {}).unwrap()
}

fn demo(quantizer: &str) -> Quantized {
    quantized(&cleave::demo::model().unwrap(), &[cleave::demo::calibration(16)], quantizer)
}

fn provenance(q: &Quantized, name: &str) -> Provenance {
    let source = Source { name: name.into(), sha256: "ab".repeat(32), graph: String::new() };
    Provenance::new(source, q, &Settings::default(), vec![])
}

fn page(q: &Quantized, sensitivity: &[Sensitivity]) -> String {
    let report =
        Report { quantized: q, provenance: &provenance(q, "m.onnx"), sensitivity, outcome: Ok("Written".into()) };
    let page = report.html().unwrap();
    assert_eq!(page, report.html().unwrap());
    page
}

/// The page as XML, which holds itself to more than browsers ask for.
fn parsed(page: &str) -> Document<'_> {
    let doc = Document::parse_with_options(page, ParsingOptions { allow_dtd: true, ..Default::default() }).unwrap();
    let mut ids = BTreeSet::new();
    for n in doc.descendants().filter(Node::is_element) {
        assert!(!["script", "link", "img", "iframe"].contains(&n.tag_name().name()));
        assert!(n.attribute("id").is_none_or(|id| ids.insert(id)), "{n:?} has the id of another");
        assert!(n.attributes().all(|a| !a.name().starts_with("on") && !["src", "style"].contains(&a.name())), "{n:?}");
        let heads = n.tag_name().name() != "th" || n.attribute("scope").is_some();
        assert!(heads, "{n:?} says not what it heads");
    }
    let links = doc.descendants().filter_map(|n| n.attribute("href"));
    links.for_each(|l| assert!(l.strip_prefix('#').is_some_and(|id| ids.contains(id)), "{l} leads nowhere"));
    assert!(!page.contains("url(") && !page.contains("@import"));
    assert!(doc.descendants().filter(|n| n.has_tag_name("details")).all(|d| d.attribute("open").is_some()));
    doc
}

fn words(n: Node<'_, '_>) -> String {
    n.descendants().filter(Node::is_text).map(|t| t.text().unwrap()).collect()
}

/// Rows of the first table behind an id, by the heads of its columns.
fn column(doc: &Document<'_>, id: &str, name: &str) -> Vec<String> {
    let at = doc.descendants().find(|n| n.attribute("id") == Some(id)).unwrap();
    let table = at.descendants().find(|n| n.has_tag_name("table")).unwrap();
    let cells = |tr: Node<'_, '_>| tr.children().filter(Node::is_element).map(words).collect::<Vec<_>>();
    let mut rows = table.descendants().filter(|n| n.has_tag_name("tr")).map(cells);
    let place = rows.next().unwrap().iter().position(|h| h == name).unwrap();
    rows.map(|r| r[place].clone()).collect()
}

fn decibels(text: &str) -> f64 {
    text.strip_suffix(" dB").map_or(f64::INFINITY, |n| n.parse().unwrap())
}

#[test]
fn units_are_sorted_by_the_damage_they_do() {
    let q = demo("cpu");
    let text = page(&q, &[]);
    let doc = parsed(&text);
    let sqnr: Vec<f64> = column(&doc, "plan", "SQNR").iter().map(|t| decibels(t)).collect();
    assert!(sqnr.len() == 9 && sqnr.is_sorted() && sqnr[0] < sqnr[7], "{sqnr:?}");
    let name =
        q.check.worst.iter().find(|(n, _)| q.prepared.units.iter().any(|u| q.prepared.graph.node(u.root).name == *n));
    assert_eq!(column(&doc, "plan", "SQNR")[0], format!("{:.1} dB", name.unwrap().1.sqnr_db));
    assert!(column(&doc, "plan", "ops").contains(&"conv2d + batch_norm (folded) + relu".to_string()));

    let samples = [cleave::demo::calibration(4)];
    let ranking = sensitivity(&q, &samples[..], &Settings::default(), &mut |_, _| {}).unwrap();
    let text = page(&q, &ranking);
    let doc = parsed(&text);
    let want: Vec<String> = ranking.iter().map(|s| s.node.clone()).collect();
    assert_eq!(column(&doc, "plan", "unit"), want);
    let want: Vec<String> = ranking.iter().map(|s| format!("{:.1} dB", s.sqnr_db)).collect();
    assert_eq!(column(&doc, "plan", "alone"), want);
}

#[test]
fn bars_are_as_long_as_the_check_says() {
    let q = demo("cpu");
    let text = page(&q, &[]);
    let doc = parsed(&text);
    assert!(text.contains("<strong>18 of 18 ops quantized</strong>, 0 left in float"));
    let output = format!("Output linear: {:.1} dB", q.check.outputs[0].1.sqnr_db);
    assert!(doc.descendants().any(|n| n.has_tag_name("p") && words(n) == output), "{output}");
    let names = column(&doc, "sqnr", "value");
    let place = |n: &String| q.prepared.graph.find(n).unwrap();
    assert!(names.is_sorted_by_key(place) && names.len() == q.check.worst.len(), "{names:?}");
    let bars = doc.descendants().find(|n| n.attribute("id") == Some("sqnr")).unwrap();
    let bars = bars.descendants().filter(|n| n.has_tag_name("rect"));
    let bars: Vec<f64> = bars.map(|n| n.attribute("width").unwrap().parse().unwrap()).collect();
    let most = q.check.worst.iter().map(|(_, s)| s.sqnr_db).fold(0.0, f64::max).min(60.0);
    let end = (most / 10.0).ceil() * 10.0;
    for ((name, figure), width) in names.iter().zip(column(&doc, "sqnr", "SQNR")).zip(bars) {
        let db = q.check.worst.iter().find(|(n, _)| n == name).unwrap().1.sqnr_db;
        assert_eq!(figure, format!("{db:.1} dB"));
        assert!((width - (db / end).min(1.0) * 220.0).abs() <= 0.05, "{name}: {db} dB, {width} pixels");
    }
}

#[test]
fn ranges_are_those_of_observers_and_levels() {
    for (quantizer, histograms) in [("cpu", 7), ("x86", 7), ("xnnpack", 7), ("dynamic", 0)] {
        let q = demo(quantizer);
        let text = page(&q, &[]);
        let doc = parsed(&text);
        if quantizer == "dynamic" {
            assert!(!text.contains("Ranges and histograms"));
            continue;
        }
        let values = column(&doc, "ranges", "values");
        let relu = values.iter().position(|v| v.starts_with("relu,") || v == "relu").unwrap();
        let row = q.converted.plan.row("relu").unwrap().qparams.clone();
        let covered = column(&doc, "ranges", "covered")[relu].clone();
        if let Some(p) = row {
            let end = f64::from(p.qmax - p.zero_point) * f64::from(p.scale);
            let said: f64 = covered.split(" … ").nth(1).unwrap().parse().unwrap();
            assert!((said - end).abs() <= end * 1e-3, "{covered} and {end}");
        }
        assert!(doc.descendants().filter(|n| n.attribute("class") == Some("bins")).count() <= histograms);
        let of_units = column(&doc, "plan", "levels");
        assert!(of_units.iter().filter(|l| l.ends_with(']')).count() >= 6, "{quantizer}: {of_units:?}");
    }
}

#[test]
fn names_are_text_whatever_they_hold() {
    let bad = "<script>alert(1)</script> & \"x\" 'y' \u{1}\u{202e}]]>";
    let mut q = demo("cpu");
    q.converted.plan.notes.push(bad.into());
    q.check.outputs[0].0 = bad.into();
    q.prepared.graph.output_names[0] = bad.into();
    let row = &mut q.converted.plan.rows[17];
    (row.reason, row.status) = (Some(bad.into()), cleave_quantize::Status::Float);
    q.converted.plan.rows[0].pattern = Some(bad.into());
    let mut p = provenance(&q, bad);
    (p.quantizer, p.float) = (bad.into(), vec![bad.into()]);
    let page = Report { quantized: &q, provenance: &p, sensitivity: &[], outcome: Err(bad.into()) }.html().unwrap();
    let doc = parsed(&page);
    let shown = bad.replace('\u{1}', "\u{fffd}");
    let texts = doc.descendants().filter(Node::is_text).filter(|t| t.text().unwrap().contains(&shown)).count();
    assert!(texts >= 10, "{texts}");
}

/// A network of 121 layers, none of which had data before.
#[test]
fn pages_of_large_networks_stay_small() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/graphs/densenet121.graph");
    let mut g = text::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    for id in g.ids() {
        let n = g.node(id);
        if !matches!(n.kind, Kind::GetAttr(_)) {
            continue;
        }
        let (name, meta) = (n.target.clone(), g.tensor_meta(id).unwrap());
        let shape: Vec<usize> = meta.shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let tensor = match meta.dtype.is_float() {
            true => {
                let low = if name.ends_with("running_var") { 0.5 } else { -0.5 };
                let one = |i: usize| (i * 7919 % 1009) as f32 / 1009.0 + low;
                Tensor::new(&shape, (0..shape.iter().product()).map(one).collect())
            }
            false => Tensor::new(&shape, vec![0i64; shape.iter().product()]),
        };
        g.constants.insert(name, tensor);
    }
    let input = g.tensor_meta(g.placeholders()[0]).unwrap().shape.clone();
    let shape: Vec<usize> = input.iter().map(|d| d.as_const().unwrap_or(1) as usize).collect();
    let x = (0..shape.iter().product::<usize>()).map(|i| (i * 31 % 255) as f32 / 127.0 - 1.0).collect();
    let q = quantized(&g, &[Tensor::new(&shape, x)], "cpu");
    let text = page(&q, &[]);
    assert!(parsed(&text).descendants().filter(|n| n.attribute("class") == Some("bins")).count() > 100);
    assert!(text.len() < 3 << 20, "{} bytes", text.len());
}

#[test]
fn the_page_is_written_with_the_model_and_without() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    pipeline::write(&dir.join("tiny.pt2"), &cleave::demo::model().unwrap()).unwrap();
    cleave_formats::npy::write_npy(&dir.join("calib.npy"), &cleave::demo::calibration(8)).unwrap();
    let quantize = ["quantize", "tiny.pt2", "-o", "tiny.clv", "--calib", "calib.npy", "--report"];
    let with = |more: &[&'static str]| [&quantize[..], more].concat();
    let read = || std::fs::read_to_string(dir.join("r.html")).unwrap();
    std::fs::write(dir.join("r.html"), "what stood there before").unwrap();
    assert_eq!(json(dir, &with(&["r.html"]))["report"], "r.html");
    let page = read();
    parsed(&page);
    assert!(page.contains("Written as tiny.clv: ") && page.contains("8 samples of calib.npy [0..8]"));
    json(dir, &with(&["r.html"]));
    assert_eq!(page, read(), "the same bytes");

    std::fs::remove_file(dir.join("tiny.clv")).unwrap();
    let e = error(dir, &with(&["r.html", "--min-sqnr", "200"]));
    assert!(e.contains("no model was written, see r.html: output linear has "), "{e}");
    assert!(!dir.join("tiny.clv").exists());
    let page = read();
    let (_, told) = e.trim_end().split_once("see r.html: ").unwrap();
    let doc = parsed(&page);
    let failed = doc.descendants().find(|n| n.attribute("class") == Some("failed")).unwrap();
    assert_eq!(words(failed), format!("No model was written: {told}"));
    assert_eq!(column(&doc, "plan", "alone").len(), 9, "units alone are judged where outputs are bad");

    for bad in ["-", "r.txt", "html"] {
        let out = cleave(dir, &with(&[bad]));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains("a name that ends in .html"), "{bad}: {said}");
    }
    assert!(error(dir, &with(&["no/folder/r.html"])).contains("no/folder/r.html"));
    assert!(!dir.join("tiny.clv").exists(), "told before the work");
}
