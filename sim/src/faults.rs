//! What goes wrong, by chance: every kind that a run allows, a few times in each run.
//!
//! - A run draws how many things may go wrong; so what is left alone is as likely as what is beaten.
//! - The next kind is drawn first, and then meets one of the calls that it can happen to: so a sync fails as
//!   often as a process dies.
//! - How often each kind came up is counted over all runs: a kind that never does isn't tested.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::coverage::Coverage;
use crate::damage::Damage;
use crate::errno;
use crate::fault::{Failure, Fate, Method};
use crate::oracle::{Ledger, truth};
use crate::schedule::{Fates, World};
use crate::{Choices, Memory, Mount};

macro_rules! wrongs {
    ($($name:ident $words:literal),* $(,)?) => {
        /// Something that goes wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Wrong {
            $(
                #[doc = concat!($words, ".")]
                $name,
            )*
        }

        impl Wrong {
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

wrongs! {
    Short "a short read or write",
    ReplyLost "a call that is done and answers with an error",
    Refused "a call that fails for once",
    NoSpace "no space or no quota",
    SyncFailed "a sync that fails, its bytes lost",
    ProcessDies "a process that dies before a call",
    ProcessDiesAfter "a process that dies after a call",
    NodeDies "a node that dies",
    PowerCut "a power cut",
    Purged "a file deleted from outside",
    Unreadable "a file that can't be read any more",
    Frozen "a process that stands still before a call while all others go on",
    FrozenInBoundary "a writer that stands still between two segments while all others go on",
}

/// How long who stands still does: others publish a step, or some segments, or all that is left.
const FROZEN: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(40), Duration::from_millis(1500)];

/// What goes wrong next.
#[derive(Debug)]
pub struct Next {
    /// How many more things may go wrong.
    pub left: u32,
    /// The next, and in how many of its calls it comes up once; none while it isn't drawn.
    pub wrong: Option<(Wrong, u32)>,
}

/// The fates of one run.
pub struct Faults {
    /// Which kinds may come up.
    pub kinds: Vec<Wrong>,
    /// How many more may, and the next of them.
    pub next: Mutex<Next>,
    /// The filesystem.
    pub memory: Memory,
    /// The store's path.
    pub root: String,
    /// The nodes' mounts, by node.
    pub mounts: Mutex<Vec<Mount>>,
    /// What is true.
    pub ledger: Arc<Ledger>,
    /// Parts of a step.
    pub parts_per_step: u64,
    /// What is damaged.
    pub damage: Arc<Damage>,
    /// Where to count.
    pub coverage: Arc<Coverage>,
}

impl Fates for Faults {
    fn decide(&self, world: &World, process: usize, method: Method, on: &str) -> Fate {
        let choices = world.choices();
        let wrong = {
            let mut next = self.next.lock();
            if next.left == 0 {
                return Fate::default();
            }
            let (wrong, odds) = *next.wrong.get_or_insert_with(|| self.draw(choices));
            if !can_meet(wrong, method, on) || !choices.chance(odds) {
                return Fate::default();
            }
            *next = Next { left: next.left - 1, wrong: None };
            wrong
        };
        self.coverage.count(wrong);
        self.act(wrong, world, process, method, on)
    }
}

impl Faults {
    fn draw(&self, choices: &Choices) -> (Wrong, u32) {
        let wrong = *choices.one_of(&self.kinds);
        // Most calls can be refused or be the last; few are syncs.
        let odds: &[u32] = match wrong {
            Wrong::SyncFailed | Wrong::NoSpace | Wrong::ReplyLost => &[2, 1, 8],
            Wrong::Purged | Wrong::Unreadable | Wrong::Frozen => &[4, 1, 16],
            Wrong::FrozenInBoundary => &[1, 2],
            _ => &[32, 8, 128],
        };
        (wrong, *choices.one_of(odds))
    }

    fn act(&self, wrong: Wrong, world: &World, process: usize, method: Method, on: &str) -> Fate {
        let choices = world.choices();
        match wrong {
            Wrong::Short => Fate::is_cut(1 + choices.pick(5000) as usize),
            Wrong::ReplyLost => {
                let taken = matches!(
                    method,
                    Method::Link | Method::MakeDir | Method::CreateExclusive | Method::RenameNoreplace
                );
                let errnos: &[i32] = if taken {
                    &[errno::EEXIST, errno::EIO, errno::ETIMEDOUT, errno::ESTALE]
                } else {
                    &[errno::EIO, errno::ETIMEDOUT, errno::ESTALE]
                };
                Fate::fails(Failure::After(*choices.one_of(errnos)))
            }
            Wrong::Refused => {
                let errnos = [errno::EIO, errno::ESTALE, errno::ETIMEDOUT, errno::EINTR];
                Fate::fails(Failure::Before(*choices.one_of(&errnos)))
            }
            Wrong::NoSpace => Fate::fails(Failure::Before(*choices.one_of(&[errno::ENOSPC, errno::EDQUOT]))),
            Wrong::SyncFailed => {
                if let Some(mount) = self.mounts.lock().get(world.node_of(process)) {
                    // Delayed allocation tells of a full disk here.
                    let errnos = [errno::EIO, errno::ENOSPC, errno::EDQUOT];
                    mount.fail_next_sync(errnos[world.calls() as usize % errnos.len()]);
                }
                Fate::default()
            }
            Wrong::ProcessDies => {
                world.kill(process);
                Fate::default()
            }
            Wrong::ProcessDiesAfter => Fate::stops(),
            Wrong::NodeDies => {
                let node = world.node_of(process);
                world.kill_node(node);
                if let Some(mount) = self.mounts.lock().get(node) {
                    mount.crash();
                }
                Fate::default()
            }
            Wrong::PowerCut => {
                world.power_cut(&self.memory);
                match self.ledger.annals() {
                    Some(annals) => annals.power_cut(truth(&self.memory, Path::new(&self.root))),
                    None => self.ledger.power_cut(self.parts_per_step),
                }
                self.mounts.lock().iter().for_each(|mount| mount.crash());
                Fate::default()
            }
            Wrong::Purged => {
                if self.damage.purge(&self.memory, &format!("{}/{on}", self.root)) {
                    world.say(format!("{on} is purged"));
                }
                Fate::default()
            }
            Wrong::Unreadable => {
                self.damage.spoil(&self.memory, &format!("{}/{on}", self.root));
                world.say(format!("{on} can't be read any more"));
                Fate::default()
            }
            Wrong::Frozen | Wrong::FrozenInBoundary => {
                let delay = *choices.one_of(&FROZEN);
                world.say(format!("frozen for {delay:?} before {method} {on}"));
                Fate::takes(delay)
            }
        }
    }
}

/// Whether a kind can happen to a call.
fn can_meet(wrong: Wrong, method: Method, on: &str) -> bool {
    let writes = matches!(
        method,
        Method::CreateExclusive
            | Method::WriteAt
            | Method::Link
            | Method::Rename
            | Method::RenameNoreplace
            | Method::MakeDir
            | Method::RemoveDir
            | Method::Remove
    );
    match wrong {
        Wrong::Short => matches!(method, Method::ReadAt | Method::WriteAt),
        Wrong::ReplyLost => writes && method != Method::WriteAt,
        Wrong::Refused => !matches!(method, Method::Wait | Method::Wake | Method::Populate),
        Wrong::NoSpace => {
            writes && !matches!(method, Method::Remove | Method::RemoveDir) || method == Method::Close
        }
        Wrong::SyncFailed => matches!(method, Method::SyncFile | Method::SyncDir),
        Wrong::ProcessDies | Wrong::ProcessDiesAfter | Wrong::NodeDies | Wrong::PowerCut => true,
        Wrong::Frozen => writes || matches!(method, Method::List | Method::SyncDir | Method::OpenDir),
        Wrong::FrozenInBoundary => {
            let begins = method == Method::MakeDir && on.starts_with("log/");
            begins || writes && (on.contains("marks/") || on.contains("-> index/"))
        }
        Wrong::Purged | Wrong::Unreadable => method == Method::Open && on.starts_with("log/"),
    }
}
