//! Text tables with aligned columns.

/// How a column's cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// To the left: names.
    Left,
    /// To the right: figures.
    Right,
}

/// A table; cells are text, widths are counted in characters.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns: a name that begins with `>` is aligned to the right, without the sign.
    pub fn new(columns: &[&str]) -> Table {
        let head = columns.iter().map(|c| match c.strip_prefix('>') {
            Some(name) => (name.to_string(), Align::Right),
            None => ((*c).to_string(), Align::Left),
        });
        Table { head: head.collect(), rows: vec![] }
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |i: usize| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count());
            cells.chain([self.head[i].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let head: Vec<String> = self.head.iter().map(|h| h.0.clone()).collect();
        let rule: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
        for cells in [&head, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (i, (_, align)) in self.head.iter().enumerate() {
                let cell = cells.get(i).map_or("", String::as_str);
                let pad = " ".repeat(widths[i].saturating_sub(cell.chars().count()));
                line.push_str(if i > 0 { "  " } else { "" });
                match align {
                    Align::Left => line.extend([cell, &pad]),
                    Align::Right => line.extend([&pad, cell]),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut t = Table::new(&["op", ">count"]);
        t.row(["conv2d", "4"]);
        t.row(["añ", "120"]);
        assert_eq!(t.to_string(), "op      count\n──────  ─────\nconv2d      4\nañ        120\n");
    }
}
