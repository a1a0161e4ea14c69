//! What must hold of a converted graph: checked once it stands, whatever decided its numbers.
//!
//! * scales are positive and finite, levels and zero points lie within the range that is stated
//! * a dequantize has the scale, zero point and range of the quantize that feeds it
//! * all quantizes and dequantizes of a group have one scale, zero point and range
//! * a bias of 32 bits stands at the product of its activation's and its weight's scale

use crate::error::{QuantizeError, Result};
use crate::prepare::GroupId;
use cleave_ir::{Arg, Class, Graph, Node, NodeId, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;

/// Scales and zero points of a quantize or dequantize.
#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    /// Of the whole tensor, or of each channel.
    Known(Vec<f32>, Vec<i64>),
    /// The nodes that compute them.
    Computed(Vec<NodeId>),
}

/// How a node quantizes or dequantizes.
#[derive(Clone, Debug, PartialEq)]
struct Levels {
    numbers: Numbers,
    range: [i64; 2],
    dtype: DType,
}

impl Levels {
    fn describe(&self) -> String {
        let [min, max] = self.range;
        let of = match &self.numbers {
            Numbers::Known(s, z) if s.len() == 1 && z.len() == 1 => format!("scale {}, zero point {}", s[0], z[0]),
            Numbers::Known(s, _) => format!("{} scales", s.len()),
            Numbers::Computed(_) => "computed scales".into(),
        };
        format!("{}[{min}, {max}] {of}", self.dtype)
    }
}

/// Checks a converted graph; `groups` says to which group of values a quantize or dequantize belongs, by its name.
///
/// # Errors
/// The first thing that does not hold, with the nodes.
pub(crate) fn check(g: &Graph, groups: &IndexMap<String, GroupId>) -> Result<()> {
    let mut of_group: IndexMap<GroupId, (&str, Levels)> = IndexMap::new();
    for (id, node) in g.nodes() {
        if let Some(levels) = levels(g, node) {
            within(g, node, &levels)?;
            fed(g, node, &levels)?;
            if let Some(group) = groups.get(&node.name) {
                let (first, want) = of_group.entry(*group).or_insert_with(|| (&node.name, levels.clone()));
                if *want != levels {
                    let (a, b) = (want.describe(), levels.describe());
                    return broken(format!("{first} and {} share their levels, but have {a} and {b}", node.name));
                }
            }
        }
        derived(g, id)?;
    }
    Ok(())
}

fn broken<T>(why: String) -> Result<T> {
    Err(QuantizeError::Invariant(why))
}

/// The node that an argument is.
fn operand<'g>(g: &'g Graph, node: &Node, name: &str) -> Option<(NodeId, &'g Node)> {
    let id = *node.arg(name)?.nodes().first()?;
    Some((id, g.node(id)))
}

fn constant<'g>(g: &'g Graph, node: &Node, name: &str) -> Option<&'g Tensor> {
    g.constant(operand(g, node, name)?.0)
}

/// How a node quantizes or dequantizes; none if it does not, or by numbers that it computes of other levels.
fn levels(g: &Graph, node: &Node) -> Option<Levels> {
    let op = node.op().filter(|o| o.class == Class::Quantize && !o.base().starts_with("choose"))?;
    let int = |name: &str| match node.arg(name) {
        Some(Arg::Int(i)) => Some(*i),
        _ => None,
    };
    let numbers = match (node.arg("scale"), node.arg("zero_point")) {
        (Some(Arg::Float(s)), Some(Arg::Int(z))) => Numbers::Known(vec![*s as f32], vec![*z]),
        (Some(Arg::Node(s)), Some(Arg::Node(z))) => Numbers::Computed(vec![*s, *z]),
        _ if op.base().ends_with("per_channel") => {
            let zeros = constant(g, node, "zero_points").map_or(vec![], Tensor::to_i64);
            Numbers::Known(constant(g, node, "scales")?.to_f32().into_owned(), zeros)
        }
        _ => return None,
    };
    let Some(Arg::DType(dtype)) = node.arg("dtype") else { return None };
    Some(Levels { numbers, range: [int("quant_min")?, int("quant_max")?], dtype: *dtype })
}

