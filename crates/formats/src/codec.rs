//! The one place that knows bincode: values as bytes and back, the same bytes for the same value.

use serde::{Serialize, de::DeserializeOwned};

/// Metadata larger than this is damaged: weights are not part of it.
const LIMIT: usize = 1 << 28;

/// The bytes of a value: integers little-endian of variable length, fields in order.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).map_err(|e| e.to_string())
}

/// The value that all the bytes stand for.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let config = bincode::config::standard().with_limit::<LIMIT>();
    match bincode::serde::decode_from_slice(bytes, config) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok((_, used)) => Err(format!("{} bytes are left over", bytes.len() - used)),
        Err(e) => Err(e.to_string()),
    }
}
