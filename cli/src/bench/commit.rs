//! Many producers on one store: the adaptive commit beside what somebody would write first.
//!
//! - Producers are processes, as on a cluster: this program again, see [`offer`](super::offer). Their names
//!   are opened one after another, then all begin at once.
//! - Every policy and number of producers gets a fresh store in a directory of its own, which is removed at
//!   the end, also after an error; so are the processes.
//! - A producer that dies is an error that names it: figures without it would be of fewer producers.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use batchweave::{Options, Store};
use serde::Serialize;

use super::offer::{Load, Policy, Told};
use super::rounds::{Progress, quantile};
use super::{Result, check_room};
use crate::interrupt;

/// A small store each, one at a time.
const BYTES_NEEDED: u64 = 256 << 20;

/// How many producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Producers(usize);

impl std::str::FromStr for Producers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.parse().map_err(|_| "not a number".to_owned())?;
        if (1..=1024).contains(&count) { Ok(Self(count)) } else { Err("has to be 1..=1024".to_owned()) }
    }
}

impl fmt::Display for Producers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One policy at one number of producers.
#[derive(Debug, Serialize)]
struct Row {
    policy: Policy,
    producers: usize,
    /// Batches a second, of all together.
    offered: f64,
    committed: f64,
    /// Lost attempts / attempts.
    conflict_ratio: f64,
    attempts_per_commit: f64,
    /// Jain's index of what each has committed of what it offered, so that the luck of arrivals is out of it.
    jain: f64,
    delay_p50_ms: f64,
    delay_p99_ms: f64,
    metadata_calls_per_batch: f64,
}

/// All of them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Rows {
    rows: Vec<Row>,
}

impl Rows {
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let text = if json { serde_json::to_string(self)? } else { self.to_string() };
        Ok(writeln!(std::io::stdout(), "{text}")?)
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:7} {:>9} {:>9} {:>11} {:>9} {:>8} {:>5} {:>9} {:>9} {:>10}",
            "policy",
            "producers",
            "offered/s",
            "committed/s",
            "conflicts",
            "attempts",
            "jain",
            "p50 ms",
            "p99 ms",
            "meta/batch"
        )?;
        for row in &self.rows {
            write!(
                f,
                "\n{:7} {:>9} {:>9.1} {:>11.1} {:>8.0}% {:>8.2} {:>5.2} {:>9.1} {:>9.1} {:>10.1}",
                row.policy.word(),
                row.producers,
                row.offered,
                row.committed,
                100.0 * row.conflict_ratio,
                row.attempts_per_commit,
                row.jain,
                row.delay_p50_ms,
                row.delay_p99_ms,
                row.metadata_calls_per_batch
            )?;
        }
        Ok(())
    }
}

/// A producer's process that ended before it had told anything.
#[derive(Debug)]
struct Died {
    producer: String,
    policy: Policy,
    producers: usize,
    status: ExitStatus,
    /// The last line of what it said.
    words: String,
}

impl fmt::Display for Died {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producer, policy, producers, status, words } = self;
        write!(f, "producer {producer} of {producers} by {} ended early, with {status}", policy.word())?;
        if words.is_empty() { Ok(()) } else { write!(f, ": {words}") }
    }
}

impl std::error::Error for Died {}

/// Runs every policy at every number of producers.
///
/// # Errors
/// The library's; a producer that died; no room.
pub(super) fn measure(dir: &Path, producers: &[Producers], load: &Load) -> Result<Rows> {
    check_room(dir, BYTES_NEEDED)?;
    let progress = Progress::new();
    let mut rows = Rows::default();
    for Producers(count) in producers {
        for policy in Policy::ALL {
            progress.say(&format!("{} by {count} producers", policy.word()));
            rows.rows.push(one(dir, *count, policy, load)?);
        }
    }
    Ok(rows)
}

fn one(dir: &Path, producers: usize, policy: Policy, load: &Load) -> Result<Row> {
    let made = interrupt::directory("batchweave-bench-", dir);
    let directory = made.map_err(|error| format!("can't make a directory in {}: {error}", dir.display()))?;
    let root = directory.path().join("store");
    drop(Store::create(&root, Options::new())?);
    // One after another: Opens that race are no part of the question.
    let mut peers = Vec::with_capacity(producers);
    for number in 0..producers {
        let mut peer = Peer::start(&root, (number, producers), policy, load)?;
        peer.line()?;
        peers.push(peer);
    }
    for peer in &mut peers {
        peer.begin()?;
    }
    let mut told = Vec::with_capacity(producers);
    for peer in &mut peers {
        told.push(serde_json::from_str(&peer.line()?)?);
    }
    for peer in &mut peers {
        peer.child.wait()?;
    }
    drop(peers);
    directory.close().map_err(|error| format!("can't remove what was measured: {error}"))?;
    Ok(row(policy, &told, load.seconds.into()))
}

