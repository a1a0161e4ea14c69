//! A process that is killed while it quantizes leaves the old file or the new one.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_formats::npy;
use common::json;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// How often; `KILLS=100 cargo test -p cleave --test killed` for more.
fn kills() -> u32 {
    std::env::var("KILLS").map_or(12, |n| n.parse().expect("KILLS is a number"))
}

/// Files that are being written, or were, and their sizes.
fn parts(dir: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    let entries = std::fs::read_dir(dir).unwrap().filter_map(|e| e.ok());
    let parts = entries.filter(|e| e.path().extension().is_some_and(|e| e == "part"));
    parts.filter_map(|e| Some((e.path(), e.metadata().ok()?.len())))
}

/// How many of them have bytes and are not known.
fn begun(dir: &Path, known: &HashSet<PathBuf>) -> usize {
    parts(dir).filter(|(path, size)| *size > 0 && !known.contains(path)).count()
}

#[test]
fn what_is_there_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion/depthwise_fashion.pt2");
    std::fs::copy(fixture, dir.path().join("model.pt2")).unwrap();
    npy::write_npy(&dir.path().join("calib.npy"), &cleave::demo::calibration(8)).unwrap();
    let args = |quantizer: &'static str| {
        ["quantize", "model.pt2", "-o", "out.clv", "--calib", "calib.npy", "--quantizer", quantizer]
    };
    // Two files that differ, and what each is like.
    let file = dir.path().join("out.clv");
    let mut whole = vec![];
    let took = ["x86", "cpu"].map(|quantizer| {
        let run = || {
            let start = Instant::now();
            json(dir.path(), &args(quantizer));
            start.elapsed()
        };
        let took = run().min(run());
        whole.push(std::fs::read(&file).unwrap());
        took
    });
    assert!(whole[0] != whole[1]);
    let (kills, mut late, mut replaced, mut midst) = (kills(), 0, 0, 0);
    let mut known = HashSet::new();
    let mut before = std::fs::read(&file).unwrap();
    for k in 0..kills {
        let now = args(if k % 2 == 0 { "x86" } else { "cpu" });
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .current_dir(dir.path())
            .args(now)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Every fourth at some moment, the others as soon as bytes of the new file are there.
        let share = f64::from(k) / f64::from(kills);
        if k % 4 == 0 {
            std::thread::sleep(took[(k % 2) as usize].mul_f64(1.1 * share));
        } else {
            while begun(dir.path(), &known) == 0 && child.try_wait().unwrap().is_none() {}
        }
        let _ = child.kill();
        late += u32::from(child.wait().unwrap().success());
        let left = std::fs::read(&file).unwrap();
        assert!(whole.contains(&left), "kill {k}: {} bytes", left.len());
        replaced += u32::from(left != before);
        before = left;
        midst += begun(dir.path(), &known);
        known.extend(parts(dir.path()).map(|(path, _)| path));
    }
    println!("{kills} kills, {midst} in the midst of writing, {late} after the end; {replaced} left another file");
}
