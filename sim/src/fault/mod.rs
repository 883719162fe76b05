//! A storage as one process sees it whose calls go wrong by a plan.
//!
//! - Every method is counted, judged by the plan, and traced, in this one place ([`Fault::call`]).
//! - It knows names, so that plans and traces can speak of them: the path under which a handle was opened.
//! - It makes nothing up: without a plan, everything is what the storage below says.
//! - A stopped process has no further effect, and no reply of a call that was running reaches it.

mod plan;
mod stopped;
#[cfg(test)]
mod tests;
mod trace;
mod word;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use batchweave::env::{Env, System};
use batchweave::storage::{Access, Dir, File, Kind, Mapping, Mount, Names, Space, Storage, Word};
use parking_lot::Mutex;

pub use self::plan::{Failure, Fate, Match, Plan};
pub use self::stopped::Stopped;
pub use self::trace::{Call, Method, Outcome};
use self::word::Watched;
use crate::errno::{self, error};
use crate::mount::{dir_digest, file_digest};

/// The newest calls that a trace keeps.
const TRACE_CALLS_MAX: usize = 1 << 16;

/// A storage whose calls go wrong by a [`Plan`].
///
/// To stop a process at each of its calls:
///
/// ```
/// # use std::sync::Arc;
/// # use batchweave::storage::Storage;
/// # use batchweave_sim::{Fault, Memory, Plan, Stopped};
/// for k in 0.. {
///     let disk = Memory::new();
///     let process = Fault::new(Arc::new(disk.clone()), Plan::new().stop_at(k));
///     let result = process.open_root("/".as_ref()).and_then(|root| process.make_dir(&root, "log"));
///     // ... here the test opens what is on `disk` and checks it ...
///     match result {
///         Ok(()) => break,
///         Err(error) => assert!(Stopped::caused(&error)),
///     }
/// }
/// ```
pub struct Fault {
    inner: Arc<dyn Storage>,
    env: Arc<dyn Env>,
    judge: Option<Arc<dyn Judge>>,
    mounts: AtomicU64,
    outlived: AtomicI32,
    /// The call after which it is mounted anew; none by default.
    remount_after: AtomicU64,
    record: Mutex<Record>,
}

/// Who decides about each call anew, and hears what came of it.
pub trait Judge: Send + Sync {
    /// What is to happen to a call that is about to be made. It may block, and stop the process meanwhile.
    fn before(&self, method: Method, on: &str) -> Fate;

    /// A call has ended. It is the judge's to keep: a trace has only what no judge has heard of.
    fn after(&self, call: Call);

    /// The process has got something, by its digest: what it does next may depend on it.
    fn saw(&self, _digest: u64) {}

    /// The process is about to look at a word in shared memory.
    fn looks(&self) {}
}

struct Record {
    plan: Plan,
    calls: u64,
    /// Calls, and bytes that they moved.
    counts: BTreeMap<Method, (u64, u64)>,
    stopped: bool,
    trace: VecDeque<Call>,
}

/// A handle of the storage below, and the path under which it was opened.
struct Named<T> {
    inner: T,
    path: String,
    /// How often the process had mounted anew when it was opened.
    mounts: u64,
}

impl Fault {
    /// Wraps a storage; delays sleep for real.
    pub fn new(inner: Arc<dyn Storage>, plan: Plan) -> Self {
        Self::with_env(inner, plan, Arc::new(System::new()))
    }

    /// Wraps a storage; delays are sleeps of this `Env`.
    pub fn with_env(inner: Arc<dyn Storage>, plan: Plan, env: Arc<dyn Env>) -> Self {
        let record =
            Record { plan, calls: 0, counts: BTreeMap::new(), stopped: false, trace: VecDeque::new() };
        Self {
            inner,
            env,
            judge: None,
            mounts: AtomicU64::new(0),
            outlived: AtomicI32::new(errno::ESTALE),
            remount_after: AtomicU64::new(u64::MAX),
            record: Mutex::new(record),
        }
    }

    /// Besides the plan, this decides too.
    #[must_use]
    pub fn judged_by(mut self, judge: Arc<dyn Judge>) -> Self {
        self.judge = Some(judge);
        self
    }

    /// Puts another plan in place; its rules and `nth` count from now on, `stop_at` from the first call of
    /// all.
    pub fn set_plan(&self, plan: Plan) {
        self.record.lock().plan = plan;
    }

    /// Stops the process now.
    pub fn stop(&self) {
        self.record.lock().stopped = true;
    }

    /// The filesystem is mounted anew: whatever was opened before has outlived what it stood for, and answers
    /// with this errno for ever.
    pub fn remount(&self, errno: i32) {
        self.outlived.store(errno, Ordering::Relaxed);
        self.mounts.fetch_add(1, Ordering::Relaxed);
    }

