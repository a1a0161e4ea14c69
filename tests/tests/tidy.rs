//! What holds of the source itself: dependency arrows, where `unsafe` may stand, file lengths, orphan snapshots.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_tests::root;
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

fn files(under: &str, ext: &str) -> Vec<PathBuf> {
    let walk = WalkDir::new(root().join(under)).sort_by_file_name().into_iter().filter_map(Result::ok);
    walk.map(|e| e.into_path()).filter(|p| p.extension().is_some_and(|e| e == ext)).collect()
}

fn relative(p: &Path) -> String {
    p.strip_prefix(root()).unwrap_or(p).display().to_string()
}

/// The arrows of the picture in crates/ARCHITECTURE.md: what each crate may depend on.
const ARROWS: [(&str, &[&str]); 9] = [
    ("numerics", &[]),
    ("ir", &["numerics"]),
    ("rewrite", &["ir"]),
    ("decompose", &["ir", "numerics", "rewrite"]),
    ("quantize", &["ir", "kernels", "numerics", "rewrite"]),
    ("kernels", &["numerics"]),
    ("runtime", &["decompose", "ir", "kernels", "numerics"]),
    ("formats", &["ir", "numerics"]),
    ("cleave", &["decompose", "formats", "ir", "kernels", "numerics", "quantize", "rewrite", "runtime"]),
];

#[test]
fn crates_depend_only_along_the_arrows() {
    for (name, allowed) in ARROWS {
        let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        let normal = manifest.split("[dev-dependencies]").next().unwrap();
        for line in normal.lines().filter_map(|l| l.strip_prefix("cleave-")) {
            let dep = line.split(['.', ' ']).next().unwrap();
            if dep != "numerics\"" && !line.starts_with(&format!("{name}\"")) {
                assert!(allowed.contains(&dep), "crates/{name} depends on {dep}; allowed: {allowed:?}");
            }
        }
    }
}

#[test]
fn unsafe_stands_in_kernels_only() {
    // Mapping a file is the one other place: it is safe as long as nobody truncates the file meanwhile.
    let exceptions = ["crates/formats/src/mapped.rs"];
    for file in files("crates", "rs") {
        let name = relative(&file);
        if name.starts_with("crates/kernels/") || exceptions.contains(&name.as_str()) {
            continue;
        }
        for (i, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap();
            assert!(
                !code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe"),
                "{name}:{}: unsafe outside kernels",
                i + 1
            );
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let long: Vec<String> = files("crates", "rs")
        .iter()
        .chain(&files("tests", "rs"))
        .map(|f| (relative(f), fs::read_to_string(f).unwrap().lines().count()))
        .filter(|(_, n)| *n > 600)
        .map(|(f, n)| format!("{f}: {n} lines"))
        .collect();
    assert!(long.is_empty(), "files past 600 lines: {long:?}");
}

#[test]
fn architecture_is_short_and_names_every_crate() {
    let text = fs::read_to_string(root().join("crates/ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() <= 200, "{} lines", text.lines().count());
    for (name, _) in ARROWS {
        assert!(text.contains(&format!("`{name}`")), "{name} is not described");
    }
}

#[test]
fn every_snapshot_belongs_to_a_test() {
    let tests: String =
        files("tests", "rs").iter().chain(&files("crates", "rs")).map(|f| fs::read_to_string(f).unwrap()).collect();
    for snap in files("snapshots", "snap") {
        let text = fs::read_to_string(&snap).unwrap();
        let source = text
            .lines()
            .find_map(|l| l.strip_prefix("source: "))
            .unwrap_or_else(|| panic!("{} names no source", relative(&snap)));
        assert!(root().join(source).exists(), "{}: its source {source} is gone", relative(&snap));
        let stem = snap.file_stem().unwrap().to_str().unwrap();
        let name = stem.rsplit("__").next().unwrap();
        assert!(tests.contains(name) || text.contains("input_file"), "{}: no test mentions '{name}'", relative(&snap));
    }
}

#[test]
fn nothing_is_left_open() {
    for file in files("crates", "rs") {
        let text = fs::read_to_string(&file).unwrap();
        for word in ["TODO", "FIXME", "XXX", "#[ignore"] {
            assert!(!text.contains(word), "{}: {word}", relative(&file));
        }
    }
}
