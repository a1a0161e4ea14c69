//! Which .pt2 layout an archive has, and where its parts lie.

use crate::archive::Archive;
use crate::error::{FormatError, Result};

/// What to do about a file that cannot be read.
pub(super) const REMEDY: &str = "export the model again with torch.export.save of torch 2.9 or later";

/// Where the program and its tensors are.
pub(super) struct Place {
    /// The entry of the program.
    pub json: String,
    /// Where tensors are.
    pub tensors: Tensors,
}

/// Where weights and constants are.
pub(super) enum Tensors {
    /// torch 2.9 and later: tables beside a file for each storage. Of each the folder, with its slash, and the table.
    Tables([(String, String); 2]),
    /// Before: two archives of `torch.save`, as entries.
    Pickled([String; 2]),
}

/// Finds the program.
///
/// # Errors
/// Another kind of archive, big-endian data, or several models: each by name with what to do.
pub(super) fn locate(archive: &mut Archive) -> Result<Place> {
    let path = archive.path().to_path_buf();
    let mut found: Vec<Place> = archive.names().filter_map(|n| current(archive, n)).collect();
    if found.len() > 1 {
        found.retain(|p| p.json.ends_with("/model.json"));
    }
    found.extend(archive.names().filter_map(first));
    let has = |suffix: &str| archive.names().any(|n| n == suffix || n.ends_with(&format!("/{suffix}")));
    let place = match found.pop() {
        Some(p) if found.is_empty() => p,
        Some(_) => return Err(FormatError::malformed(&path, "holds several programs, expected one")),
        None if has("data.pkl") => {
            let what = "an archive of torch.save or torch.jit.save (data.pkl), not an exported program";
            return Err(FormatError::unsupported(&path, what, REMEDY));
        }
        None => return Err(FormatError::malformed(&path, "a zip archive without models/model.json: not a .pt2 file")),
    };
    let root = place.json.rsplit_once("models/").map_or("", |(root, _)| root);
    let order = format!("{root}byteorder");
    check_order(archive, &order)?;
    Ok(place)
}

/// Refuses an archive whose byte order, if this entry states it, is not little-endian.
pub(super) fn check_order(archive: &mut Archive, entry: &str) -> Result<()> {
    if archive.has(entry) && archive.entry(entry)?.bytes() != b"little" {
        return Err(FormatError::unsupported(archive.path(), "weights that are not little-endian", REMEDY));
    }
    Ok(())
}

/// `<root>/models/<model>.json` of torch 2.8 and later, with a root of one folder or none.
fn current(archive: &Archive, name: &str) -> Option<Place> {
    let (folder, file) = name.rsplit_once('/')?;
    let model = file.strip_suffix(".json")?;
    let root = folder.strip_suffix("models")?;
    let one = root.is_empty() || root.strip_suffix('/').is_some_and(|r| !r.is_empty() && !r.contains('/'));
    let kinds = ["weights", "constants"];
    let tables = kinds.map(|kind| {
        let folder = format!("{root}data/{kind}/");
        let table = format!("{folder}{model}_{kind}_config.json");
        (folder, table)
    });
    let pickles = kinds.map(|kind| format!("{root}data/{kind}/{model}.pt"));
    let old = !archive.has(&tables[0].1) && pickles.iter().any(|p| archive.has(p));
    let tensors = if old { Tensors::Pickled(pickles) } else { Tensors::Tables(tables) };
    one.then(|| Place { json: name.into(), tensors })
}

/// The layout of torch 2.7 and before: everything at the root.
fn first(name: &str) -> Option<Place> {
    let root = name.strip_suffix("serialized_exported_program.json").filter(|r| r.is_empty() || r.ends_with('/'))?;
    let tensors = ["state_dict", "constants"].map(|kind| format!("{root}serialized_{kind}.pt"));
    Some(Place { json: name.into(), tensors: Tensors::Pickled(tensors) })
}
