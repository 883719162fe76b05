//! The facade's words that change history, mend what tells of it, or end it all: rewind, skip, forget,
//! repair, destroy.

use std::path::Path;

use crate::error::Result;
use crate::id::Step;
use crate::lifecycle::destroy::{self, DestroyOptions, Destroyed};
use crate::lifecycle::repair::{self, RepairOptions, RepairReport};
use crate::lifecycle::rewind::{self, RewindOptions, RewindReport};
use crate::lifecycle::skip;
use crate::name::Name;
use crate::store::{Store, system};

impl Store {
    /// Drops the newest steps: those before `step` stay, and `step` is the next one to be published. What a
    /// run that went wrong has left is taken back so, at any step that is retained.
    ///
    /// - Every producer is set back to where it was right before that step came in, state and all, and has to
    ///   be opened anew; publishing under an older incarnation is `Fenced`. One that has begun a
    ///   [forgotten](Store::forget) name anew since is set back to its own beginning.
    /// - Every run that is under way gets `Rewound` before its next batch. A position at or before the step
    ///   is still good, a later one isn't.
    /// - Checkpoints beyond the step are dropped, and a closed stream is open again.
    ///
    /// It can't be undone: [`Store::preview_rewind`] says first what it takes.
    ///
    /// After an `Io` error the outcome may be unknown: [`Info::generation`](crate::Info::generation) tells
    /// whether it has taken effect. Repeated then, it would also drop what has been published since.
    ///
    /// # Errors
    /// `Reclaimed` for a step below the floor. `Invalid` for one beyond the head; or when two or more groups
    /// live, naming them, unless the options say that all of them are meant. `Rewound` when another rewind
    /// came first: this one then hasn't changed anything. `Contended`, `Corrupt`, `Full`, `Io`.
    ///
    /// ```
    /// use batchweave::{Counts, Options, RewindOptions, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// let store = Store::open_or_create(&root, Options::new())?;
    /// let mut producer = store.producer("tok-017")?;
    /// for cursor in 1..=5 {
    ///     let mut draft = producer.draft()?;
    ///     draft.add_slice(&[cursor; 100], Counts::default())?;
    ///     producer.publish_now(draft, [cursor])?;
    /// }
    ///
    /// let would = store.preview_rewind(Step::new(3), RewindOptions::new())?;
    /// assert_eq!((would.parts, would.producers[0].sequence.get()), (2, 3));
    /// store.rewind(Step::new(3), RewindOptions::new())?;
    ///
    /// let producer = store.producer("tok-017")?; // the old one is fenced
    /// assert_eq!(producer.state(), [3]); // committed with step 2, the last that is kept
    /// # Ok(())
    /// # }
    /// ```
    pub fn rewind(&self, step: Step, options: RewindOptions) -> Result<RewindReport> {
        self.log().once(|| rewind::rewind(self.log(), step, options))
    }

    /// What [`Store::rewind`] would drop now. Nothing is changed.
    ///
    /// # Errors
    /// As [`Store::rewind`].
    pub fn preview_rewind(&self, step: Step, options: RewindOptions) -> Result<RewindReport> {
        rewind::preview(self.log(), step, options)
    }

