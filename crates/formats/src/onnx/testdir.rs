//! ONNX test directories: a model beside folders `test_data_set_N` with `input_K.pb` and `output_K.pb`.

use super::proto::TensorProto;
use super::tensor::{External, tensor_of};
use crate::error::{FormatError, Result};
use crate::mapped::Mapped;
use cleave_ir::Tensor;
use prost::Message;
use prost::bytes::Bytes;
use std::path::{Path, PathBuf};

/// Tensors with the names that their files give them, in order of the files' numbers.
pub type Named = Vec<(String, Tensor)>;

/// The recorded runs of a test directory, in order of their numbers: inputs and outputs of each. A directory
/// without any gives none.
///
/// # Errors
/// A folder or file that cannot be read, or that holds something else than a tensor.
pub fn read_data_sets(dir: &Path) -> Result<Vec<(Named, Named)>> {
    let sets = numbered(dir, "test_data_set_", "")?;
    sets.iter().map(|set| Ok((read_side(set, "input_")?, read_side(set, "output_")?))).collect()
}

fn read_side(set: &Path, prefix: &str) -> Result<Named> {
    numbered(set, prefix, ".pb")?.iter().map(|file| read_tensor(file)).collect()
}

/// A tensor in a file of its own, with its name.
///
/// # Errors
/// A file that cannot be read, or that holds something else.
pub fn read_tensor(path: &Path) -> Result<(String, Tensor)> {
    let file = Mapped::open(path)?;
    let proto = TensorProto::decode(Bytes::copy_from_slice(file.bytes()))
        .map_err(|e| FormatError::malformed(path, format!("not an ONNX tensor: {e}")))?;
    let mut external = External::new(path.parent().unwrap_or(Path::new(".")));
    let t = tensor_of(&proto, &mut external).map_err(|why| FormatError::malformed(path, why))?;
    Ok((proto.name, t))
}

/// The entries `<prefix>N<suffix>` of a folder, in order of N.
fn numbered(dir: &Path, prefix: &str, suffix: &str) -> Result<Vec<PathBuf>> {
    let failed = |e| FormatError::io(dir, "read", e);
    let mut found: Vec<(u64, PathBuf)> = vec![];
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let number = name.strip_prefix(prefix).and_then(|n| n.strip_suffix(suffix)).and_then(|n| n.parse().ok());
        found.extend(number.map(|n| (n, path)));
    }
    found.sort();
    Ok(found.into_iter().map(|(_, p)| p).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::tensor::proto_of;

    #[test]
    fn data_sets_come_in_order_of_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for set in [10, 2] {
            let folder = dir.path().join(format!("test_data_set_{set}"));
            std::fs::create_dir(&folder).unwrap();
            for (file, value) in [("input_0", 1.0f32), ("input_11", 3.0), ("input_2", 2.0), ("output_0", set as f32)] {
                let t = proto_of(file, &Tensor::new(&[1], vec![value]));
                std::fs::write(folder.join(format!("{file}.pb")), t.encode_to_vec()).unwrap();
            }
        }
        let sets = read_data_sets(dir.path()).unwrap();
        let outputs: Vec<f32> = sets.iter().map(|(_, o)| o[0].1.to_f32()[0]).collect();
        assert_eq!(outputs, [2.0, 10.0]);
        let inputs: Vec<&str> = sets[0].0.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(inputs, ["input_0", "input_2", "input_11"]);
        let broken = dir.path().join("test_data_set_2/input_0.pb");
        std::fs::write(&broken, b"\xff\xff").unwrap();
        let e = read_data_sets(dir.path()).unwrap_err().to_string();
        assert!(e.starts_with(&broken.display().to_string()) && e.contains("not an ONNX tensor"), "{e}");
    }
}
