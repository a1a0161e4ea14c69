//! torch's own operator cases: outputs on both backends, op counts at `empty` and `core`, outputs at `prims`.
//!
//! `fixtures/opinfo.zip` holds a folder for each case, `fixtures/opinfo.toml` what is known not to hold. To look at
//! some cases only: `CASES='nn.functional.*,add/*' cargo test -p cleave-tests --test opinfo -- --nocapture`; a folder
//! of further cases: `CASES_DIR=…`.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::Backend;
use cleave::conformance::{Case, Status, find_cases, run_case};
use cleave_decompose::{Table, decompose};
use cleave_ir::Graph;
use cleave_runtime::Options;
use cleave_tests::{Globs, fixture, globs};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is compared of a case.
const STAGES: [&str; 5] = ["cpu", "reference", "empty", "core", "prims"];

/// Fewest cases that must be compared at all, and shares of them that must hold.
const EXCLUDED_AT_MOST: usize = 60;
const OUTPUTS_HOLD: f64 = 0.98;
const COUNTS_HOLD: f64 = 0.95;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    excluded: BTreeMap<String, String>,
    #[serde(default)]
    known: Vec<Known>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    cases: Vec<String>,
    stages: Vec<String>,
    why: String,
}

/// Why a stage of a case does not hold.
fn check(case: &Case, stage: &str) -> Result<(), String> {
    let ran = |make: &mut dyn FnMut(&Graph) -> cleave::Result<Backend>| {
        let r = run_case(case, make);
        if r.status == Status::Passed { Ok(()) } else { Err(r.why) }
    };
    match stage {
        "cpu" | "reference" => ran(&mut |g| Backend::new(stage, g, Options::default())),
        "prims" => ran(&mut |g| Ok(Backend::Reference(Box::new(decompose(g, &Table::prims())?)))),
        table => counted(case, table),
    }
}

fn counted(case: &Case, table: &str) -> Result<(), String> {
    let g = cleave_formats::read(&case.model).map_err(|e| e.to_string())?;
    let g = decompose(&g, &Table::named(table).unwrap()).map_err(|e| e.to_string())?;
    let text = std::fs::read_to_string(case.dir.join("ops.json")).unwrap();
    let all: BTreeMap<String, BTreeMap<String, usize>> = serde_json::from_str(&text).unwrap();
    let want = &all[table];
    let got: BTreeMap<String, usize> = g.op_counts().into_iter().map(|(k, v)| (k.to_string(), v)).collect();
    let keys: BTreeSet<_> = got.keys().chain(want.keys()).collect();
    let differ: Vec<_> = keys
        .into_iter()
        .filter(|k| got.get(*k) != want.get(*k))
        .map(|k| format!("{k}: {} here, {} in torch", got.get(k).unwrap_or(&0), want.get(k).unwrap_or(&0)))
        .collect();
    if differ.is_empty() { Ok(()) } else { Err(differ.join("; ")) }
}

fn guarded(case: &Case, stage: &str) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check(case, stage))).unwrap_or_else(|_| Err("panicked".into()))
}

/// Results of all stages of all cases, on two threads.
fn results(cases: &[Case]) -> Vec<Vec<Result<(), String>>> {
    let run = |part: &[Case]| -> Vec<Vec<Result<(), String>>> {
        part.iter().map(|c| STAGES.iter().map(|s| guarded(c, s)).collect()).collect()
    };
    let (a, b) = cases.split_at(cases.len() / 2);
    std::thread::scope(|s| {
        let other = s.spawn(|| run(b));
        let mut all = run(a);
        all.extend(other.join().unwrap());
        all
    })
}

#[test]
fn torchs_operator_cases_hold() {
    let unpacked = tempfile::tempdir().unwrap();
    let dir = match std::env::var_os("CASES_DIR") {
        Some(dir) => dir.into(),
        None => {
            let file = std::fs::File::open(fixture("opinfo.zip")).unwrap();
            zip::ZipArchive::new(file).unwrap().extract(unpacked.path()).unwrap();
            unpacked.path().to_path_buf()
        }
    };
    let list: List = toml::from_str(&std::fs::read_to_string(fixture("opinfo.toml")).unwrap()).unwrap();
    let wanted = std::env::var("CASES").ok();
    let wanted = wanted.as_deref().map(|w| globs(w.split(',')));
    let all = find_cases(&dir).unwrap();
    let operator = |name: &str| name.rsplit_once('/').map_or(name, |(o, _)| o).to_string();
    let counted: Vec<_> = all
        .iter()
        .filter(|c| {
            !list.excluded.contains_key(&operator(&c.name)) && wanted.as_ref().is_none_or(|w| w.matches(&c.name))
        })
        .cloned()
        .collect();
    let known: Vec<(Globs, &Known)> =
        list.known.iter().map(|k| (globs(k.cases.iter().map(String::as_str)), k)).collect();
    let results = results(&counted);
    let mut bad = vec![];
    let mut hold = [0; STAGES.len()];
    for (Case { name, .. }, stages) in counted.iter().zip(&results) {
        for (i, (stage, result)) in STAGES.iter().zip(stages).enumerate() {
            let listed = known.iter().find(|(g, k)| g.matches(name) && k.stages.iter().any(|s| s == stage));
            match (result, listed) {
                (Ok(()), None) => hold[i] += 1,
                (Ok(()), Some((_, k))) => bad.push(format!("{name} {stage}: listed ({}), but it holds", k.why)),
                (Err(_), Some(_)) => {}
                (Err(why), None) => bad.push(format!("{name} {stage}: {why}")),
            }
        }
    }
    let n = counted.len();
    eprintln!(
        "{n} cases; of them hold: {}",
        STAGES.iter().zip(hold).map(|(s, h)| format!("{s} {h}")).collect::<Vec<_>>().join(", ")
    );
    assert!(bad.is_empty(), "{} things do not hold:\n{}", bad.len(), bad.join("\n"));
    if wanted.is_none() && std::env::var_os("CASES_DIR").is_none() {
        assert!(all.len() - n <= EXCLUDED_AT_MOST, "{} cases are excluded", all.len() - n);
        for (stage, h) in STAGES.iter().zip(hold) {
            let share = if matches!(*stage, "empty" | "core") { COUNTS_HOLD } else { OUTPUTS_HOLD };
            assert!(h as f64 >= share * n as f64, "{stage}: {h} of {n}");
        }
    }
}
