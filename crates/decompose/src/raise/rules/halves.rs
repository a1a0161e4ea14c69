//! Constants of half-precision numbers behind a cast to f32: the weights of files that store them so.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived};
use cleave_ir::Value;
use cleave_numerics::DType;
use cleave_rewrite::Bound;

/// The captured matrix of halves with its dimensions exchanged, a strided window on it, widened as before.
fn transposed<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let t = constant(m, "w")?;
    let to = m.node("c").and_then(|n| n.meta.as_tensor()).map(|t| t.dtype);
    if t.shape().len() != 2 || !matches!(t.dtype(), DType::F16 | DType::BF16) || to != Some(DType::F32) {
        return Err(format!("{} of shape {:?} is no matrix of halves that becomes f32", t.dtype(), t.shape()));
    }
    Ok(derived(m, "w", "t", t.permute(&[1, 0])).op("aten._to_copy", vec![DType::F32.into()]))
}

/// A widened matrix transposed.
pub static TRANSPOSED: RuleDef = RuleDef {
    name: "halves_transposed",
    doc: "A constant matrix of halves that is widened and then transposed is transposed as it is stored.",
    spellings: &[
        "permute(c:_to_copy(w), [1, 0])",
        "t(c:_to_copy(w))",
        "transpose(c:_to_copy(w), 0, 1)",
        "transpose(c:_to_copy(w), -2, -1)",
        "transpose(c:_to_copy(w), -1, -2)",
    ],
    any: &[],
    conditions: &["constant(w)", "rank(w) == 2"],
    build: |m| transposed(m),
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f16[3, 4]
  %c = aten._to_copy(%w, f32)
  %p = aten.permute(%c, [1, 0])
  %y = aten.linear(%x, %p)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %w_t = param \"w.t\": f16[4, 3]
  %_to_copy = aten._to_copy(%w_t, f32): f32[4, 3]
  %y = aten.linear(%x, %_to_copy): f32[2, 4]
  return %y
}",
    ),
};

/// `matmul(x, f32(w))` with a constant matrix of halves.
pub static PRODUCT: RuleDef = RuleDef {
    name: "halves_linear",
    doc: "A product with a constant matrix of halves that is widened is a linear layer of the matrix transposed.",
    spellings: &["product(x, c:_to_copy(w))"],
    any: &[("product", &["aten.mm", "aten.matmul"])],
    conditions: &["constant(w)", "rank(w) == 2", "rank(x) > 1"],
    build: |m| Ok(m.value("x")?.op("aten.linear", vec![transposed(m)?.into()])),
    example: (
        "graph(%x: f32[2, 5, 3]) {
  %w = param \"w\": f16[3, 4]
  %c = aten._to_copy(%w, f32)
  %y = aten.matmul(%x, %c)
  return %y
}",
        "graph(%x: f32[2, 5, 3]) {
  %w_t = param \"w.t\": f16[4, 3]
  %_to_copy = aten._to_copy(%w_t, f32): f32[4, 3]
  %linear = aten.linear(%x, %_to_copy): f32[2, 5, 4]
  return %linear \"y\"
}",
    ),
};

/// `b + x·f32(w)`.
pub static SUM: RuleDef = RuleDef {
    name: "halves_addmm",
    doc: "addmm with a constant vector and a constant matrix of halves that is widened.",
    spellings: &["addmm(b, x, c:_to_copy(w))"],
    any: &[],
    conditions: &["constant(w)", "constant(b)", "rank(b) == 1", "rank(w) == 2"],
    build: |m| {
        let (w, b) = (transposed(m)?, m.value("b")?);
        if b.shape().first() != w.shape().first() {
            return Err(format!("a bias of shape {:?} for {:?}", b.shape(), w.shape()));
        }
        Ok(m.value("x")?.op("aten.linear", vec![w.into(), b.into()]))
    },
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f16[3, 4]
  %b = param \"b\": f32[4]
  %c = aten._to_copy(%w, f32)
  %y = aten.addmm(%b, %x, %c)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %b = param \"b\": f32[4]
  %w_t = param \"w.t\": f16[4, 3]
  %_to_copy = aten._to_copy(%w_t, f32): f32[4, 3]
  %linear = aten.linear(%x, %_to_copy, %b): f32[2, 4]
  return %linear \"y\"
}",
    ),
};
