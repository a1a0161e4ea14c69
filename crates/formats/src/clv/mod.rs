//! `.clv`, Cleave's own container: a graph of any stage with its constants, mapped when it is read.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `89 "CLV" 0D 0A 1A 0A`: shows what text transfer or a stripped eighth bit did to a file |
//! | 8..16 | version, little-endian |
//! | 16..24, 24..32 | length and XXH3 of the metadata |
//! | 32..40 | length of the file |
//! | 40..48 | XXH3 of the 40 bytes before |
//! | 64.. | the metadata (`mirror`, in bincode), then the sections, each at a multiple of 64 with zeros before it |
//!
//! A section holds the elements of a tensor in row-major order and has its checksum in the metadata. The same
//! graph gives the same bytes.

mod mirror;
mod restore;
mod store;

use crate::atomic::{self, Sink};
use crate::codec;
use crate::error::{FormatError, Result};
use crate::mapped::Mapped;
use cleave_ir::{Bytes, Graph, Levels, verify::verify};
use indexmap::IndexMap;
use mirror::Model;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"\x89CLV\r\n\x1a\n";
/// The version that is written and read.
pub const VERSION: u64 = 2;
const ALIGN: u64 = 64;
const HEADER: usize = 64;

/// Writes a graph, and what else is to be kept with it (which quantizer, from which model, …).
///
/// # Errors
/// A graph that does not verify, or a file that cannot be written; then no file is left.
pub fn write_clv(path: &Path, graph: &Graph, extra: &IndexMap<String, String>) -> Result<()> {
    verify(graph, Levels::ALL).map_err(|e| FormatError::ir(path, e))?;
    let (model, tensors) = store::store(graph, extra).map_err(|why| FormatError::malformed(path, why))?;
    let metadata = codec::encode(&model).map_err(|why| FormatError::malformed(path, why))?;
    let begin = (HEADER as u64 + metadata.len() as u64).next_multiple_of(ALIGN);
    let size = begin + model.sections.last().map_or(0, |s| s.offset + s.len);
    atomic::write(path, |sink| {
        let write = |sink: &mut dyn Sink, b: &[u8]| sink.write_all(b).map_err(|e| FormatError::io(path, "write", e));
        let pad = |sink: &mut dyn Sink, at: u64| write(sink, &[0; 64][..(at.next_multiple_of(ALIGN) - at) as usize]);
        write(sink, &header(&metadata, size))?;
        write(sink, &metadata)?;
        let mut at = HEADER as u64 + metadata.len() as u64;
        for t in tensors {
            pad(sink, at)?;
            let bytes = t.to_bytes();
            write(sink, &bytes)?;
            at = at.next_multiple_of(ALIGN) + bytes.len() as u64;
        }
        // Without sections the file still ends where it says.
        if at < size { pad(sink, at) } else { Ok(()) }
    })
}

fn header(metadata: &[u8], size: u64) -> [u8; HEADER] {
    let mut h = [0; HEADER];
    h[..8].copy_from_slice(&MAGIC);
    for (i, v) in [VERSION, metadata.len() as u64, xxh3_64(metadata), size].into_iter().enumerate() {
        h[8 + 8 * i..16 + 8 * i].copy_from_slice(&v.to_le_bytes());
    }
    let hash = xxh3_64(&h[..40]);
    h[40..48].copy_from_slice(&hash.to_le_bytes());
    h
}

/// Reads a graph and what was kept with it. The elements of constants stay in the mapped file; all checksums
/// are compared.
///
/// # Errors
/// [`FormatError`]: another kind of file, another version, a file that is cut short or damaged.
pub fn read_clv(path: &Path) -> Result<(Graph, IndexMap<String, String>)> {
    read_mapped(&Mapped::open(path)?)
}

/// [`read_clv`] from a file that is mapped.
pub(crate) fn read_mapped(file: &Mapped) -> Result<(Graph, IndexMap<String, String>)> {
    let path = file.path();
    let damaged = |what: &str| {
        FormatError::unsupported(path, format!("the .clv file is damaged: {what}"), "copy or quantize the model again")
    };
    let (model, begin) = metadata(file, &damaged)?;
    let mut sections: Vec<Arc<dyn Bytes>> = Vec::new();
    for (i, s) in model.sections.iter().enumerate() {
        let place = begin.checked_add(s.offset).and_then(|from| Some((from, from.checked_add(s.len)?)));
        let place = place.and_then(|(a, b)| Some((usize::try_from(a).ok()?, usize::try_from(b).ok()?)));
        let (from, to) = place.ok_or_else(|| damaged(&format!("section {i} lies outside")))?;
        let bytes = file.region(from..to).map_err(|_| damaged(&format!("section {i} lies outside")))?;
        if xxh3_64(bytes.bytes()) != s.hash {
            return Err(damaged(&format!("the checksum of section {i} differs")));
        }
        sections.push(bytes);
    }
    let (graph, extra) = restore::restore(model, &sections).map_err(|why| damaged(&why))?;
    verify(&graph, Levels::ALL).map_err(|e| FormatError::ir(path, e))?;
    Ok((graph, extra))
}

/// The metadata, and where sections count from.
fn metadata(file: &Mapped, damaged: &dyn Fn(&str) -> FormatError) -> Result<(Model, u64)> {
    let bytes = file.bytes();
    if !bytes.starts_with(&MAGIC) {
        return Err(FormatError::malformed(file.path(), "not a .clv file"));
    }
    let header = bytes.get(..HEADER).ok_or_else(|| damaged("it is cut short"))?;
    let word = |i: usize| header[8 * i..8 * i + 8].iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    if word(5) != xxh3_64(&header[..40]) || header[48..].iter().any(|b| *b != 0) {
        return Err(damaged("the checksum of its head differs"));
    }
    if word(1) != VERSION {
        return Err(FormatError::unsupported(
            file.path(),
            format!("a .clv file of version {}, expected {VERSION}", word(1)),
            "quantize the model again with this version of Cleave",
        ));
    }
    if word(4) != bytes.len() as u64 {
        return Err(damaged(&format!("it has {} bytes, expected {}", bytes.len(), word(4))));
    }
    let end = usize::try_from(word(2)).ok().and_then(|n| HEADER.checked_add(n));
    let data = end.and_then(|end| bytes.get(HEADER..end)).ok_or_else(|| damaged("it is cut short"))?;
    if xxh3_64(data) != word(3) {
        return Err(damaged("the checksum of its metadata differs"));
    }
    let model = codec::decode(data).map_err(|why| damaged(&why))?;
    Ok((model, (HEADER as u64 + data.len() as u64).next_multiple_of(ALIGN)))
}

#[cfg(test)]
mod tests;