    /// The same once so many more calls have been made.
    pub fn remount_after(&self, calls: u64, errno: i32) {
        if calls == 0 {
            return self.remount(errno);
        }
        self.outlived.store(errno, Ordering::Relaxed);
        self.remount_after.store(self.calls() + calls, Ordering::Relaxed);
    }

    /// Whether the process is stopped.
    pub fn is_stopped(&self) -> bool {
        self.record.lock().stopped
    }

    /// Calls so far, failed ones included.
    pub fn calls(&self) -> u64 {
        self.record.lock().calls
    }

    /// Calls of one method so far, failed ones included.
    pub fn count(&self, method: Method) -> u64 {
        self.record.lock().counts.get(&method).map_or(0, |counts| counts.0)
    }

    /// Bytes so far that one method read, wrote, copied or mapped; of `list`, those of the names.
    pub fn bytes(&self, method: Method) -> u64 {
        self.record.lock().counts.get(&method).map_or(0, |counts| counts.1)
    }

    /// The newest 65,536 calls that have ended, by number; with a judge, those that it hasn't heard of.
    pub fn trace(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = self.record.lock().trace.iter().cloned().collect();
        calls.sort_by_key(|call| call.number);
        calls
    }

    fn named<T>(&self, inner: T, path: String) -> Named<T> {
        Named { inner, path, mounts: self.mounts.load(Ordering::Relaxed) }
    }

    fn dir<'h>(&self, dir: &'h Dir) -> io::Result<&'h Named<Dir>> {
        self.living(dir.get().ok_or_else(|| error(errno::EBADF))?)
    }

    /// Two directories. The kernel compares their mounts before it asks either.
    fn both<'h>(&self, from: &'h Dir, to: &'h Dir) -> io::Result<(&'h Named<Dir>, &'h Named<Dir>)> {
        let mounts = |dir: &Dir| dir.get::<Named<Dir>>().map(|named| named.mounts);
        if mounts(from) != mounts(to) {
            return Err(error(errno::EXDEV));
        }
        Ok((self.dir(from)?, self.dir(to)?))
    }

    fn file<'h>(&self, file: &'h File) -> io::Result<&'h Named<File>> {
        self.living(file.get().ok_or_else(|| error(errno::EBADF))?)
    }

    fn living<'h, T>(&self, handle: &'h Named<T>) -> io::Result<&'h Named<T>> {
        let outlived = handle.mounts != self.mounts.load(Ordering::Relaxed);
        if outlived { Err(error(self.outlived.load(Ordering::Relaxed))) } else { Ok(handle) }
    }

    /// One call: counted, judged, made unless the plan says otherwise, traced. `make` gets the bytes it may
    /// move.
    fn call<T>(
        &self,
        method: Method,
        on: String,
        make: impl FnOnce(usize) -> io::Result<T>,
    ) -> io::Result<T> {
        let (number, fate) = {
            let mut record = self.record.lock();
            let number = record.calls;
            record.calls += 1;
            if record.calls == self.remount_after.load(Ordering::Relaxed) {
                self.mounts.fetch_add(1, Ordering::Relaxed);
            }
            record.counts.entry(method).or_default().0 += 1;
            record.stopped |= record.plan.stop_at.is_some_and(|k| number >= k);
            if record.stopped {
                record.keep(Call { number, method, on, outcome: Outcome::Stopped });
                return Err(io::Error::other(Stopped));
            }
            (number, record.plan.judge(method, &on))
        };
        let fate = match &self.judge {
            Some(judge) => fate.and(judge.before(method, &on)),
            None => fate,
        };
        if !fate.delay.is_zero() {
            self.env.sleep(fate.delay);
        }
        for act in &fate.meanwhile {
            act();
        }
        if self.is_stopped() {
            self.record.lock().keep(Call { number, method, on, outcome: Outcome::Stopped });
            return Err(io::Error::other(Stopped));
        }
        let mut result = match fate.failure {
            Some(Failure::Before(errno)) => Err(error(errno)),
            _ => make(fate.bytes_max),
        };
        let mut record = self.record.lock();
        let outcome = match fate.failure {
            _ if record.stopped || fate.stops => {
                record.stopped = true;
                result = Err(io::Error::other(Stopped));
                Outcome::Stopped
            }
            Some(Failure::After(errno)) if result.is_ok() => {
                result = Err(error(errno));
                match Outcome::of(&result) {
                    Outcome::Failed(words) => Outcome::ReplyLost(words),
                    other => other,
                }
            }
            _ => Outcome::of(&result),
        };
        let call = Call { number, method, on, outcome };
        match &self.judge {
            Some(judge) => {
                drop(record);
                judge.after(call);
            }
            None => record.keep(call),
        }
        result
    }
}