fn row(policy: Policy, told: &[Told], seconds: f64) -> Row {
    let sum = |figure: fn(&Told) -> u64| told.iter().map(figure).sum::<u64>() as f64;
    // None of none is none.
    let per = |what: f64, of: f64| if of > 0.0 { what / of } else { 0.0 };
    let (offered, committed) = (sum(|told| told.offered), sum(|told| told.committed));
    let (attempts, lost) = (sum(|told| told.attempts), sum(|told| told.lost));
    let shares = told.iter().filter(|told| told.offered > 0);
    let shares: Vec<f64> = shares.map(|told| told.committed as f64 / told.offered as f64).collect();
    let delays = told.iter().flat_map(|told| &told.delays_us);
    let mut delays: Vec<f64> = delays.map(|us| *us as f64 / 1e3).collect();
    Row {
        policy,
        producers: told.len(),
        offered: offered / seconds,
        committed: committed / seconds,
        conflict_ratio: per(lost, attempts),
        attempts_per_commit: per(attempts, attempts - lost),
        jain: jain(&shares),
        delay_p50_ms: quantile(&mut delays, 0.5),
        delay_p99_ms: quantile(&mut delays, 0.99),
        metadata_calls_per_batch: per(sum(|told| told.metadata_calls), committed),
    }
}

/// Jain's index of fairness: 1 when all have the same, 1 / n when one has everything; 0 when nobody has any.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 0.0 }
}

/// A producer's process.
#[derive(Debug)]
struct Peer {
    child: Child,
    said: BufReader<ChildStdout>,
    name: String,
    policy: Policy,
    producers: usize,
}

impl Peer {
    fn start(root: &Path, (number, producers): (usize, usize), policy: Policy, load: &Load) -> Result<Self> {
        let name = format!("producer-{number:04}");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["-q", "bench", "offer"]).arg(root).args(["--name", &name, "--policy", policy.word()]);
        let (rate, seconds) = (load.rate.to_string(), load.seconds.to_string());
        let warm_up = load.warm_up().as_secs().to_string();
        command.args(["--seed", &number.to_string(), "--rate", &rate]);
        command.args(["--seconds", &seconds, "--warm-up", &warm_up]);
        if let Some(ms) = load.serialized {
            command.args(["--serialized", &ms.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.env_remove("BATCHWEAVE_LOG").spawn()?;
        let said = BufReader::new(child.stdout.take().ok_or("a process without an output")?);
        Ok(Self { child, said, name, policy, producers })
    }

    fn begin(&mut self) -> Result<()> {
        let written = self.child.stdin.as_mut().map(|stdin| stdin.write_all(b"begin\n"));
        if let Some(Err(_)) = written { Err(self.died()?.into()) } else { Ok(()) }
    }

    /// The next line that it says.
    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.said.read_line(&mut line)? == 0 {
            return Err(self.died()?.into());
        }
        Ok(line)
    }

    fn died(&mut self) -> Result<Died> {
        let mut words = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut words)?;
        }
        let words = words.lines().last().unwrap_or_default().to_owned();
        let status = self.child.wait()?;
        Ok(Died {
            producer: self.name.clone(),
            policy: self.policy,
            producers: self.producers,
            status,
            words,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // One that has ended can't be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_tells_equals_from_one_who_has_everything() {
        assert_eq!(jain(&[0.5; 8]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!((jain(&[0.0; 3]), jain(&[])), (0.0, 0.0));
    }

    #[test]
    fn a_row_is_of_all_producers_together() {
        let told = |committed, lost, delays_us: &[u64]| Told {
            offered: 10,
            committed,
            attempts: 6,
            lost,
            metadata_calls: 60,
            delays_us: delays_us.to_vec(),
        };
        let row = row(Policy::Dac, &[told(10, 1, &[1000, 3000]), told(5, 3, &[2000])], 5.0);
        assert_eq!((row.producers, row.offered, row.committed), (2, 4.0, 3.0));
        assert_eq!((row.conflict_ratio, row.attempts_per_commit), (4.0 / 12.0, 12.0 / 8.0));
        assert_eq!((row.jain, row.metadata_calls_per_batch), (0.9, 8.0));
        assert_eq!((row.delay_p50_ms, row.delay_p99_ms), (2.0, 3.0));
    }
}
