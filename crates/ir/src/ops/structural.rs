//! Tuples, sizes, and what has no effect.

use super::infer;
use crate::builder::Call;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};

/// One of several results.
pub static GETITEM: OpDef = OpDef {
    name: "getitem",
    schema: "(Tensor self, int index) -> Tensor",
    class: Class::Structural,
    levels: Levels::ALL,
    infer: Some(getitem),
    ..OpDef::BASE
};

fn getitem(c: &Call<'_>) -> Result<Meta> {
    let index = c.int("index");
    let meta = c.arg("self").nodes().first().map(|n| c.b.with_graph(|g| g.node(*n).meta.clone()));
    match meta {
        Some(Meta::Tuple(items)) => {
            let item = usize::try_from(index).ok().and_then(|i| items.get(i)).cloned();
            item.ok_or_else(|| c.err(&format!("result {index} of {}", items.len())))
        }
        other => Err(c.err(&format!("expected several results, found {other:?}"))),
    }
}

/// The size of one dimension.
pub static SYM_SIZE: OpDef = OpDef {
    name: "aten.sym_size.int",
    schema: "(Tensor self, int dim) -> SymInt",
    class: Class::Structural,
    levels: Levels::ALL,
    infer: Some(sym_size),
    ..OpDef::BASE
};

fn sym_size(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    Ok(Meta::Int(m.shape[c.axis("dim", m.shape.len())?].clone()))
}

/// Dropout; at inference its input.
pub static DROPOUT: OpDef = OpDef {
    name: "aten.dropout.default",
    schema: "(Tensor input, float p, bool train) -> Tensor",
    class: Class::Inert,
    levels: Levels::TORCH,
    infer: Some(infer::same),
    rule: Some(|c| {
        if c.bool("train") {
            c.fail("dropout in training mode; export the model after .eval()");
        }
        vec![c.tensor("input")]
    }),
    functional: Functional::Always,
    ..OpDef::BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[&GETITEM, &SYM_SIZE, &DROPOUT];
