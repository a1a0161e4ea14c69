//! `cleave snapshot`: a model's annotated graph as a text file under test.

use super::Choice;
use super::out::Out;
use crate::error::Result;
use crate::snapshot;
use crate::stage::Model;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Fail, and show the difference, if the model is annotated otherwise than the file says.
    Check(One),
    /// Write how the model is annotated to the file.
    Update(One),
}

#[derive(clap::Args, Debug)]
struct One {
    /// The float model: .pt2 or .onnx.
    model: PathBuf,
    /// The snapshot.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    choice: Choice,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let (Action::Check(one) | Action::Update(one)) = &a.action;
    let now = snapshot::of(&one.choice.of(Model::read(&one.model)?))?;
    let update = matches!(a.action, Action::Update(_));
    let file = one.output.display();
    let new = update && !one.output.exists();
    let difference = if new { None } else { snapshot::difference(&one.output, &now)? };
    let (text, removed, added) = difference.as_ref().map_or(("", 0, 0), |d| (d.text.as_str(), d.removed, d.added));
    let same = !new && difference.is_none();
    if update && !same {
        cleave_formats::atomic::write_bytes(&one.output, now.as_bytes())?;
    }
    match (update, same) {
        (_, true) => out.say(format!("{file}: unchanged")),
        (true, false) if new => out.say(format!("wrote {file}")),
        (true, false) => out.say(format!("{text}wrote {file}: {removed} lines removed, {added} added")),
        (false, false) => out.say(format!(
            "{text}{file}: the model is annotated otherwise: {removed} lines removed, {added} added; if that is \
             meant, `cleave snapshot update` takes it over"
        )),
    }
    out.document(&json!({"file": one.output, "same": same, "removed": removed, "added": added, "diff": text}))?;
    Ok(update || same)
}
