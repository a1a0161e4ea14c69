//! From what is selected to where it stands.

use super::boxes::{self, HEAD_HEIGHT, SMALL_HEIGHT, label_width};
use super::layered::{Cell, layout};
use super::select::Selection;
use super::{Box, Column, Drawing, Edge, Stage};
use crate::sizes::SizeNames;
use crate::summary::Summary;
use crate::text::char_width;
use cleave_ir::Graph;

/// Around the whole and between columns.
const MARGIN: f64 = 16.0;
const BETWEEN: f64 = 40.0;
/// Of the titles.
const HEADER: f64 = 54.0;
/// Between neighbours in a row, and the width kept free for an edge that passes a row.
const GAP: f64 = 14.0;
const LANE: f64 = 12.0;
/// Below a box down to its label, and the label itself.
const STUB: f64 = 5.0;
const LABEL: f64 = SMALL_HEIGHT;
/// Between rows: where edges bend.
const BEND: f64 = 20.0;

/// Heights of one row and of the space below it.
#[derive(Clone, Copy, Default)]
struct Row {
    height: f64,
    bend: f64,
}

pub fn arrange(stages: &[Stage<'_>], selection: &Selection) -> Drawing {
    let mut sizes = SizeNames::new(stages.iter().map(|s| s.graph));
    let mut columns: Vec<Unplaced> =
        (0..stages.len()).map(|s| Unplaced::new(stages, s, selection, &mut sizes)).collect();
    let n = selection.items.iter().map(|i| i.row + 1).max().unwrap_or(0);
    let mut rows = vec![Row { height: 0.0, bend: BEND }; n];
    for c in &columns {
        c.stretch(&mut rows);
    }
    let mut tops = vec![];
    let mut y = MARGIN + HEADER;
    for r in &rows {
        tops.push(y);
        y += r.height + r.bend;
    }
    let height = y - rows.last().map_or(0.0, |r| r.bend) + MARGIN;
    let mut x = MARGIN;
    let mut placed = vec![];
    for (c, stage) in columns.drain(..).zip(stages) {
        let column = c.place(stage, x, &tops, &rows);
        x += column.width + BETWEEN;
        placed.push(column);
    }
    let plain_means = stages.last().map_or("", |s| s.plain_means);
    Drawing { width: x - BETWEEN + MARGIN, height, columns: placed, sizes: sizes.definitions(), plain_means }
}

/// A column whose rows have no height yet.
struct Unplaced {
    boxes: Vec<Box>,
    rows: Vec<usize>,
    edges: Vec<(usize, usize)>,
    x: Vec<f64>,
    bends: Vec<Vec<f64>>,
    width: f64,
}

impl Unplaced {
    fn new(stages: &[Stage<'_>], s: usize, selection: &Selection, sizes: &mut SizeNames) -> Unplaced {
        let stage = &stages[s];
        let mut place = vec![None; selection.items.len()];
        let (mut boxes, mut rows) = (vec![], vec![]);
        for (i, item) in selection.items.iter().enumerate() {
            let members = &item.members[s];
            let Some(first) = members.first() else { continue };
            place[i] = Some(boxes.len());
            boxes.push(match item.mark {
                true => boxes::mark(stage.graph, members, sizes),
                false => boxes::node(stage, s, selection, *first, sizes),
            });
            rows.push(item.row);
        }
        let edges: Vec<_> = selection.edges[s].iter().filter_map(|(a, b)| place[*a].zip(place[*b])).collect();
        let cells: Vec<Cell> =
            boxes.iter().zip(&rows).map(|(b, row)| Cell { row: *row, width: b.width.max(label_width(b)) }).collect();
        let l = layout(&cells, &edges, LANE, GAP);
        Unplaced { boxes, rows, edges, x: l.x, bends: l.bends, width: l.width }
    }

    /// Makes rows high enough for this column's boxes, and the space below them for its slanting edges.
    fn stretch(&self, rows: &mut [Row]) {
        let mut used = vec![false; self.boxes.len()];
        self.edges.iter().for_each(|(from, _)| used[*from] = true);
        for (i, b) in self.boxes.iter().enumerate() {
            let label = if used[i] && b.label.is_some() { STUB + LABEL } else { 0.0 };
            let row = &mut rows[self.rows[i]];
            row.height = row.height.max(b.height + label);
        }
        for (e, bends) in self.edges.iter().zip(&self.bends) {
            let xs: Vec<f64> = [self.x[e.0]].iter().chain(bends).chain([&self.x[e.1]]).copied().collect();
            for (k, step) in xs.windows(2).enumerate() {
                let slant = (step[1] - step[0]).abs();
                let row = &mut rows[self.rows[e.0] + k];
                row.bend = row.bend.max(BEND + (slant / 10.0).min(30.0).round());
            }
        }
    }

    fn place(self, stage: &Stage<'_>, left: f64, tops: &[f64], rows: &[Row]) -> Column {
        let title = &stage.title;
        let subtitle = subtitle(stage.graph);
        let heads = (char_width(title) as f64 * 9.0).max(char_width(&subtitle) as f64 * 6.2);
        let width = self.width.max(heads.ceil());
        let inset = left + ((width - self.width) / 2.0).floor();
        let mut used = vec![false; self.boxes.len()];
        self.edges.iter().for_each(|(from, _)| used[*from] = true);
        let mut boxes = self.boxes;
        for (i, b) in boxes.iter_mut().enumerate() {
            b.x = inset + self.x[i] - b.width / 2.0;
            b.y = tops[self.rows[i]];
            b.label = b.label.take().filter(|_| used[i]);
        }
        let edge = |(&(from, to), bends): (&(usize, usize), &Vec<f64>)| {
            let row = self.rows[from];
            let mut points = vec![
                (inset + self.x[from], boxes[from].y + boxes[from].height),
                (inset + self.x[from], tops[row] + rows[row].height),
            ];
            for (k, x) in bends.iter().enumerate() {
                let at = row + 1 + k;
                points.extend([(inset + x, tops[at]), (inset + x, tops[at] + rows[at].height)]);
            }
            points.push((inset + self.x[to], boxes[to].y));
            Edge { from, to, points }
        };
        let edges = self.edges.iter().zip(&self.bends).map(edge).collect();
        let ops = stage.graph.op_counts().into_iter();
        let ops = ops.map(|(op, n)| (op.strip_suffix(".default").unwrap_or(op).to_string(), n)).collect();
        Column { title: title.clone(), subtitle, x: left, width, boxes, edges, ops }
    }
}

/// How much there is: `18 ops, 46 nodes, 1.242 MMAC at N = 1`.
fn subtitle(g: &Graph) -> String {
    let ops: usize = g.op_counts().values().sum();
    let work = Summary::of(g).work();
    let work = work.map(|w| format!(", {w}")).unwrap_or_default();
    format!("{ops} ops, {} nodes{work}", g.len())
}

/// Where the label of a box stands: its middle, and its upper edge.
pub fn label_at(b: &Box) -> (f64, f64) {
    (b.x + b.width / 2.0, b.y + b.height + STUB)
}

/// Baselines of a box's lines.
pub fn baselines(b: &Box) -> impl Iterator<Item = f64> + '_ {
    let text = HEAD_HEIGHT + (b.lines.len() - 1) as f64 * SMALL_HEIGHT;
    let top = b.y + (b.height - text) / 2.0;
    (0..b.lines.len()).map(move |i| if i == 0 { top + 12.0 } else { top + HEAD_HEIGHT - 3.0 + i as f64 * SMALL_HEIGHT })
}
