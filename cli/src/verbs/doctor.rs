//! `doctor`: whether a store may live on a mount, what that costs, and what another node sees of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use batchweave::{Costs, Diagnosis, Mount, Options, PeerReport, Peers, Weight, doctor, doctor_with_peers};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;

use crate::failure::{Answer, Failure};
use crate::interrupt;
use crate::output::{Format, Output, one_line, path_text};

/// Processes that race for the same names.
const RACERS: u32 = 8;
const RACE_TIMEOUT: Duration = Duration::from_secs(30);

/// Try out whether a store may live in a directory
///
/// Tries every way to publish, has eight processes race for the same names, measures what a commit costs, and
/// says what the mount's options mean; all in private directories inside that are removed again. Exits with 0
/// when a store may live there, with 1 when not.
///
/// What only shows between nodes shows with --peer: start the same command on two nodes at about the same
/// time.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  batchweave doctor /lustre/run7
  srun -N2 --ntasks-per-node=1 batchweave doctor --peer /lustre/run7")]
pub(crate) struct Doctor {
    /// The directory, or the one in which the store is to be made
    directory: PathBuf,
    /// Accept a FUSE filesystem that isn't known to keep creation exclusive, or sshfs (with -o dir_cache=no)
    #[arg(long)]
    allow_unknown_fuse: bool,
    /// Race against, and watch, the same command on another node
    #[arg(long)]
    peer: bool,
    /// With --peer: on so many nodes in all
    #[arg(long, value_name = "N", default_value_t = 2, requires = "peer")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=i64::from(Peers::MOST)))]
    peers: u32,
    /// With --peer: seconds to wait for the others
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "peer")]
    timeout: u64,
    /// The directory to meet in
    #[arg(long, hide = true, requires = "peer")]
    room: Option<String>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Alone {
    fit: bool,
    #[serde(flatten)]
    diagnosis: Diagnosis,
    /// None where no store may live anyway.
    race: Option<PeerReport>,
}

impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = &self.diagnosis.report;
        writeln!(f, "directory  {}", one_line(&path_text(&report.path)))?;
        writeln!(f, "mount      {}", one_line(&mount(&report.mount)))?;
        for advice in &self.diagnosis.advice {
            let weight = if advice.weight == Weight::Warning { "warning: " } else { "" };
            writeln!(f, "option     {weight}{}: {}", one_line(&advice.option), advice.meaning)?;
        }
        writeln!(f, "class      {}", report.class)?;
        for attempt in &report.attempts {
            let mark =
                if report.chosen == Some(attempt.primitive) { "  <- a store publishes by this" } else { "" };
            writeln!(f, "publish    {attempt}{mark}")?;
        }
        writeln!(f, "listing    {}", report.listing)?;
        if let Some(race) = &self.race {
            races(f, race, "processes")?;
        }
        if let Some(costs) = &self.diagnosis.costs {
            writeln!(f, "costs      {}", costs_in_words(costs))?;
        }
        let refusal = report.refusal.as_ref().or(self.race.as_ref().and_then(|race| race.refusal.as_ref()));
        verdict(f, refusal)
    }
}

#[derive(Debug, Serialize)]
struct InCompany {
    fit: bool,
    #[serde(flatten)]
    report: PeerReport,
}

impl fmt::Display for InCompany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fresh = &self.report.freshness;
        races(f, &self.report, "peers")?;
        let delay = |delay: Option<u64>| match delay {
            Some(0) => "at once".to_owned(),
            Some(milliseconds) => format!("within {milliseconds} ms"),
            None => "not within 3 s".to_owned(),
        };
        writeln!(f, "new names  shown by a listing, the directory opened anew: {}", delay(fresh.listing_ms))?;
        writeln!(f, "           found by opening, the directory opened anew: {}", delay(fresh.open_ms))?;
        writeln!(
            f,
            "           found in a directory held open, which a store never trusts: {}",
            delay(fresh.held_ms)
        )?;
        verdict(f, self.report.refusal.as_ref())
    }
}

fn races(f: &mut fmt::Formatter<'_>, report: &PeerReport, whom: &str) -> fmt::Result {
    for race in &report.races {
        let what = match (race.failed, race.broken) {
            (0, 0) => "exactly one has won each".to_owned(),
            (0, broken) => format!("not exactly one has won {broken} of them"),
            _ => "it doesn't work here".to_owned(),
        };
        let denied = match race.denied {
            0 => String::new(),
            denied => format!("; {denied} winners were told that they had lost, which replay settles"),
        };
        let (peers, rounds) = (report.peers, race.rounds);
        writeln!(f, "race       {} by {peers} {whom} for {rounds} names: {what}{denied}", race.primitive)?;
    }
    Ok(())
}

