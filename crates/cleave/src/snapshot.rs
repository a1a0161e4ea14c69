//! The annotated graph as a text to keep under test: what each pattern takes, how its edges are quantized, and why the
//! rest stays float. Weights, and all that changes from run to run, do not show.
//!
//! With `insta`, in a test of one's own:
//!
//! ```no_run
//! use cleave::stage::Model;
//!
//! let model = Model::read("model.onnx".as_ref())?.with_quantizer("patterns/mine.toml", &[]);
//! insta::assert_snapshot!(cleave::snapshot::of(&model)?);
//! # Ok::<(), cleave::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::stage::Model;
use cleave_ir::text::Printer;
use cleave_quantize::Annotations;
use similar::TextDiff;
use std::path::Path;

/// The text of a model as its quantizer annotates it.
///
/// # Errors
/// A model that is quantized already, a quantizer that finds nothing, or what a stage met.
pub fn of(model: &Model) -> Result<String> {
    let (mut g, notes) = model.annotated()?;
    g.metadata.clear();
    let comment = |id| notes.comment(id);
    let graph = Printer::with_comments(&comment).print(&g);
    Ok(format!("{}{graph}", head(&notes)))
}

fn head(notes: &Annotations) -> String {
    format!("# Annotated by '{}'. Made by `cleave snapshot update`; not edited by hand.\n", notes.quantizer)
}

/// How a snapshot and what a model gives now differ.
pub struct Difference {
    /// Lines with `-` and `+` before them and a few equal ones around, as `diff -u` prints them.
    pub text: String,
    /// Lines that are gone.
    pub removed: usize,
    /// Lines that are new.
    pub added: usize,
}

/// How the text of a file differs from this one; none if it does not.
///
/// # Errors
/// A file that cannot be read.
pub fn difference(file: &Path, now: &str) -> Result<Option<Difference>> {
    let was = std::fs::read_to_string(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::other(format!("{}: there is no snapshot; `cleave snapshot update` makes one", file.display()))
        }
        _ => Error::other(format!("{}: cannot be read: {e}", file.display())),
    })?;
    // A file that a version control system gave Windows' line ends.
    let was = was.replace("\r\n", "\n");
    if was == now {
        return Ok(None);
    }
    let diff = TextDiff::from_lines(was.as_str(), now);
    let count = |tag| diff.iter_all_changes().filter(|c| c.tag() == tag).count();
    let (removed, added) = (count(similar::ChangeTag::Delete), count(similar::ChangeTag::Insert));
    let text = diff.unified_diff().context_radius(3).header(&file.display().to_string(), "now").to_string();
    Ok(Some(Difference { text, removed, added }))
}
