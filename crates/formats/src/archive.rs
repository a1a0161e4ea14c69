//! Zip archives in memory: stored entries are regions of the mapped file, deflated ones are inflated once.

use crate::error::{FormatError, Result};
use crate::mapped::{Mapped, part};
use cleave_ir::Bytes;
use indexmap::IndexMap;
use std::io::{Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// No deflated byte stands for more bytes than this.
const DEFLATE_RATIO: u64 = 1032;

/// The bytes of an archive: a mapped file, or an entry of another archive.
#[derive(Clone)]
struct Whole(Arc<dyn Bytes>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// A zip archive in memory.
pub(crate) struct Archive {
    path: PathBuf,
    /// What errors call it: nothing, or the entry that it is.
    label: String,
    whole: Whole,
    zip: ZipArchive<Cursor<Whole>>,
    /// Entry to index, in the archive's order.
    entries: IndexMap<String, usize>,
    /// Entries read so far: uses of one entry share its bytes.
    read: IndexMap<usize, Arc<dyn Bytes>>,
    /// Bytes that may still be inflated. Entries may overlap, so a bound on each is none on their sum.
    budget: u64,
}

impl Archive {
    /// Reads the table of contents.
    pub(crate) fn open(file: Mapped) -> Result<Archive> {
        let path = file.path().to_path_buf();
        let budget = DEFLATE_RATIO.saturating_mul(file.bytes().len() as u64);
        let whole = file.region(0..file.bytes().len())?;
        Archive::of(path, String::new(), Whole(whole), budget)
    }

    /// The archive that is an entry of this one.
    pub(crate) fn within(&mut self, name: &str) -> Result<Archive> {
        let whole = self.entry(name)?;
        Archive::of(self.path.clone(), format!("entry '{name}': "), Whole(whole), self.budget)
    }

    fn of(path: PathBuf, label: String, whole: Whole, budget: u64) -> Result<Archive> {
        // Archives begin with the file. Searching for the beginning is led astray by archives that are entries.
        let config = zip::read::Config { archive_offset: zip::read::ArchiveOffset::Known(0) };
        let mut zip = ZipArchive::with_config(config, Cursor::new(whole.clone())).map_err(|e| {
            let what = format!("{label}not a whole zip archive: {e}; copy or export the file again");
            FormatError::malformed(&path, what)
        })?;
        let mut entries = IndexMap::new();
        for i in 0..zip.len() {
            let entry = zip.by_index_raw(i).map_err(|e| damaged(&path, &format!("entry {i}"), e))?;
            let name = entry.name().map_err(|e| damaged(&path, &format!("entry {i}"), e))?.into_owned();
            if entry.is_dir() {
                continue;
            }
            drop(entry);
            if entries.insert(name.clone(), i).is_some() {
                return Err(FormatError::malformed(&path, format!("{label}two entries named '{name}'")));
            }
        }
        Ok(Archive { path, label, whole, zip, entries, read: IndexMap::new(), budget })
    }

    /// Where the archive lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the entries, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is an entry with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The bytes of an entry; asking again gives the same storage.
    pub(crate) fn entry(&mut self, name: &str) -> Result<Arc<dyn Bytes>> {
        let index = *self
            .entries
            .get(name)
            .ok_or_else(|| FormatError::malformed(&self.path, format!("{}has no entry '{name}'", self.label)))?;
        if let Some(bytes) = self.read.get(&index) {
            return Ok(bytes.clone());
        }
        let bytes = self.load(name, index)?;
        self.read.insert(index, bytes.clone());
        Ok(bytes)
    }

    fn load(&mut self, name: &str, index: usize) -> Result<Arc<dyn Bytes>> {
        let path = &self.path;
        let mut entry = self.zip.by_index(index).map_err(|e| damaged(path, name, e))?;
        let (size, packed) = (entry.size(), entry.compressed_size());
        if entry.compression() == CompressionMethod::Stored {
            let start = entry.data_start().filter(|_| size == packed && !entry.encrypted());
            let start = start.ok_or_else(|| FormatError::malformed(path, format!("entry '{name}' is damaged")))?;
            let end = start.checked_add(size);
            let range = usize::try_from(start).ok().zip(end.and_then(|e| usize::try_from(e).ok()));
            let (from, to) =
                range.ok_or_else(|| FormatError::malformed(path, format!("entry '{name}' reaches past the file")))?;
            drop(entry);
            let reach = || {
                let len = self.whole.as_ref().len();
                FormatError::malformed(path, format!("bytes {from} to {to} of a file of {len}: it is cut short"))
            };
            return part(self.whole.0.clone(), from..to).ok_or_else(reach);
        }
        if size > packed.saturating_mul(DEFLATE_RATIO) || size > self.budget {
            let what = format!("entry '{name}' claims {size} bytes out of {packed}");
            return Err(FormatError::malformed(path, what));
        }
        self.budget -= size;
        let mut bytes = Vec::new();
        // The checksum is compared when the last byte has been read.
        let read = entry.by_ref().take(size.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|e| {
            FormatError::malformed(path, format!("entry '{name}' is damaged: {e}; copy or export the file again"))
        })?;
        if bytes.len() as u64 != size {
            let what = format!("entry '{name}' holds {} bytes, expected {size}", bytes.len());
            return Err(FormatError::malformed(path, what));
        }
        Ok(Arc::new(bytes))
    }
}

fn damaged(path: &Path, name: &str, e: zip::result::ZipError) -> FormatError {
    FormatError::malformed(path, format!("entry '{name}' is damaged: {e}; copy or export the file again"))
}

/// Writes archives whose bytes depend on their contents alone: entries stored, without times, data aligned to 64 bytes.
pub(crate) struct Packer<'p, W: Write + Seek> {
    path: &'p Path,
    zip: ZipWriter<W>,
}

impl<'p, W: Write + Seek> Packer<'p, W> {
    /// Begins an archive; errors name `path`.
    pub(crate) fn new(path: &'p Path, sink: W) -> Self {
        Packer { path, zip: ZipWriter::new(sink) }
    }

    /// Appends an entry.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default())
            .large_file(bytes.len() as u64 >= u64::from(u32::MAX))
            .with_alignment(64);
        let begun = self.zip.start_file(name, options);
        begun.map_err(|e| FormatError::io(self.path, "write", e.into()))?;
        self.zip.write_all(bytes).map_err(|e| FormatError::io(self.path, "write", e))
    }

    /// Writes the table of contents.
    pub(crate) fn finish(self) -> Result<()> {
        self.zip.finish().map(drop).map_err(|e| FormatError::io(self.path, "write", e.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Cursor::new(vec![]);
        let mut p = Packer::new(Path::new("a.zip"), &mut bytes);
        for (name, data) in entries {
            p.add(name, data).unwrap();
        }
        p.finish().unwrap();
        bytes.into_inner()
    }

    #[test]
    fn stored_entries_are_aligned_regions_and_are_shared() {
        let bytes = packed(&[("a", b"one"), ("b/c", &[7; 100])]);
        assert_eq!(bytes, packed(&[("a", b"one"), ("b/c", &[7; 100])]));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        std::fs::write(&path, &bytes).unwrap();
        let mut a = Archive::open(Mapped::open(&path).unwrap()).unwrap();
        assert_eq!(a.names().collect::<Vec<_>>(), ["a", "b/c"]);
        assert_eq!(a.entry("a").unwrap().bytes(), b"one");
        let c = a.entry("b/c").unwrap();
        assert_eq!(c.bytes(), [7; 100]);
        assert_eq!((c.bytes().as_ptr() as usize) % 64, 0);
        assert!(Arc::ptr_eq(&c, &a.entry("b/c").unwrap()));
        assert!(a.entry("c").err().unwrap().to_string().ends_with("has no entry 'c'"));
    }
}
