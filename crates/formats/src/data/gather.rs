//! What a path holds: the files of a folder, in order, as sources of samples.

use super::InputSpec;
use super::source::Source;
use crate::error::{FormatError, Result};
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

/// How deep folders may nest: class folders in folders.
const DEPTH: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Npy,
    Npz,
    Image,
    Proto,
}

fn kind(path: &Path) -> Option<Kind> {
    let ext = path.extension()?.to_str()?.to_ascii_lowercase();
    Some(match ext.as_str() {
        "npy" => Kind::Npy,
        "npz" => Kind::Npz,
        "jpg" | "jpeg" | "png" => Kind::Image,
        "pb" => Kind::Proto,
        _ => return None,
    })
}

/// The sources that a file or folder holds, in order.
pub(super) fn sources(path: &Path, spec: &InputSpec) -> Result<Vec<Source>> {
    let meta = fs::metadata(path).map_err(|e| FormatError::io(path, "read", e))?;
    if !meta.is_dir() {
        let kind = kind(path).ok_or_else(|| {
            FormatError::data(path, "unknown kind of data; expected .npy, .npz, .jpg, .png, .pb or a folder of them")
        })?;
        return Ok(vec![single(path, kind, spec)?]);
    }
    let (files, folders) = list(path)?;
    let sets: Vec<&PathBuf> = folders.iter().filter(|f| stem(f).starts_with("test_data_set")).collect();
    if !sets.is_empty() {
        return sets.into_iter().map(|set| proto_set(set, spec)).collect();
    }
    if let Some(named) = named(path, &files, spec)? {
        return Ok(vec![named]);
    }
    if files.iter().any(|f| stem(f) == "input_0" && kind(f) == Some(Kind::Proto)) {
        return Ok(vec![proto_set(path, spec)?]);
    }
    let mut all = files;
    for folder in folders {
        walk(&folder, 1, &mut all)?;
    }
    let kinds: Vec<(PathBuf, Kind)> = all.into_iter().filter_map(|f| kind(&f).map(|k| (f, k))).collect();
    let Some((first, k)) = kinds.first() else {
        return Err(FormatError::data(path, "the folder holds no .npy, .npz, .jpg, .png or .pb files"));
    };
    if let Some((other, _)) = kinds.iter().find(|(_, o)| o != k) {
        let why = format!("files of different kinds, as {} and {}; expected one", shown(first), shown(other));
        return Err(FormatError::data(path, why));
    }
    kinds.iter().map(|(f, k)| single(f, *k, spec)).collect()
}

fn single(path: &Path, kind: Kind, spec: &InputSpec) -> Result<Source> {
    if kind != Kind::Npz && spec.names.len() != 1 {
        let why = format!(
            "the model has the inputs {}; put arrays with these names into a .npz file or a folder",
            spec.names.join(", ")
        );
        return Err(FormatError::data(path, why));
    }
    let path = path.to_path_buf();
    Ok(match kind {
        Kind::Npy => Source::Npy(path),
        Kind::Npz => Source::Npz(path),
        Kind::Image => Source::Image(path),
        Kind::Proto => Source::Proto(vec![path]),
    })
}

/// `input_0.pb`, `input_1.pb`, … of one folder.
fn proto_set(folder: &Path, spec: &InputSpec) -> Result<Source> {
    let paths: Vec<PathBuf> = (0..spec.names.len()).map(|i| folder.join(format!("input_{i}.pb"))).collect();
    match paths.iter().position(|p| !p.is_file()) {
        None => Ok(Source::Proto(paths)),
        Some(i) => Err(FormatError::data(folder, format!("has no input_{i}.pb for the input '{}'", spec.names[i]))),
    }
}

/// Arrays named by inputs, if the folder has one for the first input or for several.
fn named(folder: &Path, files: &[PathBuf], spec: &InputSpec) -> Result<Option<Source>> {
    let arrays: Vec<&PathBuf> = files.iter().filter(|f| kind(f) == Some(Kind::Npy)).collect();
    let find = |name: &str| arrays.iter().find(|f| stem(f) == name || stem(f) == plain(name));
    let found: Vec<Option<&&PathBuf>> = spec.names.iter().map(|n| find(n)).collect();
    if found.iter().all(Option::is_none) {
        return Ok(None);
    }
    if let Some(i) = found.iter().position(Option::is_none) {
        let why = format!("has no {}.npy for the input '{}'", plain(&spec.names[i]), spec.names[i]);
        return Err(FormatError::data(folder, why));
    }
    let used: Vec<PathBuf> = found.into_iter().flatten().map(|p| (*p).clone()).collect();
    match arrays.iter().find(|a| !used.contains(a)) {
        None => Ok(Some(Source::Named(used))),
        Some(other) => {
            let why = format!("{} is no input; the inputs are {}", shown(other), spec.names.join(", "));
            Err(FormatError::data(folder, why))
        }
    }
}

/// Files and folders, each in order. Hidden ones and labels are left out.
fn list(folder: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let read = |e| FormatError::io(folder, "read", e);
    let (mut files, mut folders) = (vec![], vec![]);
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = shown(&path);
        if name.starts_with('.') || stem(&path) == "labels" {
            continue;
        }
        if path.is_dir() { folders.push(path) } else { files.push(path) }
    }
    files.sort_by(|a, b| natural(&shown(a), &shown(b)));
    folders.sort_by(|a, b| natural(&shown(a), &shown(b)));
    Ok((files, folders))
}

fn walk(folder: &Path, depth: usize, out: &mut Vec<PathBuf>) -> Result<()> {
    if depth > DEPTH {
        return Err(FormatError::data(folder, format!("folders nest more than {DEPTH} deep")));
    }
    let (files, folders) = list(folder)?;
    out.extend(files);
    folders.iter().try_for_each(|f| walk(f, depth + 1, out))
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

fn shown(path: &Path) -> String {
    path.file_name().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A name as a file can have it.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// Order of names in which numbers count by value: `s2` before `s10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let (dx, dy) = (digits(x), digits(y));
        if dx > 0 && dy > 0 {
            let (m, n) = (x[..dx].trim_start_matches('0'), y[..dy].trim_start_matches('0'));
            let order = m.len().cmp(&n.len()).then_with(|| m.cmp(n));
            if order != Ordering::Equal {
                return order;
            }
            (x, y) = (&x[dx..], &y[dy..]);
            continue;
        }
        match (x.chars().next(), y.chars().next()) {
            (Some(c), Some(d)) if c == d => (x, y) = (&x[c.len_utf8()..], &y[d.len_utf8()..]),
            (None, None) => return a.cmp(b),
            (c, d) => return c.cmp(&d),
        }
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_value() {
        let mut names = vec!["s10.npy", "s2.npy", "s02.npy", "a", "s1.npy", "s"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a", "s", "s1.npy", "s02.npy", "s2.npy", "s10.npy"]);
    }
}
