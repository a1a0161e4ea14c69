//! Drawings: what is in them, and that nothing in them lies on anything else.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::draw::{self, Box, Drawing, Options, Stage};
use cleave_decompose::{Table, decompose, raise};
use cleave_ir::{Graph, text};
use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn network(name: &str) -> Graph {
    text::parse(&std::fs::read_to_string(root(&format!("tests/fixtures/graphs/{name}.graph"))).unwrap()).unwrap()
}

fn table(g: &Graph, name: &str) -> Graph {
    decompose(g, &Table::named(name).unwrap()).unwrap()
}

fn drawing(stages: &[(&str, &Graph)], focus: &[&str], hops: usize) -> Drawing {
    let stages: Vec<Stage<'_>> = stages.iter().map(|(title, g)| Stage::new(title, g)).collect();
    let focus = focus.iter().map(|s| (*s).to_string()).collect();
    draw::draw(&stages, &Options { focus, hops }).unwrap()
}

/// export and `empty` of the demo's network, as the README shows them.
fn demo(hops: usize) -> Drawing {
    let export = cleave::demo::model().unwrap();
    let empty = table(&export, "empty");
    drawing(&[("export", &export), ("empty", &empty)], &["conv2d", "batch_norm", "relu"], hops)
}

fn names(boxes: &[Box], which: impl Fn(&Box) -> bool) -> Vec<&str> {
    boxes.iter().filter(|b| which(b)).map(|b| b.name.as_str()).collect()
}

/// Left, upper, right and lower edge.
type Area = [f64; 4];

fn meet(a: &Area, b: &Area) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

/// Boxes lie apart, with their labels; columns lie apart; edges pass no box; all lies inside.
fn check(what: &str, d: &Drawing) {
    let mut before = 0.0;
    for c in &d.columns {
        assert!(c.x >= before, "{what}: {} lies on the column before it", c.title);
        before = c.x + c.width;
        let areas: Vec<Area> = c.boxes.iter().map(area).collect();
        for (i, a) in areas.iter().enumerate() {
            let b = &c.boxes[i];
            assert!(a[0] >= c.x - 0.5 && a[2] <= before + 0.5 && a[3] <= d.height, "{what}: {} lies outside", b.name);
            let other = areas[..i].iter().position(|o| meet(a, o));
            assert!(other.is_none(), "{what}: {} lies on {}", b.name, c.boxes[other.unwrap()].name);
        }
        for e in &c.edges {
            let (from, to) = (&c.boxes[e.from], &c.boxes[e.to]);
            assert_eq!(e.points.last().copied(), Some((to.x + to.width / 2.0, to.y)), "{what}");
            for (k, step) in e.points.windows(2).enumerate() {
                let (a, b) = (step[0], step[1]);
                assert!(a.1 <= b.1, "{what}: an edge from {} leads up", from.name);
                assert!(k % 2 == 1 || a.0 == b.0, "{what}: an edge from {} slants past a row", from.name);
                // A line as wide as a hair; the source's own label lies on its first piece.
                let hair = [a.0.min(b.0) - 0.5, a.1 + 0.1, a.0.max(b.0) + 0.5, b.1 - 0.1];
                let hit = (0..areas.len()).find(|i| meet(&hair, &areas[*i]) && !(k == 0 && *i == e.from));
                assert!(hit.is_none(), "{what}: {} → {} passes {}", from.name, to.name, c.boxes[hit.unwrap()].name);
            }
        }
    }
    assert!(before <= d.width, "{what}");
}

fn area(b: &Box) -> Area {
    // 6 pixels a character, as narrow as monospaced fonts are at this size.
    let label = b.label.as_ref().map_or(0.0, |l| l.chars().count() as f64 * 6.0);
    let width = b.width.max(label);
    let middle = b.x + b.width / 2.0;
    let below = if b.label.is_some() { 18.0 } else { 0.0 };
    [middle - width / 2.0, b.y, middle + width / 2.0, b.y + b.height + below]
}

