//! Views as copies: the view, then a copy in row-major order.

use crate::builder::{Call, Value};
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};

/// Core ATen has the view instead.
const SPELLED: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };
/// torch's table has no entry for it.
const KEPT: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..SPELLED };

fn copied(x: Value<'_>) -> Value<'_> {
    x.op("aten.clone", vec!["contiguous_format".into()])
}

/// Copies of what the view op gives on the same arguments.
fn copy_of<'b>(c: &Call<'b>, view: &str) -> Vec<Value<'b>> {
    let made = c.b.call(view, c.args.to_vec());
    match made.meta() {
        Meta::Tuple(items) => (0..items.len()).map(|i| copied(c.b.getitem(made, i))).collect(),
        _ => vec![copied(made)],
    }
}

macro_rules! copies {
    ($($(#[$doc:meta])* $id:ident = $base:ident $name:literal, $view:literal, $schema:literal, $example:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: $schema,
            example: $example,
            rule: Some(|c| copy_of(c, $view)),
            ..$base
        };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id),*]];
    };
}

copies! {
    /// Copy of `alias`.
    ALIAS = SPELLED "aten.alias_copy.default", "aten.alias", "(Tensor self) -> Tensor", "f32[2, 3]";
    /// Copy of `as_strided`.
    AS_STRIDED = KEPT "aten.as_strided_copy.default", "aten.as_strided",
        "(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor", "f32[2, 3], [2, 2], [3, 1], 1";
    /// Copy of `detach`.
    DETACH = KEPT "aten.detach_copy.default", "aten.detach", "(Tensor self) -> Tensor", "f32[2, 3]";
    /// Copy of `diagonal`.
    DIAGONAL = SPELLED "aten.diagonal_copy.default", "aten.diagonal",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", "f32[2, 3], 1";
    /// Copy of `expand`.
    EXPAND = SPELLED "aten.expand_copy.default", "aten.expand",
        "(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor", "f32[3], [2, 3]";
    /// Copy of `narrow`.
    NARROW = KEPT "aten.narrow_copy.default", "aten.narrow",
        "(Tensor self, int dim, SymInt start, SymInt length) -> Tensor", "f32[4], 0, 1, 2";
    /// Copy of `permute`.
    PERMUTE = KEPT "aten.permute_copy.default", "aten.permute", "(Tensor self, int[] dims) -> Tensor", "f32[2, 3], [1, 0]";
    /// Copy of `select`.
    SELECT = KEPT "aten.select_copy.int", "aten.select.int", "(Tensor self, int dim, SymInt index) -> Tensor", "f32[2, 3], 1, -1";
    /// Copy of `slice`.
    SLICE = KEPT "aten.slice_copy.Tensor", "aten.slice.Tensor",
        "(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor", "f32[5], 0, 1, 4, 2";
    /// Copies of the parts of `split`.
    SPLIT = KEPT "aten.split_copy.Tensor", "aten.split.Tensor",
        "(Tensor self, SymInt split_size, int dim=0) -> Tensor[]", "f32[5], 2";
    /// Copies of the parts of `split_with_sizes`.
    SPLIT_WITH_SIZES = SPELLED "aten.split_with_sizes_copy.default", "aten.split_with_sizes",
        "(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]", "f32[5], [2, 3]";
    /// Copy of `squeeze`.
    SQUEEZE = SPELLED "aten.squeeze_copy.default", "aten.squeeze", "(Tensor self) -> Tensor", "f32[2, 1, 3]";
    /// Copy of `squeeze` of one dimension.
    SQUEEZE_DIM = SPELLED "aten.squeeze_copy.dim", "aten.squeeze.dim", "(Tensor self, int dim) -> Tensor", "f32[2, 1], 1";
    /// Copy of `squeeze` of dimensions.
    SQUEEZE_DIMS = SPELLED "aten.squeeze_copy.dims", "aten.squeeze.dims", "(Tensor self, int[] dim) -> Tensor", "f32[2, 1], [1]";
    /// Copy of `t`.
    T = SPELLED "aten.t_copy.default", "aten.t", "(Tensor self) -> Tensor", "f32[2, 3] | f32[2]";
    /// Copy of `transpose`.
    TRANSPOSE = SPELLED "aten.transpose_copy.int", "aten.transpose.int", "(Tensor self, int dim0, int dim1) -> Tensor", "f32[2, 3], 0, 1";
    /// Copies of the parts of `unbind`.
    UNBIND = KEPT "aten.unbind_copy.int", "aten.unbind.int", "(Tensor self, int dim=0) -> Tensor[]", "f32[2, 3], 1";
    /// Copy of `unfold`.
    UNFOLD = SPELLED "aten.unfold_copy.default", "aten.unfold",
        "(Tensor self, int dimension, int size, int step) -> Tensor", "f32[5], 0, 3, 1";
    /// Copy of `unsqueeze`.
    UNSQUEEZE = SPELLED "aten.unsqueeze_copy.default", "aten.unsqueeze", "(Tensor self, int dim) -> Tensor", "f32[2, 3], 1";
    /// Copy of `view`.
    VIEW = KEPT "aten.view_copy.default", "aten.view", "(Tensor self, SymInt[] size) -> Tensor", "f32[2, 3], [3, 2]";
}
