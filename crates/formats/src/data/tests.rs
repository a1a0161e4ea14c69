use super::*;
use crate::npy::{write_npy, write_npz};
use cleave_numerics::DType;
use indexmap::IndexMap;

fn spec(inputs: &[(&str, &[i64])]) -> InputSpec {
    let metas = inputs.iter().map(|(_, shape)| TensorMeta {
        dtype: DType::F32,
        shape: shape.iter().map(|n| if *n < 0 { Dim::symbol("N") } else { Dim::from(*n) }).collect(),
    });
    InputSpec { names: inputs.iter().map(|(n, _)| (*n).to_string()).collect(), metas: metas.collect() }
}

fn ramp(shape: &[usize]) -> Tensor {
    Tensor::new(shape, (0..shape.iter().product::<usize>()).map(|i| i as f32).collect())
}

fn open(path: &Path, spec: &InputSpec) -> std::result::Result<Dataset, String> {
    Dataset::open(path, spec, &ImageOptions::default())
        .map_err(|e| e.to_string().replace(&path.display().to_string(), "D"))
}

#[test]
fn one_array_is_samples_along_its_first_axis() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("any.npy");
    write_npy(&path, &ramp(&[5, 2, 3])).unwrap();
    let data = open(&path, &spec(&[("x", &[-1, 2, 3])])).unwrap();
    assert_eq!(data.len(), 5);
    let batch = data.batch(1..3).unwrap();
    assert_eq!((batch.len(), batch[0].shape()), (1, &[2, 2, 3][..]));
    assert_eq!(batch[0].to_f32()[..2], [6.0, 7.0]);
    assert!(data.batch(4..6).is_err());
    assert_eq!(
        open(&path, &spec(&[("x", &[-1, 3, 3])])).err().unwrap(),
        "D: input 'x': expected samples of shape [3, 3], found [5, 2, 3]"
    );
    let two = spec(&[("a", &[-1, 2, 3]), ("b", &[-1, 1])]);
    assert!(open(&path, &two).err().unwrap().contains("the model has the inputs a, b"));
}

#[test]
fn arrays_in_an_archive_and_in_a_folder_go_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let two = spec(&[("a", &[-1, 2]), ("b/c", &[-1])]);
    let path = dir.path().join("x.npz");
    let mut arrays = IndexMap::from([("b/c".to_string(), ramp(&[4])), ("a".into(), ramp(&[4, 2]))]);
    write_npz(&path, &arrays).unwrap();
    let batch = open(&path, &two).unwrap().batch(2..4).unwrap();
    assert_eq!((batch[0].to_f32().as_ref(), batch[1].to_f32().as_ref()), (&[4., 5., 6., 7.][..], &[2., 3.][..]));
    arrays.insert("z".into(), ramp(&[4]));
    write_npz(&path, &arrays).unwrap();
    assert_eq!(open(&path, &two).err().unwrap(), "D: array 'z' is no input; the inputs are a, b/c");
    arrays.retain(|k, _| k == "a" || k == "labels");
    write_npz(&path, &arrays).unwrap();
    assert_eq!(open(&path, &two).err().unwrap(), "D: has no array for the input 'b/c'");
    let folder = dir.path().join("f");
    std::fs::create_dir(&folder).unwrap();
    assert_eq!(open(&folder, &two).err().unwrap(), "D: the folder holds no .npy, .npz, .jpg, .png or .pb files");
    write_npy(&folder.join("a.npy"), &ramp(&[3, 2])).unwrap();
    assert_eq!(open(&folder, &two).err().unwrap(), "D: has no b_c.npy for the input 'b/c'");
    write_npy(&folder.join("b_c.npy"), &ramp(&[2])).unwrap();
    assert!(open(&folder, &two).err().unwrap().contains("3 samples for input 'a' and 2 for 'b/c'"));
    write_npy(&folder.join("b_c.npy"), &ramp(&[3])).unwrap();
    assert_eq!(open(&folder, &two).unwrap().len(), 3);
}

#[test]
fn many_files_are_samples_in_the_order_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for i in [10, 9, 2] {
        write_npy(&dir.path().join(format!("s{i}.npy")), &Tensor::new(&[2], vec![i as f32, 0.0])).unwrap();
    }
    write_npy(&dir.path().join("t.npy"), &ramp(&[2, 2])).unwrap();
    let data = open(dir.path(), &spec(&[("x", &[-1, 2])])).unwrap();
    assert_eq!(data.len(), 5);
    assert_eq!(data.batch(1..5).unwrap()[0].to_f32().as_ref(), [9., 0., 10., 0., 0., 1., 2., 3.]);
    assert!(data.file_of(4).ends_with("t.npy") && data.file_of(0).ends_with("s2.npy"));
    std::fs::write(dir.path().join("u.jpg"), b"").unwrap();
    assert!(
        open(dir.path(), &spec(&[("x", &[-1, 2])]))
            .err()
            .unwrap()
            .contains("files of different kinds, as s2.npy and u.jpg")
    );
}

