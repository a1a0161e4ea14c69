//! Kernels over rows and matrices: softmax, layer norm, reductions, products, resizing, sums of levels.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use cleave_kernels::Isa;
use cleave_kernels::gemm_f32::MatMulF32;
use cleave_kernels::layer_norm::LayerNorm;
use cleave_kernels::lut::Lut;
use cleave_kernels::pointwise::Quantize;
use cleave_kernels::qbinary::{Gate, QBinary};
use cleave_kernels::quant::quantize_from_nchw;
use cleave_kernels::reduce::{Reduction, reduce};
use cleave_kernels::resize::Resize;
use cleave_kernels::softmax::{log_softmax, softmax};

/// A kernel that takes whole dense operands.
pub(crate) enum Dense {
    /// Softmax over rows, or its logarithm.
    Softmax {
        /// Instruction set.
        isa: Isa,
        /// Rows and their length.
        dims: [usize; 2],
        /// Whether the logarithm is meant.
        log: bool,
    },
    /// Layer norm over rows.
    LayerNorm(LayerNorm),
    /// A reduction of `[outer, axis, inner]`.
    Reduce(Isa, Reduction, [usize; 3]),
    /// Variance (with its correction), then mean, of `[outer, axis, inner]`.
    VarMean(Isa, f32, [usize; 3]),
    /// A batch of products.
    MatMul(MatMulF32),
    /// Resized images of floats, or of bytes.
    Resize(Resize, bool),
    /// A function of bytes.
    Lut(Lut),
    /// A sum or product of levels.
    QBinary(QBinary),
    /// The same with one level for each image and channel as the second operand: `[n, pixels, c]`.
    QGate(QBinary, [usize; 3]),
    /// The same in fixed point.
    Gate(Gate, [usize; 3]),
    /// `[n, c, pixels]` of floats as levels with the channels last.
    QuantizeNchw(Isa, Quantize, [usize; 3]),
}

impl Kernel for Dense {
    fn name(&self) -> String {
        match self {
            Dense::Softmax { log: false, .. } => "softmax_f32".into(),
            Dense::Softmax { .. } => "log_softmax_f32".into(),
            Dense::LayerNorm(_) => "layer_norm_f32".into(),
            Dense::Reduce(..) => "reduce_f32".into(),
            Dense::VarMean(..) => "var_mean_f32".into(),
            Dense::MatMul(_) => "matmul_f32".into(),
            Dense::Resize(_, false) => "resize_f32".into(),
            Dense::Resize(..) => "resize_u8".into(),
            Dense::Lut(lut) => lut.kernel_name(),
            Dense::QBinary(q) | Dense::QGate(q, _) => q.kernel_name(),
            Dense::Gate(g, _) => g.kernel_name(),
            Dense::QuantizeNchw(..) => "quantize_nchw".into(),
        }
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        if let Dense::MatMul(m) = self { m.scratch_bytes(threads) } else { 0 }
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (pool, x, y) = (io.pool, io.reads[0], &mut *io.writes[0]);
        match self {
            Dense::Softmax { isa, dims, log: false } => softmax(*isa, pool, *dims, floats(x), floats_mut(y))?,
            Dense::Softmax { isa, dims, .. } => log_softmax(*isa, pool, *dims, floats(x), floats_mut(y))?,
            Dense::LayerNorm(norm) => norm.run(pool, floats(x), floats_mut(y))?,
            Dense::Reduce(isa, op, dims) => reduce(*isa, pool, *op, *dims, floats(x), floats_mut(y))?,
            Dense::VarMean(isa, correction, dims) => {
                let (var, mean) = floats_mut(y).split_at_mut(dims[0] * dims[2]);
                reduce(*isa, pool, Reduction::Variance { correction: *correction }, *dims, floats(x), var)?;
                reduce(*isa, pool, Reduction::Mean, *dims, floats(x), mean)?;
            }
            Dense::MatMul(m) => m.run(pool, floats(x), floats(io.reads[1]), floats_mut(y), io.scratch)?,
            Dense::Resize(r, false) => r.run_f32(pool, floats(x), floats_mut(y))?,
            Dense::Resize(r, true) => r.run_u8(pool, x, y)?,
            Dense::Lut(lut) => lut.run(pool, x, y)?,
            Dense::QGate(q, dims) => q.run_gate(pool, *dims, x, io.reads[1], y)?,
            Dense::Gate(g, dims) => g.run(pool, *dims, x, io.reads[1], y)?,
            Dense::QBinary(q) => q.run(pool, x, io.reads[io.reads.len() - 1], y)?,
            Dense::QuantizeNchw(isa, q, dims) => quantize_from_nchw(*isa, pool, q, *dims, floats(x), y)?,
        }
        Ok(())
    }
}