    /// Passes over published steps, `last` among them: every run that begins from now on goes on after them,
    /// the same on every rank. False if all of them were skipped already.
    ///
    /// Nothing is freed or renumbered, and no position becomes invalid: one within the range goes on after
    /// it. Every run that is under way gets `Rewound` before its next batch.
    ///
    /// # Errors
    /// `Reclaimed` when a step is below the floor; `Invalid` when one isn't published, there is none in the
    /// range, or the reason is longer than 4096 bytes; `Rewound` when the store was rewound meanwhile;
    /// `Contended`, `Full`, `Io`.
    ///
    /// ```
    /// use batchweave::{Counts, Options, Share, Start, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// let store = Store::open_or_create(&root, Options::new())?;
    /// let mut producer = store.producer("tok-017")?;
    /// for byte in 0..3 {
    ///     let mut draft = producer.draft()?;
    ///     draft.add_slice(&[byte; 100], Counts::default())?;
    ///     producer.publish_now(draft, [])?;
    /// }
    /// store.skip(Step::new(1), Step::new(1), "the loss explodes on it")?;
    ///
    /// let mut consumer = store.run(Start::Beginning)?.consumer(Share::WHOLE)?;
    /// assert_eq!(consumer.next_batch()?.unwrap().step(), Step::new(0));
    /// assert_eq!(consumer.next_batch()?.unwrap().step(), Step::new(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn skip(&self, first: Step, last: Step, reason: &str) -> Result<bool> {
        self.log().once(|| skip::skip(self.log(), first, last, reason))
    }

    /// Whether [`Store::skip`] would pass over anything now. Nothing is changed.
    ///
    /// # Errors
    /// As [`Store::skip`].
    pub fn preview_skip(&self, first: Step, last: Step, reason: &str) -> Result<bool> {
        skip::preview(self.log(), first, last, reason)
    }

    /// Drops the name of a producer that has finished, once nothing of it is retained. False if there is no
    /// such name. Opened again, it begins anew, at sequence 0 and without a state; that stays so when the
    /// store is rewound to before.
    ///
    /// # Errors
    /// `Invalid` when it hasn't finished, its last part isn't below the floor, or it is in the ring of those
    /// that take turns; `Contended`, `Full`, `Io`.
    ///
    /// ```
    /// use batchweave::{Options, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// let store = Store::open_or_create(&root, Options::new())?;
    /// store.producer("tok-018")?.finish()?; // without a single part
    /// assert!(store.forget("tok-018")?);
    /// assert!(store.producers()?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn forget(&self, producer: &str) -> Result<bool> {
        self.log().once(|| skip::forget(self.log(), &Name::new(producer)?))
    }

    /// Rebuilds every index that is missing or can't be read, from the log: with it, a store opens and reads
    /// again. It may run while everybody goes on. A store without such an index is left as it is.
    ///
    /// A commit of the newest segment that is missing, or isn't what was written, closes the store. What it
    /// takes along is told; and with [`RepairOptions::confirm`], which says that *all processes have closed
    /// the store*, it is dropped, as by a [rewind](Store::rewind) to the last step that is whole before it:
    /// then the store opens again, and producers go on from there. What can still be read of what came after
    /// it is kept in `stage/`, for people. A commit of an older segment takes only its own steps along, and
    /// isn't mended: [`Store::verify`] names it, [`Store::skip`] passes over its steps.
    ///
    /// Stopped at any point, it goes on when it is called again.
    ///
    /// # Errors
    /// `Full` or `Io` when something can't be written, or can't be read now: that isn't given up. `Corrupt`
    /// without any mark or without the newest segment. An index that can't be rebuilt, since the log before
    /// it isn't whole, is in the report.
    ///
    /// ```
    /// use batchweave::{Counts, Options, RepairOptions, Step, Store};
    /// # fn main() -> batchweave::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let root = directory.path().join("train");
    /// let store = Store::open_or_create(&root, Options::new().segment_size(16))?;
    /// let mut producer = store.producer("tok-017")?;
    /// for byte in 0..20 {
    ///     let mut draft = producer.draft()?;
    ///     draft.add_slice(&[byte; 100], Counts::default())?;
    ///     producer.publish_now(draft, [])?;
    /// }
    /// let index = root.join("index").join("000000000000");
    /// let bytes = std::fs::read(&index)?;
    /// std::fs::remove_file(&index)?;
    ///
    /// let report = Store::open(&root)?.repair(RepairOptions::new())?;
    /// assert_eq!(report.rebuilt.len(), 1);
    /// assert_eq!(std::fs::read(&index)?, bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair(&self, options: RepairOptions) -> Result<RepairReport> {
        self.log().once(|| repair::repair(self.log(), options))
    }

    /// Destroys the store, as [`destroy`] does.
    ///
    /// # Errors
    /// `Io`: what was removed is gone, and [`destroy`] goes on.
    pub fn destroy(self) -> Result<Destroyed> {
        let log = self.log();
        log.check_forked()?;
        destroy::destroy(&log.path, &log.outside, DestroyOptions::new())
    }
}

/// Removes a store, once *all processes have closed it*: STORE first, so that nobody opens it any more, then
/// everything else that is its own. The directory itself stays, as does anything in it that isn't a store's
/// own, which is named in the report.
///
/// A store that can't be opened will do, and so will what a destroy that was stopped has left: a directory
/// without STORE that holds a store's own names only. It can't be undone; a dry run says first what goes.
///
/// # Errors
/// `Invalid` when there is no store, nor the rest of one; `Io`: what was removed is gone, and the next call
/// goes on.
///
/// ```
/// use batchweave::{DestroyOptions, Options, Store};
/// # fn main() -> batchweave::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("train");
/// Store::create(&root, Options::new())?;
/// let would = batchweave::destroy(&root, DestroyOptions::new().dry_run(true))?;
/// assert!(would.others.bytes > 0 && Store::open(&root).is_ok());
/// batchweave::destroy(&root, DestroyOptions::new())?;
/// assert_eq!(std::fs::read_dir(&root)?.count(), 0);
/// # Ok(())
/// # }
/// ```
pub fn destroy(directory: impl AsRef<Path>, options: DestroyOptions) -> Result<Destroyed> {
    let (seams, _) = system();
    destroy::destroy(directory.as_ref(), &seams.storage, options)
}

/// As [`destroy`], over another storage.
///
/// # Errors
/// As [`destroy`].
#[cfg(feature = "internals")]
pub fn destroy_on(
    directory: &Path,
    storage: &std::sync::Arc<dyn crate::storage::Storage>,
    options: DestroyOptions,
) -> Result<Destroyed> {
    destroy::destroy(directory, storage, options)
}
