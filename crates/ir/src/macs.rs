//! Multiply-accumulates of an op: the size of its work, as papers on networks count it.
//!
//! One for each product that is summed up. What an op does besides (bias, softmax, masks, pointwise work) does not
//! count, and padding counts as if it were data.

use crate::dim::Bindings;
use crate::graph::{Arg, Graph, NodeId, TensorMeta};
use indexmap::IndexMap;

/// Multiply-accumulates of a convolution, matrix product or attention, for these sizes of the symbols; `None` for other
/// ops, for sizes that are not known, and past `u64`.
///
/// * Convolution: output elements × `I/groups` × kernel size; transposed: input elements × `O/groups` × kernel size; its
///   derivative: as often as it has gradients of input and weight.
/// * Matrix products: output elements × the length of the sums.
/// * `einsum` of two operands, without `...`: the product of the sizes of all letters.
/// * Attention: `q·kᵀ` and `scores·v`, in full where it is causal.
pub fn macs(g: &Graph, id: NodeId, with: &Bindings) -> Option<u64> {
    let count = Count { g, id, with };
    let base = g.node(id).op()?.base();
    match base.strip_suffix('_').unwrap_or(base) {
        "conv1d" | "conv2d" | "conv3d" => count.convolution("input", false),
        "conv_transpose1d" | "conv_transpose2d" | "conv_transpose3d" => count.convolution("input", true),
        "convolution" => count.convolution("input", count.arg("transposed") == Some(&Arg::Bool(true))),
        "convolution_backward" => count.convolution_backward(),
        "linear" => product([count.elements("input"), count.size("weight", 0)]),
        "mm" | "bmm" => product([count.elements("self"), count.size("mat2", -1)]),
        "addmm" => product([count.elements("mat1"), count.size("mat2", -1)]),
        "baddbmm" | "addbmm" => product([count.elements("batch1"), count.size("batch2", -1)]),
        "matmul" | "linalg_matmul" => product([count.result(), count.size("self", -1)]),
        "mv" | "dot" | "vdot" => count.elements("self"),
        "addmv" => count.elements("mat"),
        "einsum" => count.einsum(),
        "scaled_dot_product_attention" | "_scaled_dot_product_flash_attention_for_cpu" => count.attention(),
        _ => None,
    }
}

/// The sum over a graph; graphs that are arguments do not count.
pub fn total(g: &Graph, with: &Bindings) -> u64 {
    g.ids().filter_map(|id| macs(g, id, with)).fold(0, u64::saturating_add)
}

struct Count<'a> {
    g: &'a Graph,
    id: NodeId,
    with: &'a Bindings,
}

impl<'a> Count<'a> {
    fn arg(&self, name: &str) -> Option<&'a Arg> {
        self.g.node(self.id).arg(name)
    }

    fn operand(&self, name: &str) -> Option<&'a TensorMeta> {
        match self.arg(name)? {
            Arg::Node(n) => self.g.node(*n).meta.as_tensor(),
            _ => None,
        }
    }

    fn sizes(&self, t: &TensorMeta) -> Option<Vec<u64>> {
        t.shape.iter().map(|d| u64::try_from(d.eval(self.with).ok()?).ok()).collect()
    }

    /// Elements of an operand.
    fn elements(&self, name: &str) -> Option<u64> {
        product(self.sizes(self.operand(name)?)?.into_iter().map(Some))
    }

    /// One size of an operand, from the end where negative.
    fn size(&self, name: &str, axis: i64) -> Option<u64> {
        let sizes = self.sizes(self.operand(name)?)?;
        let at = if axis < 0 { sizes.len() as i64 + axis } else { axis };
        sizes.get(usize::try_from(at).ok()?).copied()
    }

    fn result(&self) -> Option<u64> {
        product(self.sizes(self.g.node(self.id).meta.as_tensor()?)?.into_iter().map(Some))
    }

    /// Weights are `[O, I/groups, …]`, transposed `[I, O/groups, …]`: each output element sums over a slice of one, each
    /// input element is spread over a slice of the other.
    fn convolution(&self, input: &str, transposed: bool) -> Option<u64> {
        let slice = product(self.sizes(self.operand("weight")?)?.into_iter().skip(1).map(Some))?;
        let places = if transposed { self.elements(input)? } else { self.result()? };
        product([Some(places), Some(slice)])
    }

    fn convolution_backward(&self) -> Option<u64> {
        let transposed = self.arg("transposed") == Some(&Arg::Bool(true));
        let places = self.elements(if transposed { "input" } else { "grad_output" });
        let slice = product(self.sizes(self.operand("weight")?)?.into_iter().skip(1).map(Some));
        let Arg::List(mask) = self.arg("output_mask")? else { return None };
        let gradients = mask.iter().take(2).filter(|m| **m == Arg::Bool(true)).count() as u64;
        product([places, slice, Some(gradients)])
    }

    fn einsum(&self) -> Option<u64> {
        let (Arg::Str(equation), Arg::List(tensors)) = (self.arg("equation")?, self.arg("tensors")?) else {
            return None;
        };
        let terms: Vec<&str> = equation.split("->").next()?.split(',').collect();
        let mut sizes: IndexMap<char, u64> = IndexMap::new();
        for (term, tensor) in terms.iter().zip(tensors) {
            let Arg::Node(n) = tensor else { return None };
            let shape = self.sizes(self.g.node(*n).meta.as_tensor()?)?;
            let letters: Vec<char> = term.chars().filter(|c| !c.is_whitespace()).collect();
            if letters.contains(&'.') || letters.len() != shape.len() {
                return None;
            }
            for (letter, size) in letters.into_iter().zip(shape) {
                // A size of 1 is broadcast.
                let known = sizes.entry(letter).or_insert(size);
                *known = if *known == 1 { size } else { *known };
            }
        }
        if terms.len() == 2 { product(sizes.into_values().map(Some)) } else { None }
    }

    fn attention(&self) -> Option<u64> {
        let rows = product([self.elements("query"), self.size("key", -2)]);
        let (e, ev) = (self.size("query", -1)?, self.size("value", -1)?);
        // q·kᵀ sums over E for each of (…, L, S); scores·v has Ev results for each of them.
        rows?.checked_div(e)?.checked_mul(e.checked_add(ev)?)
    }
}

