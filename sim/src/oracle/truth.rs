//! The truth of a store whose segments are removed: its whole log, those commits among it, replayed from the
//! first version and held against the [`Model`], commit by commit.
//!
//! - What was removed comes from [`Memory::fork_with_removed`], which says why that is the log.
//! - A part is known by the checksum of the state that was committed with it, which says its text.

use std::path::Path;

use batchweave::format::checksum;
use batchweave::log::state::State;
use batchweave::log::void::Void;
use batchweave::log::{Log, read};

use super::known::Held;
use super::model::Model;
use super::state;
use crate::Memory;

/// A log from its first version on.
#[derive(Debug)]
pub struct Truth {
    /// What the engine's replay makes of it.
    pub state: State,
    /// What the model does.
    pub model: Model,
    /// Why each commit has no effect, if it has none.
    pub voids: Vec<Option<Void>>,
}

/// Whether a part is the one with this text.
pub fn is_text(held: &Held, text: &str) -> bool {
    held.state.checksum == checksum::of(state(text).as_bytes())
}

/// The truth of the store at a path; none if there is no store.
///
/// # Errors
/// A promise is broken by the log itself, or it can't be read.
pub fn truth(memory: &Memory, path: &Path) -> Result<Option<Truth>, String> {
    truth_at(memory, path, u64::MAX)
}

/// The truth as it was when the store had so many versions.
///
/// # Errors
/// As [`truth()`].
pub fn truth_at(memory: &Memory, path: &Path, versions: u64) -> Result<Option<Truth>, String> {
    let Some(store) = super::examine::open(&memory.fork_with_removed(), path, 7)? else { return Ok(None) };
    replay(store.inner(), versions).map(Some)
}

fn replay(log: &Log, versions: u64) -> Result<Truth, String> {
    let mut truth = Truth {
        state: State::new(log.parts_per_step()),
        model: Model::new(log.parts_per_step()),
        voids: Vec::new(),
    };
    loop {
        let version = truth.state.next_version;
        if version.get() == versions {
            return Ok(truth);
        }
        let said = |error: batchweave::Error| format!("P6: version {version} can't be read: {error}");
        let segment = log.open_segment(version.segment(log.segment_size())).map_err(said)?;
        let Some(file) = segment.and_then(|dir| read::open(log, &dir, version).ok()) else {
            return Ok(truth);
        };
        let commit = read::commit(log, &file, version).map_err(said)?.to_commit();
        let void = truth.state.apply(version, &commit).map_err(said)?;
        let effect = truth.model.apply(version.get(), &commit)?;
        if effect != void.is_none() {
            return Err(format!(
                "{}: version {version}, a {:?}, has to {} and replay says {void:?}",
                promise_of(&commit),
                commit.record,
                if effect { "take effect" } else { "be void" }
            ));
        }
        truth.voids.push(void);
        truth.agrees().map_err(|what| format!("{} after version {version}: {what}", promise_of(&commit)))?;
    }
}

/// Which promise a record of this kind breaks by a wrong effect.
fn promise_of(commit: &batchweave::log::apply::Commit) -> &'static str {
    use batchweave::format::record::Record;
    match &commit.record {
        Some(Record::Open { .. } | Record::Parts(_) | Record::Retire { .. }) => "P3",
        Some(Record::Floor { .. } | Record::Drop { .. }) => "P5",
        Some(Record::Forget { .. }) => "P3",
        Some(Record::Rewind(_) | Record::Skip { .. } | Record::Close { .. } | Record::Reopen { .. }) => "P2",
        _ => "P4",
    }
}

impl Truth {
    /// Holds the engine's state against the model's.
    fn agrees(&self) -> Result<(), String> {
        let (state, model) = (&self.state, &self.model);
        let differ = |what: &str, engine: &dyn std::fmt::Debug, model: &dyn std::fmt::Debug| {
            Err(format!("{what} is {engine:?} by replay, and has to be {model:?}"))
        };
        let place = |state: &State| (state.next_part.get(), state.floor.get(), state.generation.get());
        let expected = (model.parts.len() as u64, model.floor, model.generation);
        if place(state) != expected {
            return differ("(next part, floor, generation)", &place(state), &expected);
        }
        let skips = state.history.skips.iter().flat_map(|skip| skip.first.get()..=skip.last.get());
        let (skips, expected): (Vec<u64>, Vec<u64>) =
            (skips.collect(), model.skipped.iter().copied().filter(|step| *step >= model.floor).collect());
        if skips.iter().filter(|step| **step >= model.floor).ne(&expected) {
            return differ("what is skipped", &skips, &expected);
        }
        let stream = |state: &State| {
            (
                state.ends.iter().map(|step| step.get()).collect::<Vec<_>>(),
                state.closed.map(|step| step.get()),
            )
        };
        let ends = model.stream.closes.iter().map(|(_, step)| *step).collect::<Vec<_>>();
        let expected = (ends, model.stream.closed().map(|(_, step)| step));
        if stream(state) != expected {
            return differ("(the stream's ends, closed)", &stream(state), &expected);
        }
        if state.producers.keys().map(|name| name.as_str()).ne(model.names()) {
            let names: Vec<&str> = model.names().collect();
            return differ("who publishes", &state.producers.keys(), &names);
        }
        for (name, known) in &state.groups {
            let Some(group) = model.groups.get(name.as_str()) else { return differ("a group", name, &()) };
            let kept = known.checkpoints.iter().map(|kept| (kept.version.get(), kept.step.get()));
            let says = (known.needs().map(|step| step.get()), kept.collect::<Vec<_>>());
            let kept = group.kept.iter().map(|kept| (kept.version, kept.step));
            let expected = (group.needs(), kept.collect::<Vec<_>>());
            if says != expected {
                return differ(&format!("what group {name} needs"), &says, &expected);
            }
        }
        for (name, known) in &state.producers {
            let says = (known.next.get(), known.incarnation.map(|current| current.get()));
            let expected = (model.count_of(name.as_str()), model.current_writer(name.as_str()));
            if says != expected {
                return differ(&format!("(next, incarnation) of {name}"), &says, &expected);
            }
        }
        Ok(())
    }

    /// The first version that may not be removed: that of the first retained part, or of the next commit.
    pub fn first_live(&self) -> u64 {
        let place = (self.model.floor * self.model.parts_per_step) as usize;
        self.model.parts.get(place).map_or(self.state.next_version.get(), |held| held.version)
    }
}
