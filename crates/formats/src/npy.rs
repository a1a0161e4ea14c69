//! NumPy's .npy and .npz files.
//!
//! The header is parsed here, by a grammar of a dozen lines: what it may say is fixed, and a general parser
//! of Python literals would follow hostile nesting and lengths.

use crate::archive::{Archive, Packer};
use crate::atomic;
use crate::error::{FormatError, Result};
use crate::mapped::{Mapped, behind};
use cleave_ir::{Bytes, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8] = b"\x93NUMPY";
/// A header is a dictionary of three short entries.
const HEADER_LIMIT: usize = 1 << 16;

/// The element types that NumPy has, by the code behind the byte order.
const CODES: [(DType, &str); 12] = [
    (DType::F32, "f4"),
    (DType::F64, "f8"),
    (DType::F16, "f2"),
    (DType::U8, "u1"),
    (DType::I8, "i1"),
    (DType::Bool, "b1"),
    (DType::I64, "i8"),
    (DType::I32, "i4"),
    (DType::I16, "i2"),
    (DType::U16, "u2"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
];

/// Reads an array; its elements stay in the mapped file.
///
/// # Errors
/// [`FormatError`]: a file that is no array, is cut short, or holds elements that are not little-endian numbers.
pub fn read_npy(path: &Path) -> Result<Tensor> {
    let file = Mapped::open(path)?;
    let whole = file.region(0..file.bytes().len())?;
    parse(whole).map_err(|why| FormatError::malformed(path, why))
}

/// Reads an archive of arrays, in its order, by name without the `.npy`.
///
/// # Errors
/// As [`read_npy`], naming the array.
pub fn read_npz(path: &Path) -> Result<IndexMap<String, Tensor>> {
    let mut archive = Archive::open(Mapped::open(path)?)?;
    let names: Vec<String> = archive.names().map(String::from).collect();
    let mut arrays = IndexMap::new();
    for entry in names {
        let name = entry.strip_suffix(".npy").unwrap_or(&entry).to_string();
        let array = parse(archive.entry(&entry)?);
        let array = array.map_err(|why| FormatError::malformed(path, format!("array '{name}': {why}")))?;
        if arrays.insert(name.clone(), array).is_some() {
            return Err(FormatError::malformed(path, format!("two arrays named '{name}'")));
        }
    }
    Ok(arrays)
}

/// Writes an array, elements in row-major order.
///
/// # Errors
/// A type that NumPy lacks (bf16, f8), or a file that cannot be written.
pub fn write_npy(path: &Path, t: &Tensor) -> Result<()> {
    let bytes = encode(t).map_err(|why| FormatError::data(path, why))?;
    atomic::write_bytes(path, &bytes)
}

/// Writes an archive of arrays in the map's order. The same arrays give the same bytes.
///
/// # Errors
/// As [`write_npy`], naming the array.
pub fn write_npz(path: &Path, arrays: &IndexMap<String, Tensor>) -> Result<()> {
    atomic::write(path, |sink| {
        let mut packer = Packer::new(path, sink);
        for (name, t) in arrays {
            let bytes = encode(t).map_err(|why| FormatError::data(path, format!("array '{name}': {why}")))?;
            packer.add(&format!("{name}.npy"), &bytes)?;
        }
        packer.finish()
    })
}

/// An array out of the bytes of a .npy file.
fn parse(whole: Arc<dyn Bytes>) -> std::result::Result<Tensor, String> {
    let bytes = whole.bytes();
    let rest = bytes.strip_prefix(MAGIC).ok_or("not a .npy file")?;
    let (major, rest) = rest.split_first().ok_or("cut short")?;
    let rest = rest.get(1..).ok_or("cut short")?;
    let (len, rest) = match major {
        1 => rest.split_first_chunk::<2>().map(|(n, r)| (usize::from(u16::from_le_bytes(*n)), r)),
        2 | 3 => rest
            .split_first_chunk::<4>()
            .map(|(n, r)| (usize::try_from(u32::from_le_bytes(*n)).unwrap_or(usize::MAX), r)),
        v => return Err(format!(".npy version {v}, expected 1 to 3")),
    }
    .ok_or("cut short")?;
    let text = rest.get(..len).filter(|_| len <= HEADER_LIMIT).ok_or("the header is cut short")?;
    let text = std::str::from_utf8(text).map_err(|_| "the header is not text")?;
    let header = Header::parse(text).ok_or_else(|| format!("header '{}' is not understood", text.trim()))?;
    let start = bytes.len() - rest.len() + len;
    let dtype = header.dtype()?;
    let data = behind(whole.clone(), start).ok_or("cut short")?;
    let strides = header.strides().ok_or_else(|| format!("size of {:?} overflows", header.shape))?;
    Tensor::view(dtype, header.shape, strides, 0, data).map_err(|e| e.to_string())
}

struct Header<'t> {
    descr: &'t str,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'t> Header<'t> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, keys in any order.
    fn parse(text: &'t str) -> Option<Header<'t>> {
        let mut rest = text.trim().strip_prefix('{')?.trim_start();
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            let value = after.trim_start().strip_prefix(':')?.trim_start();
            rest = match key {
                "descr" => {
                    let (d, after) = quoted(value)?;
                    descr = Some(d);
                    after
                }
                "fortran_order" => {
                    let no = value.strip_prefix("False");
                    fortran = Some(no.is_none());
                    no.or_else(|| value.strip_prefix("True"))?
                }
                "shape" => {
                    let (inner, after) = value.strip_prefix('(')?.split_once(')')?;
                    let sizes = inner.split(',').map(str::trim).filter(|s| !s.is_empty());
                    shape = Some(sizes.map(|s| s.trim_end_matches('L').parse().ok()).collect::<Option<_>>()?);
                    after
                }
                _ => return None,
            }
            .trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        (rest == "}").then_some(())?;
        Some(Header { descr: descr?, fortran: fortran?, shape: shape? })
    }

    fn dtype(&self) -> std::result::Result<DType, String> {
        let (order, code) = self.descr.split_at_checked(1).unwrap_or_default();
        let found = CODES.iter().find(|(_, c)| *c == code).map(|(d, _)| *d);
        match (order, found) {
            ("<" | "|" | "=", Some(d)) => Ok(d),
            (">", Some(d)) if d.size() == 1 => Ok(d),
            (">", Some(_)) => {
                Err(format!("elements '{}' are big-endian; save them as a.astype('<{code}')", self.descr))
            }
            _ => Err(format!("elements '{}' are not numbers that can be read", self.descr)),
        }
    }

    fn strides(&self) -> Option<Vec<usize>> {
        let mut strides = vec![1usize; self.shape.len()];
        let mut step = 1usize;
        let order: Vec<usize> =
            if self.fortran { (0..strides.len()).collect() } else { (0..strides.len()).rev().collect() };
        for i in order {
            strides[i] = step;
            step = step.checked_mul(self.shape[i].max(1))?;
        }
        Some(strides)
    }
}

/// A quoted string without quotes, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

fn encode(t: &Tensor) -> std::result::Result<Vec<u8>, String> {
    let code = CODES.iter().find(|(d, _)| *d == t.dtype()).map(|(_, c)| *c);
    let code = code.ok_or_else(|| format!("NumPy has no {}; convert it to f32 first", t.dtype()))?;
    let order = if t.dtype().size() == 1 { '|' } else { '<' };
    let mut shape: String = t.shape().iter().map(|n| format!("{n}, ")).collect();
    if t.shape().len() > 1 {
        shape.truncate(shape.len() - 2);
    } else {
        shape = shape.trim_end().into();
    }
    let mut header = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The elements begin at a multiple of 64; a line feed ends the header.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', used.next_multiple_of(64) - used));
    header.push('\n');
    let len = u16::try_from(header.len()).map_err(|_| format!("{} dimensions are too many", t.shape().len()))?;
    let data = t.to_bytes();
    let mut out = Vec::with_capacity(MAGIC.len() + 4 + header.len() + data.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> std::result::Result<Tensor, String> {
        parse(Arc::new(bytes.to_vec()))
    }

    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        let len = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &len, header.as_bytes(), data].concat()
    }

    #[test]
    fn arrays_come_back_as_they_were_written() {
        let arrays = IndexMap::from([
            ("x".to_string(), Tensor::new(&[2, 3], vec![1f32, -2.5, 3., 4., 5., f32::NAN])),
            ("b".into(), Tensor::from_bools(&[3], &[true, false, true])),
            ("n".into(), Tensor::scalar(7i64)),
            ("e".into(), Tensor::new(&[0, 4], Vec::<u8>::new())),
            ("t".into(), Tensor::new(&[2, 2], vec![1i32, 2, 3, 4]).permute(&[1, 0])),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npz");
        write_npz(&path, &arrays).unwrap();
        let back = read_npz(&path).unwrap();
        assert_eq!(back, arrays);
        assert_eq!(back["t"].to_i64(), [1, 3, 2, 4]);
        let first = std::fs::read(&path).unwrap();
        write_npz(&path, &back).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), first, "the same arrays give the same bytes");
        let npy = dir.path().join("x.npy");
        write_npy(&npy, &arrays["x"]).unwrap();
        assert_eq!(read_npy(&npy).unwrap(), arrays["x"]);
        let header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        assert!(std::fs::read(&npy).unwrap()[10..].starts_with(header));
    }

    #[test]
    fn column_order_and_either_quotes_are_read() {
        let data: Vec<u8> = [1f32, 2., 3., 4.].iter().flat_map(|v| v.to_le_bytes()).collect();
        let h = "{\"shape\": (2, 2), 'fortran_order': True, 'descr': '<f4'}\n";
        assert_eq!(read(&with_header(h, &data)).unwrap().to_f32().as_ref(), [1., 3., 2., 4.]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |h: &str, data: &[u8]| read(&with_header(h, data)).unwrap_err();
        let header = |d: &str, s: &str| format!("{{'descr': '{d}', 'fortran_order': False, 'shape': ({s}), }}\n");
        assert!(error(&header("<f4", "2,"), &[0; 7]).contains("reach past the 7 bytes"));
        assert!(error(&header(">f4", "1,"), &[0; 4]).contains("a.astype('<f4')"));
        assert!(error(&header("|O", "1,"), &[0; 8]).contains("not numbers"));
        assert!(error(&header("<f4", "99999999999, 99999999999, 9"), &[]).contains("overflows"));
        assert!(error("((((", &[]).contains("not understood"));
        assert_eq!(read(b"PK").unwrap_err(), "not a .npy file");
        assert_eq!(read(b"\x93NUMPY\x02\x00\xff\xff\xff\xff").unwrap_err(), "the header is cut short");
        assert_eq!(encode(&Tensor::scalar(half::bf16::ONE)).unwrap_err(), "NumPy has no bf16; convert it to f32 first");
    }
}
