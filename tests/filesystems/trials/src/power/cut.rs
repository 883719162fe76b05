//! The cut: at a drawn call of a drawn operation, the filesystem below a store is shut down.
//!
//! - A shutdown without a flush of its log: nothing that isn't synced by then survives, and every later call
//!   meets a dead filesystem, until it is mounted anew.
//! - Only calls that change something are counted, and of the operation under trial alone.
//! - Syncs can be left out, and said to be done: then something acknowledged has to be lost.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use batchweave_sim::{Call, Fate, Judge, Method};
use rustix::ioctl::{Setter, ioctl, opcode};

/// EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, which are one.
const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
/// Without a flush of the log.
const NO_LOG_FLUSH: u32 = 2;

/// What the power is cut in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Operation {
    Publish,
    Checkpoint,
    Reclaim,
    /// What comes before a segment's first version: from the sync of the last one's directory on, until the
    /// commit is linked.
    Index,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [Self::Publish, Self::Checkpoint, Self::Reclaim, Self::Index];
}

/// When the power is cut, as seen from the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Moment {
    Before,
    /// From another thread, while it runs.
    Amid,
    After,
    /// The operation is done once, and its calls are counted.
    Never,
}

/// Syncs that are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Syncs {
    None,
    Files,
    Directories,
}

/// Where the power is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) operation: Operation,
    pub(crate) moment: Moment,
    /// Which call that changes something, from 0.
    pub(crate) call: u64,
}

/// The judge of a life's calls.
pub(crate) struct Power {
    disk: Arc<File>,
    place: Place,
    left_out: Syncs,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    /// The operation under trial is under way, and not past what is under trial of it.
    on_trial: bool,
    /// Calls of it are counted.
    counting: bool,
    calls: u64,
    /// The drawn call is being made.
    due: Option<Due>,
    /// Where the power was cut, or why it couldn't be.
    cut: Option<io::Result<String>>,
}

struct Due {
    method: Method,
    on: String,
    /// Who cuts the power meanwhile; else it is cut after the call.
    amid: Option<JoinHandle<io::Result<()>>>,
}

impl Power {
    /// Over the filesystem that `path` is on; the host's own is never cut.
    pub(crate) fn new(path: &Path, place: Place, left_out: Syncs) -> io::Result<Self> {
        let device = |path: &Path| Ok::<_, io::Error>(std::fs::metadata(path)?.dev());
        if place.moment != Moment::Never && device(path)? == device("/".as_ref())? {
            return Err(io::Error::other("the power isn't cut of the filesystem that / is on"));
        }
        Ok(Self { disk: Arc::new(File::open(path)?), place, left_out, now: Mutex::default() })
    }

    /// Does the operation under trial.
    pub(crate) fn on_trial<T>(&self, operate: impl FnOnce() -> T) -> T {
        let set = |on_trial| {
            let mut now = self.now();
            now.on_trial = on_trial;
            now.counting = on_trial && self.place.operation != Operation::Index;
        };
        set(true);
        let done = operate();
        set(false);
        done
    }

    /// How many calls have been counted.
    pub(crate) fn calls(&self) -> u64 {
        self.now().calls
    }

