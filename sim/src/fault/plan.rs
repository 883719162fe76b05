//! What goes wrong, and when.
//!
//! - Rules count for themselves: `nth` is the n-th call that this rule's method and name fit, from 1.
//! - Of the rules that fit a call, the first that fails it (or loses its reply) decides; the shortest cut and
//!   the sum of the delays count besides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::trace::Method;

/// Which calls a rule is about; by default all.
///
/// ```
/// use batchweave_sim::{Match, Method};
/// let second_publish = Match::method(Method::Link).named("log/").nth(2);
/// ```
#[derive(Clone)]
pub struct Match {
    method: Option<Method>,
    name: Option<NameTest>,
    turns: Turns,
}

type NameTest = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum Turns {
    All,
    Nth(u64),
    From(u64),
}

impl Match {
    /// Every call.
    pub fn any() -> Self {
        Self { method: None, name: None, turns: Turns::All }
    }

    /// Calls of one method.
    pub fn method(method: Method) -> Self {
        Self { method: Some(method), ..Self::any() }
    }

    /// Only where what the call is about, as the trace words it (`stage/x -> log/0/1`), contains this.
    #[must_use]
    pub fn named(self, part: &str) -> Self {
        let part = part.to_owned();
        self.when(move |name| name.contains(&part))
    }

    /// Only where what the call is about, as the trace words it, satisfies this.
    #[must_use]
    pub fn when(mut self, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.name = Some(Arc::new(test));
        self
    }

    /// Only the n-th of these calls, from 1.
    #[must_use]
    pub fn nth(mut self, n: u64) -> Self {
        self.turns = Turns::Nth(n);
        self
    }

    /// The n-th of these calls, from 1, and all after it.
    #[must_use]
    pub fn from_nth(mut self, n: u64) -> Self {
        self.turns = Turns::From(n);
        self
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.name.is_some();
        f.debug_struct("Match")
            .field("method", &self.method)
            .field("named", &named)
            .field("turns", &self.turns)
            .finish()
    }
}

#[derive(Clone)]
struct Rule {
    calls: Match,
    fitted: u64,
    then: Then,
}

#[derive(Clone)]
enum Then {
    Fail(i32),
    LoseReply(i32),
    Cut(usize),
    Delay(Duration),
    Meanwhile(Act),
}

/// What others do while a call waits.
pub(super) type Act = Arc<dyn Fn() + Send + Sync>;

/// What a [`Fault`](crate::Fault) does to the calls of its process.
///
/// ```
/// use batchweave_sim::{Match, Method, Plan, errno};
/// let plan = Plan::new()
///     .fail(Match::method(Method::SyncFile).nth(1), errno::EIO)
///     .lose_reply(Match::method(Method::Link).nth(2), errno::EEXIST)
///     .cut(Match::method(Method::WriteAt), 100)
///     .stop_at(40);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) stop_at: Option<u64>,
    rules: Vec<Rule>,
}

impl Plan {
    /// Nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process stops at call `k`, from 0: that call and all later ones have no effect and answer
    /// [`Stopped`](crate::Stopped). Every method counts, failed calls too.
    #[must_use]
    pub fn stop_at(mut self, k: u64) -> Self {
        self.stop_at = Some(k);
        self
    }

    /// These calls fail with an errno before they have any effect.
    #[must_use]
    pub fn fail(self, calls: Match, errno: i32) -> Self {
        self.rule(calls, Then::Fail(errno))
    }

    /// These calls have their effect, and then answer with an errno: what `EIO`, `ETIMEDOUT` and `ESTALE` can
    /// mean, and `EEXIST` of a link that NFS sent twice (R2). A call that fails by itself says what it says.
    #[must_use]
    pub fn lose_reply(self, calls: Match, errno: i32) -> Self {
        self.rule(calls, Then::LoseReply(errno))
    }

