//! Reading exported programs: op counts as torch has them, names, tied weights, and files that are not right.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_formats::read_pt2;
use cleave_ir::{ConstKind, Graph, Kind, Levels, verify::verify};
use std::path::{Path, PathBuf};

fn fashion(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion").join(name)
}

/// torch's op counts at `export` for a model of a folder.
fn histogram(folder: &Path, model: &str) -> Option<Vec<(String, usize)>> {
    let text = std::fs::read_to_string(folder.join("histograms.json")).ok()?;
    let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let counts = all.get("models").unwrap_or(&all).get(model)?.get("export")?.as_object()?;
    let mut counts: Vec<_> = counts.iter().map(|(op, n)| (op.clone(), n.as_u64().expect("a count") as usize)).collect();
    counts.sort();
    Some(counts)
}

fn counts(g: &Graph) -> Vec<(String, usize)> {
    let mut counts: Vec<_> = g.op_counts().into_iter().map(|(op, n)| (op.to_string(), n)).collect();
    counts.sort();
    counts
}

#[test]
fn the_small_networks_have_torchs_nodes() {
    for (name, nodes) in [("tiny_static", 46), ("tiny_fashion", 46)] {
        let g = read_pt2(&fashion(&format!("{name}.pt2"))).unwrap();
        assert_eq!(g.len(), nodes, "{name}");
        assert_eq!(Some(counts(&g)), histogram(&fashion(""), name), "{name}");
        verify(&g, Levels::ALL).unwrap();
    }
    let g = read_pt2(&fashion("tiny_fashion.pt2")).unwrap();
    assert_eq!(cleave_ir::text::parse(&g.to_string()).unwrap().to_string(), g.to_string());
    let g = read_pt2(&fashion("depthwise_fashion.pt2")).unwrap();
    assert_eq!(Some(counts(&g)), histogram(&fashion(""), "depthwise_fashion"));
    verify(&g, Levels::ALL).unwrap();
}

#[test]
fn names_symbols_modules_and_weights_come_from_the_file() {
    let g = read_pt2(&fashion("tiny_fashion.pt2")).unwrap();
    assert_eq!(
        (g.input_names.as_slice(), g.output_names.as_slice()),
        (&["x".to_string()][..], &["linear".to_string()][..])
    );
    let range = g.symbols["s77"];
    assert_eq!((range.min, range.max), (1, Some(1024)));
    let text = g.to_string();
    for line in [
        "graph(%x: f32[s77, 1, 28, 28]) where 1 <= s77 <= 1024 {\n  %p_stem_0_weight = param \"stem.0.weight\": f32[16, 1, 3, 3]\n",
        "  %conv2d = aten.conv2d(%x, %p_stem_0_weight, none, [1, 1], [1, 1]): f32[s77, 16, 28, 28]\n",
        "  %linear = aten.linear(%flatten, %p_fc_weight, %p_fc_bias): f32[s77, 10]\n  return %linear\n",
    ] {
        assert!(text.contains(line), "{line}\nin\n{text}");
    }
    let conv = g.node(g.find("conv2d").unwrap());
    assert_eq!((conv.origin.module.as_str(), conv.origin.sources.as_slice()), ("stem.0", &["conv2d".to_string()][..]));
    let bias = g.find("p_fc_bias").unwrap();
    let values = g.constant(bias).unwrap().to_f32();
    assert_eq!(
        values[..2],
        [f32::from_le_bytes([0x88, 0x0c, 0xa7, 0x3e]), f32::from_le_bytes([0x5e, 0x9f, 0xe4, 0xbd])]
    );
    let tracked = g.node(g.find("b_stem_1_num_batches_tracked").unwrap());
    assert_eq!(tracked.kind, Kind::GetAttr(ConstKind::Buffer));
    assert_eq!(g.constants["stem.1.num_batches_tracked"].to_i64(), [2808]);
}

#[test]
fn other_files_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let error = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let e = read_pt2(&path).unwrap_err().to_string();
        e.strip_prefix(&format!("{}: ", path.display())).expect("the file comes first").to_string()
    };
    assert!(error("text", b"hello").starts_with("not a whole zip archive"));
    assert!(error("empty", b"").starts_with("not a whole zip archive"));
    let old = zipped(&[("serialized_exported_program.json", b"{}")]);
    assert!(error("old", &old).starts_with("serialized_exported_program.json: missing field"));
    let torch28 = zipped(&[("m/models/model.json", b"{}"), ("m/data/weights/model.pt", b"")]);
    assert!(error("torch28", &torch28).starts_with("m/models/model.json: missing field"));
    let big = zipped(&[("m/models/model.json", b"{}"), ("m/byteorder", b"big"), ("m/data/weights/model.pt", b"")]);
    assert!(error("big", &big).starts_with("weights that are not little-endian; export the model again"));
    let newer = br#"{"schema_version":{"major":9,"minor":1},"torch_version":"3.0","graph_module":{"graph":{"nodes":[]},"signature":{"input_specs":[],"output_specs":[]}}}"#;
    let newer = zipped(&[("m/models/model.json", &newer[..]), ("m/data/weights/model.pt", b"")]);
    assert!(error("newer", &newer).starts_with("schema version 9.1, written by torch 3.0; expected 5.x to 8.x"));
    assert!(error("jit", &zipped(&[("m/data.pkl", b"")])).contains("torch.save or torch.jit.save"));
    assert!(error("other", &zipped(&[("a.txt", b"")])).contains("not a .pt2 file"));
    let config = ("m/data/weights/model_weights_config.json", &br#"{"config":{}}"#[..]);
    assert!(error("json", &zipped(&[("m/models/model.json", b"{"), config])).starts_with("m/models/model.json: EOF"));
}

fn zipped(entries: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut z = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    for (name, data) in entries {
        z.start_file(*name, zip::write::SimpleFileOptions::default()).expect("begun");
        z.write_all(data).expect("written");
    }
    z.finish().expect("finished").into_inner()
}

/// Reads every .pt2 file in the folders that `CLEAVE_PT2` names (separated by colons) and compares op counts
/// where a histogram lies beside.
#[test]
fn whole_folders_of_networks_are_read() {
    let Ok(folders) = std::env::var("CLEAVE_PT2") else {
        println!("skipped: CLEAVE_PT2 names no folders of .pt2 files");
        return;
    };
    let mut bad = vec![];
    for folder in folders.split(':').map(Path::new) {
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "pt2"));
        files.sort();
        for f in files {
            let begun = std::time::Instant::now();
            let model = f.file_stem().unwrap().to_str().unwrap();
            let found = match read_pt2(&f) {
                Err(e) => e.to_string(),
                Ok(g) => match (verify(&g, Levels::ALL), histogram(folder, model)) {
                    (Err(e), _) => e.to_string(),
                    (_, Some(h)) if h != counts(&g) => format!("{model}: {:?}\n{h:?}", counts(&g)),
                    (_, h) => {
                        println!(
                            "{model}: {} nodes, {:?}{}",
                            g.len(),
                            begun.elapsed(),
                            if h.is_some() { ", counted" } else { "" }
                        );
                        continue;
                    }
                },
            };
            bad.push(format!("{}: {found}", f.display()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
