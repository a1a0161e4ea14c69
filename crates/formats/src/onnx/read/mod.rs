//! Reading an ONNX model as a graph of ATen ops.
//!
//! Every operator is one function from [`node::Ctx`] to results, in the file of its family and in that file's
//! `OPS`. What a file spells out stays spelled out; what it computes from shapes and constants alone is
//! evaluated here (see [`host`]), so that a graph has sizes where the file has chains of Shape and Gather.

mod arith;
mod attention;
mod control;
mod conv;
mod detect;
mod driver;
mod elementwise;
mod fold;
mod host;
mod linear;
mod loss;
mod moving;
mod node;
mod norm;
mod order;
mod pool;
mod qoperator;
mod quantized;
mod recurrent;
mod reduce;
mod refused;
mod resize;
mod scatter;
mod scope;
mod shape;
mod signal;

pub use driver::{ReadOptions, decode, read_model, read_model_with, read_onnx};
pub(super) use host::cast;
pub use scope::Evaluate;

use node::Map;

/// All operators of ONNX's own set, by family.
const OPS: &[&[(&str, Map)]] = &[
    arith::OPS,
    attention::OPS,
    control::OPS,
    conv::OPS,
    detect::OPS,
    elementwise::OPS,
    linear::OPS,
    loss::OPS,
    moving::OPS,
    norm::OPS,
    pool::OPS,
    qoperator::OPS,
    quantized::OPS,
    recurrent::OPS,
    reduce::OPS,
    resize::OPS,
    scatter::OPS,
    shape::OPS,
    signal::OPS,
];

/// Operators of a set that is not settled yet.
const PREVIEW: &[&[(&str, Map)]] = &[attention::PREVIEW];

/// Operators of ONNX Runtime's own set.
const MICROSOFT: &[&[(&str, Map)]] = &[qoperator::MICROSOFT, recurrent::MICROSOFT];

/// The function that reads an operator.
fn find(domain: &str, op: &str) -> Option<Map> {
    let set = match domain {
        "" | "ai.onnx" => OPS,
        "ai.onnx.preview" => PREVIEW,
        "com.microsoft" => MICROSOFT,
        _ => return None,
    };
    set.iter().flat_map(|f| f.iter()).find(|(name, _)| *name == op).map(|(_, map)| *map)
}
