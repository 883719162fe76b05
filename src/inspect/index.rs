//! One index against the log: every entry, the state and the producers' states, as replay has them.
//!
//! - Where a segment couldn't be replayed whole, the index is still held against itself.
//! - A producer's state in an index is that of its commit if its checksum is: the commit's own bytes were
//!   verified there.

use super::known::Known;
use super::replayer::Replayer;
use super::sink::{Place, Sink};
use crate::error::Result;
use crate::format::checksum;
use crate::format::index::{PartEntry, Section, producer_states};
use crate::id::{Part, Version};
use crate::log::state::State;
use crate::log::tail::Entry;
use crate::log::void::Void;

/// An index that is verified.
pub(super) struct Index<'a, 'p> {
    pub(super) known: &'a Known<'a>,
    pub(super) sink: &'a mut Sink<'p>,
    pub(super) place: Place,
    pub(super) segment_size: u32,
}

impl Index<'_, '_> {
    /// Verifies all of it, against what was replayed of its segment.
    pub(super) fn verify(&mut self, replayer: &Replayer<'_>) {
        self.sink.report.indexes = self.sink.report.indexes.saturating_add(1);
        self.sink.read(self.known.header.file_length());
        let whole = replayer.entries.len() as u64 == u64::from(self.segment_size);
        let replayed = replayer.state.as_ref().ok().filter(|_| whole);
        self.versions(replayed.map(|_| replayer.entries.as_slice()));
        if let Err(error) = self.parts(replayed.map(|state| (replayer.entries.as_slice(), state.next_part))) {
            self.fault(error.sentence());
        }
        if let Err(error) = self.states(replayed) {
            self.fault(error.sentence());
        }
    }

    fn versions(&mut self, replayed: Option<&[(Version, Entry)]>) {
        let first = self.known.segment.first_version(self.segment_size).get();
        for version in (first..first.saturating_add(self.segment_size.into())).map(Version::new) {
            let entry = match self.known.version(version) {
                Ok(entry) => entry,
                Err(error) => {
                    self.fault_at(version, error.sentence());
                    continue;
                }
            };
            if entry.void != 0 && Void::from_number(entry.void).is_none() {
                self.fault_at(
                    version,
                    format!("the entry has an unknown reason {} for no effect", entry.void),
                );
            }
            let slot = usize::try_from(version.slot(self.segment_size)).unwrap_or(usize::MAX);
            let replayed = replayed.and_then(|entries| entries.get(slot));
            if replayed.is_some_and(|(_, replayed)| replayed.indexed() != entry) {
                self.fault_at(version, "the entry isn't what replay comes to");
            }
        }
    }

    fn parts(&mut self, replayed: Option<(&[(Version, Entry)], Part)>) -> Result<()> {
        let range = self.known.header.part_range();
        let Some((entries, next_part)) = replayed else {
            let mut broken = 0u64;
            self.known.parts(|_, entry| broken = broken.saturating_add(u64::from(entry.is_err())))?;
            if broken > 0 {
                self.fault(format!("{broken} entries of parts are broken"));
            }
            return Ok(());
        };
        let first = entries.iter().find(|(_, entry)| entry.parts > 0);
        let first = first.map_or(next_part, |(_, entry)| entry.first_part);
        if range != (first.get()..next_part.get()) {
            self.fault(format!(
                "the index has the parts {}..{}, replay has {first}..{next_part}",
                range.start, range.end
            ));
        }
        let mut expected = entries.iter().flat_map(|(version, entry)| {
            (0..entry.parts).map(move |ordinal| PartEntry { version: *version, ordinal })
        });
        let mut wrong = 0u64;
        self.known.parts(|_, entry| {
            let right = matches!((entry, expected.next()), (Ok(entry), Some(expected)) if entry == expected);
            wrong = wrong.saturating_add(u64::from(!right));
        })?;
        if wrong > 0 {
            self.fault(format!("{wrong} entries of parts aren't what replay comes to"));
        }
        Ok(())
    }

    /// The state's bytes are those of the replayed state; the producers' states are those that it points to.
    fn states(&mut self, replayed: Option<&State>) -> Result<()> {
        let indexed;
        let state = match replayed {
            Some(state) => {
                if self.known.section(Section::State)? != state.encode() {
                    self.fault("the state at the segment's end isn't the one that replay comes to");
                }
                state
            }
            None => {
                indexed = self.known.state()?;
                &indexed
            }
        };
        let bytes = self.known.section(Section::ProducerStates)?;
        let mut found = producer_states(&bytes)?.into_iter().peekable();
        for (name, place) in state.producers.iter().filter_map(|(name, one)| Some((name, one.state?))) {
            while let Some((stranger, _)) = found.next_if(|(found, _)| found < name) {
                self.fault(format!("there is a state of producer {stranger}, who has none"));
            }
            match found.next_if(|(found, _)| found == name) {
                None => self.fault(format!("the state of producer {name} is missing")),
                Some((_, bytes)) => {
                    let right = bytes.len() as u64 == u64::from(place.length)
                        && checksum::of(bytes) == place.checksum;
                    if !right {
                        let version = place.version;
                        self.fault(format!(
                            "the state of producer {name} isn't the one of version {version}"
                        ));
                    }
                }
            }
        }
        for (stranger, _) in found {
            self.fault(format!("there is a state of producer {stranger}, who has none"));
        }
        Ok(())
    }

    fn fault_at(&mut self, version: Version, what: impl Into<String>) {
        self.sink.find(Place { version: Some(version), ..self.place.clone() }, what);
    }

    fn fault(&mut self, what: impl Into<String>) {
        self.sink.find(self.place.clone(), what);
    }
}
