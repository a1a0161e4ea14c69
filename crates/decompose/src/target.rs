//! Backend targets: which table and which quantizer a backend asks for, and what fuses there.

use crate::error::{DecomposeError, Result};
use crate::table::Table;
use cleave_ir::op::{Class, Op};

/// A backend: something that runs a graph, or a kind of file that something else runs.
pub trait Target: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &str;
    /// How deep it wants graphs broken up.
    fn table(&self) -> Table;
    /// The quantizer that suits it.
    fn quantizer(&self) -> &str;
    /// Whether it is run here; otherwise it is a file for another runtime.
    fn runs_here(&self) -> bool;
    /// Whether an op behind a convolution or linear layer joins its kernel there.
    fn fuses(&self, op: &Op) -> bool;
}

/// A target that is data.
struct Backend {
    name: &'static str,
    table: fn() -> Table,
    quantizer: &'static str,
    runs_here: bool,
    fuses: fn(&Op) -> bool,
}

impl Target for Backend {
    fn name(&self) -> &str {
        self.name
    }

    fn table(&self) -> Table {
        (self.table)()
    }

    fn quantizer(&self) -> &str {
        self.quantizer
    }

    fn runs_here(&self) -> bool {
        self.runs_here
    }

    fn fuses(&self, op: &Op) -> bool {
        (self.fuses)(op)
    }
}

/// Clamps, which other runtimes absorb into the range of a quantized output.
fn is_clamp(op: &Op) -> bool {
    matches!(op.base(), "relu" | "clamp" | "hardtanh" | "relu6")
}

static BACKENDS: &[Backend] = &[
    // The oracle: exact and slow; it knows prims and a handful of anchors, everything else is its rule.
    Backend { name: "reference", table: Table::core, quantizer: "cpu", runs_here: true, fuses: |_| false },
    // Pointwise programs join kernels as epilogues, however many ops they have.
    Backend {
        name: "cpu",
        table: Table::cpu,
        quantizer: "cpu",
        runs_here: true,
        fuses: |op| op.class == Class::Pointwise,
    },
    Backend { name: "onnx", table: Table::semantic, quantizer: "onnx", runs_here: false, fuses: is_clamp },
    // Its convolutions take pointwise ops along, as ours do.
    Backend {
        name: "openvino",
        table: Table::semantic,
        quantizer: "openvino",
        runs_here: false,
        fuses: |op| op.class == Class::Pointwise,
    },
    Backend { name: "xnnpack", table: Table::empty, quantizer: "xnnpack", runs_here: false, fuses: is_clamp },
    // oneDNN's post-ops, as torch's X86InductorQuantizer has them.
    Backend {
        name: "inductor",
        table: Table::empty,
        quantizer: "x86",
        runs_here: false,
        fuses: |op| is_clamp(op) || matches!(op.base(), "hardswish" | "silu" | "add" | "tanh" | "gelu" | "leaky_relu"),
    },
];

/// All targets.
pub fn targets() -> impl Iterator<Item = &'static dyn Target> {
    BACKENDS.iter().map(|b| b as &dyn Target)
}

/// The target with this name.
///
/// # Errors
/// A name that there is not.
pub fn target(name: &str) -> Result<&'static dyn Target> {
    targets().find(|t| t.name() == name).ok_or_else(|| DecomposeError::UnknownTarget {
        name: name.into(),
        known: targets().map(Target::name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::op;

    #[test]
    fn a_target_has_table_and_quantizer() {
        let rows: Vec<_> =
            targets().map(|t| (t.name().to_string(), t.table().name, t.quantizer().to_string())).collect();
        let row = |a: &str, b: &str, c: &str| (a.to_string(), b.to_string(), c.to_string());
        assert_eq!(
            rows,
            [
                row("reference", "core", "cpu"),
                row("cpu", "cpu", "cpu"),
                row("onnx", "semantic", "onnx"),
                row("openvino", "semantic", "openvino"),
                row("xnnpack", "empty", "xnnpack"),
                row("inductor", "empty", "x86"),
            ]
        );
        let silu = op::find("aten.silu").unwrap();
        let fuses = |name| target(name).unwrap().fuses(silu);
        assert_eq!(["cpu", "openvino", "inductor", "onnx", "xnnpack"].map(fuses), [true, true, true, false, false]);
        let e = target("tpu").err().unwrap().to_string();
        assert_eq!(e, "unknown target 'tpu'; there are: reference, cpu, onnx, openvino, xnnpack, inductor");
    }
}
