//! Shape and type rules that several families share.

use crate::builder::Call;
use crate::dim::Dim;
use crate::error::{IrError, Result};
use crate::graph::{Arg, Meta, TensorMeta};
use cleave_numerics::DType;

/// The first parameter's type and shape.
pub fn same(c: &Call<'_>) -> Result<Meta> {
    let name = c.op.schema.params.first().map_or("self", |p| p.name.as_str());
    Ok(Meta::Tensor(c.meta(name)?))
}

/// The first parameter's shape; integers and bools become f32.
pub fn same_float(c: &Call<'_>) -> Result<Meta> {
    let name = c.op.schema.params.first().map_or("self", |p| p.name.as_str());
    let m = c.meta(name)?;
    Ok(Meta::tensor(to_float(m.dtype), m.shape))
}

/// The type that float functions give for this one.
pub fn to_float(d: DType) -> DType {
    if d.is_float() { d } else { DType::F32 }
}

/// The common shape of several, by torch's broadcasting. Sizes that cannot be told apart from 1 or from one
/// another before the model is run are taken to fit.
///
/// # Errors
/// Two different numbers, neither of them 1.
pub fn broadcast(shapes: &[&[Dim]]) -> std::result::Result<Vec<Dim>, String> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![Dim::from(1i64); rank];
    for s in shapes {
        for (o, d) in out[rank - s.len()..].iter_mut().zip(s.iter()) {
            match (o.as_const(), d.as_const()) {
                (_, Some(1)) => {}
                (Some(1), _) => *o = d.clone(),
                (Some(a), Some(b)) if a != b => return Err(format!("shapes {shapes:?} do not broadcast")),
                (None, Some(_)) => *o = d.clone(),
                _ => {}
            }
        }
    }
    Ok(out)
}

/// Whether two shapes may be the same: of one rank, and nowhere two different numbers.
pub fn fit(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b))
}

/// torch's category of a type in promotion: bool, integer, float.
fn category(d: DType) -> u8 {
    match d {
        DType::Bool => 0,
        d if d.is_int() => 1,
        _ => 2,
    }
}

/// torch's promotion of two types of the same category, or the one of the higher category.
pub fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    if category(a) != category(b) {
        return if category(a) > category(b) { a } else { b };
    }
    match (a, b) {
        (F16, BF16) | (BF16, F16) => F32,
        (U8, I8) | (I8, U8) => I16,
        (a, b) => {
            let rank = |d: DType| [Bool, U8, I8, I16, I32, I64, BF16, F16, F32, F64].iter().position(|x| *x == d);
            if rank(a) >= rank(b) { a } else { b }
        }
    }
}

/// One operand of a pointwise op: a tensor, or a number that takes part in promotion by its category only.
enum Operand {
    Tensor(TensorMeta),
    Number(u8),
}

fn operand(c: &Call<'_>, name: &str) -> Result<Operand> {
    Ok(match c.arg(name) {
        Arg::Bool(_) => Operand::Number(0),
        Arg::Int(_) | Arg::Dim(_) => Operand::Number(1),
        Arg::Float(_) => Operand::Number(2),
        Arg::Node(n) => match c.b.with_graph(|g| g.node(*n).meta.clone()) {
            Meta::Int(_) => Operand::Number(1),
            _ => Operand::Tensor(c.meta(name)?),
        },
        a => return Err(c.err(&format!("argument '{name}': expected a tensor or a number, found {a:?}"))),
    })
}

/// Shape and promoted type of a pointwise op on these operands. Dimensioned tensors outrank those without
/// dimensions, and these outrank numbers, unless the lower rank is of a higher category.
///
/// # Errors
/// Shapes that do not broadcast.
pub fn pointwise(c: &Call<'_>, names: &[&str]) -> Result<TensorMeta> {
    let operands = names.iter().map(|n| operand(c, n)).collect::<Result<Vec<_>>>()?;
    let mut shapes = vec![];
    let mut tiers: [Option<DType>; 3] = [None; 3];
    for o in &operands {
        let (tier, d) = match o {
            Operand::Tensor(t) => {
                shapes.push(t.shape.as_slice());
                (usize::from(t.shape.is_empty()), t.dtype)
            }
            Operand::Number(k) => (2, [DType::Bool, DType::I64, DType::F32][*k as usize]),
        };
        tiers[tier] = Some(tiers[tier].map_or(d, |x| promote(x, d)));
    }
    let dtype = tiers.into_iter().flatten().reduce(|high, low| if category(low) > category(high) { low } else { high });
    let shape = broadcast(&shapes).map_err(|why| c.err(&why))?;
    Ok(TensorMeta { dtype: dtype.unwrap_or(DType::F32), shape })
}

/// Two operands, promoted.
pub fn binary(c: &Call<'_>) -> Result<Meta> {
    Ok(Meta::Tensor(pointwise(c, &["self", "other"])?))
}

/// Two operands, promoted to a float type.
pub fn binary_float(c: &Call<'_>) -> Result<Meta> {
    let m = pointwise(c, &["self", "other"])?;
    Ok(Meta::tensor(to_float(m.dtype), m.shape))
}

/// Two operands, compared.
pub fn compare(c: &Call<'_>) -> Result<Meta> {
    Ok(Meta::tensor(DType::Bool, pointwise(c, &["self", "other"])?.shape))
}

/// `floor((n + before + after - dilation·(k - 1) - 1) / stride) + 1`: places of a window.
pub fn window(n: &Dim, pads: i64, k: i64, stride: i64, dilation: i64) -> Dim {
    let span = n.clone() + Dim::from(pads - dilation * (k - 1) - 1);
    span.floor_div(&Dim::from(stride)) + Dim::from(1i64)
}

/// The shape left when dimensions are reduced.
///
/// # Errors
/// A dimension that the rank does not have.
pub fn reduced(c: &Call<'_>, shape: &[Dim], dims: Option<&[i64]>, keep: bool) -> Result<Vec<Dim>> {
    let axes: Vec<usize> = match dims {
        None | Some([]) => (0..shape.len()).collect(),
        Some(d) => d.iter().map(|a| c.wrap(*a, shape.len())).collect::<Result<_>>()?,
    };
    let kept = shape.iter().enumerate().filter_map(|(i, d)| match (axes.contains(&i), keep) {
        (false, _) => Some(d.clone()),
        (true, true) => Some(Dim::from(1i64)),
        (true, false) => None,
    });
    Ok(kept.collect())
}

/// Fails a call unless the condition holds.
///
/// # Errors
/// The message, if it does not.
pub fn ensure(c: &Call<'_>, ok: bool, why: impl FnOnce() -> String) -> std::result::Result<(), IrError> {
    if ok { Ok(()) } else { Err(c.err(&why())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_torchs() {
        use DType::*;
        for (a, b, r) in
            [(U8, I8, I16), (F16, BF16, F32), (I64, F16, F16), (Bool, U8, U8), (F32, F64, F64), (I32, I64, I64)]
        {
            assert_eq!((promote(a, b), promote(b, a)), (r, r), "{a} {b}");
        }
    }

    #[test]
    fn shapes_broadcast_from_the_right() {
        let n = Dim::symbol("N");
        let out = broadcast(&[&[n.clone(), 3.into(), 1.into()], &[1.into(), 5.into()]]).unwrap();
        assert_eq!(out, [n, 3.into(), 5.into()]);
        assert!(broadcast(&[&[2.into()], &[3.into()]]).is_err());
    }
}
