//! Finished files out of drafts: a draft's own, or one in which the parts of several are gathered.
//!
//! - What is gathered is copied, so that each draft stays what it is until the outcome is known.
//! - Large parts go alone: to copy one costs more than an attempt.

use std::collections::VecDeque;
use std::sync::Arc;

use super::draft::Finished;
use super::queue::{Queue, Waiting};
use super::sink::Sink;
use crate::commit::staged::{Staged, discard, finish, seal_after};
use crate::error::{Error, ErrorKind, Result};
use crate::format::names;
use crate::format::part::PartDescriptor;
use crate::format::record::{Parts, Record};
use crate::id::{Incarnation, Sequence};
use crate::limits::{COMMIT_HEADER_BYTES, GROUP_BYTES_MAX, GROUP_PART_BYTES_MAX, SLICE_ALIGN_BYTES};
use crate::name::Name;
use crate::storage::Dir;

/// Makes commits of one producer's parts.
pub(super) struct Gatherer<'c> {
    pub(super) queue: &'c Queue,
    pub(super) stage: &'c Dir,
    pub(super) name: &'c Name,
    pub(super) incarnation: Incarnation,
    /// What an attempt costs, for the commit to say.
    pub(super) attempt_us: u32,
}

impl Gatherer<'_> {
    fn parts(&self, first: Sequence, parts: Vec<PartDescriptor>) -> Record {
        let (producer, incarnation) = (self.name.clone(), self.incarnation);
        Record::Parts(Parts { producer, incarnation, first, parts })
    }

    /// Finishes a draft's own file: whole, synced, closed. One that is finished already is taken as it is.
    pub(super) fn finish_own(&self, waiting: &mut Waiting, first: Sequence) -> Result<Arc<Staged>> {
        let (log, draft) = (&self.queue.log, &mut waiting.draft);
        if let Some(finished) = &draft.finished {
            if finished.sequence == first {
                return Ok(Arc::clone(&finished.staged));
            }
            let what = "the draft's file is finished for another place in the stream; write it anew";
            return Err(Error::new(ErrorKind::Invalid, what).at(log.path_of([names::STAGE, &draft.name])));
        }
        draft.check_whole()?;
        let record = self.parts(first, vec![waiting.part]);
        let (sealed, commit) = {
            let tail = log.tail.take();
            seal_after(log, &tail, draft.nonce, self.attempt_us, record)?
        };
        let sealed = draft.seal(&sealed).and_then(|(file, buffer)| {
            self.queue.line.lock().spare = buffer;
            finish(log, file).map_err(|error| {
                Error::io("can't finish a staged file", error).at(log.path_of([names::STAGE, &draft.name]))
            })
        });
        if let Err(error) = sealed {
            draft.break_off("its file couldn't be made durable; write it anew");
            return Err(error);
        }
        let staged = Arc::new(Staged { name: draft.name.clone(), commit });
        draft.finished = Some(Finished { staged: Arc::clone(&staged), sequence: first });
        Ok(staged)
    }

    /// Gathers the parts of several drafts in a new file: whole, synced, closed.
    pub(super) fn gather(&self, group: &mut [Waiting], first: Sequence) -> Result<Arc<Staged>> {
        let log = &self.queue.log;
        let nonce = log.nonce()?;
        let name = names::staged_draft(self.name, self.incarnation, first, nonce);
        let mut parts = Vec::new();
        let mut place = COMMIT_HEADER_BYTES;
        for waiting in group.iter() {
            let part = PartDescriptor { place, ..waiting.part };
            let end = part.layout().map_or(place, |layout| layout.end);
            place = end.checked_next_multiple_of(SLICE_ALIGN_BYTES).unwrap_or(u64::MAX);
            parts.push(part);
        }
        let (sealed, commit) = {
            let tail = log.tail.take();
            seal_after(log, &tail, nonce, self.attempt_us, self.parts(first, parts.clone()))?
        };
        let failed = |error| Error::io("can't gather parts in one file", error);
        let written = (|| {
            let buffer = std::mem::take(&mut self.queue.line.lock().spare);
            let file = log.storage.create_exclusive(self.stage, &name).map_err(failed)?;
            let mut sink = Sink::new(file, buffer);
            for (waiting, part) in group.iter_mut().zip(&parts) {
                sink.skip_to(log, part.place).map_err(failed)?;
                waiting.draft.copy_into(&mut sink)?;
            }
            if let Some((offset, record)) = &sealed.elsewhere {
                sink.skip_to(log, *offset).map_err(failed)?;
                sink.write(log, record, |_| ()).map_err(failed)?;
            }
            if sink.end() != sealed.length {
                let what = "gathered parts aren't as long as their header says";
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            let (file, buffer) = sink.finish(log, sealed.block.as_slice()).map_err(failed)?;
            self.queue.line.lock().spare = buffer;
            finish(log, file).map_err(failed)
        })();
        if let Err(error) = written {
            discard(log, self.stage, &name);
            return Err(error.at(log.path_of([names::STAGE, &name])));
        }
        tracing::debug!(producer = %self.name, parts = parts.len(), "gathered parts for one commit");
        Ok(Arc::new(Staged { name, commit }))
    }
}

/// The parts that go into the next commit: at most so many.
pub(super) fn choose(line: &mut VecDeque<Waiting>, most: usize) -> Vec<Waiting> {
    let joins = |waiting: &Waiting| {
        let fits = waiting.bytes <= GROUP_PART_BYTES_MAX;
        fits && waiting.draft.finished.is_none() && waiting.draft.check_whole().is_ok()
    };
    let mut group: Vec<Waiting> = line.pop_front().into_iter().collect();
    let mut bytes = group.first().map_or(0, |first| first.bytes);
    if !group.first().is_some_and(joins) {
        return group;
    }
    while let Some(next) = line.front()
        && joins(next)
        && bytes.saturating_add(next.bytes) <= GROUP_BYTES_MAX
        && group.len() < most
    {
        bytes = bytes.saturating_add(next.bytes);
        group.extend(line.pop_front());
    }
    group
}