    /// At which call the power was cut, if it is.
    pub(crate) fn is_cut(&self) -> io::Result<Option<String>> {
        match &self.now().cut {
            Some(Err(error)) => Err(io::Error::new(error.kind(), format!("can't cut the power: {error}"))),
            Some(Ok(at)) => Ok(Some(at.clone())),
            None => Ok(None),
        }
    }

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing that isn't durable by now survives.
fn shut_down(disk: &File) -> io::Result<()> {
    // SAFETY: the opcode takes a pointer to a u32 and reads it; what it does to the filesystem is meant.
    unsafe { Ok(ioctl(disk, Setter::<SHUTDOWN, u32>::new(NO_LOG_FLUSH))?) }
}

impl Now {
    /// The drawn call is about to be made.
    fn meet(&mut self, moment: Moment, disk: &Arc<File>, method: Method, on: &str) {
        let mut due = Due { method, on: on.to_owned(), amid: None };
        match moment {
            Moment::Never => return,
            Moment::Before => {
                self.cut = Some(shut_down(disk).map(|()| format!("before {method} {on}")));
                return;
            }
            Moment::Amid => {
                let disk = Arc::clone(disk);
                due.amid = Some(std::thread::spawn(move || shut_down(&disk)));
            }
            Moment::After => {}
        }
        self.due = Some(due);
    }
}

impl Judge for Power {
    fn before(&self, method: Method, on: &str) -> Fate {
        let mut now = self.now();
        if self.place.operation == Operation::Index && now.on_trial {
            now.on_trial = method != Method::Link || !on.contains(" -> log/");
            now.counting = now.on_trial && (now.counting || method == Method::SyncDir);
        }
        if now.counting && Method::CHANGES.contains(&method) {
            if now.calls == self.place.call {
                now.meet(self.place.moment, &self.disk, method, on);
            }
            now.calls += 1;
        }
        match (self.left_out, method) {
            (Syncs::Files, Method::SyncFile) | (Syncs::Directories, Method::SyncDir) => Fate::is_cut(0),
            _ => Fate::default(),
        }
    }

    fn after(&self, call: Call) {
        let mut now = self.now();
        let is_due = |due: &mut Due| due.method == call.method && due.on == call.on;
        let Some(due) = now.due.take_if(is_due) else { return };
        let (when, cut) = match due.amid {
            Some(thread) => {
                ("amid", thread.join().unwrap_or_else(|_| Err(io::Error::other("who cuts it panicked"))))
            }
            None => ("after", shut_down(&self.disk)),
        };
        now.cut = Some(cut.map(|()| format!("{when} {} {}", call.method, call.on)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn power(operation: Operation, moment: Moment, left_out: Syncs) -> io::Result<Power> {
        Power::new("/".as_ref(), Place { operation, moment, call: 0 }, left_out)
    }

    /// The calls of a publish across a boundary.
    fn publish(power: &Power) {
        let link = (Method::Link, "stage/tok -> log/000000000001/00000000000000000016");
        for (method, on) in [
            (Method::SyncFile, "stage/tok"),
            (Method::SyncDir, "log/000000000000"),
            (Method::ReadAt, "log/000000000000/00000000000000000015"),
            (Method::Link, "stage/-index -> index/000000000000"),
            (Method::MakeDir, "log/000000000001"),
            link,
            (Method::SyncDir, "log/000000000001"),
        ] {
            power.before(method, on);
        }
    }

    #[test]
    fn calls_that_change_something_are_counted_while_on_trial() {
        let counted = |operation| {
            let power = power(operation, Moment::Never, Syncs::None).unwrap();
            publish(&power);
            assert_eq!(power.calls(), 0);
            power.on_trial(|| publish(&power));
            publish(&power);
            power.calls()
        };
        assert_eq!(counted(Operation::Publish), 6);
        assert_eq!(counted(Operation::Index), 3, "from the sync of the segment to the link of the commit");
    }

    #[test]
    fn the_host_s_own_filesystem_is_never_cut() {
        let error = power(Operation::Publish, Moment::Before, Syncs::None).err().unwrap();
        assert_eq!(error.to_string(), "the power isn't cut of the filesystem that / is on");
    }

    #[test]
    fn just_the_syncs_that_were_named_are_left_out() {
        for (left_out, expected) in [
            (Syncs::None, [false, false]),
            (Syncs::Files, [true, false]),
            (Syncs::Directories, [false, true]),
        ] {
            let power = power(Operation::Publish, Moment::Never, left_out).unwrap();
            let is_left_out = |method| power.before(method, "x").bytes_max == 0;
            assert_eq!([Method::SyncFile, Method::SyncDir].map(is_left_out), expected);
            assert!(!is_left_out(Method::WriteAt));
        }
    }
}
