//! Fourier transforms whose results are real: of a spectrum that is symmetric, of which one half is given.

use super::infer::{ensure, to_float};
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};

const BASE: OpDef = OpDef {
    class: Class::Strategic,
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(transformed),
    ..OpDef::BASE
};

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, schema: $schema, ..BASE };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id),*], COMPLEX];
    };
}

family! {
    /// Inverse transform along a dimension to `n` numbers, of the first half of a symmetric spectrum.
    FFT_IRFFT = "aten.fft_irfft.default", "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor";
    /// [`FFT_IRFFT`] along the last of two dimensions, and the full inverse transform along the other.
    FFT_IRFFT2 = "aten.fft_irfft2.default",
        "(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor";
    /// [`FFT_IRFFT`] along the last of several dimensions, and the full inverse transform along the others.
    FFT_IRFFTN = "aten.fft_irfftn.default",
        "(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor";
    /// Transform along a dimension to `n` numbers, of the first half of a symmetric signal.
    FFT_HFFT = "aten.fft_hfft.default", "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor";
    /// [`FFT_HFFT`] along the last of two dimensions, and the full transform along the other.
    FFT_HFFT2 = "aten.fft_hfft2.default",
        "(Tensor self, SymInt[1]? s=None, int[1] dim=[-2,-1], str? norm=None) -> Tensor";
    /// [`FFT_HFFT`] along the last of several dimensions, and the full transform along the others.
    FFT_HFFTN = "aten.fft_hfftn.default",
        "(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor";
}

const NO_TYPE: OpDef =
    OpDef { infer: Some(|c| Err(c.err("complex numbers, for which there is no type; export what computes with them apart"))), ..BASE };

records! { COMPLEX:
    /// The first half of the spectrum of real numbers.
    FFT_R2C = "aten._fft_r2c.default", NO_TYPE {
        schema: "(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor",
    };
    /// Real numbers of the first half of their spectrum.
    FFT_C2R = "aten._fft_c2r.default", NO_TYPE {
        schema: "(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor",
    };
    /// The spectrum of complex numbers.
    PRIM_FFT_C2C = "prims.fft_c2c.default", NO_TYPE { schema: "(Tensor self, *, int[] dim, bool forward) -> Tensor" };
    /// [`FFT_R2C`] without norm.
    PRIM_FFT_R2C = "prims.fft_r2c.default", NO_TYPE { schema: "(Tensor self, *, int[] dim, bool onesided) -> Tensor" };
    /// [`FFT_C2R`] without norm.
    PRIM_FFT_C2R = "prims.fft_c2r.default", NO_TYPE { schema: "(Tensor self, *, int[] dim, SymInt last_dim_size) -> Tensor" };
    /// The imaginary part.
    IMAG = "prims.imag.default", NO_TYPE { schema: "(Tensor(a) self) -> Tensor(a)" };
}

fn transformed(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    let mut shape = m.shape;
    let list = c.op.schema.index("s").is_some();
    let sizes = match (list, c.arg(if list { "s" } else { "n" })) {
        (_, Arg::None) => None,
        (true, _) => Some(c.dims("s")),
        (false, _) => Some(vec![c.dim("n")]),
    };
    let axes: Vec<usize> = match (c.arg("dim"), &sizes) {
        (Arg::None, None) => (0..shape.len()).collect(),
        (Arg::None, Some(s)) if s.len() <= shape.len() => (shape.len() - s.len()..shape.len()).collect(),
        (Arg::List(_), _) => c.ints("dim").iter().map(|d| c.wrap(*d, shape.len())).collect::<Result<_>>()?,
        _ => vec![c.axis("dim", shape.len())?],
    };
    let Some((&last, _)) = axes.split_last().filter(|_| !shape.is_empty()) else {
        return Err(c.err("a transform along no dimension"));
    };
    ensure(c, sizes.as_ref().is_none_or(|s| s.len() == axes.len()), || format!("sizes {sizes:?} of {axes:?}"))?;
    let half = shape[last].clone();
    for (i, axis) in axes.iter().enumerate() {
        match sizes.as_ref().map(|s| &s[i]) {
            Some(n) if !n.is(-1) => shape[*axis] = n.clone(),
            _ if *axis == last => shape[last] = (half.clone() - Dim::from(1i64)) * Dim::from(2i64),
            _ => {}
        }
    }
    let some = axes.iter().all(|a| shape[*a].as_const().is_none_or(|n| n > 0));
    ensure(c, some, || format!("a transform to {shape:?}"))?;
    Ok(Meta::tensor(to_float(m.dtype), shape))
}
