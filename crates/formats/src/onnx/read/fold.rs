//! Arithmetic on values that are known while the graph is built.

use super::host::{Data, Host, cast};
use super::node::Step;
use cleave_ir::{Dim, Tensor};
use cleave_numerics::DType;
use ndarray::{ArrayD, IxDyn};

/// The most elements that a folded result may have.
pub const LIMIT: usize = 1 << 24;
/// The longest text that a computed size may have: longer ones come from no real model.
const LONGEST: usize = 4096;

/// A binary operation on known values.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the variants are their own description")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Fmod,
    Pow,
    Max,
    Min,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

impl Binary {
    fn compares(self) -> bool {
        use Binary::*;
        matches!(self, Equal | Less | LessOrEqual | Greater | GreaterOrEqual | And | Or)
    }

    /// In f32 for f32 operands, so that a folded value is the one that a kernel would compute.
    fn f32(self, a: f32, b: f32) -> f32 {
        match self {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Pow => a.powf(b),
            _ => self.f64(f64::from(a), f64::from(b)) as f32,
        }
    }

    fn f64(self, a: f64, b: f64) -> f64 {
        let truth = |t: bool| f64::from(u8::from(t));
        match self {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Mod => a - (a / b).floor() * b,
            Binary::Fmod => a % b,
            Binary::Pow => a.powf(b),
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::Equal => truth(a == b),
            Binary::Less => truth(a < b),
            Binary::LessOrEqual => truth(a <= b),
            Binary::Greater => truth(a > b),
            Binary::GreaterOrEqual => truth(a >= b),
            Binary::And => truth(a != 0.0 && b != 0.0),
            Binary::Or => truth(a != 0.0 || b != 0.0),
        }
    }

    fn i64(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::Div => a.checked_div(b)?,
            Binary::Mod => a.checked_rem(b)?.checked_add(b).and_then(|r| r.checked_rem(b))?,
            Binary::Fmod => a.checked_rem(b)?,
            Binary::Pow => a.checked_pow(u32::try_from(b).ok()?)?,
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::Equal => i64::from(a == b),
            Binary::Less => i64::from(a < b),
            Binary::LessOrEqual => i64::from(a <= b),
            Binary::Greater => i64::from(a > b),
            Binary::GreaterOrEqual => i64::from(a >= b),
            Binary::And => i64::from(a != 0 && b != 0),
            Binary::Or => i64::from(a != 0 || b != 0),
        })
    }

    /// On sizes. Symbols are at least 0, so that comparisons with negative numbers are decided.
    fn dims(self, a: &Dim, b: &Dim, float: bool) -> Option<Dim> {
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const())
            && !(float && self == Binary::Div && y != 0 && x % y != 0)
        {
            return self.i64(x, y).map(Dim::from);
        }
        Some(match self {
            Binary::Add => a.clone() + b.clone(),
            Binary::Sub => a.clone() - b.clone(),
            Binary::Mul => a.clone() * b.clone(),
            Binary::Div if !float || a.modulo(b).is(0) => a.floor_div(b),
            Binary::Mod | Binary::Fmod => a.modulo(b),
            Binary::Max => a.max_of(b),
            Binary::Min => a.min_of(b),
            _ => {
                let difference = (a.clone() - b.clone()).as_const();
                let negative = |d: &Dim| d.as_const().is_some_and(|v| v < 0);
                let order = match (difference, negative(a), negative(b)) {
                    (Some(d), ..) => d.signum(),
                    (None, true, false) => -1,
                    (None, false, true) => 1,
                    _ => return None,
                };
                self.i64(order, 0).filter(|_| self.compares())?.into()
            }
        })
    }
}

/// The common shape of two, by broadcasting.
fn common(a: &[usize], b: &[usize]) -> Step<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    let one = |i| match (at(a, i), at(b, i)) {
        (x, y) if x == y => Ok(x),
        (1, y) => Ok(y),
        (x, 1) => Ok(x),
        _ => Err(format!("shapes {a:?} and {b:?} do not broadcast")),
    };
    let shape = (0..rank).map(one).collect::<Step<Vec<_>>>()?;
    limited(&shape)?;
    Ok(shape)
}

/// Fails if a folded result would be too large.
pub fn limited(shape: &[usize]) -> Step<usize> {
    let count = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
    count.filter(|c| *c <= LIMIT).ok_or_else(|| format!("constant expression of shape {shape:?} is too large"))
}

/// For each element of the result, the place of the operand's element.
fn spread(from: &[usize], to: &[usize]) -> Step<Vec<usize>> {
    let a = positions(from);
    let wide = a.broadcast(IxDyn(to)).ok_or_else(|| format!("shape {from:?} does not broadcast to {to:?}"))?;
    Ok(wide.iter().copied().collect())
}

/// 0, 1, 2, … in a shape: what moving elements does to these says where they go.
pub fn positions(shape: &[usize]) -> ArrayD<usize> {
    let count = shape.iter().product();
    ArrayD::from_shape_vec(IxDyn(shape), (0..count).collect()).expect("invariant: as many numbers as the shape has")
}

