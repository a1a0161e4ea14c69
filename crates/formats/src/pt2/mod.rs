//! The .pt2 files of `torch.export`: a zip archive with the program as JSON and the weights as raw bytes.
//!
//! Read are the layouts of torch 2.5 and later. Up to torch 2.8 the weights are in archives of `torch.save`, of
//! which the part that tensors need is read as data (`pickle`). Sample inputs are never opened.

mod args;
mod body;
mod layout;
mod names;
mod pickle;
mod prepared;
mod read;
mod schema;
mod sympy;
mod weights;
mod write;

pub use write::write_pt2;

use crate::archive::Archive;
use crate::error::{FormatError, Result};
use crate::mapped::Mapped;
use cleave_ir::{Dim, Graph};
use std::path::Path;

/// Before the keys of [`Graph::metadata`] where they stand in a program's own metadata.
const FACT: &str = "cleave.";
/// Major versions of the JSON's schema that are read.
const SCHEMAS: std::ops::RangeInclusive<i64> = 5..=8;

/// Reads an exported program as the file has it: in-place ops, dropout and all, in ATen vocabulary.
///
/// * Every parameter, buffer and tensor constant of the signature becomes a constant node named as in the
///   file (`p_stem_0_weight`) whose target is the dotted name (`stem.0.weight`), used or not, as torch counts them.
/// * A result of an op with several results becomes a `getitem` node, unless the file calls it unused.
/// * What the program asserts of sizes is in the ranges of [`Graph::symbols`].
/// * A graph that is the argument of an op is read into [`cleave_ir::Arg::Graph`]; one that only runs without
///   gradients or in lower precision is part of the graph, with the casts that the latter means.
/// * A call that observes and fake-quantizes is the latter alone where its observer is off, and refused where it is on.
/// * Buffers that the program writes back, and results that are no tensors, are named in `Graph::metadata["dropped"]`.
/// * Results in dictionaries are called by their keys (`boxes.0`).
///
/// # Errors
/// [`FormatError`]: a file that is damaged, of another layout, or whose nodes cannot all be understood (then
/// all of them are listed).
pub fn read_pt2(path: &Path) -> Result<Graph> {
    read_archive(Archive::open(Mapped::open(path)?)?)
}

/// [`read_pt2`] from an archive that is open.
pub(crate) fn read_archive(mut archive: Archive) -> Result<Graph> {
    let place = layout::locate(&mut archive)?;
    let json = archive.entry(&place.json)?;
    let path = archive.path().to_path_buf();
    let program: schema::Program = schema::parse(json.bytes())
        .map_err(|e| FormatError::malformed(&path, format!("{}: {e}; copy or export the file again", place.json)))?;
    drop(json);
    if !SCHEMAS.contains(&program.schema_version.major) {
        let written = program.torch_version.as_deref().map(|v| format!(" by torch {v}")).unwrap_or_default();
        let (major, minor) = (program.schema_version.major, program.schema_version.minor);
        return Err(FormatError::unsupported(
            &path,
            format!("schema version {major}.{minor}, written{written}; expected 5.x to 8.x"),
            layout::REMEDY,
        ));
    }
    let weights = weights::Weights::open(&mut archive, &place.tensors)?;
    read::Reader::new(&mut archive, &weights, &program).read()
}

/// Sizes as the JSON has them: `{"as_int": n}` or `{"as_expr": {"expr_str": …}}`.
fn sizes(list: &[serde_json::Value]) -> std::result::Result<Vec<Dim>, String> {
    list.iter().map(size).collect()
}

fn size(v: &serde_json::Value) -> std::result::Result<Dim, String> {
    let found = match schema::union(v) {
        Some(("as_int", n)) => n.as_i64().map(Dim::from),
        Some(("as_expr", e)) => {
            let text = e.get("expr_str").and_then(serde_json::Value::as_str).unwrap_or_default();
            return sympy::parse(text).ok_or_else(|| format!("size '{text}' cannot be understood"));
        }
        _ => None,
    };
    found.ok_or_else(|| format!("expected a size, found {v}"))
}
