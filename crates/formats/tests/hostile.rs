//! Files that are cut short, flipped or that lie: an error that begins with the file, never a panic, a hang or
//! memory without bound.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_formats::npy::{read_npy, read_npz, write_npy, write_npz};
use cleave_formats::{Dataset, ImageOptions, InputSpec, read, read_clv, read_pt2, write_clv};
use cleave_ir::{Dim, Tensor, TensorMeta};
use cleave_numerics::DType;
use indexmap::IndexMap;
use proptest::prelude::*;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn fashion(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion").join(name)
}

/// What is done to a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip(prop::sample::Index, u8),
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Double(prop::sample::Index, prop::sample::Index),
    Word(prop::sample::Index, u64),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<prop::sample::Index>;
    let words = prop::sample::select(vec![0, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX, 1 << 40, 1 << 63]);
    prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(i, b)| Harm::Flip(i, b)),
        4 => (at(), any::<u8>()).prop_map(|(i, b)| Harm::Set(i, b)),
        1 => at().prop_map(Harm::Cut),
        1 => (at(), at()).prop_map(|(a, b)| Harm::Double(a, b)),
        2 => (at(), words).prop_map(|(i, w)| Harm::Word(i, w)),
    ]
}

fn apply(bytes: &mut Vec<u8>, h: &Harm) {
    let len = bytes.len();
    match h {
        Harm::Flip(i, b) => bytes[i.index(len)] ^= 1 << b,
        Harm::Set(i, b) => bytes[i.index(len)] = *b,
        Harm::Cut(i) => bytes.truncate(i.index(len)),
        Harm::Double(a, b) => {
            let (a, b) = (a.index(len), b.index(len));
            let copy = bytes[a.min(b)..a.max(b)].to_vec();
            bytes.splice(a..a, copy);
        }
        Harm::Word(i, w) => {
            let at = i.index(len);
            let end = (at + 8).min(len);
            bytes[at..end].copy_from_slice(&w.to_le_bytes()[..end - at]);
        }
    }
    if bytes.is_empty() {
        bytes.push(0);
    }
}

