//! The power is cut: a filesystem on a disk of its own is shut down at drawn calls, mounted anew, and what is
//! there is held against what was acknowledged.
//!
//! - A life (see `life`) works on a store until the cut (see `cut`); the disk is unmounted and mounted, which
//!   replays its log; what was acknowledged has to be there (see `known`); the next life goes on from it.
//! - Where a cut comes is drawn evenly from the calls that an operation makes, which are counted first.
//! - The same with syncs left out, of files and then of directories, has to be caught. If it isn't, the cuts
//!   show nothing.

mod cut;
mod known;
mod life;

use std::fmt;
use std::path::{Path, PathBuf};

use batchweave::Store;
use clap::ValueEnum;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use self::cut::{Moment, Operation, Place, Syncs};
use self::known::Known;
use self::life::live;
use crate::child::{Crew, Task, say};
use crate::random::Random;
use crate::{Failure, Result, part};

/// Cuts in each operation: a taste, which takes seconds; and what it takes to believe it.
const CUTS_FEW: u64 = 8;
const CUTS: u64 = 50;
/// With syncs left out: so many cuts, and it has to be caught.
const CAUGHT_WITHIN: u64 = 60;

/// A disk, and where it is mounted.
#[derive(clap::Args)]
pub(crate) struct Disk {
    device: PathBuf,
    mounted_at: PathBuf,
    /// The filesystem on it
    #[arg(long)]
    kind: String,
}

impl Disk {
    fn mount(&self) -> Result<()> {
        Ok(mount(&self.device, &self.mounted_at, self.kind.as_str(), MountFlags::empty(), None)
            .map_err(|error| format!("the disk can't be mounted: {error}"))?)
    }

    /// Fails if anybody has anything open there.
    fn unmount(&self) -> Result<()> {
        Ok(unmount(&self.mounted_at, UnmountFlags::empty())
            .map_err(|error| format!("the disk can't be unmounted: {error}"))?)
    }
}

/// The words of a life.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    place: Place,
    left_out: Syncs,
}

fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Plan {
    pub(crate) fn words(&self) -> [String; 4] {
        let Place { operation, moment, call } = self.place;
        [word(&operation), word(&moment), call.to_string(), word(&self.left_out)]
    }

    pub(crate) fn parse([operation, moment, call, left_out]: [&str; 4]) -> Result<Self> {
        let place = Place {
            operation: Operation::from_str(operation, false)?,
            moment: Moment::from_str(moment, false)?,
            call: call.parse()?,
        };
        Ok(Self { place, left_out: Syncs::from_str(left_out, false)? })
    }

    pub(crate) fn live(&self, store: &Path) -> Result<()> {
        live(store, self.place, self.left_out, &say)
    }
}

pub(crate) fn power(disk: &Disk, seed: u64, times: u64) -> Result<String> {
    let cuts = if times == 1 { CUTS_FEW } else { CUTS * times };
    let mut random = Random::new(seed);
    disk.mount()?;
    let all = cuts * Operation::ALL.len() as u64;
    let held = Campaign { disk, random: &mut random, left_out: Syncs::None }.run(all)?;
    if let Some((place, what)) = held.caught {
        return Err(format!("cut {}, {place}: {what}", held.cuts).into());
    }
    let operations =
        held.calls.iter().map(|(operation, calls)| format!("{} ({calls} calls)", word(operation)));
    let mut said = format!("{cuts} cuts in each of {}", operations.collect::<Vec<_>>().join(", "));
    for left_out in [Syncs::Files, Syncs::Directories] {
        let without = Campaign { disk, random: &mut random, left_out }.run(CAUGHT_WITHIN)?;
        let (left_out, cuts) = (word(&left_out), without.cuts);
        let Some((_, what)) = without.caught else {
            let what = "so the cuts show nothing";
            return Err(format!("with no sync of {left_out} {cuts} cuts have harmed nothing: {what}").into());
        };
        said += &format!("; without syncs of {left_out} cut {cuts} does harm ({:.120})", what.to_string());
    }
    disk.unmount()?;
    Ok(said)
}

/// Cuts, one after the other, in the lives of one store.
struct Campaign<'a> {
    disk: &'a Disk,
    random: &'a mut Random,
    left_out: Syncs,
}

struct Ended {
    cuts: u64,
    /// How many calls each operation makes.
    calls: Vec<(Operation, u64)>,
    /// Where the last one was, and what didn't hold after it.
    caught: Option<(Place, Failure)>,
}

impl Campaign<'_> {
    fn run(&mut self, cuts: u64) -> Result<Ended> {
        let store = self.disk.mounted_at.join(word(&self.left_out));
        Store::create(&store, part::options())?;
        let mut known = Known::default();
        let mut ended = Ended { cuts: 0, calls: Vec::new(), caught: None };
        for operation in Operation::ALL {
            let place = Place { operation, moment: Moment::Never, call: 0 };
            ended.calls.push((operation, self.live(&store, place, "calls ", &mut known)?.parse()?));
        }
        let turns = ended.calls.clone();
        for (operation, calls) in turns.into_iter().cycle().take(cuts as usize) {
            let moment = [Moment::Before, Moment::Amid, Moment::After][self.random.below(3) as usize];
            let place = Place { operation, moment, call: self.random.below(calls) };
            let lived = self.live(&store, place, "dark ", &mut known);
            self.disk.unmount()?;
            self.disk.mount()?;
            ended.cuts += 1;
            if let Err(what) = lived.and_then(|_| known.judge(&store)) {
                ended.caught = Some((place, what));
                break;
            }
        }
        Ok(ended)
    }

    /// One life; gives what its last word says, which has to begin so.
    fn live(&self, store: &Path, place: Place, last: &str, known: &mut Known) -> Result<String> {
        let mut crew = Crew::new();
        let plan = Plan { place, left_out: self.left_out };
        let who = crew.start("the life", &Task::Life { store: store.to_owned(), plan })?;
        while let Some(word) = crew.hear_of(who)? {
            if let Some(said) = word.strip_prefix(last) {
                return crew.end().map(|_| said.to_owned());
            }
            known.hear(&word, crew.process(who))?;
        }
        Err(format!("it ended without the word {last:?}").into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, moment) = (word(&self.operation), word(&self.moment));
        write!(f, "{moment} call {} of {operation}", self.call)
    }
}