fn verdict(f: &mut fmt::Formatter<'_>, refusal: Option<&String>) -> fmt::Result {
    match refusal {
        None => write!(f, "verdict    a store may live here"),
        Some(refusal) => write!(f, "verdict    no store may live here: {}", one_line(refusal)),
    }
}

fn costs_in_words(costs: &Costs) -> String {
    let Costs { commit_us, write_us, sync_us, publish_us, sync_dir_us, look_us, .. } = costs;
    format!(
        "a durable commit of 4 KiB takes {}: written {}, synced {}, given its name {}, the name synced {}, \
         the marks looked at {}",
        time(*commit_us),
        time(*write_us),
        time(*sync_us),
        time(*publish_us),
        time(*sync_dir_us),
        time(*look_us)
    )
}

fn time(microseconds: u64) -> String {
    match microseconds {
        ..1_000 => format!("{microseconds} us"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        _ => format!("{:.1} s", microseconds as f64 / 1e6),
    }
}

fn mount(mount: &Mount) -> String {
    let kind = match mount.kind.as_str() {
        "" => format!("a filesystem of magic {:#x}", mount.magic),
        kind => kind.to_owned(),
    };
    let point = mount.point.display().to_string();
    let point = if point.is_empty() { "an unknown place".to_owned() } else { point };
    format!("{kind} at {point} ({})", mount.options)
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        if self.peer { self.in_company() } else { self.alone() }
    }

    fn alone(&self) -> Result<Answer, Failure> {
        watch()?;
        let options = Options::new().allow_unknown_fuse(self.allow_unknown_fuse);
        let diagnosis = doctor(&self.directory, &options)?;
        let race = if diagnosis.is_fit() { Some(race(&self.directory)?) } else { None };
        let fit = diagnosis.is_fit() && race.as_ref().is_none_or(|race| race.refusal.is_none());
        answer(fit, &Alone { fit, diagnosis, race }, self.format)
    }

    fn in_company(&self) -> Result<Answer, Failure> {
        watch()?;
        let mut peers = Peers::new(self.peers).timeout(Duration::from_secs(self.timeout));
        peers = peers.stop(interrupt::stop());
        if let Some(room) = &self.room {
            // One who races for another process, which has made the room, ends with that.
            set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| no_race(error.into()))?;
            if !self.directory.join(room).is_dir() {
                return Err(no_race(std::io::ErrorKind::NotFound.into()));
            }
            peers = peers.room(room);
        }
        let report = doctor_with_peers(&self.directory, &peers)?;
        let fit = report.refusal.is_none();
        answer(fit, &InCompany { fit, report }, self.format)
    }
}

fn watch() -> Result<(), Failure> {
    interrupt::watch().map_err(|source| Failure::Own { what: "can't listen for signals".to_owned(), source })
}

fn no_race(source: std::io::Error) -> Failure {
    Failure::Own { what: "can't have eight processes race".to_owned(), source }
}

fn answer(fit: bool, fact: &(impl Serialize + fmt::Display), format: Format) -> Result<Answer, Failure> {
    Output::verdict(fact, format)?;
    Ok(if fit { Answer::Yes } else { Answer::No })
}

/// This process and others of the same program race in a room of their own.
fn race(directory: &Path) -> Result<PeerReport, Failure> {
    // A name of its own; the company removes the directory when it parts.
    let made = interrupt::directory(".doctor-", directory).map_err(no_race)?;
    let room = made.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut others = Vec::new();
    for _ in 1..RACERS {
        others.push(Other::start(directory, &room).map_err(no_race)?);
    }
    let report = doctor_with_peers(
        directory,
        &Peers::new(RACERS).room(room).timeout(RACE_TIMEOUT).stop(interrupt::stop()),
    )?;
    for other in others {
        other.end().map_err(no_race)?;
    }
    Ok(report)
}

/// Another process; killed if it is left over.
struct Other(Child);

impl Other {
    fn start(directory: &Path, room: &str) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let peers = RACERS.to_string();
        command.args(["-qq", "doctor", "--peer", "--peers", &peers, "--room", room, "--"]).arg(directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Self)
    }

    /// What it has found, its peers know too.
    fn end(mut self) -> std::io::Result<()> {
        self.0.wait().map(drop)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // One that has ended can't be killed, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
