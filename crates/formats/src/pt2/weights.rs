//! Parameters, buffers and constants: windows on storages that the archive holds.

use super::layout::{REMEDY, Tensors, check_order};
use super::pickle;
use super::schema::{Payload, PayloadConfig, TensorJson};
use super::sizes;
use crate::archive::Archive;
use crate::error::{FormatError, Result};
use cleave_ir::{Bytes, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::sync::Arc;

/// A window may stand for more bytes than its storage has (a stride of 0), up to this many.
const EXPANDED: usize = 1 << 30;

/// Weights and constants by name.
pub(super) enum Weights {
    /// Tables, with the folder each names files in.
    Tables([(String, IndexMap<String, Payload>); 2]),
    /// Tensors out of pickles.
    Read([IndexMap<String, Tensor>; 2]),
}

impl Weights {
    /// Reads both tables; a file without constants may lack theirs.
    pub(super) fn open(archive: &mut Archive, place: &Tensors) -> Result<Weights> {
        match place {
            Tensors::Tables([weights, constants]) => {
                Ok(Weights::Tables([table(archive, weights, true)?, table(archive, constants, false)?]))
            }
            Tensors::Pickled([weights, constants]) => {
                Ok(Weights::Read([pickled(archive, weights)?, pickled(archive, constants)?]))
            }
        }
    }

    /// The tensor stored under a name. Tensors that share a storage share its bytes.
    pub(super) fn tensor(&self, archive: &mut Archive, name: &str) -> Result<Tensor> {
        let path = archive.path().to_path_buf();
        let fail = |why: String| FormatError::malformed(&path, format!("tensor '{name}': {why}"));
        let none = || fail("no weight or constant has this name".into());
        let tables = match self {
            Weights::Read(tables) => return tables.iter().find_map(|t| t.get(name)).cloned().ok_or_else(none),
            Weights::Tables(tables) => tables,
        };
        let (folder, payload) = tables.iter().find_map(|(folder, t)| Some((folder, t.get(name)?))).ok_or_else(none)?;
        if payload.use_pickle {
            return Err(FormatError::unsupported(
                &path,
                format!("tensor '{name}' is stored as a pickle, which is never run"),
                "store it as a plain strided tensor and export again",
            ));
        }
        let meta = payload.tensor_meta.as_ref().ok_or_else(|| fail("has no tensor_meta".into()))?;
        let window = geometry(meta).map_err(&fail)?;
        let entry = format!("{folder}{}", payload.path_name);
        let storage: Arc<dyn Bytes> = if window.shape.contains(&0) && !archive.has(&entry) {
            Arc::new(Vec::new())
        } else {
            archive.entry(&entry)?
        };
        window.on(storage).map_err(fail)
    }
}

fn table(
    archive: &mut Archive,
    (folder, name): &(String, String),
    needed: bool,
) -> Result<(String, IndexMap<String, Payload>)> {
    if !needed && !archive.has(name) {
        return Ok((folder.clone(), IndexMap::new()));
    }
    let bytes = archive.entry(name)?;
    let parsed: PayloadConfig = serde_json::from_slice(bytes.bytes())
        .map_err(|e| FormatError::malformed(archive.path(), format!("{name}: {e}")))?;
    Ok((folder.clone(), parsed.config))
}

/// The tensors of an archive of `torch.save`; none if the file lacks it or it is empty.
fn pickled(archive: &mut Archive, entry: &str) -> Result<IndexMap<String, Tensor>> {
    if !archive.has(entry) || archive.entry(entry)?.bytes().is_empty() {
        return Ok(IndexMap::new());
    }
    let path = archive.path().to_path_buf();
    let mut inner = archive.within(entry)?;
    let pickle = inner.names().find(|n| n.split_once('/').is_some_and(|(_, file)| file == "data.pkl"));
    let pickle = pickle.map(str::to_string).ok_or_else(|| {
        FormatError::malformed(&path, format!("{entry}: an archive without data.pkl, expected one of torch.save"))
    })?;
    let root = pickle.strip_suffix("data.pkl").unwrap_or_default();
    check_order(&mut inner, &format!("{root}byteorder"))?;
    let bytes = inner.entry(&pickle)?;
    let stored = pickle::tensors(bytes.bytes())
        .map_err(|why| FormatError::unsupported(&path, format!("{entry}: {pickle}: {why}"), REMEDY))?;
    let mut read = IndexMap::new();
    for (name, t) in stored {
        let fail = |why: String| FormatError::malformed(&path, format!("tensor '{name}': {why}"));
        let storage = inner.entry(&format!("{root}data/{}", t.storage))?;
        let have = storage.bytes().len();
        if t.numel.checked_mul(t.unit).is_none_or(|n| n != have) {
            return Err(fail(format!("its storage has {have} bytes, expected {} of {}", t.numel, t.unit)));
        }
        let window = Window { dtype: t.dtype, shape: t.shape, strides: t.strides, offset: t.offset };
        read.insert(name.into(), window.on(storage).map_err(fail)?);
    }
    Ok(read)
}

/// What of a storage's elements a tensor has.
struct Window {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Window {
    fn on(self, storage: Arc<dyn Bytes>) -> std::result::Result<Tensor, String> {
        let Window { dtype, shape, strides, offset } = self;
        let empty = shape.contains(&0);
        let have = storage.bytes().len();
        let count = shape.iter().try_fold(dtype.size(), |a, n| a.checked_mul(*n));
        if count.is_none_or(|n| n > EXPANDED.max(have)) && !empty {
            return Err(format!("{shape:?} is more than its {have} bytes can stand for"));
        }
        Tensor::view(dtype, shape, strides, offset, storage).map_err(|e| e.to_string())
    }
}

fn geometry(meta: &TensorJson) -> std::result::Result<Window, String> {
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
    Ok(Window { dtype, shape, strides, offset })
}

/// The element type with this number.
pub(super) fn dtype(code: i64) -> std::result::Result<DType, String> {
    DType::from_torch_code(code).ok_or_else(|| format!("element type {code} is not supported"))
}
