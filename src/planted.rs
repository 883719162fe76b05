//! Bugs that are planted on purpose, so that whoever looks for bugs can be seen to find them.
//!
//! - They exist under `--cfg batchweave_planted` only; else `is_planted` is false to the compiler, which
//!   leaves them out.
//! - At most one at a time, for the whole process.
//! - Each stands where the rule is kept that it breaks, and says what it takes to show.

use std::fmt;
use std::str::FromStr;
#[cfg(batchweave_planted)]
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, ErrorKind};

macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident $name:literal,)+) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug { $($(#[$doc])+ $bug,)+ }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Self] = &[$(Self::$bug),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$bug => $name),+ }
            }
        }
    };
}

bugs! {
    /// R6: a link that succeeded is acknowledged without a look at the marks, so a part that nobody reads
    /// is. Needs a writer that sleeps in a boundary while two more segments are begun and its own is removed.
    AckOnLink "ack-on-link",
    /// R6: instead of the marks, the writer looks at its own file again, which is there, where nobody reads.
    /// Needs what [`Bug::AckOnLink`] needs.
    AckOnReread "ack-on-reread",
    /// R2: EEXIST is taken as lost: neither the name nor replay is asked for one's own commit, so a writer
    /// is `Fenced` by itself and gets the draft of a visible part back. Needs a link whose own success is
    /// answered by EEXIST, or whose reply and next look are both lost; or a writer that sleeps between link
    /// and marks while two more segments are begun.
    EexistTrusted "eexist-trusted",
    /// R3: a commit is acknowledged before its directory is synced. Needs a power cut after that.
    DirectoryUnsynced "directory-unsynced",
    /// R3: a failed sync of a staged file is tried again, and believed. Needs a storage whose failed sync
    /// forgets what it should have written, and a power cut.
    FileSyncRepeated "file-sync-repeated",
    /// R3: a failed sync of a commit's directory is tried again, and believed. Needs what
    /// [`Bug::FileSyncRepeated`] needs, of a directory.
    DirectorySyncRepeated "directory-sync-repeated",
    /// R3: what replay finds in is acknowledged without a sync. Needs a writer that dies between link and
    /// sync, another that finds the same effect there (a stream closed already), and a power cut; or a lost
    /// reply whose looks fail too, another's commit after it, and a power cut.
    ReplayUnsynced "replay-unsynced",
    /// R7: a directory isn't opened afresh before a look, so a name that was absent once stays so: a
    /// reader waits for ever for a step that others read, an answer is older than what was acknowledged, and
    /// a writer can't read who has won. Needs a remote mount that remembers absent names.
    LookupsStale "lookups-stale",
    /// R7: that nothing is there is believed without the marks: a reader stays at the end of a removed
    /// segment for ever, or calls it purged. Needs two more segments, and the old one removed, while a
    /// reader sleeps at the head.
    AbsenceUnmarked "absence-unmarked",
    /// P4: replay takes Parts of an older incarnation, and so does their writer. Needs a name opened anew
    /// while its older producer sleeps before a publish or its link.
    IncarnationIgnored "incarnation-ignored",
    /// P3: replay takes Parts of any sequence, and their writer doesn't ask for it before he links again, so
    /// a part is in twice. Needs a writer that sleeps between link and marks while two more segments are
    /// begun; or one whose look at the marks fails, or all replies and looks of its link, and that then
    /// calls `flush`.
    SequenceIgnored "sequence-ignored",
    /// R6: who finds his sequence in takes it for his own part, whatever its incarnation and bytes, and so
    /// acknowledges bytes that nobody reads. Needs a name opened anew, and the same sequence published with
    /// other bytes, while its older producer sleeps before a publish or its link.
    SequenceAlone "sequence-alone",
    /// R4: an index lacks the parts of its segment's last version, as if built before that was in: whoever
    /// reads them through it is told `Corrupt`. Needs a part in a segment's last version, and a reader that
    /// comes to it once the next segment is begun.
    IndexPartial "index-partial",
    /// R4: an index holds more than the log says, so racing builders differ, and the loser is told `Corrupt`.
    /// Needs two writers in one boundary, both before either has put the index; `verify` finds it without.
    IndexOfBuilder "index-of-builder",
    /// R4: a segment is begun before the one before it is indexed: who loads then is told `Corrupt`, for
    /// good if nobody can write. Needs a writer that dies, sleeps or fails within a boundary.
    MarkBeforeIndex "mark-before-index",
    /// R4: nothing is synced at a boundary, so a directory is lost with all that was acknowledged in it.
    /// Needs a power cut after it.
    BoundaryUnsynced "boundary-unsynced",
    /// R8: a hole is taken for the head, and linked over: what lies beyond is no longer read. Needs a
    /// commit in the newest segments that is removed from outside, or that a mount remembers as absent, and
    /// a handle that loads then.
    HoleIsHead "hole-is-head",
    /// P3: a batch's position is the one after all that is read ahead. Needs a prefetcher that is ahead,
    /// and a trainer that starts again from what it saved.
    PositionReadAhead "position-read-ahead",
    /// P7: a reader sleeps on the doorbell until it rings. Needs a local mount, and a writer that dies
    /// between link and ring, with none after it.
    WaitUnbounded "wait-unbounded",
    /// P6: who writes first doesn't make STORE's name durable. Needs a power cut after something was
    /// acknowledged.
    StoreUnsynced "store-unsynced",
    /// P4: replay takes Checkpoints of an older incarnation of their group, and so does their writer. Needs a
    /// group opened anew, or retired, while its older trainer still runs.
    CheckpointLate "checkpoint-late",
    /// P5, P6: what a Floor has freed is removed before that Floor is durable: its directory isn't synced.
    /// Needs a power cut after a reclaim, which leaves the removals and loses the Floor.
    FloorUnsynced "floor-unsynced",
    /// P4: a group's incarnations are counted from 0 whenever nobody has it, so an older one may be taken for
    /// the newest. Needs a group that is begun; an older one passes once it was retired and begun anew.
    IncarnationsCounted "incarnations-counted",
    /// P3: a rewind takes the states that producers have now, not those as of its step. Needs a rewind that
    /// drops a part.
    RewindOfNow "rewind-of-now",
    /// P2: a skip begins no generation, so runs before and after it deliver different steps as their n-th,
    /// and none is told. Needs a skip.
    SkipSilent "skip-silent",
    /// P7: a reclaim lists names after it has looked at the log, and takes for dead what came between: the
    /// staged file of a producer opened meanwhile. Needs one who opens a name and writes while another's
    /// reclaim sleeps between the two, and nothing else that may explain a vanished file.
    ReclaimOlderView "reclaim-older-view",
    /// R6: a segment is removed as soon as the next one is begun, so nobody who looks at the marks sees that
    /// the log has moved on. Needs a reclaim while a writer or reader is in the segment before the newest.
    RemovedEarly "removed-early",
    /// Turns are counted by versions, void commits and control records among them, not by parts: so the order
    /// of producers depends on who else commits. Needs a ring, and an Open or a Retire among its parts.
    TurnsByVersion "turns-by-version",
    /// Replay takes parts out of turn, and so does their writer, who doesn't wait. Needs a ring of producers
    /// that aren't as fast as each other.
    TurnIgnored "turn-ignored",
    /// P2: a run doesn't see a Close that comes after its view: it waits at the end, or goes on beyond it
    /// once the stream is reopened. Needs a close while a run is under way.
    EndUnseen "end-unseen",
    /// Replay passes a Reopen over, so nobody can publish any more. Needs a close and a reopen.
    ReopenIgnored "reopen-ignored",
    /// An index says that the stream is open, so whoever loads from it publishes beyond its end. Needs a
    /// boundary while the stream is closed.
    CloseUnindexed "close-unindexed",
    /// A producer that has met the closed stream believes that it is closed still, without another look.
    /// Needs one that tries again after a reopen, on a mount without a doorbell.
    ClosedForGood "closed-for-good",
    /// P3: a Forget keeps what was known of the name, so its next producer goes on after parts and a state
    /// that aren't its own. Needs a name that is forgotten.
    ForgetKept "forget-kept",
    /// P3: a rewind sets a name back to what it was before it was forgotten. Needs a name that was forgotten
    /// and opened anew, and a rewind to a step before that.
    ForgottenRewound "forgotten-rewound",
    /// R3: what a file's sync says isn't heard. Below the simulator's seam; needs a real mount whose sync
    /// fails and forgets what it should have written.
    FileSyncIgnored "file-sync-ignored",
    /// R3: what a file's close says isn't heard. Below the simulator's seam; needs a real mount whose close
    /// fails, as NFS's does when there is no room.
    CloseIgnored "close-ignored",
    /// R3: a write that was cut short is taken for whole. Below the simulator's seam; needs a real mount that
    /// cuts one short.
    ShortWriteWhole "short-write-whole",
}

/// The bug that is planted, by its place from 1; 0 for none.
#[cfg(batchweave_planted)]
static PLANTED: AtomicUsize = AtomicUsize::new(0);

/// Plants a bug in this process, or none, instead of the one before.
#[cfg(all(batchweave_planted, feature = "internals"))]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as usize + 1), Ordering::Release);
}

/// Whether this bug is planted.
#[cfg(batchweave_planted)]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::Acquire) == bug as usize + 1
}

/// Whether this bug is planted: never, in this build.
#[cfg(not(batchweave_planted))]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Bug {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let named = Self::ALL.iter().find(|bug| bug.name() == name);
        named.copied().ok_or_else(|| Error::new(ErrorKind::Invalid, format!("there is no bug {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for bug in Bug::ALL {
            assert_eq!(bug.to_string().parse::<Bug>().unwrap(), *bug);
            assert!(!is_planted(*bug), "no test of the library plants one");
        }
        assert_eq!("no-such-bug".parse::<Bug>().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
