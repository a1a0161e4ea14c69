//! Drawings as a page of their own.

use super::svg::{escape, image, titles};
use super::{Column, Drawing};
use std::collections::BTreeSet;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
pub fn page(d: &Drawing, title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}: {titles}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header><h1>{title}</h1><label>search <input id=\"search\" type=\"search\" placeholder=\"op or node\" autocomplete=\"off\"></label><output id=\"found\"></output><button id=\"fit\">fit</button></header>\n<main>\n<div id=\"drawing\">\n{}</div>\n<aside>\n{}</aside>\n</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        image(d),
        table(&d.columns),
        title = escape(title),
        titles = escape(&titles(d)),
    )
}

/// How often each stage calls each op, and the difference from the stage before it; ops that differ first.
fn table(columns: &[Column]) -> String {
    let count = |c: &Column, op: &str| c.ops.iter().find(|(o, _)| o == op).map_or(0, |(_, n)| *n as i64);
    let names: BTreeSet<&str> = columns.iter().flat_map(|c| c.ops.iter().map(|(o, _)| o.as_str())).collect();
    let mut rows: Vec<(&str, Vec<i64>)> =
        names.into_iter().map(|op| (op, columns.iter().map(|c| count(c, op)).collect())).collect();
    rows.sort_by_key(|(_, counts)| counts.windows(2).all(|w| w[0] == w[1]));
    let mut out = String::from("<table>\n<thead><tr><th>op</th>");
    for (i, c) in columns.iter().enumerate() {
        out += &format!("<th class=\"n\">{}</th>", escape(&c.title));
        out += if i > 0 { "<th class=\"n\">±</th>" } else { "" };
    }
    out += "</tr></thead>\n<tbody>\n";
    for (op, counts) in rows {
        let base = op.split('.').nth(1).unwrap_or(op);
        out += &format!("<tr data-op=\"{}\"><td>{}</td>", escape(base), escape(op));
        for (i, n) in counts.iter().enumerate() {
            out += &format!("<td class=\"n\">{n}</td>");
            if i > 0 {
                let (class, text) = match n - counts[i - 1] {
                    0 => ("n", String::new()),
                    d if d > 0 => ("n more", format!("+{d}")),
                    d => ("n less", format!("−{}", -d)),
                };
                out += &format!("<td class=\"{class}\">{text}</td>");
            }
        }
        out += "</tr>\n";
    }
    out + "</tbody>\n</table>\n"
}
