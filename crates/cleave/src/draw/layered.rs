//! Layered layout (Sugiyama, Tagawa and Toda, 1981) of cells whose rows are given: order in the rows by barycentres,
//! then places across in straight blocks.
//!
//! Rows are not assigned here, so that several graphs can share them.

use indexmap::IndexMap;

/// Sweeps over the rows, down and up in turn; the order with the fewest crossings stays.
const ORDER_SWEEPS: usize = 16;
const PLACE_SWEEPS: usize = 40;

/// A cell to place.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// The row it stands in.
    pub row: usize,
    /// The width that it takes there.
    pub width: f64,
}

/// Where the cells stand.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The middle of each cell.
    pub x: Vec<f64>,
    /// For each edge, where it passes the rows between its ends, from the top.
    pub bends: Vec<Vec<f64>>,
    /// From the left edge of the leftmost cell, which is 0, to the right edge of the rightmost.
    pub width: f64,
}

/// Places cells; edges lead from a cell to one in a lower row. An edge past several rows gets a lane of `lane` in each
/// of them, shared by the edges of one cell; `gap` is between neighbours.
pub fn layout(cells: &[Cell], edges: &[(usize, usize)], lane: f64, gap: f64) -> Layout {
    let mut net = Net::new(cells, edges, lane);
    net.order();
    let x = net.place(gap);
    let left = x.iter().zip(&net.width).map(|(x, w)| x - w / 2.0).fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let at = |i: usize| (x[i] - left).round();
    let bends = edges.iter().map(|e| net.lanes_of(cells, *e).into_iter().map(at).collect()).collect();
    let right = (0..x.len()).map(|i| at(i) + net.width[i] / 2.0).fold(0.0, f64::max);
    Layout { x: (0..cells.len()).map(at).collect(), bends, width: right.ceil() }
}

/// Cells and lanes, joined from row to row.
struct Net {
    width: Vec<f64>,
    /// Cells by their number, then lanes.
    rows: Vec<Vec<usize>>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    /// Lanes by the cell that they come from and the row.
    lanes: IndexMap<(usize, usize), usize>,
    cells: usize,
}

impl Net {
    fn new(cells: &[Cell], edges: &[(usize, usize)], lane: f64) -> Net {
        let height = cells.iter().map(|c| c.row + 1).max().unwrap_or(0);
        let mut net = Net {
            width: cells.iter().map(|c| c.width).collect(),
            rows: vec![vec![]; height],
            above: vec![vec![]; cells.len()],
            below: vec![vec![]; cells.len()],
            lanes: IndexMap::new(),
            cells: cells.len(),
        };
        for (i, c) in cells.iter().enumerate() {
            net.rows[c.row].push(i);
        }
        for &(from, to) in edges {
            let mut last = from;
            for row in cells[from].row + 1..cells[to].row {
                let next = match net.lanes.get(&(from, row)) {
                    Some(l) => *l,
                    None => net.new_lane(from, row, lane),
                };
                net.join(last, next);
                last = next;
            }
            net.join(last, to);
        }
        net
    }

    fn new_lane(&mut self, from: usize, row: usize, width: f64) -> usize {
        let id = self.width.len();
        self.width.push(width);
        self.above.push(vec![]);
        self.below.push(vec![]);
        self.rows[row].push(id);
        self.lanes.insert((from, row), id);
        id
    }

    fn join(&mut self, from: usize, to: usize) {
        if !self.below[from].contains(&to) {
            self.below[from].push(to);
            self.above[to].push(from);
        }
    }

    fn lanes_of(&self, cells: &[Cell], (from, to): (usize, usize)) -> Vec<usize> {
        (cells[from].row + 1..cells[to].row).filter_map(|row| self.lanes.get(&(from, row)).copied()).collect()
    }

    /// Orders the rows.
    fn order(&mut self) {
        let mut place = vec![0; self.width.len()];
        let mut best = (usize::MAX, self.rows.clone());
        for sweep in 0..ORDER_SWEEPS {
            let crossings = self.crossings(&mut place);
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
            if best.0 == 0 {
                break;
            }
            let down = sweep % 2 == 0;
            for k in 1..self.rows.len() {
                let (row, fixed) = if down { (k, k - 1) } else { (self.rows.len() - 1 - k, self.rows.len() - k) };
                for (i, n) in self.rows[fixed].iter().enumerate() {
                    place[*n] = i;
                }
                let near = if down { &self.above } else { &self.below };
                let mut keyed: Vec<(f64, usize)> = self.rows[row]
                    .iter()
                    .enumerate()
                    .map(|(i, n)| (mean(near[*n].iter().map(|m| place[*m] as f64)).unwrap_or(i as f64), *n))
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.rows[row] = keyed.into_iter().map(|(_, n)| n).collect();
            }
        }
        if self.crossings(&mut place) >= best.0 {
            self.rows = best.1;
        }
    }