#[test]
fn stages_stand_side_by_side() {
    let d = demo(0);
    let [export, empty] = d.columns.as_slice() else { panic!("two columns") };
    assert_eq!(names(&export.boxes, |b| b.gone), ["batch_norm", "batch_norm_1", "batch_norm_2", "batch_norm_3"]);
    assert_eq!(names(&export.boxes, |b| b.new), [""; 0]);
    let new = names(&empty.boxes, |b| b.new);
    assert_eq!(new.len(), 8);
    assert_eq!(new[..2], ["_native_batch_norm_legit_no_training", "getitem"]);
    assert_eq!(names(&empty.boxes, |b| b.gone), [""; 0]);
    let marks = names(&export.boxes, Box::is_mark);
    assert_eq!(marks, ["max_pool2d", "add max_pool2d_1", "adaptive_avg_pool2d flatten linear"]);
    assert_eq!(export.boxes.iter().filter(|b| b.focus).count(), 12);
    let relu = export.boxes.iter().find(|b| b.name == "relu").unwrap();
    assert_eq!(relu.label.as_deref(), Some("f32[s77, 16, 28, 28]"));
    for b in export.boxes.iter().filter(|b| !b.gone && !b.is_mark()) {
        let same = empty.boxes.iter().find(|o| o.name == b.name).unwrap();
        assert_eq!(same.y, b.y, "{} is not aligned", b.name);
    }
    let wider = demo(1);
    assert!(names(&wider.columns[0].boxes, |b| !b.is_mark()).contains(&"max_pool2d"));
    assert!(wider.nodes() > d.nodes());
}

#[test]
fn what_a_node_in_focus_was_made_of_is_drawn() {
    let g = text::parse(
        "graph(%x: f32[2, 8]) {\n%a = aten.add.Tensor(%x, 3.0)\n%c = aten.clamp(%a, 0.0, 6.0)\n%m = aten.mul.Tensor(%x, %c)\n%d = aten.div.Tensor(%m, 6.0)\n%r = aten.relu(%d)\nreturn %r\n}",
    )
    .unwrap();
    let mut named = g.clone();
    for id in g.ids() {
        let name = g.node(id).name.clone();
        named.set_origin(id, cleave_ir::Origin { sources: vec![name], module: String::new() });
    }
    let raised = raise(&named).unwrap().0;
    let d = drawing(&[("export", &named), ("raised", &raised)], &["hardswish"], 0);
    assert_eq!(names(&d.columns[0].boxes, |b| b.gone), ["a", "c", "m", "d"]);
    assert_eq!(names(&d.columns[1].boxes, |b| b.new && b.focus), ["hardswish"]);
    check("hardswish", &d);
}

/// Dequantized weights are as constants; dequantized activations are not.
#[test]
fn quantized_weights_stand_in_the_boxes_of_their_users() {
    let model = cleave::demo::model().unwrap();
    let samples = [cleave::demo::calibration(8)];
    let settings = cleave::pipeline::Settings::default();
    let q = cleave::pipeline::quantize(&model, samples.as_slice(), &settings, &mut |_, _, _| {}).unwrap();
    let g = &q.converted.graph;
    let d = drawing(&[("raised", &q.raised), ("converted", g)], &[], 0);
    let c = &d.columns[1];
    assert!(c.boxes.iter().all(|b| b.op != "dequantize_per_channel"));
    assert!(c.boxes.iter().any(|b| b.op == "dequantize_per_tensor" && b.new));
    let conv = c.boxes.iter().find(|b| b.name == "conv2d").unwrap();
    assert!(conv.lines.contains(&"weight i8[16, 1, 3, 3]".to_string()), "{:?}", conv.lines);
    check("converted", &d);
    let asked = drawing(&[("converted", g)], &["dequantize_per_channel"], 0);
    assert_eq!(asked.boxes().filter(|b| b.focus).count(), 10);
    check("dequantize_per_channel", &asked);
}