/// A binary operation on two known values; none where the result depends on sizes in a way that only running tells.
pub fn binary(name: &str, f: Binary, a: &Host, b: &Host) -> Step<Option<Host>> {
    let shape = common(a.shape(), b.shape())?;
    let (ia, ib) = (spread(a.shape(), &shape)?, spread(b.shape(), &shape)?);
    let dtype = if f.compares() { DType::Bool } else { a.dtype() };
    if let (Some(x), Some(y)) = (a.as_tensor(), b.as_tensor()) {
        let y = if f == Binary::Pow { &cast(y, x.dtype()) } else { y };
        let undefined = || format!("{f:?} of {x:?} and {y:?} is not defined");
        let t = match x.dtype() {
            DType::F32 => {
                let (x, y) = (x.to_f32(), y.to_f32());
                Tensor::new(&shape, ia.iter().zip(&ib).map(|(i, j)| f.f32(x[*i], y[*j])).collect())
            }
            d if d.is_float() => {
                let (x, y) = (x.to_f64(), y.to_f64());
                Tensor::new(&shape, ia.iter().zip(&ib).map(|(i, j)| f.f64(x[*i], y[*j])).collect())
            }
            _ => {
                let (x, y) = (x.to_i64(), y.to_i64());
                let v = ia.iter().zip(&ib).map(|(i, j)| f.i64(x[*i], y[*j])).collect::<Option<_>>();
                Tensor::new::<i64>(&shape, v.ok_or_else(undefined)?)
            }
        };
        return Ok(Some(Host::tensor(name, cast(&t, dtype))));
    }
    let (Some(x), Some(y)) = (a.as_dims(), b.as_dims()) else { return Ok(None) };
    let float = a.dtype().is_float();
    let dims = ia.iter().zip(&ib).map(|(i, j)| f.dims(&x[*i], &y[*j], float)).collect::<Option<Vec<_>>>();
    let Some(dims) = dims else { return Ok(None) };
    if dims.iter().any(|d| d.to_string().len() > LONGEST) {
        return Err("computes a size that is too complex".into());
    }
    Ok(Some(Host::dims(name, dtype, shape, dims)))
}

/// Elements from one of two known values; none where only running tells which.
pub fn choose(name: &str, cond: &Host, a: &Host, b: &Host) -> Step<Option<Host>> {
    let shape = common(&common(cond.shape(), a.shape())?, b.shape())?;
    let Some(c) = cond.as_ints() else { return Ok(None) };
    let (ic, ia, ib) = (spread(cond.shape(), &shape)?, spread(a.shape(), &shape)?, spread(b.shape(), &shape)?);
    let pairs = ic.iter().zip(ia.iter().zip(&ib));
    if let (Some(x), Some(y)) = (a.as_tensor(), b.as_tensor()) {
        let (x, y) = (x.to_f64(), y.to_f64());
        let v: Vec<f64> = pairs.map(|(k, (i, j))| if c[*k] != 0 { x[*i] } else { y[*j] }).collect();
        return Ok(Some(Host::tensor(name, cast(&Tensor::new(&shape, v), a.dtype()))));
    }
    let (Some(x), Some(y)) = (a.as_dims(), b.as_dims()) else { return Ok(None) };
    let v = pairs.map(|(k, (i, j))| if c[*k] != 0 { x[*i].clone() } else { y[*j].clone() }).collect();
    Ok(Some(Host::dims(name, a.dtype(), shape, v)))
}

/// A function of each element, computed in the element's own type.
pub fn unary(name: &str, a: &Host, f: fn(f64) -> f64) -> Option<Host> {
    let t = a.as_tensor().filter(|t| t.len() <= LIMIT)?;
    let v: Vec<f64> = t.to_f64().into_iter().map(f).collect();
    Some(Host::tensor(name, cast(&Tensor::new(t.shape(), v), t.dtype())))
}

/// The elements at these positions, in the shape of the positions.
pub fn pick(name: &str, a: &Host, at: &ArrayD<usize>) -> Step<Host> {
    let shape = at.shape().to_vec();
    limited(&shape)?;
    match &a.data {
        Data::Dims(dtype, _, dims) => {
            Ok(Host::dims(name, *dtype, shape, at.iter().map(|i| dims[*i].clone()).collect()))
        }
        Data::Tensor(t) => {
            let (bytes, size) = (t.to_bytes(), t.dtype().size());
            let mut out = Vec::with_capacity(at.len() * size);
            at.iter().for_each(|i| out.extend_from_slice(&bytes[i * size..(i + 1) * size]));
            let t = Tensor::from_bytes(t.dtype(), shape, std::sync::Arc::new(out)).map_err(|e| e.to_string())?;
            Ok(Host::tensor(name, t))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(v: &[i64]) -> Host {
        Host::tensor("c", Tensor::new(&[v.len()], v.to_vec()))
    }

    fn known(h: Step<Option<Host>>) -> Host {
        h.unwrap().unwrap()
    }

    #[test]
    fn sizes_take_part_in_arithmetic() {
        let n = Host::dims("s", DType::I64, vec![2], vec![Dim::symbol("N"), 4.into()]);
        let twice = known(binary("r", Binary::Mul, &n, &ints(&[2])));
        assert_eq!(twice.as_dims().unwrap(), [Dim::symbol("N") * 2.into(), 8.into()]);
        assert_eq!(known(binary("r", Binary::Div, &twice, &ints(&[2]))).as_dims(), n.as_dims());
        let eq = known(binary("r", Binary::Equal, &n, &ints(&[-1])));
        assert_eq!((eq.as_ints(), eq.dtype()), (Some(vec![0, 0]), DType::Bool));
        let sizes = known(choose("r", &eq, &ints(&[7]), &n));
        assert_eq!(sizes.as_dims(), n.as_dims());
        assert!(binary("r", Binary::Equal, &n, &ints(&[3])).unwrap().is_none());
        assert!(binary("r", Binary::Div, &ints(&[1]), &ints(&[0])).is_err());
    }

    #[test]
    fn floats_are_computed_in_their_own_type() {
        let f = |v| Host::tensor("c", Tensor::scalar::<f32>(v));
        let q = known(binary("r", Binary::Div, &f(1.0), &f(3.0)));
        assert_eq!(q.as_tensor().unwrap().to_f32()[0], 1.0f32 / 3.0);
    }
}
