//! A process that is killed while it quantizes leaves the old file or the new one.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_formats::npy;
use common::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: u32 = 12;

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
    let mut took = Duration::ZERO;
    for quantizer in ["x86", "cpu"] {
        let start = Instant::now();
        json(dir.path(), &args(quantizer));
        took = start.elapsed();
        whole.push(std::fs::read(&file).unwrap());
    }
    assert!(whole[0] != whole[1]);
    for k in 0..KILLS {
        let now = args(if k % 2 == 0 { "x86" } else { "cpu" });
        let mut child = Command::new(env!("CARGO_BIN_EXE_cleave"))
            .current_dir(dir.path())
            .args(now)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From the first moment to just behind the last, and most of them where the file is written.
        std::thread::sleep(took.mul_f64(if k % 4 == 0 {
            f64::from(k) / f64::from(KILLS)
        } else {
            0.9 + f64::from(k) / 100.0
        }));
        let _ = child.kill();
        child.wait().unwrap();
        let left = std::fs::read(&file).unwrap();
        assert!(whole.contains(&left), "kill {k}: {} bytes", left.len());
    }
}