/// Scales, zero points and constant levels where they should be.
fn within(g: &Graph, node: &Node, l: &Levels) -> Result<()> {
    let (name, [min, max]) = (&node.name, l.range);
    let whole = l.dtype.int_range().map(|(a, b)| (i64::from(a), i64::from(b)));
    if min >= max || whole.is_none_or(|(a, b)| min < a || max > b) {
        return broken(format!("{name}: levels from {min} to {max} are no range of {}", l.dtype));
    }
    let inside = |v: &i64| (min..=max).contains(v);
    if let Numbers::Known(scales, zeros) = &l.numbers {
        if let Some(s) = scales.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            return broken(format!("{name}: the scale {s} is not a positive number"));
        }
        if let Some(z) = zeros.iter().find(|z| !inside(z)) {
            return broken(format!("{name}: the zero point {z} lies outside of [{min}, {max}]"));
        }
    }
    if let Some(t) = constant(g, node, "input").filter(|t| t.dtype() == l.dtype && Some((min, max)) != whole)
        && !bytes_are_within(t, l.range)
        && let Some(q) = t.to_i64().iter().find(|q| !inside(q))
    {
        return broken(format!("{name}: the level {q} lies outside of [{min}, {max}]"));
    }
    Ok(())
}

/// Whether a tensor is of bytes, as most weights are, and all are within a range: a loop without an early end vectorises.
fn bytes_are_within(t: &Tensor, [min, max]: [i64; 2]) -> bool {
    let (Some(x), Ok(min), Ok(max)) = (t.elements::<i8>(), i8::try_from(min), i8::try_from(max)) else { return false };
    x.chunks(4096).all(|part| part.iter().fold(true, |all, v| all & (*v >= min) & (*v <= max)))
}

/// A dequantize against the quantize that feeds it.
fn fed(g: &Graph, node: &Node, l: &Levels) -> Result<()> {
    let Some((_, from)) = operand(g, node, "input") else { return Ok(()) };
    let Some(want) = levels(g, from).filter(|_| from.op().is_some_and(|o| o.base().starts_with("quantize"))) else {
        return Ok(());
    };
    if node.op().is_some_and(|o| o.base().starts_with("dequantize")) && want != *l {
        let (a, b) = (want.describe(), l.describe());
        return broken(format!("{} dequantizes {b} what {} quantized {a}", node.name, from.name));
    }
    Ok(())
}

