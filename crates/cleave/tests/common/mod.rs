//! Running the command in a folder.

#![allow(dead_code, reason = "not every test needs all of it")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// What a command gives.
pub fn cleave(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cleave")).current_dir(dir).args(args).output().unwrap()
}

/// The document that a command must print.
pub fn json(dir: &Path, args: &[&str]) -> Value {
    let out = cleave(dir, &[args, &["--json"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The error line of a command that must fail with status 1.
pub fn error(dir: &Path, args: &[&str]) -> String {
    let out = cleave(dir, args);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.starts_with("error: ") && text.trim_end().lines().count() == 1, "{args:?}: {text}");
    text
}
