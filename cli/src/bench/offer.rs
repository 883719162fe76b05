//! One producer of `bench commit`, a process of its own: offers batches, and tells what became of them.
//!
//! - It says `ready` once its name is open, begins at a line on stdin, and prints one JSON line. Without the
//!   one who started it, it ends.
//! - No publish waits for a commit: a second thread waits on the tickets in order and takes the time.
//! - What is due comes at exponential gaps from a seed, so every policy is offered the same.
//! - Counted is a window of time after a warm-up; what is offered and still waits at its end counts with its
//!   age, since delays of the winners alone flatter a policy that starves the others.

use std::io::{BufRead, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use batchweave::commit::dac::Dac;
use batchweave::commit::pacing::{Attempt, Observed, Pacing, Verdict};
use batchweave::commit::rivals::{Backoff, Fixed, Greedy};
use batchweave::env::{Env, System};
use batchweave::storage::{Posix, Storage};
use batchweave::{Counts, Producer, Settings, Store, Ticket};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Result;
use super::serialized::Serialized;

const BATCH_BYTES: usize = 4096;
const FIXED_INTERVAL: Duration = Duration::from_secs(1);
const BACKOFF_BASE: Duration = Duration::from_millis(10);
/// How long what waits at the end may still be committed.
const FLUSH_BOUND: Duration = Duration::from_secs(5);
/// Each batch that waits holds a descriptor.
const QUEUE_PARTS_MAX: usize = 512;

/// A policy of when to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Policy {
    /// The engine's own.
    Dac,
    /// At once, and again at once.
    Greedy,
    /// An attempt a second.
    Fixed,
    /// A random wait that doubles with each loss.
    Backoff,
}

impl Policy {
    pub(super) const ALL: [Self; 4] = [Self::Dac, Self::Greedy, Self::Fixed, Self::Backoff];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Dac => "dac",
            Self::Greedy => "greedy",
            Self::Fixed => "fixed",
            Self::Backoff => "backoff",
        }
    }

    fn make(self) -> Box<dyn Pacing> {
        match self {
            Self::Dac => Box::new(Dac::default()),
            Self::Greedy => Box::new(Greedy),
            Self::Fixed => Box::new(Fixed::new(FIXED_INTERVAL)),
            Self::Backoff => Box::new(Backoff::new(BACKOFF_BASE)),
        }
    }
}

/// How much is offered, and for how long.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Load {
    /// Batches a second that each producer offers, at exponential gaps
    #[arg(long, value_name = "BATCHES", default_value_t = 2.0, value_parser = rate_in_range)]
    pub(super) rate: f64,
    /// Seconds that are counted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(super) seconds: u32,
    /// Seconds of the same load before them [default: as many]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(super) warm_up: Option<u32>,
    /// Let each attempt hold the whole store for so many milliseconds, won or lost
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) serialized: Option<u32>,
}

fn rate_in_range(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.01..=1000.0).contains(&rate) { Ok(rate) } else { Err("has to be 0.01..=1000".to_owned()) }
}

impl Load {
    pub(super) fn warm_up(&self) -> Duration {
        Duration::from_secs(self.warm_up.unwrap_or(self.seconds).into())
    }

    pub(super) fn end(&self) -> Duration {
        self.warm_up() + Duration::from_secs(self.seconds.into())
    }
}

/// What such a process is told.
#[derive(Debug, Args)]
pub(super) struct Offer {
    root: PathBuf,
    #[arg(long)]
    name: String,
    #[arg(long)]
    policy: Policy,
    #[arg(long)]
    seed: u64,
    #[command(flatten)]
    load: Load,
}

/// What it tells of the seconds that are counted.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Told {
    /// Batches that were due.
    pub(super) offered: u64,
    /// Batches that were committed.
    pub(super) committed: u64,
    pub(super) attempts: u64,
    pub(super) lost: u64,
    pub(super) metadata_calls: u64,
    /// From publish to committed, or to the end of the time for what wasn't committed by then.
    pub(super) delays_us: Vec<u64>,
}