#[test]
fn types_and_values_that_do_not_fit_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.npy");
    write_npy(&path, &Tensor::new(&[1, 2], vec![1f64, 2.0])).unwrap();
    let one = spec(&[("x", &[-1, 2])]);
    assert_eq!(
        open(&path, &one).err().unwrap(),
        "D: input 'x': expected f32, found f64; save it as a.astype('float32')"
    );
    write_npy(&path, &Tensor::new(&[3, 2], vec![1f32, 2.0, 3.0, f32::NAN, 5.0, 6.0])).unwrap();
    let data = open(&path, &one).unwrap();
    let e = data.check_finite(1, &data.batch(1..3).unwrap()).unwrap_err().to_string();
    assert!(e.ends_with("x.npy: input 'x', sample 1: the element at [1] is NaN"), "{e}");
    assert!(data.check_finite(2, &data.batch(2..3).unwrap()).is_ok());
    assert!(open(&dir.path().join("none"), &one).err().unwrap().contains("cannot read"));
    std::fs::write(dir.path().join("x.txt"), b"").unwrap();
    assert!(open(&dir.path().join("x.txt"), &one).err().unwrap().contains("unknown kind of data"));
}

#[test]
fn images_are_scaled_cropped_and_normalized() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.png");
    let im = ::image::RgbImage::from_fn(8, 4, |x, _| ::image::Rgb([if x < 4 { 0 } else { 255 }, 51, 102]));
    im.save(&path).unwrap();
    let input = spec(&[("x", &[-1, 3, 4, 4])]);
    let options = ImageOptions { mean: vec![0.5], std: vec![0.5, 1.0, 2.0], ..ImageOptions::default() };
    let data = Dataset::open(dir.path(), &input, &options).unwrap();
    let t = data.batch(0..1).unwrap().remove(0);
    assert_eq!(t.shape(), [1, 3, 4, 4]);
    let v = t.to_f32();
    assert_eq!(v[..4], [-1.0, -1.0, 1.0, 1.0]);
    assert_eq!((v[16], v[32]), (51.0 / 255.0 - 0.5, (102.0 / 255.0 - 0.5) / 2.0));
    let small = ImageOptions { resize: Some(2), ..ImageOptions::default() };
    let e = Dataset::open(&path, &input, &small).unwrap().batch(0..1).unwrap_err().to_string();
    assert!(e.ends_with("is 4x2 after resizing, too small for a crop of 4x4; resize to a greater length"), "{e}");
    let bad = ImageOptions { mean: vec![0.1, 0.2], ..ImageOptions::default() };
    let e = Dataset::open(&path, &input, &bad).err().unwrap().to_string();
    assert!(e.ends_with("mean of 2 numbers for 3 channels"), "{e}");
    std::fs::write(&path, b"\x89PNG\r\n\x1a\nxx").unwrap();
    let e = Dataset::open(&path, &input, &ImageOptions::default()).unwrap().batch(0..1).unwrap_err().to_string();
    assert!(e.contains("not an image that can be decoded"), "{e}");
}

#[test]
fn onnx_tensors_are_samples_by_number() {
    use crate::onnx::proto::TensorProto;
    use prost::Message;
    let dir = tempfile::tempdir().unwrap();
    let two = spec(&[("a", &[-1, 2]), ("b", &[-1])]);
    for set in [0, 1, 10] {
        let folder = dir.path().join(format!("test_data_set_{set}"));
        std::fs::create_dir(&folder).unwrap();
        for (i, dims) in [vec![1, 2], vec![1]].into_iter().enumerate() {
            let n = dims.len();
            let proto = TensorProto { dims, data_type: 1, float_data: vec![set as f32; n], ..TensorProto::default() };
            std::fs::write(folder.join(format!("input_{i}.pb")), proto.encode_to_vec()).unwrap();
        }
    }
    let data = open(dir.path(), &two).unwrap();
    assert_eq!(data.batch(0..3).unwrap()[1].to_f32().as_ref(), [0.0, 1.0, 10.0]);
    std::fs::remove_file(dir.path().join("test_data_set_1/input_1.pb")).unwrap();
    assert!(open(dir.path(), &two).err().unwrap().ends_with("has no input_1.pb for the input 'b'"));
}
