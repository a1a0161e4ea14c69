//! The right answers to samples.

use crate::error::{FormatError, Result};
use crate::npy::read_npy;
use std::path::Path;

/// Reads the class of each of `samples` samples: an integer .npy array of one dimension, or text with a line
/// `index,label` for each sample (the first line may be a heading, lines that begin with `#` are comments).
///
/// # Errors
/// [`FormatError::Data`]: another kind of file, another number of labels, an index twice or out of range.
pub fn read_labels(path: &Path, samples: usize) -> Result<Vec<i64>> {
    let fail = |why: String| FormatError::data(path, why);
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy")) {
        let t = read_npy(path)?;
        if !t.dtype().is_int() {
            return Err(fail(format!("labels are {}, expected integers", t.dtype())));
        }
        if t.len() != samples || t.shape().iter().filter(|n| **n != 1).count() > 1 {
            return Err(fail(format!("labels of shape {:?} for {samples} samples", t.shape())));
        }
        return Ok(t.to_i64());
    }
    let bytes = std::fs::read(path).map_err(|e| FormatError::io(path, "read", e))?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| fail("unknown kind of labels; expected a .npy array or text lines 'index,label'".into()))?;
    parse(text, samples).map_err(fail)
}

fn parse(text: &str, samples: usize) -> std::result::Result<Vec<i64>, String> {
    let mut labels: Vec<Option<i64>> = vec![None; samples];
    let mut heading = true;
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let pair =
            line.split_once(',').and_then(|(a, b)| Some((a.trim().parse::<usize>().ok()?, b.trim().parse().ok()?)));
        let Some((index, label)) = pair else {
            if std::mem::take(&mut heading) && line.contains(',') {
                continue;
            }
            return Err(format!("line {}: expected 'index,label', found '{line}'", i + 1));
        };
        heading = false;
        let slot = labels.get_mut(index);
        let slot = slot.ok_or_else(|| format!("line {}: sample {index} of {samples}", i + 1))?;
        if slot.replace(label).is_some() {
            return Err(format!("line {}: a second label for sample {index}", i + 1));
        }
    }
    match labels.iter().position(Option::is_none) {
        Some(i) => Err(format!("no label for sample {i} of {samples}")),
        None => Ok(labels.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_stand_in_any_order() {
        assert_eq!(parse("index,label\n1, 7\n# done\n0,-3\n", 2), Ok(vec![-3, 7]));
        assert_eq!(parse("0,1\n0,2\n", 2), Err("line 2: a second label for sample 0".into()));
        assert_eq!(parse("0,1\n", 2), Err("no label for sample 1 of 2".into()));
        assert_eq!(parse("0,1\n2,1\n", 2), Err("line 2: sample 2 of 2".into()));
        assert_eq!(parse("0,1\na,b\n", 2), Err("line 2: expected 'index,label', found 'a,b'".into()));
    }
}
