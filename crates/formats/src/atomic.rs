//! Writing a file so that it is there whole or not at all: beside its place first, then renamed.

use crate::error::{FormatError, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// Where a writer puts a file's bytes.
pub trait Sink: Write + Seek {}
impl<T: Write + Seek> Sink for T {}

/// Writes a file through `fill`. The file appears under its name, replacing an older one, only when `fill`
/// has succeeded; otherwise nothing is left behind. A symbolic link is followed; something other than a
/// plain file, such as a device, is written in place.
///
/// # Errors
/// What `fill` returned, or [`FormatError::Io`] naming the path: a folder that is missing or not writable,
/// a full disk.
pub fn write(path: &Path, fill: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<()> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let kind = fs::metadata(&place).ok();
    if kind.as_ref().is_some_and(|m| !m.is_file() && !m.is_dir()) {
        let file = File::options().write(true).open(&place).map_err(|e| FormatError::io(path, "write", e))?;
        return into(path, file, fill).map(drop);
    }
    if kind.is_some_and(|m| m.is_dir()) {
        return Err(FormatError::malformed(path, "cannot write: it is a folder, expected a file name"));
    }
    let folder = match place.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut options = tempfile::Builder::new();
    options.prefix(".").suffix(".part");
    #[cfg(unix)]
    let options = {
        use std::os::unix::fs::PermissionsExt;
        // As for any new file, the process's mask then takes bits away.
        options.permissions(fs::Permissions::from_mode(0o666))
    };
    let (file, temporary) = options.tempfile_in(&folder).map_err(|e| FormatError::io(path, "create", e))?.into_parts();
    into(path, file, fill)?;
    temporary.persist(&place).map_err(|e| FormatError::io(path, "create", e.error))
}

/// [`write`] for bytes that are already there.
///
/// # Errors
/// As [`write`].
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, |w| w.write_all(bytes).map_err(|e| FormatError::io(path, "write", e)))
}

/// Fails if a file could not be written there: for telling so before long work, not after it.
///
/// # Errors
/// As [`write`].
pub fn check_writable(path: &Path) -> Result<()> {
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    match fs::metadata(&place) {
        Ok(m) if m.is_dir() => Err(FormatError::malformed(path, "cannot write: it is a folder, expected a file name")),
        Ok(m) if !m.is_file() => Ok(()),
        _ => {
            let folder = place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            tempfile::tempfile_in(folder).map(drop).map_err(|e| FormatError::io(path, "create", e))
        }
    }
}

fn into(path: &Path, file: File, fill: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<File> {
    let mut w = BufWriter::with_capacity(1 << 18, file);
    fill(&mut w)?;
    w.into_inner().map_err(|e| FormatError::io(path, "write", e.into_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.bin");
        write_bytes(&path, b"first").unwrap();
        let failed = write(&path, |w| {
            w.write_all(b"sec").unwrap();
            Err(FormatError::malformed(Path::new("x"), "gave up"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "x: gave up");
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "the temporary file is gone");
        write_bytes(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/folder/out.bin");
        let e = write_bytes(&missing, b"").unwrap_err().to_string();
        assert!(e.starts_with(&missing.display().to_string()) && e.contains("cannot create"), "{e}");
        let e = write_bytes(dir.path(), b"").unwrap_err().to_string();
        assert!(e.contains("it is a folder"), "{e}");
    }
}
