//! Which .pt2 layout an archive has, and where its parts lie.

use crate::archive::Archive;
use crate::error::{FormatError, Result};

/// Where the program is.
pub(super) struct Place {
    /// The archive's folder with its slash, or nothing.
    pub root: String,
    /// The model's name: `model`, unless the archive has another one only.
    pub model: String,
    /// The entry of the program.
    pub json: String,
}

/// Finds the program.
///
/// # Errors
/// An older layout, another kind of archive, big-endian data, or several models: each by name with what to do.
pub(super) fn locate(archive: &mut Archive) -> Result<Place> {
    let path = archive.path().to_path_buf();
    let remedy = "export the model again with torch.export.save of torch 2.9 or later";
    let mut found: Vec<Place> = archive.names().filter_map(program).collect();
    if found.len() > 1 {
        found.retain(|p| p.model == "model");
    }
    let has = |suffix: &str| archive.names().any(|n| n == suffix || n.ends_with(&format!("/{suffix}")));
    let place = match found.pop() {
        Some(p) if found.is_empty() => p,
        Some(_) => return Err(FormatError::malformed(&path, "holds several programs, expected one")),
        None if has("serialized_exported_program.json") => {
            let what =
                "the .pt2 layout of torch 2.7 and older (serialized_exported_program.json), whose weights are pickles";
            return Err(FormatError::unsupported(&path, what, remedy));
        }
        None if has("data.pkl") => {
            let what = "an archive of torch.save or torch.jit.save (data.pkl), not an exported program";
            return Err(FormatError::unsupported(&path, what, remedy));
        }
        None => return Err(FormatError::malformed(&path, "a zip archive without models/model.json: not a .pt2 file")),
    };
    let table = format!("{}data/weights/{}_weights_config.json", place.root, place.model);
    if !archive.has(&table) {
        let what = "the .pt2 layout of torch 2.8 (no weights table), whose weights are pickles";
        return Err(FormatError::unsupported(&path, what, remedy));
    }
    let order = format!("{}byteorder", place.root);
    if archive.has(&order) && archive.entry(&order)?.bytes() != b"little" {
        return Err(FormatError::unsupported(&path, "weights that are not little-endian", remedy));
    }
    Ok(place)
}

/// `<root>/models/<model>.json`, with a root of one folder or none.
fn program(name: &str) -> Option<Place> {
    let (folder, file) = name.rsplit_once('/')?;
    let model = file.strip_suffix(".json")?;
    let root = folder.strip_suffix("models")?;
    let one = root.is_empty() || root.strip_suffix('/').is_some_and(|r| !r.is_empty() && !r.contains('/'));
    one.then(|| Place { root: root.into(), model: model.into(), json: name.into() })
}
