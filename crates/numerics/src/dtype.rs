//! The element types that a tensor may have, with torch's names and numbers.

use serde::{Deserialize, Serialize};

/// An element type. Names as the text form of a graph prints them (`f32`, `u8`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the variants are their own description")]
pub enum DType {
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    F32,
    F64,
    Bool,
    BF16,
    U16,
    U32,
    U64,
    F8E4M3,
    F8E5M2,
}

/// (type, name here, torch's name, code in a .pt2 file, bytes)
const TABLE: [(DType, &str, &str, i64, usize); 15] = [
    (DType::U8, "u8", "uint8", 1, 1),
    (DType::I8, "i8", "int8", 2, 1),
    (DType::I16, "i16", "int16", 3, 2),
    (DType::I32, "i32", "int32", 4, 4),
    (DType::I64, "i64", "int64", 5, 8),
    (DType::F16, "f16", "float16", 6, 2),
    (DType::F32, "f32", "float32", 7, 4),
    (DType::F64, "f64", "float64", 8, 8),
    (DType::Bool, "bool", "bool", 12, 1),
    (DType::BF16, "bf16", "bfloat16", 13, 2),
    (DType::U16, "u16", "uint16", 28, 2),
    (DType::F8E4M3, "f8e4m3", "float8_e4m3fn", 29, 1),
    (DType::F8E5M2, "f8e5m2", "float8_e5m2", 30, 1),
    (DType::U32, "u32", "uint32", 34, 4),
    (DType::U64, "u64", "uint64", 35, 8),
];

impl DType {
    fn row(self) -> &'static (DType, &'static str, &'static str, i64, usize) {
        TABLE.iter().find(|r| r.0 == self).expect("invariant: every dtype has a row")
    }

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// torch's name, without the `torch.`.
    pub fn torch_name(self) -> &'static str {
        self.row().2
    }

    /// The number that stands for the type in a .pt2 file.
    pub fn torch_code(self) -> i64 {
        self.row().3
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        self.row().4
    }

    /// The type with this name in the text form.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|r| r.1 == name).map(|r| r.0)
    }

    /// The type with this torch name.
    pub fn from_torch_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|r| r.2 == name).map(|r| r.0)
    }

    /// The type with this number in a .pt2 file.
    pub fn from_torch_code(code: i64) -> Option<DType> {
        TABLE.iter().find(|r| r.3 == code).map(|r| r.0)
    }

    /// Whether the type is a floating-point one.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::F32 | DType::F64 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2)
    }

    /// Whether the type is an integer one (bool is not).
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// Least and greatest value of an integer type of at most 32 bits.
    pub fn int_range(self) -> Option<(i32, i32)> {
        Some(match self {
            DType::U8 => (0, 255),
            DType::I8 => (-128, 127),
            DType::U16 => (0, 65535),
            DType::I16 => (-32768, 32767),
            DType::I32 => (i32::MIN, i32::MAX),
            _ => return None,
        })
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_code_leads_back_to_its_type() {
        for (d, name, torch, code, _) in TABLE {
            assert_eq!(DType::from_name(name), Some(d));
            assert_eq!(DType::from_torch_name(torch), Some(d));
            assert_eq!(DType::from_torch_code(code), Some(d));
        }
        assert_eq!(DType::from_name("f31"), None);
    }
}