impl Fault {
    /// A call has moved so many bytes.
    fn moved(&self, method: Method, bytes: u64) {
        self.record.lock().counts.entry(method).or_default().1 += bytes;
    }

    /// Tells the judge what a call gave.
    fn saw(&self, seen: impl Hash) {
        if let Some(judge) = &self.judge {
            let mut hasher = DefaultHasher::new();
            seen.hash(&mut hasher);
            judge.saw(hasher.finish());
        }
    }
}

impl Record {
    fn keep(&mut self, call: Call) {
        if self.trace.len() == TRACE_CALLS_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(call);
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<T> Named<T> {
    fn path(&self) -> String {
        if self.path.is_empty() { "/".to_owned() } else { self.path.clone() }
    }

    fn child(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) }
    }

    fn pair(&self, name: &str, to: &Self, to_name: &str) -> String {
        format!("{} -> {}", self.child(name), to.child(to_name))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Storage for Fault {
    fn open_root(&self, path: &Path) -> io::Result<Dir> {
        let inner =
            self.call(Method::OpenRoot, path.display().to_string(), |_| self.inner.open_root(path))?;
        self.saw(dir_digest(&inner));
        Ok(Dir::new(self.named(inner, String::new())))
    }

    fn make_root(&self, path: &Path) -> io::Result<()> {
        self.call(Method::MakeRoot, path.display().to_string(), |_| self.inner.make_root(path))
    }

    fn rename_root(&self, from: &Path, to: &Path) -> io::Result<()> {
        let names = format!("{} -> {}", from.display(), to.display());
        self.call(Method::RenameRoot, names, |_| self.inner.rename_root(from, to))
    }

    fn open_dir(&self, parent: &Dir, name: &str) -> io::Result<Dir> {
        let parent = self.dir(parent)?;
        let path = parent.child(name);
        let inner = self.call(Method::OpenDir, path.clone(), |_| self.inner.open_dir(&parent.inner, name))?;
        self.saw(dir_digest(&inner));
        Ok(Dir::new(self.named(inner, path)))
    }

    fn create_exclusive(&self, parent: &Dir, name: &str) -> io::Result<File> {
        let parent = self.dir(parent)?;
        let path = parent.child(name);
        let make = |_| self.inner.create_exclusive(&parent.inner, name);
        let inner = self.call(Method::CreateExclusive, path.clone(), make)?;
        self.saw(file_digest(&inner));
        Ok(File::new(self.named(inner, path)))
    }

    fn open(&self, parent: &Dir, name: &str, access: Access) -> io::Result<File> {
        let parent = self.dir(parent)?;
        let path = parent.child(name);
        let inner =
            self.call(Method::Open, path.clone(), |_| self.inner.open(&parent.inner, name, access))?;
        self.saw(file_digest(&inner));
        Ok(File::new(self.named(inner, path)))
    }

    fn close(&self, closed: File) -> io::Result<()> {
        let named = self.file(&closed)?;
        let path = named.path();
        // What is shared by clones stays so for the storage below; what isn't reaches it by value.
        let shared = named.inner.clone();
        let inner = match closed.into_inner::<Named<File>>() {
            Some(named) => {
                drop(shared);
                named.inner
            }
            None => shared,
        };
        self.call(Method::Close, path, |_| self.inner.close(inner))
    }

    fn size(&self, sized: &File) -> io::Result<u64> {
        let sized = self.file(sized)?;
        let size = self.call(Method::Size, sized.path(), |_| self.inner.size(&sized.inner))?;
        self.saw(size);
        Ok(size)
    }

    fn kind(&self, parent: &Dir, name: &str) -> io::Result<Kind> {
        let parent = self.dir(parent)?;
        let kind = self.call(Method::Kind, parent.child(name), |_| self.inner.kind(&parent.inner, name))?;
        self.saw(kind == Kind::Directory);
        Ok(kind)
    }

    fn read_at(&self, read: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.file(read)?;
        let got = self.call(Method::ReadAt, read.path(), |max| {
            let length = buffer.len().min(max);
            self.inner.read_at(&read.inner, &mut buffer[..length], offset)
        })?;
        self.moved(Method::ReadAt, got as u64);
        self.saw(&buffer[..got]);
        Ok(got)
    }

    fn write_at(&self, written: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.file(written)?;
        let put = self.call(Method::WriteAt, written.path(), |max| {
            self.inner.write_at(&written.inner, &bytes[..bytes.len().min(max)], offset)
        })?;
        self.moved(Method::WriteAt, put as u64);
        self.saw(put);
        Ok(put)
    }

    fn copy_range(
        &self,
        from: &File,
        from_offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> io::Result<u64> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        let copied = self.call(Method::CopyRange, format!("{} -> {}", from.path(), to.path()), |max| {
            let length = length.min(max as u64);
            self.inner.copy_range(&from.inner, from_offset, &to.inner, to_offset, length)
        })?;
        self.moved(Method::CopyRange, copied);
        self.saw(copied);
        Ok(copied)
    }

    fn map(&self, mapped: &File, length: u64) -> io::Result<Mapping> {
        let mapped = self.file(mapped)?;
        let mapping = self.call(Method::Map, mapped.path(), |_| self.inner.map(&mapped.inner, length))?;
        self.moved(Method::Map, mapping.len() as u64);
        self.saw(mapping.len());
        Ok(mapping)
    }

    fn populate(&self, mapping: &Mapping, range: Range<u64>) -> io::Result<()> {
        let on = format!("bytes {}..{}", range.start, range.end);
        self.call(Method::Populate, on, |_| self.inner.populate(mapping, range))
    }

    fn sync_file(&self, synced: &File) -> io::Result<()> {
        let synced = self.file(synced)?;
        self.call(Method::SyncFile, synced.path(), |max| match max {
            0 => Ok(()),
            _ => self.inner.sync_file(&synced.inner),
        })
    }

    fn link(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = self.both(from, to)?;
        let make = |_| self.inner.link(&from.inner, from_name, &to.inner, to_name);
        self.call(Method::Link, from.pair(from_name, to, to_name), make)
    }

    fn rename(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = self.both(from, to)?;
        let make = |_| self.inner.rename(&from.inner, from_name, &to.inner, to_name);
        self.call(Method::Rename, from.pair(from_name, to, to_name), make)
    }

    fn rename_noreplace(&self, from: &Dir, from_name: &str, to: &Dir, to_name: &str) -> io::Result<()> {
        let (from, to) = self.both(from, to)?;
        let make = |_| self.inner.rename_noreplace(&from.inner, from_name, &to.inner, to_name);
        self.call(Method::RenameNoreplace, from.pair(from_name, to, to_name), make)
    }

    fn list(&self, listed: &Dir) -> io::Result<Names> {
        let listed = self.dir(listed)?;
        let names = self.call(Method::List, listed.path(), |_| self.inner.list(&listed.inner))?;
        names.iter().for_each(|name| self.saw(name));
        self.moved(Method::List, names.iter().map(|name| name.len() as u64).sum());
        self.saw(dir_digest(&listed.inner));
        Ok(names)
    }

    fn make_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let parent = self.dir(parent)?;
        self.call(Method::MakeDir, parent.child(name), |_| self.inner.make_dir(&parent.inner, name))
    }

    fn remove_dir(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let parent = self.dir(parent)?;
        self.call(Method::RemoveDir, parent.child(name), |_| self.inner.remove_dir(&parent.inner, name))
    }

    fn sync_dir(&self, synced: &Dir) -> io::Result<()> {
        let synced = self.dir(synced)?;
        self.call(Method::SyncDir, synced.path(), |max| match max {
            0 => Ok(()),
            _ => self.inner.sync_dir(&synced.inner),
        })
    }

    fn remove(&self, parent: &Dir, name: &str) -> io::Result<()> {
        let parent = self.dir(parent)?;
        self.call(Method::Remove, parent.child(name), |_| self.inner.remove(&parent.inner, name))
    }

    fn space(&self, of: &Dir) -> io::Result<Space> {
        let of = self.dir(of)?;
        let space = self.call(Method::Space, of.path(), |_| self.inner.space(&of.inner))?;
        self.saw((space.bytes_free, space.inodes_free));
        Ok(space)
    }

    fn mount(&self, of: &Dir) -> io::Result<Mount> {
        let of = self.dir(of)?;
        self.call(Method::Mount, of.path(), |_| self.inner.mount(&of.inner))
    }

    fn map_word(&self, mapped: &File) -> io::Result<Arc<dyn Word>> {
        let mapped = self.file(mapped)?;
        let word = self.call(Method::MapWord, mapped.path(), |_| self.inner.map_word(&mapped.inner))?;
        Ok(match &self.judge {
            Some(judge) => Arc::new(Watched { word, judge: Arc::clone(judge) }),
            None => word,
        })
    }

    fn wait(&self, word: &dyn Word, seen: u32, timeout: Duration) -> io::Result<()> {
        self.call(Method::Wait, format!("for a change of {seen}"), |_| self.inner.wait(word, seen, timeout))
    }

    fn wake(&self, word: &dyn Word) -> io::Result<()> {
        self.call(Method::Wake, "the word".to_owned(), |_| self.inner.wake(word))
    }
}
