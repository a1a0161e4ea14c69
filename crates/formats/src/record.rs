//! Files of one value: what Cleave keeps between two commands.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | what kind of file it is |
//! | 8..16 | version, little-endian |
//! | 16..24 | XXH3 of the rest |
//! | 24.. | the value in bincode |
//!
//! The same value gives the same bytes.

use crate::codec;
use crate::error::{FormatError, Result};
use crate::mapped::Mapped;
use serde::{Serialize, de::DeserializeOwned};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

const HEADER: usize = 24;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What it begins with.
    pub magic: [u8; 8],
    /// The version that is written and read.
    pub version: u64,
    /// What it is called in errors.
    pub name: &'static str,
    /// What to do about a file that is of no use.
    pub remedy: &'static str,
}

/// Writes a value.
///
/// # Errors
/// A file that cannot be written; then no file is left.
pub fn write<T: Serialize>(path: &Path, kind: Kind, value: &T) -> Result<()> {
    let body = codec::encode(value).map_err(|why| FormatError::malformed(path, why))?;
    let mut bytes = kind.magic.to_vec();
    bytes.extend_from_slice(&kind.version.to_le_bytes());
    bytes.extend_from_slice(&xxh3_64(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    crate::atomic::write_bytes(path, &bytes)
}

/// Reads a value. What it means is the caller's to check.
///
/// # Errors
/// Another kind of file, another version, a file that is cut short or damaged.
pub fn read<T: DeserializeOwned>(path: &Path, kind: Kind) -> Result<T> {
    let file = Mapped::open(path)?;
    let bytes = file.bytes();
    if !bytes.starts_with(&kind.magic) {
        return Err(FormatError::malformed(path, format!("no {} file", kind.name)));
    }
    let unfit = |what: String| FormatError::unsupported(path, what, kind.remedy);
    let damaged = || unfit(format!("the {} file is damaged", kind.name));
    let word = |at: usize| bytes.get(at..at + 8).and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?)));
    let version = word(8).ok_or_else(damaged)?;
    if version != kind.version {
        return Err(unfit(format!("a {} file of version {version}; this program reads {}", kind.name, kind.version)));
    }
    let body = bytes.get(HEADER..).ok_or_else(damaged)?;
    if word(16) != Some(xxh3_64(body)) {
        return Err(damaged());
    }
    codec::decode(body).map_err(|_| damaged())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { magic: *b"\x89TST\r\n\x1a\n", version: 3, name: "test", remedy: "write it again" };

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tst");
        let value = (vec![1.5f32, -2.0], Some("text".to_string()), u64::MAX);
        write(&path, KIND, &value).unwrap();
        let read_it = || {
            read::<(Vec<f32>, Option<String>, u64)>(&path, KIND)
                .map_err(|e| e.to_string().replace(&path.display().to_string(), "F"))
        };
        assert_eq!(read_it().unwrap(), value);
        let good = std::fs::read(&path).unwrap();
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] ^= 1;
            std::fs::write(&path, &bad).unwrap();
            assert!(read_it().is_err(), "byte {i}");
            std::fs::write(&path, &good[..i]).unwrap();
            assert!(read_it().is_err(), "{i} bytes");
        }
        std::fs::write(&path, [&good[..8], &[9, 0, 0, 0, 0, 0, 0, 0], &good[16..]].concat()).unwrap();
        assert_eq!(read_it().unwrap_err(), "F: a test file of version 9; this program reads 3; write it again");
        std::fs::write(&path, b"PK").unwrap();
        assert_eq!(read_it().unwrap_err(), "F: no test file");
    }

    /// A length that the file claims, and that the checksum vouches for, takes no memory.
    #[test]
    fn claims_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tst");
        for claim in [u64::MAX, 1 << 40, 1 << 30] {
            let body = [&[253u8][..], &claim.to_le_bytes()].concat();
            let mut bytes = KIND.magic.to_vec();
            bytes.extend_from_slice(&3u64.to_le_bytes());
            bytes.extend_from_slice(&xxh3_64(&body).to_le_bytes());
            bytes.extend_from_slice(&body);
            std::fs::write(&path, bytes).unwrap();
            let e = read::<Vec<u64>>(&path, KIND).unwrap_err().to_string();
            assert!(e.contains("damaged"), "{e}");
        }
    }
}