    fn crossings(&self, place: &mut [usize]) -> usize {
        for row in &self.rows {
            for (i, n) in row.iter().enumerate() {
                place[*n] = i;
            }
        }
        let of_row = |row: &Vec<usize>| {
            let mut ends = vec![];
            for n in row {
                let mut here: Vec<usize> = self.below[*n].iter().map(|m| place[*m]).collect();
                here.sort_unstable();
                ends.extend(here);
            }
            inversions(&ends)
        };
        self.rows.iter().map(of_row).sum()
    }

    /// Places across. Chains are aligned first (as Brandes and Köpf do, 2001): each becomes a block that is straight. The
    /// blocks stand halfway between as far left and as far right as they can, and then each in turn moves to where its
    /// neighbours above and below pull it, as far as there is room.
    fn place(&self, gap: f64) -> Vec<f64> {
        let block = self.blocks();
        let n = block.iter().map(|b| b + 1).max().unwrap_or(0);
        let mut members = vec![vec![]; n];
        block.iter().enumerate().for_each(|(i, b)| members[*b].push(i));
        let mut left_of = vec![None; block.len()];
        let mut right_of = vec![None; block.len()];
        for row in &self.rows {
            for pair in row.windows(2) {
                let apart = (self.width[pair[0]] + self.width[pair[1]]) / 2.0 + gap;
                left_of[pair[1]] = Some((pair[0], apart));
                right_of[pair[0]] = Some((pair[1], apart));
            }
        }
        let left = packed(&block, &members, &left_of);
        let right = packed(&block, &members, &right_of);
        let widest = left.iter().chain(&right).copied().fold(0.0, f64::max);
        let mut x: Vec<f64> = left.iter().zip(&right).map(|(l, r)| (l + widest - r) / 2.0).collect();
        let pull = |a: usize, b: usize| match (a >= self.cells, b >= self.cells) {
            (true, true) => 4.0,
            (false, false) => 1.0,
            _ => 0.5,
        };
        for sweep in 0..PLACE_SWEEPS {
            for k in 0..n {
                let b = if sweep % 2 == 0 { k } else { n - 1 - k };
                let (mut sum, mut weight) = (0.0, 0.0);
                let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
                for &i in &members[b] {
                    for &m in self.above[i].iter().chain(&self.below[i]).filter(|m| block[**m] != b) {
                        sum += pull(i, m) * x[block[m]];
                        weight += pull(i, m);
                    }
                    low = left_of[i].map_or(low, |(l, apart)| low.max(x[block[l]] + apart));
                    high = right_of[i].map_or(high, |(r, apart)| high.min(x[block[r]] - apart));
                }
                if weight > 0.0 && low <= high {
                    x[b] = (sum / weight).clamp(low, high);
                }
            }
        }
        block.iter().map(|b| x[*b]).collect()
    }

    /// The block of each cell and lane: those joined by an edge that is to be straight. Of the edges between two rows,
    /// lanes come first, then what is alone on both sides, then the middle ones; none that cross.
    fn blocks(&self) -> Vec<usize> {
        let mut place = vec![0; self.width.len()];
        for row in &self.rows {
            row.iter().enumerate().for_each(|(i, n)| place[*n] = i);
        }
        // The lane of a cell's one edge is part of a chain; others run beside one.
        let mut beside = vec![false; self.width.len()];
        for (&(from, _), &lane) in &self.lanes {
            beside[lane] = self.below[from].len() > 1;
        }
        let from_middle = |near: &[usize], n: usize| {
            let before = near.iter().filter(|m| place[**m] < place[n]).count();
            before.abs_diff((near.len() - 1) / 2)
        };
        let mut head: Vec<usize> = (0..self.width.len()).collect();
        for row in &self.rows {
            let mut edges: Vec<(u8, usize, usize, usize)> = vec![];
            for (&u, &v) in row.iter().flat_map(|u| self.below[*u].iter().map(move |v| (u, v))) {
                let kind = match (u >= self.cells && v >= self.cells, beside[u] || beside[v]) {
                    (true, _) => 0,
                    (_, true) => 3,
                    _ if self.below[u].len() == 1 && self.above[v].len() == 1 => 1,
                    _ => 2,
                };
                edges.push((kind, from_middle(&self.below[u], v) + from_middle(&self.above[v], u), u, v));
            }
            edges.sort_unstable();
            let mut taken: Vec<(usize, usize)> = vec![];
            for (_, _, u, v) in edges {
                let (a, b) = (place[u], place[v]);
                if !taken.iter().any(|(c, d)| *c == a || *d == b || (*c < a) != (*d < b)) {
                    taken.push((a, b));
                    head[v] = head[u];
                }
            }
        }
        // Numbers without gaps, from the top.
        let mut number = IndexMap::new();
        let in_rows = self.rows.iter().flatten();
        in_rows.for_each(|n| {
            let next = number.len();
            number.entry(head[*n]).or_insert(next);
        });
        head.iter().map(|h| number[h]).collect()
    }
}

