//! Files mapped into memory, and regions of them as the bytes of tensors.

use crate::error::{FormatError, Result};
use cleave_ir::Bytes;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file in memory, read page by page when its bytes are touched. Cloning shares the mapping.
#[derive(Clone)]
pub struct Mapped {
    path: Arc<PathBuf>,
    map: Arc<Option<Mmap>>,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// A region of a mapped file; keeps the mapping alive.
struct Region {
    file: Mapped,
    range: Range<usize>,
}

impl Bytes for Region {
    fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }
}

/// A part of shared bytes; keeps the whole alive.
struct Part {
    whole: Arc<dyn Bytes>,
    range: Range<usize>,
}

impl Bytes for Part {
    fn bytes(&self) -> &[u8] {
        &self.whole.bytes()[self.range.clone()]
    }
}

/// Shared bytes without their first `start`; none if there are not so many.
pub(crate) fn behind(whole: Arc<dyn Bytes>, start: usize) -> Option<Arc<dyn Bytes>> {
    let end = whole.bytes().len();
    part(whole, start..end)
}

/// A range of shared bytes; none if they do not have it.
pub(crate) fn part(whole: Arc<dyn Bytes>, range: Range<usize>) -> Option<Arc<dyn Bytes>> {
    let inside = range.start <= range.end && range.end <= whole.bytes().len();
    inside.then(|| Arc::new(Part { whole, range }) as Arc<dyn Bytes>)
}

impl Mapped {
    /// Maps a file. The file must not be made shorter while it is in use: writers here replace a file by
    /// renaming, which leaves a mapping of the old one whole.
    ///
    /// # Errors
    /// [`FormatError::Io`] for a file that is missing or not readable; a folder is named as such.
    pub fn open(path: &Path) -> Result<Mapped> {
        let read = |e| FormatError::io(path, "read", e);
        let file = File::open(path).map_err(read)?;
        let meta = file.metadata().map_err(read)?;
        if meta.is_dir() {
            return Err(FormatError::malformed(path, "it is a folder, expected a file"));
        }
        // An empty file has no pages to map.
        let map = if meta.len() == 0 { None } else { Some(map(&file).map_err(read)?) };
        Ok(Mapped { path: Arc::new(path.into()), map: Arc::new(map) })
    }

    /// Where the file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// A part of the file as the storage of tensors.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] for a region that the file does not have.
    pub fn region(&self, range: Range<usize>) -> Result<Arc<dyn Bytes>> {
        let len = self.bytes().len();
        if range.start > range.end || range.end > len {
            let what = format!("bytes {} to {} of a file of {len}: it is cut short", range.start, range.end);
            return Err(FormatError::malformed(&self.path, what));
        }
        Ok(Arc::new(Region { file: self.clone(), range }))
    }
}

#[allow(unsafe_code, reason = "mapping a file has no safe form")]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the mapping is read-only and private to this process; what is left to the caller, that nobody
    // shortens or rewrites the file in place meanwhile, is stated on `Mapped::open`. Readers check what they
    // take from the bytes once, copy what they decide on, and use the rest as plain numbers.
    unsafe { Mmap::map(file) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_share_the_mapping_and_stay_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"0123456789").unwrap();
        let m = Mapped::open(&path).unwrap();
        let r = m.region(2..5).unwrap();
        drop(m.clone());
        assert_eq!(r.bytes(), b"234");
        assert!(m.region(5..11).is_err());
        #[allow(clippy::reversed_empty_ranges, reason = "the case under test")]
        let reversed = m.region(5..4);
        assert!(reversed.is_err());
    }

    #[test]
    fn empty_and_missing_files_and_folders_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert_eq!(Mapped::open(&path).unwrap().bytes(), b"");
        let missing = Mapped::open(&dir.path().join("none")).err().unwrap().to_string();
        assert!(missing.contains("cannot read"), "{missing}");
        let folder = Mapped::open(dir.path()).err().unwrap().to_string();
        assert!(folder.ends_with("it is a folder, expected a file"), "{folder}");
    }
}
