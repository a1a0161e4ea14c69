//! The annotated graph under test, as a user's repository has it.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave::snapshot;
use cleave::stage::Model;
use cleave_ir::Tensor;
use common::{cleave, error, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository with a model, a quantizer of its own and a snapshot that is up to date.
fn repository() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion/tiny_fashion.pt2");
    std::fs::copy(fixture, dir.path().join("model.pt2")).unwrap();
    let patterns = "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n";
    std::fs::write(dir.path().join("mine.toml"), patterns).unwrap();
    let made = json(dir.path(), &["snapshot", "update", "model.pt2", "-o", "model.snap", "--quantizer", "mine.toml"]);
    assert_eq!(made["same"], false);
    dir
}

const CHECK: [&str; 7] = ["snapshot", "check", "model.pt2", "-o", "model.snap", "--quantizer", "mine.toml"];

/// Other weights, the same graph.
fn retrain(dir: &Path) {
    let file = dir.join("model.pt2");
    let mut g = cleave_formats::read(&file).unwrap();
    for t in g.constants.values_mut() {
        if t.dtype().is_float() {
            let other = t.to_f32().iter().map(|v| v * 0.75 + 0.01).collect();
            *t = Tensor::new::<f32>(t.shape(), other);
        }
    }
    cleave::pipeline::write(&file, &g).unwrap();
}

#[test]
fn the_same_graph_is_green_whatever_its_weights() {
    let dir = repository();
    assert_eq!(json(dir.path(), &CHECK)["same"], true);
    retrain(dir.path());
    assert_eq!(json(dir.path(), &CHECK)["same"], true);
    let text = std::fs::read_to_string(dir.path().join("model.snap")).unwrap();
    assert!(text.contains("# conv_bn_act: out u8[0, 255] affine, histogram"), "{text}");
    assert_eq!(
        json(dir.path(), &["snapshot", "update", "model.pt2", "-o", "model.snap", "--quantizer", "mine.toml"])["same"],
        true
    );
}

#[test]
fn a_pattern_that_is_gone_is_red_and_says_where() {
    let dir = repository();
    let only =
        "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n[[override]]\nselect = \"pattern:max_pool\"\nfloat = true\n";
    std::fs::write(dir.path().join("mine.toml"), only).unwrap();
    let before = std::fs::read(dir.path().join("model.snap")).unwrap();
    let done = cleave(dir.path(), &CHECK);
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stdout);
    let changed: Vec<&str> = said.lines().filter(|l| l.starts_with('+') || l.starts_with('-')).collect();
    assert_eq!(changed[..2], ["--- model.snap", "+++ now"], "{said}");
    let pools = changed[2..].iter().filter(|l| l.contains("max_pool2d")).count();
    assert!(pools == changed.len() - 2 && pools >= 2, "{said}");
    assert!(said.contains("snapshot update` takes it over"), "{said}");
    // A check writes nothing; an update does, and says what.
    assert!(before == std::fs::read(dir.path().join("model.snap")).unwrap());
    let now = json(dir.path(), &["snapshot", "update", "model.pt2", "-o", "model.snap", "--quantizer", "mine.toml"]);
    assert_eq!(now["added"].as_u64(), Some(pools as u64 / 2));
    assert_eq!(json(dir.path(), &CHECK)["same"], true);
}

#[test]
fn what_there_is_not_is_an_error() {
    let dir = repository();
    let none = error(dir.path(), &["snapshot", "check", "model.pt2", "-o", "none.snap"]);
    assert!(none.contains("none.snap: there is no snapshot; `cleave snapshot update` makes one"), "{none}");
    let nothing = error(dir.path(), &["snapshot", "update", "model.pt2", "-o", "none.snap", "--float", "fc9"]);
    assert!(nothing.contains("fc9") && !dir.path().join("none.snap").exists(), "{nothing}");
}

/// As a user does it with insta.
#[test]
fn the_library_gives_the_text() {
    let dir = repository();
    let model = Model::read(&dir.path().join("model.pt2")).unwrap();
    let model = model.with_quantizer(dir.path().join("mine.toml").to_str().unwrap(), &[]);
    insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => "../../../snapshots/stages"}, {
        insta::assert_snapshot!("tiny_fashion_annotated_by_mine", snapshot::of(&model).unwrap());
    });
}

/// The folder of a user's repository, for the user's own test.
const REPOSITORY: &str = "CLEAVE_TEST_REPOSITORY";

/// What a user writes, run by the test below in a process of its own.
#[test]
fn the_graph_is_as_it_was() {
    let Some(dir) = std::env::var_os(REPOSITORY).map(PathBuf::from) else { return };
    let model = Model::read(&dir.join("model.pt2")).unwrap();
    let model = model.with_quantizer(dir.join("mine.toml").to_str().unwrap(), &[]);
    insta::with_settings!({prepend_module_to_snapshot => false, snapshot_path => dir.join("snapshots")}, {
        insta::assert_snapshot!("model", snapshot::of(&model).unwrap());
    });
}

/// Whether the user's test is green, and what it says.
fn users_test(dir: &Path, update: &str) -> (bool, String) {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "the_graph_is_as_it_was", "--nocapture"]);
    let out = test.env(REPOSITORY, dir).env("INSTA_UPDATE", update).env_remove("CI").output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(said.contains("running 1 test"), "{said}");
    (out.status.success(), said)
}

#[test]
fn a_repository_keeps_its_graph_by_the_command_and_by_insta() {
    let dir = repository();
    let dir = dir.path();
    // The quantizer is the repository's own, pattern by pattern.
    let cpu = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../patterns/cpu.toml");
    let mine = std::fs::read_to_string(cpu).unwrap().replacen("name = \"cpu\"", "name = \"mine\"", 1);
    std::fs::write(dir.join("mine.toml"), &mine).unwrap();
    json(dir, &["snapshot", "update", "model.pt2", "-o", "model.snap", "--quantizer", "mine.toml"]);
    users_test(dir, "always");
    assert!(dir.join("snapshots/model.snap").is_file());
    let green = |when: &str| {
        let (same, said) = users_test(dir, "no");
        assert!(same, "{when}: {said}");
        assert_eq!(json(dir, &CHECK)["same"], true, "{when}");
    };
    green("at first");
    retrain(dir);
    green("after retraining");
    let start = mine.find("[[pattern]]\nname = \"max_pool\"").unwrap();
    let end = start + 1 + mine[start + 1..].find("[[pattern]]").unwrap();
    std::fs::write(dir.join("mine.toml"), [&mine[..start], &mine[end..]].concat()).unwrap();
    let (same, said) = users_test(dir, "no");
    let done = cleave(dir, &CHECK);
    assert!(!same && done.status.code() == Some(1));
    // Both show the lines that changed, before and after, and no others as changed.
    for (said, mark) in [(said.as_str(), " │ "), (&String::from_utf8_lossy(&done.stdout), "")] {
        let changed = |sign: char| {
            let line = |l: &&str| match mark {
                "" => l.starts_with(sign),
                _ => l.split_once('│').is_some_and(|(_, l)| l.starts_with(sign)),
            };
            said.lines().filter(line).filter(|l| l.contains("max_pool2d(")).count()
        };
        assert!(changed('-') == 2 && changed('+') == 2, "{said}");
        assert!(said.contains("# max_pool: "), "{said}");
    }
    std::fs::write(dir.join("mine.toml"), &mine).unwrap();
    green("with the pattern again");
}
