//! What lies in stage/, by what the log knows of it: no age, no owner's process, no clock (P8).
//!
//! A staged file is dead if its nonce is in the log, its sequence is in, or its producer is unknown, finished
//! or opened anew. All else may be in use by a writer that is alive.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::sink::Sink;
use super::tree;
use crate::format::names::{self, Staged};
use crate::id::{Incarnation, Nonce, Sequence};
use crate::log::Log;
use crate::log::state::State;
use crate::name::Name;
use crate::storage::{Dir, PROBE_PREFIX};

/// The names in stage/ as they were before the log was read.
#[derive(Debug)]
pub(super) struct Stage {
    dir: Option<Dir>,
    names: Vec<OsString>,
    nonces: BTreeSet<Nonce>,
    published: BTreeSet<Nonce>,
}

impl Stage {
    pub(super) fn list(log: &Log, sink: &mut Sink<'_>) -> Self {
        let path = Path::new(names::STAGE);
        let dir = match log.directory(names::STAGE) {
            Ok(dir) => Some(dir),
            Err(error) => {
                let what = crate::Error::io("can't open the directory", error).sentence();
                sink.find(path.to_path_buf(), what);
                None
            }
        };
        let names = dir.as_ref().map(|dir| tree::list(log, sink, dir, path)).unwrap_or_default();
        let nonces = names.iter().filter_map(names::parse_staged).map(|staged| match staged {
            Staged::Draft { nonce, .. } | Staged::Control { nonce, .. } => nonce,
        });
        Self { dir, nonces: nonces.collect(), names: names.into_iter().collect(), published: BTreeSet::new() }
    }

    /// A nonce is in the log.
    pub(super) fn saw(&mut self, nonce: Nonce) {
        if self.nonces.contains(&nonce) {
            self.published.insert(nonce);
        }
    }

    /// Tells of what still lies there; `state` is the log's at its end, if it is known.
    pub(super) fn tell(&self, log: &Log, sink: &mut Sink<'_>, state: Option<&State>) {
        let Some(dir) = &self.dir else { return };
        for name in &self.names {
            let gone = name.to_str().filter(|text| {
                log.storage.kind(dir, text).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            });
            let why = match (gone, names::parse_staged(name)) {
                // The directory that a file has been in (primitive 3).
                (Some(text), _) if log.storage.open_dir(dir, text).is_ok() => {
                    "without its file: left by a stop, or kept for a reader".to_owned()
                }
                (Some(_), _) => continue,
                (None, Some(staged)) => self.judge(&staged, state),
                (None, None) if is_probe(name) => "left by a probe of the mount".to_owned(),
                (None, None) => "the store gives no such name: a stranger's".to_owned(),
            };
            sink.litter(Path::new(names::STAGE).join(name), why);
        }
    }

    fn judge(&self, staged: &Staged, state: Option<&State>) -> String {
        match staged {
            Staged::Draft { nonce, .. } | Staged::Control { nonce, .. } if self.published.contains(nonce) => {
                "dead: it is in the log by its own name".to_owned()
            }
            Staged::Control { .. } => "may be in use".to_owned(),
            Staged::Draft { producer, incarnation, first, .. } => match state {
                None => "may be in use: the log's end can't be read".to_owned(),
                Some(state) => judge_draft(state, producer, *incarnation, *first),
            },
        }
    }
}

/// A draft's name never carries a sequence below the one that it is published with.
fn judge_draft(state: &State, producer: &Name, incarnation: Incarnation, first: Sequence) -> String {
    let Some(known) = state.producers.get(producer) else {
        return format!("dead: producer {producer} is unknown");
    };
    match known.incarnation {
        _ if known.finished => format!("dead: producer {producer} is finished"),
        Some(current) if current != incarnation => format!("dead: producer {producer} was opened anew"),
        None => format!("dead: producer {producer} has to be opened anew"),
        Some(_) if first < known.next => format!("dead: sequence {first} of producer {producer} is in"),
        Some(_) => format!("may be in use by producer {producer}"),
    }
}

fn is_probe(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|text| text.starts_with(PROBE_PREFIX))
}
