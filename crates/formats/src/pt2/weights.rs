//! The tensors of a .pt2 file: windows on the raw storages that its tables name.

use super::schema::{Payload, PayloadConfig, TensorJson};
use super::sizes;
use crate::archive::Archive;
use crate::error::{FormatError, Result};
use cleave_ir::Tensor;
use cleave_numerics::DType;
use indexmap::IndexMap;

/// A window may stand for more bytes than its storage has (a stride of 0), up to this many.
const EXPANDED: usize = 1 << 30;

/// The tables of weights and constants by name, with the folder each names files in.
pub(super) struct Weights {
    tables: [(String, IndexMap<String, Payload>); 2],
}

impl Weights {
    /// Reads both tables. `root` is the archive's folder with its slash; a file without constants may lack
    /// their table.
    pub(super) fn open(archive: &mut Archive, root: &str, model: &str) -> Result<Weights> {
        let mut table = |kind: &str| -> Result<(String, IndexMap<String, Payload>)> {
            let folder = format!("{root}data/{kind}/");
            let name = format!("{folder}{model}_{kind}_config.json");
            if !archive.has(&name) {
                return Ok((folder, IndexMap::new()));
            }
            let bytes = archive.entry(&name)?;
            let parsed: PayloadConfig = serde_json::from_slice(bytes.bytes())
                .map_err(|e| FormatError::malformed(archive.path(), format!("{name}: {e}")))?;
            Ok((folder, parsed.config))
        };
        Ok(Weights { tables: [table("weights")?, table("constants")?] })
    }

    /// The tensor stored under a name. Tensors that share a file share its bytes.
    pub(super) fn tensor(&self, archive: &mut Archive, name: &str) -> Result<Tensor> {
        let path = archive.path().to_path_buf();
        let fail = |why: String| FormatError::malformed(&path, format!("tensor '{name}': {why}"));
        let found = self.tables.iter().find_map(|(folder, t)| Some((folder, t.get(name)?)));
        let (folder, payload) = found.ok_or_else(|| fail("no weight or constant has this name".into()))?;
        if payload.use_pickle {
            return Err(FormatError::unsupported(
                &path,
                format!("tensor '{name}' is stored as a pickle, which is never run"),
                "store it as a plain strided tensor and export again",
            ));
        }
        let meta = payload.tensor_meta.as_ref().ok_or_else(|| fail("has no tensor_meta".into()))?;
        let (dtype, shape, strides, offset) = geometry(meta).map_err(&fail)?;
        let entry = format!("{folder}{}", payload.path_name);
        let empty = shape.contains(&0);
        if empty && !archive.has(&entry) {
            return Tensor::from_bytes(dtype, shape, std::sync::Arc::new(Vec::new())).map_err(|e| fail(e.to_string()));
        }
        let storage = archive.entry(&entry)?;
        let count = shape.iter().try_fold(dtype.size(), |a, n| a.checked_mul(*n));
        if count.is_none_or(|n| n > EXPANDED.max(storage.bytes().len())) && !empty {
            return Err(fail(format!("{shape:?} is more than its {} bytes can stand for", storage.bytes().len())));
        }
        Tensor::view(dtype, shape, strides, offset, storage).map_err(|e| fail(e.to_string()))
    }
}

type Geometry = (DType, Vec<usize>, Vec<usize>, usize);

fn geometry(meta: &TensorJson) -> std::result::Result<Geometry, String> {
    let dtype = dtype(meta.dtype)?;
    if meta.layout.is_some_and(|l| l != 7) {
        return Err("only the strided layout can be read".into());
    }
    let numbers = |v: &[serde_json::Value], what: &str| -> std::result::Result<Vec<usize>, String> {
        let dims = sizes(v)?;
        let whole = dims.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok())).collect::<Option<_>>();
        whole.ok_or_else(|| format!("{what} {dims:?}: expected numbers from 0"))
    };
    let shape = numbers(&meta.sizes, "sizes")?;
    let strides = numbers(&meta.strides, "strides")?;
    let offset = match &meta.storage_offset {
        Some(v) => numbers(std::slice::from_ref(v), "storage offset")?[0],
        None => 0,
    };
    Ok((dtype, shape, strides, offset))
}

/// The element type with this number.
pub(super) fn dtype(code: i64) -> std::result::Result<DType, String> {
    DType::from_torch_code(code).ok_or_else(|| format!("element type {code} is not supported"))
}
