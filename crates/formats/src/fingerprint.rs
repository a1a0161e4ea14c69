//! Numbers by which a model or data are known again: XXH3 of what they hold, not of how a file stores it.

use cleave_ir::{Graph, Tensor};
use xxhash_rust::xxh3::Xxh3;

/// The fingerprint of a graph: its text form and the elements of its constants.
pub fn graph(g: &Graph) -> u64 {
    let mut h = Xxh3::new();
    h.update(g.to_string().as_bytes());
    for (name, t) in &g.constants {
        h.update(name.as_bytes());
        tensor(&mut h, t);
    }
    h.digest()
}

/// The fingerprint of tensors.
pub fn tensors<'a>(list: impl IntoIterator<Item = &'a Tensor>) -> u64 {
    let mut h = Xxh3::new();
    list.into_iter().for_each(|t| tensor(&mut h, t));
    h.digest()
}

fn tensor(h: &mut Xxh3, t: &Tensor) {
    h.update(format!("{}{:?}", t.dtype(), t.shape()).as_bytes());
    h.update(&t.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;

    #[test]
    fn every_element_counts() {
        let mut g = text::parse("graph(%x: f32[2]) {\n  %w = param \"w\": f32[2]\n  %add = aten.add.Tensor(%x, %w): f32[2]\n  return %add\n}").unwrap();
        let mut with = |v: [f32; 2]| {
            g.constants.insert("w".into(), Tensor::new(&[2], v.to_vec()));
            graph(&g)
        };
        assert_eq!(with([1.0, 2.0]), with([1.0, 2.0]));
        assert_ne!(with([1.0, 2.0]), with([1.0, -2.0]));
        let (a, b) = (Tensor::new(&[2], vec![1.0f32, 2.0]), Tensor::new(&[1, 2], vec![1.0f32, 2.0]));
        assert_ne!(tensors([&a]), tensors([&b]));
    }
}