/// Runs a reader on harmed bytes. Whatever it gives, it gives soon, and its errors name the file.
fn survives<T>(name: &str, bytes: &[u8], reader: impl Fn(&Path) -> cleave_formats::Result<T>) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).expect("a file for the test");
    let begun = Instant::now();
    if let Err(e) = reader(&path) {
        let text = e.to_string();
        assert!(text.starts_with(&dir.path().display().to_string()), "{text}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

fn contents(name: &str) -> Vec<u8> {
    std::fs::read(fashion(name)).expect("a fixture")
}

/// The entries of an archive.
fn entries(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut z = zip::ZipArchive::new(Cursor::new(bytes)).expect("a whole archive");
    let n = z.len();
    let read = |i| {
        let mut e = z.by_index(i).expect("an entry");
        let mut data = vec![];
        e.read_to_end(&mut data).expect("its bytes");
        (e.name().expect("its name").into_owned(), data)
    };
    (0..n).map(read).collect()
}

fn packed(entries: &[(String, Vec<u8>)], method: zip::CompressionMethod) -> Vec<u8> {
    let mut z = zip::ZipWriter::new(Cursor::new(vec![]));
    for (name, data) in entries {
        z.start_file(name.as_str(), zip::write::SimpleFileOptions::default().compression_method(method))
            .expect("begun");
        z.write_all(data).expect("written");
    }
    z.finish().expect("finished").into_inner()
}

/// The program with one of its numbers replaced.
fn with_number(text: &str, which: &prop::sample::Index, number: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .filter(|(i, c)| c.is_ascii_digit() && !text[..*i].ends_with(|p: char| p.is_ascii_digit()))
        .map(|(i, _)| i)
        .collect();
    let start = starts[which.index(starts.len())];
    let end = text[start..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| start + n);
    format!("{}{number}{}", &text[..start], &text[end..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn harmed_programs(harms in prop::collection::vec(harm(), 1..6)) {
        let mut bytes = contents("tiny_static.pt2");
        harms.iter().for_each(|h| apply(&mut bytes, h));
        survives("m.pt2", &bytes, read_pt2);
        survives("m", &bytes, read);
    }

    #[test]
    fn programs_with_other_numbers(
        harms in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![
            "0", "-1", "1", "3", "4", "7", "65536", "4294967296", "9223372036854775807", "-9223372036854775808", "1e308", "99999999999999999999",
        ])), 1..4),
        deflated in any::<bool>(),
    ) {
        let mut list = entries(&contents("tiny_fashion.pt2"));
        for (which, number) in &harms {
            // Mostly the program, at times the table of the weights.
            let suffix = if which.index(5) == 0 { "weights_config.json" } else { "models/model.json" };
            for (_, data) in list.iter_mut().filter(|(n, _)| n.ends_with(suffix)) {
                *data = with_number(&String::from_utf8_lossy(data), which, number).into_bytes();
            }
        }
        let method = if deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
        survives("m.pt2", &packed(&list, method), |p| {
            let g = read_pt2(p)?;
            cleave_ir::verify::verify(&g, cleave_ir::Levels::ALL).map_err(|e| cleave_formats::FormatError::ir(p, e))
        });
    }

    #[test]
    fn harmed_arrays(harms in prop::collection::vec(harm(), 1..6)) {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let t = Tensor::new(&[2, 3], vec![1f32; 6]);
        let (npy, npz) = (dir.path().join("x.npy"), dir.path().join("x.npz"));
        write_npy(&npy, &t).expect("written");
        write_npz(&npz, &IndexMap::from([("x".to_string(), t.clone()), ("y".into(), t)])).expect("written");
        let mut bytes = std::fs::read(&npy).expect("read");
        harms.iter().for_each(|h| apply(&mut bytes, h));
        survives("x.npy", &bytes, read_npy);
        let spec = InputSpec { names: vec!["x".into()], metas: vec![TensorMeta { dtype: DType::F32, shape: vec![Dim::symbol("N"), Dim::from(3)] }] };
        survives("x.npy", &bytes, |p| Dataset::open(p, &spec, &ImageOptions::default())?.batch(0..1));
        let mut bytes = std::fs::read(&npz).expect("read");
        harms.iter().for_each(|h| apply(&mut bytes, h));
        survives("x.npz", &bytes, read_npz);
    }

    #[test]
    fn harmed_containers(harms in prop::collection::vec(harm(), 1..4)) {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let path = dir.path().join("m.clv");
        let g = read_pt2(&fashion("tiny_static.pt2")).expect("a fixture");
        write_clv(&path, &g, &IndexMap::new()).expect("written");
        let mut bytes = std::fs::read(&path).expect("read");
        harms.iter().for_each(|h| apply(&mut bytes, h));
        survives("m.clv", &bytes, read_clv);
        survives("m", &bytes, read);
    }
}

#[test]
fn a_bomb_is_not_inflated() {
    let list = vec![
        ("m/models/model.json".to_string(), vec![b' '; 1 << 20]),
        ("m/data/weights/model_weights_config.json".into(), b"{}".to_vec()),
    ];
    let mut bytes = packed(&list, zip::CompressionMethod::Deflated);
    // The central directory's record of the first entry claims more bytes than it can stand for.
    let record = bytes.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    bytes[record + 24..record + 28].copy_from_slice(&0xfff0_0000u32.to_le_bytes());
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path = dir.path().join("m.pt2");
    std::fs::write(&path, &bytes).expect("written");
    let e = read_pt2(&path).expect_err("refused").to_string();
    assert!(e.contains("claims 4293918720 bytes"), "{e}");
}

#[test]
fn weights_stored_as_pickles_are_refused_by_name() {
    let mut list = entries(&contents("tiny_static.pt2"));
    for (_, data) in list.iter_mut().filter(|(n, _)| n.ends_with("weights_config.json")) {
        let text = String::from_utf8_lossy(data).replacen("\"use_pickle\": false", "\"use_pickle\": true", 1);
        *data = text.into_bytes();
    }
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path = dir.path().join("m.pt2");
    std::fs::write(&path, packed(&list, zip::CompressionMethod::Stored)).expect("written");
    let e = read_pt2(&path).expect_err("refused").to_string();
    assert!(e.contains("tensor 'stem.0.weight' is stored as a pickle, which is never run"), "{e}");
}

#[test]
fn renamed_roots_deflated_entries_and_unaligned_ones_are_read() {
    let whole = read_pt2(&fashion("tiny_static.pt2")).expect("a fixture");
    let mut list = entries(&contents("tiny_static.pt2"));
    for (n, _) in &mut list {
        *n = n.replacen("tiny_static", "archive", 1);
    }
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path = dir.path().join("m.pt2");
    for method in [zip::CompressionMethod::Deflated, zip::CompressionMethod::Stored] {
        std::fs::write(&path, packed(&list, method)).expect("written");
        let g = read_pt2(&path).expect("read");
        assert_eq!(g.to_string(), whole.to_string());
        assert_eq!(g.constants, whole.constants);
    }
}

#[test]
fn unknown_ops_are_listed_all_at_once() {
    let mut list = entries(&contents("tiny_static.pt2"));
    for (_, data) in list.iter_mut().filter(|(n, _)| n.ends_with("models/model.json")) {
        let text = String::from_utf8_lossy(data)
            .replace("aten.relu.default", "mine.fancy.default")
            .replace("aten.linear.default", "mine.other.default");
        *data = text.into_bytes();
    }
    let dir = tempfile::tempdir().expect("a folder for the test");
    let path = dir.path().join("m.pt2");
    std::fs::write(&path, packed(&list, zip::CompressionMethod::Stored)).expect("written");
    let e = read_pt2(&path).expect_err("refused").to_string();
    let want = "2 problems\n  node 'relu' (mine.fancy.default): unknown op (and at 3 more nodes)\n  node 'linear' (mine.other.default): unknown op";
    assert!(e.ends_with(want), "{e}");
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }

    /// A few bytes changed, doubled, lost, or the end cut off.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.next(4) {
            let at = self.next(bytes.len());
            match self.next(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), self.next(256) as u8),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => {
                    let end = (at + self.next(40)).min(bytes.len());
                    let copy = bytes[at.min(end)..end].to_vec();
                    bytes.splice(at..at, copy);
                }
                _ if at < bytes.len() => bytes[at] = self.next(256) as u8,
                _ => {}
            }
        }
    }
}

