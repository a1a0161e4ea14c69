//! Drawings as SVG.

use super::scene::{baselines, label_at};
use super::{Box, Column, Drawing, Edge, boxes};
use crate::text::{char_width, flow, printable};
use std::fmt::Write;

const STYLE: &str = "\
.stage{font-family:'DejaVu Sans Mono','SF Mono',Menlo,Consolas,'Liberation Mono',monospace;font-size:10px}
.stage text{text-anchor:middle;fill:#1f2328}
.stage .title{font-size:15px;font-weight:bold}
.stage .head{font-size:12px;font-weight:bold}
.stage .small,.stage .subtitle{fill:#57606a}
.stage .comment{fill:#6639ba}
.stage .legend text,.stage .sizes{text-anchor:start}
.label rect{fill:#fff}
.stage .label text{fill:#57606a}
.box{fill:#fff;stroke:#8c959f;stroke-width:1}
.focus.strategic .box{fill:#cfe2f7}
.focus.pointwise .box{fill:#d6eecf}
.focus.norm .box{fill:#f9e7bd}
.focus.quantize .box{fill:#f6d2d2}
.focus.reduction .box{fill:#e4d9f3}
.focus.other .box{fill:#e9ebee}
.gone .box{stroke:#cf222e;stroke-width:1.6;stroke-dasharray:5 3}
.new .box{stroke:#1a7f37;stroke-width:2.6}
.mark .box{fill:#f6f8fa;stroke:none}
.stage .mark .head{fill:#57606a;font-weight:normal;font-size:11px}
.edge{fill:none;stroke:#8c959f;stroke-width:1.2}
.arrow{fill:#8c959f}
.rule{stroke:#d0d7de;stroke-width:1}
";

/// Above the legend, and between its lines.
const LEGEND_TOP: f64 = 6.0;
const LEGEND_LINE: f64 = 20.0;

/// The whole image.
pub fn image(d: &Drawing) -> String {
    let entries = legend(d);
    let widest = entries.iter().map(|e| e.width()).fold(0.0, f64::max);
    let width = d.width.max(widest + 32.0).ceil();
    let (mut legend, mut below) = legend_at(&entries, width, d.height + LEGEND_TOP);
    let columns = ((width - 32.0) / boxes::SMALL_WIDTH) as usize;
    for text in flow(&d.sizes, columns) {
        let y = number(d.height + LEGEND_TOP + below + 10.0);
        line(&mut legend, &format!("<text class=\"sizes\" x=\"16\" y=\"{y}\">{}</text>", escape(&text)));
        below += 15.0;
    }
    let height = (d.height + LEGEND_TOP + below + 10.0).ceil();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>\n<g class=\"stage\">\n",
        escape(&titles(d)),
        w = number(width),
        h = number(height),
    );
    for (s, c) in d.columns.iter().enumerate() {
        if s > 0 {
            line(&mut out, &format!("<path class=\"rule\" d=\"M{} 16V{}\"/>", number(c.x - 20.0), number(d.height)));
        }
        column(&mut out, s, c);
    }
    out.push_str(&legend);
    out.push_str("</g>\n</svg>\n");
    out
}

/// The stages' titles with an arrow between them.
pub fn titles(d: &Drawing) -> String {
    d.columns.iter().map(|c| c.title.as_str()).collect::<Vec<_>>().join(" → ")
}

fn column(out: &mut String, s: usize, c: &Column) {
    let middle = number(c.x + c.width / 2.0);
    line(out, &format!("<g id=\"stage-{s}\">"));
    line(out, &format!("<text class=\"title\" x=\"{middle}\" y=\"32\">{}</text>", escape(&c.title)));
    line(out, &format!("<text class=\"subtitle\" x=\"{middle}\" y=\"48\">{}</text>", escape(&c.subtitle)));
    for e in &c.edges {
        edge(out, e);
    }
    for b in &c.boxes {
        node(out, b);
    }
    line(out, "</g>");
}

fn edge(out: &mut String, e: &Edge) {
    let Some((&(x, y), rest)) = e.points.split_first() else { return };
    let mut d = format!("M{} {}", number(x), number(y));
    let mut at = (x, y);
    for (i, &(x, y)) in rest.iter().enumerate() {
        // The arrow's head covers the end.
        let y = if i + 1 == rest.len() { y - 4.0 } else { y };
        if x == at.0 {
            write!(d, "V{}", number(y)).expect("invariant: writing to a string");
        } else {
            let middle = number((at.1 + y) / 2.0);
            let (from, to, y) = (number(at.0), number(x), number(y));
            write!(d, "C{from} {middle} {to} {middle} {to} {y}").expect("invariant: writing to a string");
        }
        at = (x, y);
    }
    line(out, &format!("<path class=\"edge\" d=\"{d}\"/>"));
    let (x, y) = (at.0, at.1 + 4.0);
    line(out, &format!("<path class=\"arrow\" d=\"M{} {}l-3.5 -7h7z\"/>", number(x), number(y)));
}

fn node(out: &mut String, b: &Box) {
    let flags = [(b.focus, " focus"), (b.gone, " gone"), (b.new, " new")];
    let classes: String = flags.iter().filter(|(is, _)| *is).map(|(_, c)| *c).collect();
    line(
        out,
        &format!(
            "<g class=\"node {}{classes}\" data-name=\"{}\" data-op=\"{}\"><title>{}</title>",
            b.class,
            escape(&b.name),
            escape(&b.op),
            escape(&b.text)
        ),
    );
    let radius = match b.class {
        "mark" => b.height / 2.0,
        "input" | "output" => 12.0,
        _ => 4.0,
    };
    line(
        out,
        &format!(
            "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
            number(b.x),
            number(b.y),
            number(b.width),
            number(b.height),
            number(radius)
        ),
    );
    let middle = b.x + b.width / 2.0;
    for (i, (text, y)) in b.lines.iter().zip(baselines(b)).enumerate() {
        let class = match i {
            0 => "head",
            i if i >= b.lines.len() - b.comments => "comment",
            _ => "small",
        };
        let (x, y) = (number(middle), number(y));
        line(out, &format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(text)));
    }
    if let Some(text) = &b.label {
        let (x, top) = label_at(b);
        let width = boxes::label_width(b);
        line(
            out,
            &format!(
                "<g class=\"label\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"13\"/><text x=\"{}\" y=\"{}\">{}</text></g>",
                number(x - width / 2.0),
                number(top),
                number(width),
                number(x),
                number(top + 10.0),
                escape(text)
            ),
        );
    }
    line(out, "</g>");
}

/// What a sign means.
struct Entry {
    classes: String,
    text: &'static str,
}

impl Entry {
    fn width(&self) -> f64 {
        28.0 + char_width(self.text) as f64 * boxes::SMALL_WIDTH + 16.0
    }
}

/// The signs that occur.
fn legend(d: &Drawing) -> Vec<Entry> {
    let classes = [
        ("strategic", "convolution, matrix product"),
        ("norm", "normalization, softmax"),
        ("pointwise", "pointwise"),
        ("reduction", "pool, reduction"),
        ("quantize", "quantize, dequantize"),
        ("other", "views, moves and the like"),
    ];
    let mut entries = vec![];
    for (class, text) in classes {
        if d.boxes().any(|b| b.focus && b.class == class) {
            entries.push(Entry { classes: format!("node focus {class}"), text });
        }
    }
    let signs = [
        ("node", d.plain_means, d.boxes().any(|b| !b.focus && !matches!(b.class, "mark" | "input" | "output"))),
        ("node gone", "gone in the next stage", d.boxes().any(|b| b.gone)),
        ("node new", "new in this stage", d.boxes().any(|b| b.new)),
        ("node mark", "⋯ left out", d.boxes().any(Box::is_mark)),
    ];
    let met = signs.into_iter().filter(|s| s.2);
    entries.extend(met.map(|(classes, text, _)| Entry { classes: classes.into(), text }));
    entries
}

/// The legend below the drawing, and its height.
fn legend_at(entries: &[Entry], width: f64, top: f64) -> (String, f64) {
    let mut out = String::from("<g class=\"legend\">\n");
    let (mut x, mut y) = (16.0, top);
    for e in entries {
        if x > 16.0 && x + e.width() > width {
            (x, y) = (16.0, y + LEGEND_LINE);
        }
        line(
            &mut out,
            &format!(
                "<g class=\"{}\"><rect class=\"box\" x=\"{}\" y=\"{}\" width=\"20\" height=\"12\" rx=\"3\"/></g><text x=\"{}\" y=\"{}\">{}</text>",
                e.classes,
                number(x),
                number(y),
                number(x + 26.0),
                number(y + 10.0),
                escape(e.text)
            ),
        );
        x += e.width();
    }
    out.push_str("</g>\n");
    (out, if entries.is_empty() { 0.0 } else { y - top + LEGEND_LINE })
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// With one decimal, or none.
fn number(v: f64) -> String {
    let v = (v * 10.0).round() / 10.0;
    format!("{}", if v == 0.0 { 0.0 } else { v })
}

/// Text for XML: what it reserves as entities, what it does not admit as a replacement character.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(printable(c)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b> & \"c\" 'd'\u{1}"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
        assert_eq!([number(0.04), number(-0.04), number(12.25), number(3.0)], ["0", "0", "12.3", "3"]);
    }
}