fn product(factors: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    factors.into_iter().try_fold(1u64, |p, f| p.checked_mul(f?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn of(inputs: &str, call: &str) -> u64 {
        let g = text::parse(&format!("graph({inputs}) {{\n  %y = {call}\n  return %y\n}}")).expect("a valid graph");
        total(&g, &[("N".to_string(), 2)].into_iter().collect())
    }

    #[test]
    fn convolutions() {
        let xw = "%x: f32[N, 8, 10, 10], %w: f32[16, 8, 3, 3]";
        assert_eq!(of(xw, "aten.conv2d(%x, %w, none, [2, 2], [1, 1])"), 2 * 16 * 5 * 5 * 8 * 9);
        let depthwise = "%x: f32[N, 8, 10, 10], %w: f32[8, 1, 3, 3]";
        assert_eq!(of(depthwise, "aten.conv2d(%x, %w, none, [1, 1], [1, 1], [1, 1], 8)"), 2 * 8 * 100 * 9);
        let up = "%x: f32[N, 8, 10, 10], %w: f32[8, 4, 2, 2]";
        assert_eq!(of(up, "aten.conv_transpose2d.input(%x, %w, none, [2, 2])"), 2 * 8 * 100 * 4 * 4);
        let up = format!("aten.convolution(%x, %w, none, {}, true, [0, 0], 1)", "[2, 2], [0, 0], [1, 1]");
        assert_eq!(of("%x: f32[N, 8, 10, 10], %w: f32[8, 4, 2, 2]", &up), 2 * 8 * 100 * 4 * 4);
    }

    #[test]
    fn products_of_matrices() {
        assert_eq!(of("%x: f32[N, 5, 8], %w: f32[16, 8]", "aten.linear(%x, %w)"), 2 * 5 * 8 * 16);
        assert_eq!(of("%a: f32[3, 4], %b: f32[4, 5]", "aten.mm(%a, %b)"), 60);
        assert_eq!(of("%c: f32[5], %a: f32[3, 4], %b: f32[4, 5]", "aten.addmm(%c, %a, %b)"), 60);
        assert_eq!(of("%a: f32[N, 3, 4], %b: f32[N, 4, 5]", "aten.bmm(%a, %b)"), 120);
        assert_eq!(of("%a: f32[N, 1, 3, 4], %b: f32[7, 4, 5]", "aten.matmul(%a, %b)"), 2 * 7 * 60);
        assert_eq!(of("%a: f32[3, 4], %b: f32[4]", "aten.mv(%a, %b)"), 12);
        assert_eq!(of("%a: f32[N, 3, 4], %b: f32[N, 5, 4]", "aten.einsum(\"b i d, b j d -> b i j\", [%a, %b])"), 120);
        assert_eq!(of("%a: f32[3, 4]", "aten.relu(%a)"), 0);
    }

    #[test]
    fn attention() {
        let qkv = "%q: f32[N, 3, 4, 8], %k: f32[N, 3, 5, 8], %v: f32[N, 3, 5, 6]";
        assert_eq!(of(qkv, "aten.scaled_dot_product_attention(%q, %k, %v)"), 2 * 3 * 4 * 5 * (8 + 6));
    }

    #[test]
    fn sizes_that_are_not_known_have_none() {
        let g = text::parse("graph(%a: f32[M, 4], %b: f32[4, 5]) {\n  %y = aten.mm(%a, %b)\n  return %y\n}");
        let g = g.expect("a valid graph");
        assert_eq!(macs(&g, g.results()[0], &Bindings::new()), None);
    }
}
