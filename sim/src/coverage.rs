//! What has come up over many runs: a kind that never does isn't tested.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::faults::Wrong;

macro_rules! met {
    ($($name:ident $words:literal),* $(,)?) => {
        /// Something that a run of the lifecycle has to come across.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Met {
            $(
                #[doc = concat!($words, ".")]
                $name,
            )*
        }

        impl Met {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// What it is, in words.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

met! {
    SegmentRemoved "a segment that a reclaim removed",
    IndexRemoved "an index that a reclaim removed",
    LitterRemoved "litter that a reclaim removed",
    NameGivenAgain "a removed commit's name that a sleeper has given again",
    ReclaimOvertaken "a reclaim during which a segment's worth of commits came in",
    ReclaimsAtOnce "two reclaims at once",
    CheckpointKept "a checkpoint",
    CheckpointDropped "a checkpoint that a reclaim dropped",
    CheckpointRetainedNot "a checkpoint that its trainer let go",
    TrainerFenced "a trainer whose word was too late: its group was opened anew or retired",
    RunRewound "a run that was told of a change of history",
    ControlOvertaken "an operator's word that came too late: history or the floor has changed",
    PositionTaken "a saved position of an older generation that is good",
    PositionRefused "a saved position that isn't good any more",
    Joined "a rank that joined a run by its snapshot",
    PassedOver "a run that passed over skipped steps",
    BelowFloor "a reader whose step is below the floor",
    Rewound "a rewind",
    ProducerSetBack "a producer that goes on after a rewind",
    Grouped "a part that went into another's commit",
    Skipped "a skip",
    GroupRetired "a group that was retired",
    TurnsTaken "producers that took turns, more than one of them",
    BegunAnew "a trainer that begins beside an older one of its group",
    Verified "a verify beside others, which finds nothing",
    VerifyOvertaken "a verify beside which a segment was removed",
    Closed "a close",
    CloseRewound "a close that another's rewind has come before",
    Reopened "a reopen",
    OpenedClosed "a producer that met the closed stream when it opened its name",
    PublishedClosed "a producer that met the closed stream when it published",
    Ended "a run that came to its end",
    EndedBefore "a run that ended before what was published after a reopen",
    BegunClosed "a run that began in a closed stream",
    Forgotten "a name that was forgotten",
    BegunAfterForget "a producer that began a forgotten name anew",
}

/// How often each kind has come up.
#[derive(Debug)]
pub struct Coverage {
    wrongs: Vec<AtomicU64>,
    met: Vec<AtomicU64>,
}

impl Default for Coverage {
    fn default() -> Self {
        let zeros = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { wrongs: zeros(Wrong::ALL.len()), met: zeros(Met::ALL.len()) }
    }
}

impl Coverage {
    pub(crate) fn count(&self, wrong: Wrong) {
        self.wrongs[wrong as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// It was met, so often.
    pub(crate) fn met(&self, what: Met, times: u64) {
        self.met[what as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// How often each kind of thing went wrong so far.
    pub fn counts(&self) -> BTreeMap<Wrong, u64> {
        Wrong::ALL
            .iter()
            .map(|wrong| (*wrong, self.wrongs[*wrong as usize].load(Ordering::Relaxed)))
            .collect()
    }

    /// How often each kind of thing was met so far.
    pub fn mets(&self) -> BTreeMap<Met, u64> {
        Met::ALL.iter().map(|met| (*met, self.met[*met as usize].load(Ordering::Relaxed))).collect()
    }
}
