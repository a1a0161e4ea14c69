//! Names that torch does not give to values.

use cleave_ir::Op;

/// Names that torch's graphs do not give to values: Python's keywords and built-ins, and its own globals.
pub(super) const TAKEN: &str = "False None True and as assert async await break class continue def del elif else except \
    finally for from global if import in is lambda nonlocal not or pass raise return try while with yield \
    abs aiter all any anext ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex \
    copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr \
    globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max \
    memoryview min next object oct open ord pow print property quit range repr reversed round set setattr slice \
    sorted staticmethod str sum super tuple type vars zip \
    inf nan NoneType torch device fx_pytree pytree self";

/// What torch calls the value of an op whose name the file does not state.
pub(super) fn default_name(op: &Op) -> String {
    let base = op.base();
    if TAKEN.split_whitespace().any(|t| t == base) { format!("{base}_1") } else { base.into() }
}