    /// These reads, writes and copies are short: `bytes` at most. A sync that may move none is left out, and
    /// said to be done.
    #[must_use]
    pub fn cut(self, calls: Match, bytes: usize) -> Self {
        self.rule(calls, Then::Cut(bytes))
    }

    /// These calls take this much longer, by the `sleep` of the fault's `Env`.
    #[must_use]
    pub fn delay(self, calls: Match, delay: Duration) -> Self {
        self.rule(calls, Then::Delay(delay))
    }

    /// The process sleeps before these calls, and `act` happens meanwhile: other processes run, files
    /// vanish, a crash is tried on a fork of the disk. It has to leave this process's own storage alone.
    #[must_use]
    pub fn meanwhile(self, calls: Match, act: impl Fn() + Send + Sync + 'static) -> Self {
        self.rule(calls, Then::Meanwhile(Arc::new(act)))
    }

    fn rule(mut self, calls: Match, then: Then) -> Self {
        self.rules.push(Rule { calls, fitted: 0, then });
        self
    }

    /// What happens to the next call.
    pub(super) fn judge(&mut self, method: Method, name: &str) -> Fate {
        let mut fate = Fate::default();
        for rule in &mut self.rules {
            if !rule.fits(method, name) {
                continue;
            }
            match &rule.then {
                Then::Fail(errno) if fate.failure.is_none() => fate.failure = Some(Failure::Before(*errno)),
                Then::LoseReply(errno) if fate.failure.is_none() => {
                    fate.failure = Some(Failure::After(*errno))
                }
                Then::Fail(_) | Then::LoseReply(_) => {}
                Then::Cut(bytes) => fate.bytes_max = fate.bytes_max.min(*bytes),
                Then::Delay(delay) => fate.delay += *delay,
                Then::Meanwhile(act) => fate.meanwhile.push(Arc::clone(act)),
            }
        }
        fate
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("calls", &self.calls)
            .field("fitted", &self.fitted)
            .finish_non_exhaustive()
    }
}

impl Rule {
    fn fits(&mut self, method: Method, name: &str) -> bool {
        let calls = &self.calls;
        if calls.method.is_some_and(|only| only != method)
            || calls.name.as_ref().is_some_and(|test| !test(name))
        {
            return false;
        }
        self.fitted += 1;
        match calls.turns {
            Turns::All => true,
            Turns::Nth(n) => self.fitted == n,
            Turns::From(n) => self.fitted >= n,
        }
    }
}

/// What happens to one call.
pub struct Fate {
    /// Whether and how it fails; the first that says so decides.
    pub failure: Option<Failure>,
    /// How many bytes it may move.
    pub bytes_max: usize,
    /// How much longer it takes.
    pub delay: Duration,
    /// Whether the process stops right after its effect.
    pub stops: bool,
    pub(super) meanwhile: Vec<Act>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Before it has any effect.
    Before(i32),
    /// After its effect: its reply is lost.
    After(i32),
}

impl Fate {
    /// It fails.
    pub fn fails(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// It moves so many bytes at most; a sync that may move none is left out, and said to be done.
    pub fn is_cut(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// It takes so much longer.
    pub fn takes(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Its process stops right after its effect.
    pub fn stops() -> Self {
        Self { stops: true, ..Self::default() }
    }

    /// Both: the shorter cut, the sum of the delays, the failure of the first that has one.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.failure = self.failure.or(other.failure);
        self.bytes_max = self.bytes_max.min(other.bytes_max);
        self.delay += other.delay;
        self.stops |= other.stops;
        self.meanwhile.extend(other.meanwhile);
        self
    }
}

impl Default for Fate {
    fn default() -> Self {
        Self {
            failure: None,
            bytes_max: usize::MAX,
            delay: Duration::ZERO,
            stops: false,
            meanwhile: Vec::new(),
        }
    }
}

impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fate").field("failure", &self.failure).field("bytes_max", &self.bytes_max).finish()
    }
}