#[test]
fn spoilt_programs_of_every_layout_give_an_error_or_a_graph() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let files = [
        "pt2/storages.2.15.pt2",
        "pt2/storages.2.8.pt2",
        "pt2/storages.2.7.pt2",
        "pt2/branches.2.15.pt2",
        "pt2/branches.2.7.pt2",
        "pt2/wrapped.2.15.pt2",
        "pt2/outputs.2.8.pt2",
        "pt2e/dynamic.pt2",
    ];
    let mut dice = Dice(1);
    let whole = |p: &Path| {
        let g = read_pt2(p)?;
        cleave_ir::verify::verify(&g, cleave_ir::Levels::ALL).map_err(|e| cleave_formats::FormatError::ir(p, e))
    };
    for file in files {
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let list = entries(&bytes);
        let wanted = |n: &str| n.ends_with(".json") || n.ends_with(".pt");
        let choice: Vec<usize> = (0..list.len()).filter(|i| wanted(&list[*i].0)).collect();
        for round in 0..60 {
            let mut spoilt = list.clone();
            let entry = &mut spoilt[choice[dice.next(choice.len())]];
            if entry.0.ends_with(".pt") && round % 2 == 0 {
                // Behind the checksums of the archive inside.
                let mut inner = entries(&entry.1);
                let at = dice.next(inner.len().min(3));
                dice.spoil(&mut inner[at].1);
                entry.1 = packed(&inner, zip::CompressionMethod::Stored);
            } else {
                dice.spoil(&mut entry.1);
            }
            survives("m.pt2", &packed(&spoilt, zip::CompressionMethod::Stored), whole);
            let mut raw = bytes.clone();
            dice.spoil(&mut raw);
            survives("m.pt2", &raw, whole);
        }
    }
}
