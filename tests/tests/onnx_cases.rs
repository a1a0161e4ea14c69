//! ONNX's own operator cases, on the reference interpreter and on the CPU backend.
//!
//! `fixtures/onnx_node_cases.zip` holds a folder for each case, `fixtures/onnx_node_cases.toml` those that do not hold.
//! To look at some cases only: `CASES='test_lstm*' cargo test -p cleave-tests --test onnx_cases`; a folder of further
//! cases: `CASES_DIR=…`.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::Backend;
use cleave::conformance::{Case, CaseResult, Status, find_cases, run_case};
use cleave_runtime::Options;
use cleave_tests::{Globs, fixture, globs};
use serde::Deserialize;
use std::io::{Cursor, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

const BACKENDS: [&str; 2] = ["reference", "cpu"];

/// Fewest cases that must hold.
const HOLD: usize = 1710;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    refused: Vec<Refused>,
    differs: Vec<Differs>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    cases: Vec<String>,
    error: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Differs {
    cases: Vec<String>,
    why: String,
}

fn run(case: &Case, backend: &str) -> CaseResult {
    let done = || run_case(case, &mut |g| Backend::new(backend, g, Options::default()));
    catch_unwind(AssertUnwindSafe(done)).unwrap_or_else(|_| CaseResult {
        name: case.name.clone(),
        status: Status::Failed,
        why: "panicked".into(),
    })
}

/// What is wrong with a case's result; none if it is as the list says.
fn wrong(r: &CaseResult, refused: &[(Globs, &Refused)], differs: &[(Globs, &Differs)]) -> Option<String> {
    let refusal = refused.iter().find(|(g, _)| g.matches(&r.name)).map(|(_, k)| k);
    let difference = differs.iter().find(|(g, _)| g.matches(&r.name)).map(|(_, k)| k);
    match (r.status, refusal, difference) {
        (Status::Passed, None, None) => None,
        (Status::Passed, ..) => {
            let why = refusal.map(|k| &k.error).or(difference.map(|k| &k.why));
            Some(format!("listed ({}), but it holds", why.map_or("", |w| w)))
        }
        (Status::Unsupported, Some(k), _) if r.why.contains(&k.error) && r.why.contains('\'') => None,
        (Status::Unsupported, Some(k), _) => Some(format!("expected '{}': {}", k.error, r.why)),
        (Status::Failed, _, Some(_)) => None,
        _ => Some(r.why.clone()),
    }
}

#[test]
fn onnxs_operator_cases_hold() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = match std::env::var_os("CASES_DIR") {
        Some(dir) => dir.into(),
        None => {
            let file = std::fs::File::open(fixture("onnx_node_cases.zip")).unwrap();
            let mut cases = vec![];
            zip::ZipArchive::new(file).unwrap().by_name("cases.zip").unwrap().read_to_end(&mut cases).unwrap();
            zip::ZipArchive::new(Cursor::new(cases)).unwrap().extract(unpacked.path()).unwrap();
            unpacked.path().to_path_buf()
        }
    };
    let list: List = toml::from_str(&std::fs::read_to_string(fixture("onnx_node_cases.toml")).unwrap()).unwrap();
    let wanted = std::env::var("CASES").ok();
    let wanted = wanted.as_deref().map(|w| globs(w.split(',')));
    let cases: Vec<Case> = find_cases(&dir).unwrap();
    let cases: Vec<&Case> = cases.iter().filter(|c| wanted.as_ref().is_none_or(|w| w.matches(&c.name))).collect();
    let set = |cases: &[String]| globs(cases.iter().map(String::as_str));
    let refused: Vec<_> = list.refused.iter().map(|k| (set(&k.cases), k)).collect();
    let differs: Vec<_> = list.differs.iter().map(|k| (set(&k.cases), k)).collect();
    let (mut bad, mut hold) = (vec![], [0; BACKENDS.len()]);
    for case in &cases {
        for (backend, hold) in BACKENDS.iter().zip(&mut hold) {
            let r = run(case, backend);
            *hold += usize::from(r.status == Status::Passed);
            bad.extend(wrong(&r, &refused, &differs).map(|why| format!("{} {backend}: {why}", r.name)));
        }
    }
    eprintln!("{} cases; of them hold: reference {}, cpu {}", cases.len(), hold[0], hold[1]);
    assert!(bad.is_empty(), "{} things do not hold:\n{}", bad.len(), bad.join("\n"));
    assert!(wanted.is_some() || hold.iter().all(|h| *h >= HOLD), "{hold:?} of {} cases hold", cases.len());
}