/// Attempts, as the policy hears of them.
#[derive(Debug, Default)]
struct Noted {
    attempts: AtomicU64,
    lost: AtomicU64,
}

/// A policy whose attempts are counted.
#[derive(Debug)]
struct Counted {
    policy: Box<dyn Pacing>,
    noted: Arc<Noted>,
}

impl Pacing for Counted {
    fn decide(&mut self, seen: &Observed) -> Verdict {
        self.policy.decide(seen)
    }

    fn note(&mut self, attempt: &Attempt) {
        self.noted.attempts.fetch_add(1, Ordering::Relaxed);
        self.noted.lost.fetch_add(u64::from(!attempt.won), Ordering::Relaxed);
        self.policy.note(attempt);
    }
}

/// Counters at a moment: attempts, lost ones, metadata calls.
#[derive(Clone, Copy, Debug)]
struct Stand([u64; 3]);

impl Stand {
    fn of(noted: &Noted, store: &Store) -> Self {
        let counts = [&noted.attempts, &noted.lost].map(|count| count.load(Ordering::Relaxed));
        Self([counts[0], counts[1], store.stats().metadata_calls])
    }

    fn since(self, earlier: Self) -> [u64; 3] {
        std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at]))
    }
}

/// Moments of exponential gaps, from a seed.
#[derive(Debug)]
struct Dues {
    random: u64,
    rate: f64,
    next_s: f64,
}

impl Dues {
    fn new(seed: u64, rate: f64) -> Self {
        let mut dues = Self { random: seed, rate, next_s: 0.0 };
        dues.step();
        dues
    }

    fn next(&self) -> Duration {
        Duration::from_secs_f64(self.next_s)
    }

    fn step(&mut self) {
        // splitmix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let unit = ((mixed >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        self.next_s -= unit.ln() / self.rate;
    }
}

/// Runs such a process.
///
/// # Errors
/// The library's; that nobody is there who started it.
pub(super) fn run(offer: &Offer) -> Result<()> {
    let env: Arc<System> = Arc::new(System::new());
    let mut storage: Arc<dyn Storage> = Arc::new(Posix::new());
    if let Some(ms) = offer.load.serialized {
        let lock = offer.root.with_extension("lock");
        storage = Arc::new(Serialized::new(storage, &lock, Duration::from_millis(ms.into()))?);
    }
    let shared: Arc<dyn Env> = env.clone();
    let store = Store::open_on(&offer.root, storage, shared, &Settings::default())?;
    let mut producer = store.producer(&offer.name)?;
    let in_all = offer.load.rate * offer.load.end().as_secs_f64();
    producer.set_queue_parts((2.0 * in_all + 64.0).min(QUEUE_PARTS_MAX as f64) as usize);
    let noted = Arc::new(Noted::default());
    producer.set_pacing(Box::new(Counted { policy: offer.policy.make(), noted: Arc::clone(&noted) }));
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready")?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        return Err("nobody says when to begin".into());
    }
    let (told, all_in) = offer_all(offer, &env, &store, &mut producer, &noted)?;
    writeln!(stdout, "{}", serde_json::to_string(&told)?)?;
    if !all_in {
        // Dropping the producer would wait for what the policy can't carry.
        std::process::exit(0);
    }
    Ok(())
}

/// Offers, counts, and flushes with a bound; also tells whether everything is in.
fn offer_all(
    offer: &Offer,
    env: &Arc<System>,
    store: &Store,
    producer: &mut Producer,
    noted: &Noted,
) -> Result<(Told, bool)> {
    let began = env.now();
    let (from, to) = (began + offer.load.warm_up(), began + offer.load.end());
    let sleep_until = |time: Duration| env.sleep(time.saturating_sub(env.now()));
    let (tickets, times) = start_waiting(env)?;
    let mut dues = Dues::new(offer.seed, offer.load.rate);
    let mut published = Vec::new();
    let (mut due_times, mut before) = (Vec::new(), None);
    loop {
        let due = began + dues.next();
        if due >= from && before.is_none() {
            sleep_until(from);
            before = Some(Stand::of(noted, store));
        }
        if due >= to {
            break;
        }
        dues.step();
        due_times.push(due);
        sleep_until(due);
        // After a wait for room there may be no time left; what is due is offered all the same.
        if env.now() < to {
            published.push(env.now());
            tickets.send(publish(producer)?)?;
        }
    }
    sleep_until(to);
    let after = Stand::of(noted, store);
    drop(tickets);
    let [attempts, lost, metadata_calls] = after.since(before.unwrap_or(after));
    let committed = await_all(env, &times, published.len(), to + FLUSH_BOUND)?;
    let all_in = committed.len() == published.len();
    let told = Told { attempts, lost, metadata_calls, ..tally(from..to, &due_times, &published, &committed) };
    Ok((told, all_in))
}