/// Blocks as near to one side as what stands between admits: the distance of each from it.
fn packed(block: &[usize], members: &[Vec<usize>], before: &[Option<(usize, f64)>]) -> Vec<f64> {
    let mut behind: Vec<Vec<(usize, f64)>> = vec![vec![]; members.len()];
    let mut waits = vec![0usize; members.len()];
    for (i, near) in before.iter().enumerate() {
        if let Some((near, apart)) = near {
            behind[block[*near]].push((block[i], *apart));
            waits[block[i]] += 1;
        }
    }
    // Straight edges do not cross, so that no block stands on both sides of another.
    let mut ready: Vec<usize> = (0..members.len()).filter(|b| waits[*b] == 0).collect();
    let mut at = vec![0.0f64; members.len()];
    while let Some(b) = ready.pop() {
        for &(next, apart) in &behind[b] {
            at[next] = at[next].max(at[b] + apart);
            waits[next] -= 1;
            if waits[next] == 0 {
                ready.push(next);
            }
        }
    }
    at
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0, 0.0), |(n, s), v| (n + 1, s + v));
    (n > 0).then(|| sum / f64::from(n))
}

/// Pairs that stand the wrong way round.
fn inversions(v: &[usize]) -> usize {
    let n = v.iter().max().map_or(0, |m| m + 1);
    // A Fenwick tree of how often each value was met.
    let mut tree = vec![0usize; n + 1];
    let mut count = 0;
    for (met, &value) in v.iter().enumerate() {
        let mut not_above = 0;
        let mut i = value + 1;
        while i > 0 {
            not_above += tree[i];
            i &= i - 1;
        }
        count += met - not_above;
        let mut i = value + 1;
        while i <= n {
            tree[i] += 1;
            i += i & i.wrapping_neg();
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(rows: &[usize]) -> Vec<Cell> {
        rows.iter().map(|row| Cell { row: *row, width: 40.0 }).collect()
    }

    #[test]
    fn a_chain_is_straight() {
        let l = layout(&cells(&[0, 1, 2]), &[(0, 1), (1, 2)], 8.0, 10.0);
        assert_eq!((l.x, l.width), (vec![20.0; 3], 40.0));
    }

    #[test]
    fn a_long_edge_has_a_straight_lane_beside_the_cells_it_passes() {
        let l = layout(&cells(&[0, 1, 2, 3]), &[(0, 1), (1, 2), (2, 3), (0, 3)], 8.0, 10.0);
        assert_eq!(l.bends[3].len(), 2);
        assert_eq!(l.bends[3][0], l.bends[3][1]);
        assert!((l.bends[3][0] - l.x[1]).abs() >= 34.0, "{l:?}");
    }

    #[test]
    fn crossings_are_undone() {
        let l = layout(&cells(&[0, 0, 1, 1]), &[(0, 3), (1, 2)], 8.0, 10.0);
        assert!((l.x[0] < l.x[1]) == (l.x[3] < l.x[2]), "{l:?}");
        assert_eq!((l.x[0], l.x[1]), (l.x[3], l.x[2]));
    }

    #[test]
    fn inversions_are_counted() {
        assert_eq!(inversions(&[2, 0, 1, 1]), 3);
        assert_eq!(inversions(&[]), 0);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(layout(&[], &[], 8.0, 10.0).width, 0.0);
    }
}
