//! Where a verification puts what it finds: the report, with an end to its lists, and the progress.

use std::path::PathBuf;

use super::{Litter, Progress, VerifyFinding, VerifyReport};
use crate::id::{Step, Version};
use crate::limits::FINDINGS_MAX;

/// The report in the making.
pub(super) struct Sink<'p> {
    pub(super) report: VerifyReport,
    progress: &'p mut dyn FnMut(Progress),
    done: u64,
    pub(super) total: u64,
}

/// What a finding is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Relative to the store's directory.
    pub(super) path: PathBuf,
    pub(super) version: Option<Version>,
    pub(super) step: Option<Step>,
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }
}

impl<'p> Sink<'p> {
    pub(super) fn new(progress: &'p mut dyn FnMut(Progress)) -> Self {
        Self { report: VerifyReport::default(), progress, done: 0, total: 0 }
    }

    /// Something is wrong.
    pub(super) fn find(&mut self, place: impl Into<Place>, what: impl Into<String>) {
        let Place { path, version, step } = place.into();
        match self.report.findings.len() {
            full if full > FINDINGS_MAX => {}
            FINDINGS_MAX => {
                let what = format!("more is wrong than these {FINDINGS_MAX} faults");
                self.report.findings.push(VerifyFinding {
                    path: PathBuf::new(),
                    version: None,
                    step: None,
                    what,
                });
            }
            _ => self.report.findings.push(VerifyFinding { path, version, step, what: what.into() }),
        }
    }

    /// Something lies about.
    pub(super) fn litter(&mut self, path: PathBuf, why: impl Into<String>) {
        if self.report.litter.len() < FINDINGS_MAX {
            self.report.litter.push(Litter { path, why: why.into() });
        }
    }

    /// How many faults and how much litter it was told of.
    pub(super) fn told(&self) -> (usize, usize) {
        (self.report.findings.len(), self.report.litter.len())
    }

    /// Forgets what it was told of since then: it is looked at again.
    pub(super) fn forget_since(&mut self, (findings, litter): (usize, usize)) {
        self.report.findings.truncate(findings);
        self.report.litter.truncate(litter);
    }

    /// Bytes were read.
    pub(super) fn read(&mut self, bytes: u64) {
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        self.tell();
    }

    /// A version was looked at.
    pub(super) fn version_done(&mut self) {
        self.done = self.done.saturating_add(1);
        self.tell();
    }

    fn tell(&mut self) {
        // A segment that was written to while it was read may hold more than was counted.
        let versions_total = self.total.max(self.done);
        (self.progress)(Progress { versions_done: self.done, versions_total, bytes: self.report.bytes });
    }
}