/// A bias of 32 bits against the activation and the weight beside it.
fn derived(g: &Graph, id: NodeId) -> Result<()> {
    let node = g.node(id);
    let known = |name: &str| {
        let (_, n) = operand(g, node, name)?;
        let l = levels(g, n)?;
        let Numbers::Known(scales, _) = l.numbers else { return None };
        Some((n, l.dtype, scales))
    };
    let (Some((x, _, sx)), Some((w, _, sw)), Some((b, DType::I32, sb))) =
        (known("input"), known("weight"), known("bias"))
    else {
        return Ok(());
    };
    let want = |c: usize| sx[0] * sw[c % sw.len().max(1)];
    if let Some((c, s)) = sb.iter().enumerate().find(|(c, s)| **s != want(*c)) {
        let (b, x, w) = (&b.name, &x.name, &w.name);
        return broken(format!("{b}: the scale {s} of element {c} is not {}, that of {x} times that of {w}", want(c)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;

    const WHOLE: &str = r#"graph(%x: f32[2, 4]) {
  %w = param "w": i8[3, 4]
  %s = buffer "s": f32[3]
  %z = buffer "z": i64[3]
  %b = param "b": i32[3]
  %bs = buffer "bs": f32[3]
  %q = quantized_decomposed.quantize_per_tensor(%x, 0.5, 3, 0, 255, u8)
  %dq = quantized_decomposed.dequantize_per_tensor(%q, 0.5, 3, 0, 255, u8)
  %w_dq = quantized_decomposed.dequantize_per_channel(%w, %s, %z, 0, -127, 127, i8)
  %b_dq = quantized_decomposed.dequantize_per_channel(%b, %bs, %z, 0, -2147483648, 2147483647, i32)
  %linear = aten.linear(%dq, %w_dq, %b_dq)
  %r = quantized_decomposed.quantize_per_tensor(%linear, 0.25, 0, 0, 255, u8)
  %r_dq = quantized_decomposed.dequantize_per_tensor(%r, 0.25, 0, 0, 255, u8)
  return %r_dq
}
"#;

    fn graph(text: &str) -> Graph {
        let mut g = text::parse(text).unwrap();
        let ints = |v: [i8; 12]| Tensor::new(&[3, 4], v.to_vec());
        g.constants.insert("w".into(), ints([1, -127, 3, 4, 5, 6, 7, 8, 9, 10, 11, 127]));
        g.constants.insert("s".into(), Tensor::new(&[3], vec![0.1f32, 0.2, 0.3]));
        g.constants.insert("z".into(), Tensor::new(&[3], vec![0i64; 3]));
        g.constants.insert("b".into(), Tensor::new(&[3], vec![7i32, 8, 9]));
        g.constants.insert("bs".into(), Tensor::new(&[3], vec![0.5f32 * 0.1, 0.5 * 0.2, 0.5 * 0.3]));
        g
    }

    fn groups(of: &[(&str, GroupId)]) -> IndexMap<String, GroupId> {
        of.iter().map(|(n, g)| (n.to_string(), *g)).collect()
    }

    /// What the check says when one piece of the graph is another.
    fn said(from: &str, to: &str) -> String {
        assert!(WHOLE.contains(from));
        check(&graph(&WHOLE.replacen(from, to, 1)), &groups(&[])).unwrap_err().to_string()
    }

    #[test]
    fn what_convert_writes_holds() {
        check(&graph(WHOLE), &groups(&[("q", 0), ("dq", 0), ("r", 1), ("r_dq", 1)])).unwrap();
    }

    #[test]
    fn a_dequantize_is_held_against_its_quantize() {
        let why = "internal error: dq dequantizes u8[0, 255] scale 0.5, zero point 4 what q quantized u8[0, 255] \
                   scale 0.5, zero point 3";
        assert_eq!(said("(%q, 0.5, 3,", "(%q, 0.5, 4,"), why);
        assert!(said("(%q, 0.5, 3,", "(%q, 0.75, 3,").contains("scale 0.75, zero point 3 what q quantized"));
        assert!(said("(%q, 0.5, 3, 0, 255", "(%q, 0.5, 3, 0, 127").contains("dq dequantizes u8[0, 127]"));
    }

    #[test]
    fn zero_points_scales_and_levels_lie_in_their_range() {
        assert!(said("(%x, 0.5, 3,", "(%x, 0.5, 256,").ends_with("q: the zero point 256 lies outside of [0, 255]"));
        assert!(said("(%x, 0.5,", "(%x, 0.0,").ends_with("q: the scale 0 is not a positive number"));
        assert!(said("-127, 127", "-126, 127").ends_with("w_dq: the level -127 lies outside of [-126, 127]"));
        assert!(said("-127, 127", "-127, 128").ends_with("w_dq: levels from -127 to 128 are no range of i8"));
        let mut g = graph(WHOLE);
        g.constants.insert("z".into(), Tensor::new(&[3], vec![0i64, -128, 0]));
        let why = check(&g, &groups(&[])).unwrap_err().to_string();
        assert!(why.ends_with("w_dq: the zero point -128 lies outside of [-127, 127]"), "{why}");
    }

    #[test]
    fn members_of_a_group_are_equal() {
        let why = check(&graph(WHOLE), &groups(&[("q", 0), ("r_dq", 0)])).unwrap_err().to_string();
        let want = "q and r_dq share their levels, but have u8[0, 255] scale 0.5, zero point 3 and u8[0, 255] scale \
                    0.25, zero point 0";
        assert!(why.ends_with(want), "{why}");
    }

    #[test]
    fn biases_stand_at_the_product_of_two_scales() {
        let mut g = graph(WHOLE);
        g.constants.insert("bs".into(), Tensor::new(&[3], vec![0.5f32 * 0.1, 0.11, 0.5 * 0.3]));
        let why = check(&g, &groups(&[])).unwrap_err().to_string();
        let want = "b_dq: the scale 0.11 of element 1 is not 0.1, that of dq times that of w_dq";
        assert!(why.ends_with(want), "{why}");
    }

    #[test]
    fn computed_levels_are_compared_by_what_computes_them() {
        let text = |z: &str| {
            let text = r#"graph(%x: f32[2, 4]) {
  %c = quantized_decomposed.choose_qparams.tensor(%x, 0, 255, 1e-9, u8)
  %s = getitem(%c, 0)
  %z = getitem(%c, 1)
  %e = quantized_decomposed.choose_qparams.tensor(%x, 0, 127, 1e-9, u8)
  %other = getitem(%e, 1)
  %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s, %z, 0, 255, u8)
  %dq = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, ZERO, 0, 255, u8)
  return %dq
}
"#;
            text::parse(&text.replace("ZERO", z)).unwrap()
        };
        check(&text("%z"), &groups(&[])).unwrap();
        let why = check(&text("%other"), &groups(&[])).unwrap_err().to_string();
        assert!(why.ends_with("dq dequantizes u8[0, 255] computed scales what q quantized u8[0, 255] computed scales"));
    }
}
