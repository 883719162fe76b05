//! From the publish call in one process to the bytes mapped and touched in another.
//!
//! - The other process is this program again, once for each side; it answers with the time at which it had
//!   touched every page, by the machine's one monotonic clock.
//! - Between two pings both sides fall asleep, as a trainer that is faster than its producers does.
//! - A child that is left alone ends by itself; one that is left over is killed.

use std::hint::black_box;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use batchweave::env::{Env, System};
use batchweave::{ConsumerOptions, Durability, Options, Share, Start, Step, Store};

use super::raw::{RawLog, Words, now_ns};
use super::rounds::{About, Better, Figure, compare, quantile};
use super::writes::publish;
use super::{Bench, Result};

const PINGS: u64 = 64;
const SLICE_BYTES: usize = 4096;
const PAGE_BYTES: usize = 4096;
/// Longer than any ping takes: whoever waits this long is alone.
const PATIENCE: Duration = Duration::from_secs(20);
/// Long enough for the other process to fall asleep again.
const PAUSE: Duration = Duration::from_micros(300);
const STOP: u32 = u32::MAX;

/// Which side a child process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Role {
    /// The engine's consumer.
    Engine,
    /// The raw calls.
    Raw,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Raw => "raw",
        }
    }
}

/// The delay until others see a step.
pub(super) fn visible(bench: &Bench) -> Result<Figure> {
    let about = About {
        name: "visible_ratio",
        unit: "us",
        better: Better::Lower,
        target: 1.5,
        per_round: PINGS,
        engine_does: "publish a part of one slice of 4 KiB to an unsynced store; a consumer at the \
        defaults, asleep in \
                      next_batch in another process, gets it, verified, and touches every page",
        raw_does: "create, one pwrite of as many bytes, close, link, unlink, a word in shared memory, futex \
        wake; another process, \
                   asleep on that word, does open, fstat, mmap and touches every page",
    };
    let directory = bench.path("visible");
    std::fs::create_dir(&directory)?;
    let store = Store::create(directory.join("engine"), Options::new().durability(Durability::Unsynced))?;
    let mut producer = store.producer("bench")?;
    let slice = &bench.bytes[..SLICE_BYTES];
    publish(&mut producer, &[slice])?;
    let length = std::fs::metadata(store.batch(Step::ZERO)?.location(0)?.path)?.len();
    let file = &bench.bytes[..usize::try_from(length)?];
    let mut log = RawLog::create(&directory.join("raw"))?;
    let mut engine = Peer::start(&directory, Role::Engine)?;
    let mut raw = Peer::start(&directory, Role::Raw)?;
    let figure = compare(
        &bench.progress,
        bench.rounds,
        about,
        || engine.pings(|_| publish(&mut producer, &[slice])),
        || {
            raw.pings(|words| {
                let number = log.commit(file, false)?;
                Ok(words.ping(u32::try_from(number)? + 1)?)
            })
        },
    )?;
    store.close(false)?;
    engine.end()?;
    raw.words.ping(STOP)?;
    raw.end()?;
    Ok(figure)
}

/// A child process that answers.
struct Peer {
    child: Child,
    words: Words,
    answered: u32,
    env: System,
}

impl Peer {
    fn start(directory: &Path, role: Role) -> Result<Self> {
        let words = Words::create(&directory.join(role.word()).with_extension("words"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "basics"]).arg(directory).args(["--child", role.word()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut peer = Self { child, words, answered: 0, env: System::new() };
        peer.await_answer()?;
        Ok(peer)
    }

    fn await_answer(&mut self) -> Result<u64> {
        let Some((number, at_ns)) = self.words.await_pong(self.answered, PATIENCE)? else {
            return Err("the other process of the ping doesn't answer".into());
        };
        self.answered = number;
        Ok(at_ns)
    }

    /// The median delay of a round in us.
    fn pings(&mut self, send: impl FnMut(&Words) -> Result<()>) -> Result<f64> {
        let mut send = send;
        let mut delays = Vec::new();
        for _ in 0..PINGS {
            self.env.sleep(PAUSE);
            let began = now_ns();
            send(&self.words)?;
            let seen = self.await_answer()?;
            delays.push(seen.saturating_sub(began) as f64 / 1e3);
        }
        Ok(quantile(&mut delays, 0.5))
    }

    fn end(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the other process ended with {status}").into()) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // One that has ended can't be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child process does.
pub(super) fn answer(directory: &Path, role: Role) -> Result<()> {
    let words = Words::open(&directory.join(role.word()).with_extension("words"))?;
    match role {
        Role::Engine => answer_engine(directory, &words),
        Role::Raw => answer_raw(directory, &words),
    }
}

fn answer_engine(directory: &Path, words: &Words) -> Result<()> {
    // The first only told the length of its file.
    let run = Store::open(directory.join("engine"))?.run(Start::Step(Step::new(1)))?;
    let mut consumer = run.consumer_with(Share::WHOLE, ConsumerOptions::new().timeout(PATIENCE))?;
    let mut answers = 1;
    words.pong(answers, now_ns())?;
    while let Some(batch) = consumer.next_batch()? {
        for slice in batch.slices() {
            touch(&slice?);
        }
        answers += 1;
        words.pong(answers, now_ns())?;
    }
    Ok(())
}

fn answer_raw(directory: &Path, words: &Words) -> Result<()> {
    let log = RawLog::open(&directory.join("raw"))?;
    let mut last = 0;
    words.pong(1, now_ns())?;
    while let Some(said) = words.await_ping(last, PATIENCE)? {
        if said == STOP {
            return Ok(());
        }
        let map = log.map(u64::from(said) - 1)?;
        touch(&map);
        last = said;
        // Unmapping isn't seeing, and the engine does it once it has answered, too.
        words.pong(said + 1, now_ns())?;
        drop(map);
    }
    Err("nobody pings any more".into())
}

fn touch(bytes: &[u8]) {
    for page in bytes.chunks(PAGE_BYTES) {
        black_box(page[0]);
    }
}
