//! Outlasting a mount that is away for a while: what reads is read again, all afresh, until it is there or
//! patience is over.
//!
//! - Only whole operations that change nothing on disk are repeated. What a link has done is another rule's
//!   (R2), and what is damaged, missing, reclaimed or rewound doesn't come back by asking.
//! - Between two attempts nothing is held: neither the tail, for which other threads wait, nor a handle that
//!   may have outlived what it stands for.
//! - Before the log is trusted again, the newest replayed commit is compared with the disk (R10).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Log;
use crate::env::{Env, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{IO_PATIENCE_REMOTE, IO_PATIENCE_WORD, IO_RETRY_PAUSE_MAX, LOOK_AGAIN_PAUSE};
use crate::log::tail::{Care, Tail};
use crate::options::MountClass;

/// One attempt, whatever happens: for who looks again by itself.
pub const AT_ONCE: Duration = Duration::ZERO;

/// Whether an error is one that a mount gives while its servers or the way to them are away, and that may
/// pass.
pub fn may_pass(error: &Error) -> bool {
    const EIO: i32 = 5;
    const ENOTCONN: i32 = 107;
    const ESHUTDOWN: i32 = 108;
    const ETIMEDOUT: i32 = 110;
    const ESTALE: i32 = 116;
    const EREMOTEIO: i32 = 121;
    let passing = matches!(error.errno(), Some(EIO | ENOTCONN | ESHUTDOWN | ETIMEDOUT | ESTALE | EREMOTEIO));
    passing && error.kind() == ErrorKind::Io
}

/// What to say of an error that a look was to explain, when that look has failed too: as long as nobody could
/// look, nothing is called damaged or missing, whatever has kept him from it.
pub fn unexplained(error: Error, look: Error) -> Error {
    let is_open = error.kind() == ErrorKind::Corrupt || error.kind() == ErrorKind::Io;
    if look.kind() == ErrorKind::Io && is_open && !may_pass(&error) { look } else { error }
}

/// How long a mount of this class is waited for, unless told. A local disk that says EIO means it.
pub fn default_of(class: MountClass) -> Duration {
    if class.is_remote() { IO_PATIENCE_REMOTE } else { Duration::ZERO }
}

/// One operation that a mount keeps from being done.
#[derive(Debug)]
pub struct Outage<'e> {
    env: &'e dyn Env,
    doing: &'static str,
    began: Option<Duration>,
    pause: Duration,
    next_word: Duration,
}

impl<'e> Outage<'e> {
    /// None yet.
    pub fn new(env: &'e dyn Env, doing: &'static str) -> Self {
        Self { env, doing, began: None, pause: LOOK_AGAIN_PAUSE, next_word: Duration::ZERO }
    }

    /// After a failed attempt: pauses, if the error may pass and `until` isn't over.
    ///
    /// # Errors
    /// This one.
    pub fn outlast(&mut self, error: Error, until: Duration) -> Result<()> {
        let now = self.env.now();
        let left = until.saturating_sub(now);
        if left.is_zero() || !may_pass(&error) {
            return Err(error);
        }
        let lasted = now.saturating_sub(*self.began.get_or_insert(now));
        if lasted >= self.next_word {
            self.next_word = lasted.saturating_mul(2).max(IO_PATIENCE_WORD);
            let (doing, lasted_s, left_s) = (self.doing, lasted.as_secs(), left.as_secs());
            tracing::warn!(%error, doing, lasted_s, left_s, "the mount fails for now, so it is tried again");
        }
        self.env.sleep(self.pause.min(left));
        self.pause = self.pause.saturating_mul(2).min(IO_RETRY_PAUSE_MAX);
        Ok(())
    }

    /// The operation is done.
    pub fn over(&self) {
        if let Some(began) = self.began {
            let lasted_ms = self.env.now().saturating_sub(began).as_millis();
            tracing::info!(doing = self.doing, lasted_ms, "the mount is back");
        }
    }
}

impl Log {
    /// When patience with an operation that begins now is over.
    pub fn patient_until(&self) -> Duration {
        self.env.now().saturating_add(self.io_patience)
    }

    /// Repeats an operation over errors that may pass, at most `until` then. `attempt` is told whether it
    /// is another one; it takes whatever it needs anew, the tail too, which its caller must not hold.
    ///
    /// # Errors
    /// Those of `attempt`, once they can't be outlasted.
    pub fn outlast<T>(
        &self,
        doing: &'static str,
        until: Duration,
        mut attempt: impl FnMut(bool) -> Result<T>,
    ) -> Result<T> {
        self.check_forked()?;
        let mut outage = Outage::new(&*self.env, doing);
        let mut again = false;
        loop {
            self.look_after_held();
            match attempt(again) {
                Ok(done) => {
                    outage.over();
                    return Ok(done);
                }
                Err(error) => {
                    self.mistrust(&error);
                    outage.outlast(error, until)?;
                }
            }
            again = true;
        }
    }

    /// The tail, as far as the log goes now.
    ///
    /// # Errors
    /// As [`Tail::advance`].
    pub fn current(&self) -> Result<Taken<'_, Tail>> {
        self.outlast("reading the log's end", self.patient_until(), |_| self.current_at_once())
    }

    /// As [`Log::current`], without any patience: for tools, which report what they see.
    ///
    /// # Errors
    /// As [`Tail::advance`].
    pub fn current_at_once(&self) -> Result<Taken<'_, Tail>> {
        self.check_forked()?;
        let mut tail = self.tail.take();
        tail.refresh(self);
        tail.advance(self, Care::Answering)?;
        Ok(tail)
    }

    /// Does what isn't repeated, since it writes: after an error that may pass, whatever comes next trusts
    /// nothing that this handle holds. Its caller must not hold the tail.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn once<T>(&self, write: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check_forked()?;
        self.look_after_held();
        let ended = write();
        if let Err(error) = &ended {
            self.mistrust(error);
        }
        ended
    }

    /// After an error that may pass: what is open may have outlived what it stands for, and what was
    /// replayed may no longer be what is on disk (R10).
    pub fn mistrust(&self, error: &Error) {
        if !may_pass(error) {
            return;
        }
        // Nobody is in the middle of an attempt then: one that began on one mount mustn't end on another.
        let mut tail = self.tail.take();
        tail.suspect(error);
        tail.forget_handles();
        *self.segment_dir.lock() = None;
        self.indexes.clear();
        self.held_is_old.store(true, Ordering::Release);
    }
}