/// What became of the batches, each list in their order: all were due, some were published, some of these
/// committed.
fn tally(window: Range<Duration>, due: &[Duration], published: &[Duration], committed: &[Duration]) -> Told {
    let offered = due.iter().filter(|due| window.contains(due)).count() as u64;
    let mut told = Told { offered, ..Told::default() };
    for (place, due) in due.iter().enumerate() {
        let at = published.get(place).unwrap_or(due);
        let in_at = committed.get(place).unwrap_or(&Duration::MAX);
        if *in_at < window.start {
            continue;
        }
        told.committed += u64::from(window.contains(in_at));
        told.delays_us.push(in_at.min(&window.end).saturating_sub(*at).as_micros() as u64);
    }
    told
}

fn publish(producer: &mut Producer) -> Result<Ticket> {
    let mut draft = producer.draft()?;
    draft.add_slice(&[7; BATCH_BYTES], Counts { samples: 1, tokens: 1024 })?;
    let state = producer.next_sequence().get().to_le_bytes();
    Ok(producer.publish(draft, state).map_err(batchweave::Error::from)?)
}

type Time = batchweave::Result<Duration>;

/// A thread that waits on tickets in order, and gives the time at which each was in.
fn start_waiting(env: &Arc<System>) -> Result<(Sender<Ticket>, Receiver<Time>)> {
    let (tickets, to_wait_on) = channel::<Ticket>();
    let (times, taken) = channel();
    let clock = Arc::clone(env);
    let wait = move || {
        for ticket in to_wait_on {
            // Whoever doesn't listen any more has ended.
            if times.send(ticket.wait().map(|_| clock.now())).is_err() {
                return;
            }
        }
    };
    env.spawn("await-tickets", Box::new(wait))?;
    Ok((tickets, taken))
}

/// The times of `count` commits in order, of fewer if that is what is in at `until`.
fn await_all(env: &System, times: &Receiver<Time>, count: usize, until: Duration) -> Result<Vec<Duration>> {
    let mut committed = Vec::with_capacity(count);
    while committed.len() < count {
        match times.recv_timeout(until.saturating_sub(env.now())) {
            Ok(time) => committed.push(time?),
            Err(_) => break,
        }
    }
    Ok(committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_at_the_end_counts_with_its_age_and_what_was_before_not_at_all() {
        let seconds = |all: &[u64]| all.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let window = Duration::from_secs(10)..Duration::from_secs(20);
        let due = seconds(&[5, 6, 12, 13, 18, 19]);
        // The second one was due before and is in within; one is in late, one never, one isn't published.
        let told = tally(window, &due, &seconds(&[5, 6, 12, 14, 18]), &seconds(&[9, 11, 15, 21]));
        assert_eq!((told.offered, told.committed), (4, 2));
        assert_eq!(told.delays_us, [5, 3, 6, 2, 1].map(|seconds| seconds * 1_000_000));
    }

    #[test]
    fn what_is_due_is_the_same_by_the_same_seed_and_has_the_rate() {
        let all = |seed| {
            let mut dues = Dues::new(seed, 4.0);
            std::iter::from_fn(move || {
                let next = dues.next();
                dues.step();
                (next < Duration::from_secs(1000)).then_some(next)
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!((3500..4500).contains(&all(3).len()), "{}", all(3).len());
    }
}
