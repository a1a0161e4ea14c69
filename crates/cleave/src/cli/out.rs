//! Where commands print: text for people, or one JSON document.

use crate::error::{Error, Result};
pub use crate::text::{bytes, decibels};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Standard output.
pub struct Out {
    json: bool,
    text: String,
    document: Option<String>,
}

impl Out {
    /// Prints JSON if asked to.
    pub fn new(json: bool) -> Out {
        Out { json, text: String::new(), document: None }
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Appends text for people; dropped where JSON was asked for.
    pub fn say(&mut self, text: impl AsRef<str>) {
        if !self.json {
            self.text.push_str(text.as_ref());
            self.text.push('\n');
        }
    }

    /// Prints what was said so far, so that a long command shows its stages as they end.
    ///
    /// # Errors
    /// A closed or full standard output.
    pub fn flush(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.text) + &self.document.take().map(|d| d + "\n").unwrap_or_default();
        let mut stdout = std::io::stdout().lock();
        let done = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        done.map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => Error::Broken,
            _ => Error::other(format!("standard output: {e}")),
        })
    }

    /// Sets the document that is printed where JSON was asked for.
    ///
    /// # Errors
    /// A value that JSON cannot hold.
    pub fn document(&mut self, value: &impl Serialize) -> Result<()> {
        if self.json {
            self.document = Some(serde_json::to_string_pretty(value).map_err(|e| Error::other(e.to_string()))?);
        }
        Ok(())
    }
}

/// A progress bar over `n` steps on standard error; hidden where that is no terminal.
pub fn progress(what: &'static str, n: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(n as u64) } else { ProgressBar::hidden() };
    let style =
        ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {eta}").expect("invariant: a valid template");
    bar.set_style(style);
    bar.set_message(what);
    bar
}

/// Highest resident memory of this process so far, in MiB; 0 where the system does not tell.
pub fn peak_rss_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// A JSON number, or a string where JSON has none (infinities, NaN).
pub fn number(v: f64) -> serde_json::Value {
    serde_json::Number::from_f64(v).map_or_else(|| v.to_string().into(), serde_json::Value::Number)
}
