//! `verify`: whether every byte is what was written.

use std::fmt;
use std::path::{Path, PathBuf};

use batchweave::{Store, VerifyFinding, VerifyReport};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::output::{Bytes, Format, Output, count, one_line, path_text};

/// Read every byte of a store and hold it against its checksums and the rules of the log
///
/// Says what is wrong and where, and exits with 1 then. Changes nothing, and may run beside writers and
/// readers. Litter is what interrupted processes left behind: it harms nothing, and isn't wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave verify /lustre/run7/train && echo sound")]
pub(crate) struct Verify {
    /// The store's directory
    root: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Verdict {
    root: String,
    clean: bool,
    #[serde(flatten)]
    report: VerifyReport,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.report;
        for finding in &report.findings {
            writeln!(f, "WRONG   {}", Finding(finding))?;
        }
        for litter in &report.litter {
            writeln!(f, "litter  {}: {}", text(&litter.path), one_line(&litter.why))?;
        }
        match report.findings.len() as u64 {
            0 => write!(f, "sound: ")?,
            wrong => write!(f, "NOT SOUND, {}: ", count(wrong, "fault"))?,
        }
        let indexes =
            if report.indexes == 1 { "1 index".to_owned() } else { format!("{} indexes", report.indexes) };
        write!(
            f,
            "{}, {}, {} and {indexes} read, {}",
            count(report.commits, "commit"),
            count(report.parts, "part"),
            count(report.slices, "slice"),
            Bytes(report.bytes)
        )
    }
}

struct Finding<'a>(&'a VerifyFinding);

impl fmt::Display for Finding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyFinding { path, version, step, what, .. } = self.0;
        f.write_str(&text(path))?;
        match (version, step) {
            (Some(version), Some(step)) => write!(f, " (version {version}, step {step})")?,
            (Some(version), None) => write!(f, " (version {version})")?,
            (None, Some(step)) => write!(f, " (step {step})")?,
            (None, None) => {}
        }
        write!(f, ": {}", one_line(what))
    }
}

fn text(path: &Path) -> String {
    one_line(&path_text(path))
}

impl Verify {
    /// Shows how far it has come if `progress`, and stderr is a terminal.
    pub(crate) fn run(&self, progress: bool) -> Result<Answer, Failure> {
        let store = Store::open(&self.root)?;
        let bar = bar(progress);
        let report = store.verify(|progress| {
            // Until the log's length is known there is nothing to be a fraction of.
            if progress.versions_total > 0 {
                bar.set_length(progress.versions_total);
                bar.set_position(progress.versions_done);
            }
            bar.set_message(Bytes(progress.bytes).to_string());
        });
        bar.finish_and_clear();
        let report = report?;
        let clean = report.is_clean();
        Output::verdict(&Verdict { root: path_text(&self.root), clean, report }, self.format)?;
        Ok(if clean { Answer::Yes } else { Answer::No })
    }
}

fn bar(shown: bool) -> ProgressBar {
    const TEMPLATE: &str = "[{wide_bar}] {pos}/{len} commits  {msg}  {eta} left";
    // Draws only where stderr is a terminal.
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    // A template that indicatif doesn't take leaves the plain bar.
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        // No other characters are sure to show under any locale.
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
