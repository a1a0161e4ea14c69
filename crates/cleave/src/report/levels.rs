//! How a value is quantized in the converted graph.

use cleave_ir::{Arg, Graph, Node};
use cleave_numerics::QRange;

/// Levels of a value, with one scale and zero point.
pub struct Levels {
    pub range: QRange,
    pub scale: f64,
    pub zero_point: i64,
}

impl Levels {
    /// Those of the value of this name; several where consumers ask for different ones, none where it stays float or
    /// its scale is computed as the model runs.
    pub fn of<'g>(g: &'g Graph, name: &str) -> impl Iterator<Item = Levels> + use<'g> {
        let users = g.find(name).map(|n| g.users(n)).unwrap_or_default();
        users.into_iter().filter_map(|n| Levels::given(g.node(n)))
    }

    fn given(quantize: &Node) -> Option<Levels> {
        quantize.op().filter(|o| o.base() == "quantize_per_tensor")?;
        let int = |name: &str| match quantize.arg(name) {
            Some(Arg::Int(i)) => Some(*i),
            _ => None,
        };
        let (Some(Arg::Float(scale)), Some(Arg::DType(dtype))) = (quantize.arg("scale"), quantize.arg("dtype")) else {
            return None;
        };
        let end = |name: &str| i32::try_from(int(name)?).ok();
        let range = QRange { dtype: *dtype, min: end("quant_min")?, max: end("quant_max")? };
        Some(Levels { range, scale: *scale, zero_point: int("zero_point")? })
    }

    /// What the least and the greatest level stand for.
    pub fn covered(&self) -> (f64, f64) {
        let at = |level: i32| (i64::from(level) - self.zero_point) as f64 * self.scale;
        (at(self.range.min), at(self.range.max))
    }
}
