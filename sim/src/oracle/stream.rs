//! When the stream of a model was closed, and where a run of a view ends.
//!
//! - A view is as of so many versions of the log: it ends at the Close in force then, else at the first one
//!   after it, whatever has reopened the stream since.
//! - Which view a run has is known within bounds: between the versions that there were before it began, and
//!   when it had begun. Each of its ranks has the same one.

use std::collections::BTreeSet;

use super::model::Model;

/// What Closes, Reopens and Rewinds have made of a stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Closes, in order: version, step.
    pub closes: Vec<(u64, u64)>,
    /// What has opened it again, in order: the versions of Reopens, and of Rewinds that found it closed.
    pub reopens: Vec<u64>,
}

impl Stream {
    /// The Close in force after so many versions: its version and step.
    pub fn closed_at(&self, versions: u64) -> Option<(u64, u64)> {
        let close = self.closes.iter().rfind(|(version, _)| *version < versions)?;
        let reopened = self.reopens.iter().any(|reopen| (close.0..versions).contains(reopen));
        (!reopened).then_some(*close)
    }

    /// The Close in force now.
    pub fn closed(&self) -> Option<(u64, u64)> {
        self.closed_at(u64::MAX)
    }

    /// The version of the first Close that was in force at some moment since there were so many versions.
    pub fn closed_since(&self, versions: u64) -> Option<u64> {
        let later = || self.closes.iter().find(|(version, _)| *version >= versions);
        self.closed_at(versions).or_else(|| later().copied()).map(|(version, _)| version)
    }

    /// The version of the first thing that has reopened it since.
    pub fn reopened_since(&self, versions: u64) -> Option<u64> {
        self.reopens.iter().copied().find(|reopen| *reopen >= versions)
    }
}

impl Model {
    /// Whether a step is published in part.
    pub fn has_open_step(&self) -> bool {
        !(self.parts.len() as u64).is_multiple_of(self.parts_per_step)
    }

    pub(super) fn close(&mut self, version: u64, step: u64, closes: u64, open_step: bool) -> bool {
        let is_next = closes == self.stream.closes.len() as u64 && step == self.head();
        if !is_next || self.stream.closed().is_some() || self.has_open_step() && !open_step {
            return false;
        }
        self.stream.closes.push((version, step));
        true
    }

    pub(super) fn reopen(&mut self, version: u64, closes: u64) -> bool {
        if self.stream.closed().is_none() || closes != self.stream.closes.len() as u64 {
            return false;
        }
        self.stream.reopens.push(version);
        true
    }

    /// The generation after so many versions.
    fn generation_at(&self, versions: u64) -> u64 {
        let begun = self.began.iter().filter(|(_, began)| **began < versions);
        begun.map(|(generation, _)| *generation).max().unwrap_or(0)
    }

    /// Where a run ends whose view is as of so many versions; none if it doesn't, as far as the log goes. A
    /// change of history ends it before a later Close does.
    fn end_of(&self, versions: u64) -> Option<u64> {
        let mut later = self.began.values().filter(|began| **began >= versions);
        let until = later.next().copied().unwrap_or(u64::MAX);
        let mut after = self.stream.closes.iter().filter(|(version, _)| (versions..until).contains(version));
        self.stream.closed_at(versions).or_else(|| after.next().copied()).map(|(_, step)| step)
    }
}

/// A run, as its ranks have seen it end.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// Its generation.
    generation: u64,
    /// Its view is as of so many versions at least, and at most.
    views: (u64, u64),
    /// Before which step it has ended, if it has.
    ended: Option<u64>,
}

impl Span {
    pub(super) fn new(generation: u64, views: (u64, u64)) -> Self {
        Self { generation, views, ended: None }
    }

    /// Where it may end, by each view that it may have; none stands for one that doesn't end.
    pub(super) fn ends(&self, model: &Model) -> BTreeSet<Option<u64>> {
        let (from, to) = self.views;
        let views = (from..=to).filter(|view| model.generation_at(*view) == self.generation);
        views.map(|view| model.end_of(view)).collect()
    }

    /// It has ended for one of its ranks.
    ///
    /// # Errors
    /// For another one it has ended elsewhere.
    pub(super) fn end(&mut self, step: u64) -> Result<(), String> {
        let known = *self.ended.get_or_insert(step);
        if known == step {
            return Ok(());
        }
        Err(format!("P2: a run ended before step {known} for one rank and before step {step} for another"))
    }

    /// Holds the last step that it has delivered, and where it ended, against the views that it may have.
    ///
    /// # Errors
    /// None of them has it so.
    pub(super) fn check(&self, last: Option<u64>, model: &Model) -> Result<(), String> {
        let ends = self.ends(model);
        let is_so = |end: &Option<u64>| {
            let beyond = end.is_some_and(|end| last.is_some_and(|last| last >= end));
            !beyond && (self.ended.is_none() || self.ended == *end)
        };
        if ends.iter().any(is_so) {
            return Ok(());
        }
        Err(format!(
            "P2: a run delivered up to step {last:?} and ended before {:?}, by its view it ends before one \
             of {ends:?}: {self:?}, {:?}",
            self.ended, model.stream
        ))
    }
}