#[test]
fn nothing_lies_on_anything_else() {
    check("demo, 0 hops", &demo(0));
    check("demo, 1 hop", &demo(1));
    for name in ["densenet121", "googlenet", "mobilenet_v3_small", "swin_t"] {
        let g = network(name);
        check(name, &drawing(&[("export", &g)], &[], 0));
    }
    let export = network("googlenet");
    let (empty, core) = (table(&export, "empty"), table(&export, "core"));
    let stages = [("export", &export), ("empty", &empty), ("core", &core)];
    check("googlenet, three stages", &drawing(&stages, &[], 0));
    check("googlenet, cat", &drawing(&stages, &["cat"], 2));
}

#[test]
fn a_graph_is_drawn_whole_where_nothing_is_in_focus() {
    let g = network("resnet18");
    let d = drawing(&[("export", &g)], &[], 0);
    let constants = g.nodes().filter(|(_, n)| matches!(n.kind, cleave_ir::Kind::GetAttr(_))).count();
    assert_eq!((d.nodes(), d.boxes().filter(|b| b.is_mark()).count()), (g.len() - constants, 0));
}

#[test]
fn images_are_valid_and_the_same_every_time() {
    let d = demo(1);
    let svg = d.svg();
    assert_eq!(svg, demo(1).svg());
    let doc = roxmltree::Document::parse(&svg).unwrap();
    let with = |class: &str| {
        let nodes = doc.descendants().filter(|n| n.has_attribute("data-name"));
        nodes.filter(|n| n.attribute("class").unwrap().split(' ').any(|c| c == class)).count()
    };
    assert_eq!((with("gone"), with("new"), with("node")), (4, 8, d.boxes().count()));
    let paths = doc.descendants().filter(|n| n.attribute("class") == Some("edge")).count();
    assert_eq!(paths, d.columns.iter().map(|c| c.edges.len()).sum::<usize>());
}

#[test]
fn text_from_a_model_is_escaped() {
    let g = text::parse("graph(%x: f32[2, 2]) {\n%w = param \"<w>&\": f32[2, 2]\n%y = aten.mm(%x, %w)\nreturn %y\n}")
        .unwrap();
    let comments = g.ids().map(|id| (id.index() == 2).then(|| "</text><script>&\"\u{1}".to_string())).collect();
    let d = draw::draw(&[Stage::new("<b> & \"c\"", &g).with_comments(comments)], &Options::default()).unwrap();
    for text in [d.svg(), d.html("<title>")] {
        assert!(!text.contains("</text><script>") && !text.contains("<b>") && !text.contains('\u{1}'), "{text}");
        assert!(text.contains("&lt;/text&gt;&lt;script&gt;&amp;"));
    }
    roxmltree::Document::parse(&d.svg()).unwrap();
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let page = demo(1).html("tiny_fashion.pt2");
    let rest = page.replace("http://www.w3.org/2000/svg", "");
    for word in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!rest.contains(word), "{word}");
    }
    assert!(page.contains("<tr data-op=\"batch_norm\"><td>aten.batch_norm</td><td class=\"n\">4</td><td class=\"n\">0</td><td class=\"n less\">−4</td></tr>"));
}

/// The README's image; where this fails rightly, the README's command writes it anew.
#[test]
fn the_image_in_the_readme_is_what_is_drawn() {
    let there = std::fs::read_to_string(root("docs/stages.svg")).unwrap();
    assert!(there == demo(0).svg(), "docs/stages.svg is not what cleave show draws");
}

#[test]
fn stages_without_nodes_are_drawn_too() {
    let g = Graph::default();
    check("nothing", &drawing(&[("empty", &g), ("empty", &g)], &[], 1));
    assert!(draw::draw(&[], &Options::default()).is_err());
}
