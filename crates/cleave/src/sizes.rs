//! Short names for sizes that are long expressions.

use cleave_ir::{Dim, Graph, Meta};
use indexmap::{IndexMap, IndexSet};

/// Letters for expressions, the same for the same one.
#[derive(Clone, Debug, Default)]
pub struct SizeNames {
    symbols: IndexSet<String>,
    names: IndexMap<Dim, String>,
    next: usize,
}

impl SizeNames {
    /// No names yet; none will be that of a symbol of these graphs.
    pub fn new<'a>(graphs: impl IntoIterator<Item = &'a Graph>) -> SizeNames {
        let dims = |g: &'a Graph| g.placeholders().into_iter().flat_map(|p| g.node(p).meta.dims());
        let symbols = |g: &'a Graph| dims(g).flat_map(|d| d.symbols()).chain(g.symbols.keys().cloned());
        SizeNames { symbols: graphs.into_iter().flat_map(symbols).collect(), ..SizeNames::default() }
    }

    /// Type and shape as text: numbers and symbols as they are, a letter for what is longer.
    pub fn meta(&mut self, m: &Meta) -> String {
        match m {
            Meta::None => "none".into(),
            Meta::Int(d) => format!("int<{}>", self.dim(d)),
            Meta::Tuple(items) => match items.split_first() {
                None => "()".into(),
                Some((one, [])) => format!("({})", self.meta(one)),
                Some((one, _)) => format!("({}, …)", self.meta(one)),
            },
            Meta::Tensor(t) => {
                let dims: Vec<String> = t.shape.iter().map(|d| self.dim(d)).collect();
                format!("{}[{}]", t.dtype, dims.join(", "))
            }
        }
    }

    fn dim(&mut self, d: &Dim) -> String {
        let text = d.to_string();
        let room = if d.as_symbol().is_some() { 8 } else { 5 };
        if text.len() <= room {
            return text;
        }
        if let Some(name) = self.names.get(d) {
            return name.clone();
        }
        let name = loop {
            let letter = char::from(b'a' + (self.next % 26) as u8);
            let name = if self.next < 26 { letter.to_string() } else { format!("{letter}{}", self.next / 26) };
            self.next += 1;
            if !self.symbols.contains(&name) {
                break name;
            }
        };
        self.names.insert(d.clone(), name.clone());
        name
    }

    /// What the letters stand for: `a = (h - 1)//(2) + 1`.
    pub fn definitions(&self) -> Vec<String> {
        self.names.iter().map(|(d, name)| format!("{name} = {d}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sizes_have_letters() {
        let g = cleave_ir::text::parse(
            "graph(%x: f32[a, 1, h, 28]) {\n%y = aten.max_pool2d(%x, [3, 3], [2, 2], [1, 1])\nreturn %y\n}",
        )
        .expect("a valid graph");
        let mut names = SizeNames::new([&g]);
        let texts: Vec<String> = g.nodes().take(2).map(|(_, n)| names.meta(&n.meta)).collect();
        assert_eq!(texts, ["f32[a, 1, h, 28]", "f32[a, 1, b, 14]"]);
        assert_eq!(names.definitions().len(), 1);
    }
}
