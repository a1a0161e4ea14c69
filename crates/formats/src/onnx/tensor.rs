//! Tensors in an ONNX file: element types by number, elements inside the file or beside it.

use super::proto::{SparseTensorProto, TensorProto};
use crate::mapped::Mapped;
use cleave_ir::{Bytes, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use prost::bytes::Bytes as Buffer;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// (type, its number in an ONNX file)
const CODES: [(DType, i32); 15] = [
    (DType::F32, 1),
    (DType::U8, 2),
    (DType::I8, 3),
    (DType::U16, 4),
    (DType::I16, 5),
    (DType::I32, 6),
    (DType::I64, 7),
    (DType::Bool, 9),
    (DType::F16, 10),
    (DType::F64, 11),
    (DType::U32, 12),
    (DType::U64, 13),
    (DType::BF16, 16),
    (DType::F8E4M3, 17),
    (DType::F8E5M2, 19),
];

/// Names of the element types that have no counterpart here.
const OTHERS: [(i32, &str); 8] = [
    (0, "undefined"),
    (8, "string"),
    (14, "complex64"),
    (15, "complex128"),
    (18, "float8e4m3fnuz"),
    (20, "float8e5m2fnuz"),
    (23, "float4e2m1"),
    (24, "float8e8m0"),
];

/// Types of less than a byte, several elements in one, the first in the lowest bits: (number, type that holds an
/// element here, bits).
const NARROW: [(i32, DType, u32); 4] = [(21, DType::U8, 4), (22, DType::I8, 4), (25, DType::U8, 2), (26, DType::I8, 2)];

/// Bits of an element, for types of less than a byte.
pub fn bits_of(code: i64) -> Option<u32> {
    NARROW.iter().find(|(c, ..)| i64::from(*c) == code).map(|(.., bits)| *bits)
}

/// The element type with this number; of types of less than a byte the one that holds them.
///
/// # Errors
/// A type that tensors here do not have, by name.
pub fn dtype_of(code: i64) -> Result<DType, String> {
    if let Some((d, _)) = CODES.iter().find(|(_, c)| i64::from(*c) == code) {
        return Ok(*d);
    }
    if let Some((_, d, _)) = NARROW.iter().find(|(c, ..)| i64::from(*c) == code) {
        return Ok(*d);
    }
    let name = OTHERS.iter().find(|(c, _)| i64::from(*c) == code).map_or("unknown", |(_, n)| n);
    Err(format!("element type {code} ({name}) is not supported"))
}

/// The number of the element type that operators called by this name once: `FLOAT`, `INT64`, …
///
/// # Errors
/// Another name.
pub fn code_named(name: &str) -> Result<i64, String> {
    const NAMES: [&str; 13] = [
        "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE", "UINT32",
        "UINT64",
    ];
    let at = NAMES.iter().position(|n| *n == name).and_then(|i| i64::try_from(i + 1).ok());
    at.ok_or_else(|| format!("element type '{name}' is not known"))
}

/// The number of an element type.
pub fn code_of(dtype: DType) -> i32 {
    CODES.iter().find(|(d, _)| *d == dtype).map(|(_, c)| *c).expect("invariant: every dtype has a code")
}

/// Bytes of a decoded message as the storage of a tensor.
struct Raw(Buffer);

impl Bytes for Raw {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Files beside a model that hold its tensors; each is mapped once.
pub struct External {
    folder: PathBuf,
    files: IndexMap<String, Mapped>,
}

impl External {
    /// Files in this folder and below it.
    pub fn new(folder: &Path) -> External {
        External { folder: folder.into(), files: IndexMap::new() }
    }

    /// The mapped file that a tensor names. Only plain relative paths that stay below the model's folder,
    /// also after symbolic links are followed, are opened.
    fn file(&mut self, location: &str) -> Result<Mapped, String> {
        if let Some(m) = self.files.get(location) {
            return Ok(m.clone());
        }
        let relative = Path::new(location);
        let plain = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if location.is_empty() || !plain || location.contains('\\') {
            return Err(format!("external data at '{location}': expected a path inside the model's folder"));
        }
        let path = self.folder.join(relative);
        let real = path.canonicalize().map_err(|e| format!("external data at '{location}': {e}"))?;
        let root = self.folder.canonicalize().map_err(|e| format!("external data at '{location}': {e}"))?;
        if !real.starts_with(&root) {
            return Err(format!("external data at '{location}' leads out of the model's folder"));
        }
        let mapped = Mapped::open(&real).map_err(|e| e.to_string())?;
        self.files.insert(location.into(), mapped.clone());
        Ok(mapped)
    }

    fn region(&mut self, t: &TensorProto, size: usize) -> Result<Arc<dyn Bytes>, String> {
        let get = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| -> Result<Option<usize>, String> {
            let parse = |v: &str| v.parse().map_err(|_| format!("external data: {key} '{v}' is no number"));
            get(key).map(parse).transpose()
        };
        let location = get("location").ok_or("external data without a location")?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if length.is_some_and(|l| l != size) {
            return Err(format!("external data of {} bytes, expected {size}", length.unwrap_or(0)));
        }
        let end = offset.checked_add(size).ok_or("external data: offset overflows")?;
        self.file(location)?.region(offset..end).map_err(|e| format!("external data: {e}"))
    }
}

/// A tensor of a file. Elements that lie in the file as they are in memory are not copied.
///
/// # Errors
/// A type that is not supported, sizes and elements that do not go together, a place outside the folder.
pub fn tensor_of(t: &TensorProto, external: &mut External) -> Result<Tensor, String> {
    let dtype = dtype_of(i64::from(t.data_type))?;
    let shape = t
        .dims
        .iter()
        .map(|d| usize::try_from(*d).map_err(|_| format!("size {d} in {:?}", t.dims)))
        .collect::<Result<Vec<_>, _>>()?;
    let count = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
    // Strides must not overflow either, even where there are no elements.
    let reach = shape.iter().try_fold(1usize, |a, b| a.checked_mul((*b).max(1)));
    let count = count.filter(|_| reach.is_some());
    let bits = bits_of(i64::from(t.data_type));
    let size = match bits {
        Some(bits) => count.map(|c| c.div_ceil((8 / bits) as usize)),
        None => count.and_then(|c| c.checked_mul(dtype.size())),
    };
    let (Some(count), Some(size)) = (count, size) else {
        return Err(format!("tensor of {:?}: its size overflows", t.dims));
    };
    let storage: Arc<dyn Bytes> = if t.data_location == 1 {
        external.region(t, size)?
    } else if let Some(raw) = t.raw_data.as_ref().filter(|r| !r.is_empty() || count == 0) {
        if raw.len() != size {
            return Err(format!("tensor of {:?}: expected {size} bytes, found {}", t.dims, raw.len()));
        }
        Arc::new(Raw(raw.clone()))
    } else {
        Arc::new(typed_bytes(t, dtype, if bits.is_some() { size } else { count })?)
    };
    if let Some(bits) = bits {
        let all = unpacked(storage.bytes(), bits, dtype == DType::I8);
        return Tensor::from_bytes(dtype, shape, Arc::new(all[..count].to_vec())).map_err(|e| e.to_string());
    }
    Tensor::from_bytes(dtype, shape, storage).map_err(|e| e.to_string())
}

/// Elements of less than a byte, each in a byte of its own.
fn unpacked(bytes: &[u8], bits: u32, signed: bool) -> Vec<u8> {
    let fill = 8 - bits;
    let one = |b: u8, i: u32| {
        let high = b << (8 - bits * (i + 1));
        if signed { (high.cast_signed() >> fill).cast_unsigned() } else { high >> fill }
    };
    bytes.iter().flat_map(|b| (0..8 / bits).map(move |i| one(*b, i))).collect()
}

/// A tensor with few elements that are not zero, in full.
///
/// # Errors
/// As [`tensor_of`]; places outside the tensor; one of more than 2²⁴ elements.
pub fn sparse_of(s: &SparseTensorProto, external: &mut External) -> Result<Tensor, String> {
    const LARGEST: usize = 1 << 24;
    let (Some(values), Some(indices)) = (&s.values, &s.indices) else {
        return Err("a sparse tensor without values or indices".into());
    };
    let (values, indices) = (tensor_of(values, external)?, tensor_of(indices, external)?);
    let shape: Vec<usize> =
        s.dims.iter().map(|d| usize::try_from(*d).map_err(|_| format!("size {d}"))).collect::<Result<_, _>>()?;
    let count = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).filter(|c| *c <= LARGEST);
    let count = count.ok_or_else(|| format!("a sparse tensor of {shape:?} is too large"))?;
    let (size, source, rank) = (values.dtype().size(), values.to_bytes(), shape.len());
    let mut bytes = vec![0u8; count * size];
    let places = indices.to_i64();
    let linear = indices.shape().len() == 1;
    if places.len() != values.len() * if linear { 1 } else { rank } {
        return Err(format!("{} indices for {} values", places.len(), values.len()));
    }
    for i in 0..values.len() {
        let at = if linear {
            usize::try_from(places[i]).ok()
        } else {
            let row = places[i * rank..(i + 1) * rank].iter().zip(&shape);
            let mut row = row;
            row.try_fold(0usize, |at, (p, n)| usize::try_from(*p).ok().filter(|p| p < n).map(|p| at * n + p))
        };
        let at = at.filter(|a| *a < count).ok_or_else(|| format!("value {i} of a sparse tensor lies outside it"))?;
        bytes[at * size..(at + 1) * size].copy_from_slice(&source[i * size..(i + 1) * size]);
    }
    Tensor::from_bytes(values.dtype(), shape, Arc::new(bytes)).map_err(|e| e.to_string())
}

/// The elements of a tensor that has them in a list of numbers.
fn typed_bytes(t: &TensorProto, dtype: DType, count: usize) -> Result<Vec<u8>, String> {
    fn spread<T: Copy, const N: usize>(v: &[T], f: impl Fn(T) -> [u8; N]) -> (usize, Vec<u8>) {
        (v.len(), v.iter().flat_map(|x| f(*x)).collect())
    }
    let (found, bytes) = match dtype {
        DType::F32 => spread(&t.float_data, f32::to_le_bytes),
        DType::F64 => spread(&t.double_data, f64::to_le_bytes),
        DType::I64 => spread(&t.int64_data, i64::to_le_bytes),
        DType::U64 => spread(&t.uint64_data, u64::to_le_bytes),
        DType::U32 => spread(&t.uint64_data, |v| (v as u32).to_le_bytes()),
        DType::I32 => spread(&t.int32_data, i32::to_le_bytes),
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => spread(&t.int32_data, |v| (v as u16).to_le_bytes()),
        DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => spread(&t.int32_data, |v| [v as u8]),
        DType::Bool => spread(&t.int32_data, |v| [u8::from(v != 0)]),
    };
    if found == count {
        return Ok(bytes);
    }
    Err(format!("tensor of {:?}: expected {count} elements of {dtype}, found {found}", t.dims))
}

/// The number of the type of four bits that this one holds in ONNX, 0 of none.
fn four_bits(dtype: DType) -> i32 {
    NARROW.iter().find(|(_, d, bits)| *d == dtype && *bits == 4).map_or(0, |(code, ..)| *code)
}

/// Integers that fit four bits, two in a byte, the first in the lower half.
pub fn packed(t: &Tensor) -> Vec<u8> {
    t.to_bytes().chunks(2).map(|pair| pair[0] & 15 | pair.get(1).map_or(0, |b| b << 4)).collect()
}

/// A tensor of u8 or i8 as a message of the type of four bits.
pub fn packed_proto_of(name: &str, t: &Tensor) -> TensorProto {
    let raw_data = Some(Buffer::from(packed(t)));
    TensorProto { data_type: four_bits(t.dtype()), raw_data, ..proto_of(name, t) }
}

/// A tensor as a message, its elements as raw bytes.
pub fn proto_of(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: t.shape().iter().map(|n| i64::try_from(*n).unwrap_or(i64::MAX)).collect(),
        data_type: code_of(t.dtype()),
        raw_data: Some(Buffer::from(t.to_bytes().into_owned())),
        ..TensorProto::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::StringStringEntryProto;

    fn entry(key: &str, value: &str) -> StringStringEntryProto {
        StringStringEntryProto { key: key.into(), value: value.into() }
    }

    fn outside(location: &str, offset: &str) -> TensorProto {
        TensorProto {
            dims: vec![2],
            data_type: 1,
            data_location: 1,
            external_data: vec![entry("location", location), entry("offset", offset)],
            ..TensorProto::default()
        }
    }

    #[test]
    fn elements_come_from_raw_bytes_or_lists() {
        let mut ext = External::new(Path::new("."));
        let t = Tensor::new(&[2], vec![1.5f32, -2.0]);
        assert_eq!(tensor_of(&proto_of("t", &t), &mut ext).unwrap(), t);
        let half = TensorProto { dims: vec![1], data_type: 10, int32_data: vec![0x3c00], ..TensorProto::default() };
        assert_eq!(tensor_of(&half, &mut ext).unwrap().to_f64(), [1.0]);
        let short = TensorProto { dims: vec![3], data_type: 1, float_data: vec![1.0], ..TensorProto::default() };
        let e = tensor_of(&short, &mut ext).unwrap_err();
        assert_eq!(e, "tensor of [3]: expected 3 elements of f32, found 1");
        for dims in [vec![-1], vec![i64::MAX, 4], vec![1 << 40]] {
            let t = TensorProto { dims, data_type: 1, raw_data: Some(Buffer::from_static(b"1234")), ..short.clone() };
            assert!(tensor_of(&t, &mut ext).is_err());
        }
    }

    #[test]
    fn external_data_stays_inside_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("model");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(dir.path().join("secret"), [0u8; 64]).unwrap();
        let data: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        std::fs::write(root.join("w.bin"), data).unwrap();
        let mut ext = External::new(&root);
        assert_eq!(tensor_of(&outside("w.bin", "4"), &mut ext).unwrap().to_f64(), [2.0, 3.0]);
        assert!(tensor_of(&outside("w.bin", "8"), &mut ext).unwrap_err().contains("cut short"));
        for bad in ["../secret", "/etc/passwd", "a/../../secret", "", "none.bin"] {
            assert!(tensor_of(&outside(bad, "0"), &mut ext).is_err(), "{bad}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(dir.path().join("secret"), root.join("link")).unwrap();
            assert!(tensor_of(&outside("link", "0"), &mut ext).unwrap_err().contains("leads out"));
        }
    }
}
