//! The trials: races for a name, and how fresh one's looks are after another has changed something.
//!
//! - All judge by the same words, so all come to the same verdict.
//! - A trial of freshness needs to tell the others that something was done by a way that isn't itself cached:
//!   exclusive creation fails until the one who did it has removed the name, and goes to the server always.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::company::{Company, PAUSE, is_there};
use crate::error::Result;
use crate::options::Primitive;
use crate::storage::{Access, Dir, absent_is_fine, put, read_exact_at, write_all_at};

const RACES: u32 = 12;
const LOOKS: u32 = 8;
/// How long a look that isn't fresh is waited for; beyond, it is only said that it takes longer.
const PATIENCE: Duration = Duration::from_secs(3);
const CONTENT: &str = "c";
const PRIMITIVES: [Primitive; 3] = [Primitive::Link, Primitive::RenameNoreplace, Primitive::RenameDirectory];

/// What races for names by one primitive have come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Race {
    /// The primitive.
    pub primitive: Primitive,
    /// How many names were raced for.
    pub rounds: u32,
    /// How many this one has won.
    pub won: u32,
    /// Rounds that somebody's call couldn't take part in.
    pub failed: u32,
    /// Rounds in which not exactly one was told that it has won, or all see the same winner: none may be.
    pub broken: u32,
    /// Rounds whose winner was told that it has lost: one's own request sent twice. Harmless (R2).
    pub denied: u32,
}

/// How soon one sees what another has done. Delays are in milliseconds, the longest of all rounds; none if
/// something wasn't seen within 3 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Freshness {
    /// How often somebody has looked for a name that another had just made.
    pub looks: u32,
    /// How often a listing of the directory opened anew didn't show it at once.
    pub stale_listings: u32,
    /// How often opening it by name, in the directory opened anew, didn't find it at once.
    pub stale_opens: u32,
    /// How often both missed it: then a reclaimed name could be won again, and no store may live there (R6).
    pub stale_both: u32,
    /// Until the listing shows it.
    pub listing_ms: Option<u64>,
    /// Until opening finds it: how late a step is seen, beside the pause between looks.
    pub open_ms: Option<u64>,
    /// Until it is found in a directory that was held open, where it had been looked up before: what a
    /// program that holds directories would wait. The engine opens them anew.
    pub held_ms: Option<u64>,
}

/// What a company has found; see [`doctor_with_peers`](crate::doctor_with_peers).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerReport {
    /// Which of them this one was, from 0.
    pub seat: u32,
    /// How many there were.
    pub peers: u32,
    /// The races by each primitive.
    pub races: Vec<Race>,
    /// How fresh looks are.
    pub freshness: Freshness,
    /// Why no store may live there; none if one may.
    pub refusal: Option<String>,
}

/// What a call that raced has said.
const WON: u8 = 1;
const LOST: u8 = 2;
const FAILED: u8 = 3;

/// Makes them all.
pub(super) fn make(company: &mut Company<'_>) -> Result<PeerReport> {
    let races =
        PRIMITIVES.into_iter().map(|primitive| race(company, primitive)).collect::<Result<Vec<_>>>()?;
    let freshness = freshness(company)?;
    let refusal = refusal(&races, &freshness);
    Ok(PeerReport { seat: company.seat, peers: company.count, races, freshness, refusal })
}

fn refusal(races: &[Race], freshness: &Freshness) -> Option<String> {
    if freshness.stale_both > 0 {
        return Some(format!(
            "{} of {} times neither a listing nor an open, in a directory opened anew, showed a name that \
             another had just made, so a reclaimed name could be won again; mount it with attribute caches \
             that opening a directory renews (on NFS without nocto), or put the store on another \
             filesystem",
            freshness.stale_both, freshness.looks
        ));
    }
    // A store publishes by the first that works.
    let used = races.iter().find(|race| race.failed == 0);
    match used {
        None => Some(
            "nothing here gives a file a name exclusively; put the store on another filesystem".to_owned(),
        ),
        Some(race) if race.broken > 0 => Some(format!(
            "in {} of {} races by {} not exactly one has won, so commits would overwrite each other; put the \
             store on another filesystem",
            race.broken, race.rounds, race.primitive
        )),
        Some(_) => None,
    }
}

fn race(company: &mut Company<'_>, primitive: Primitive) -> Result<Race> {
    let mut race = Race { primitive, rounds: RACES, won: 0, failed: 0, broken: 0, denied: 0 };
    for round in 0..RACES {
        let (from, to) = (format!("from-{}", company.seat), format!("race-{round}"));
        let made = stage(company, primitive, &from);
        company.meet(&[])?;
        let said = match made {
            Ok(()) => publish(company, primitive, &from, &to),
            Err(_) => FAILED,
        };
        // All have tried: what is there now stays there.
        company.meet(&[])?;
        let seen = winner(company, primitive, &to).unwrap_or(u8::MAX);
        let words = company.meet(&[said, seen])?;
        judge(company.seat, &words, &mut race);
        clear(company, primitive, &from).map_err(|error| company.failed(error))?;
        if company.seat == 0 {
            clear(company, primitive, &to).map_err(|error| company.failed(error))?;
        }
    }
    Ok(race)
}

/// Each word is what its seat's call said, and whom it sees as the winner.
fn judge(own: u32, words: &[Vec<u8>], race: &mut Race) {
    let said = |seat: usize| words.get(seat).and_then(|word| word.first()).copied().unwrap_or(FAILED);
    let seen: Vec<u8> = words.iter().map(|word| word.get(1).copied().unwrap_or(u8::MAX)).collect();
    if (0..words.len()).any(|seat| said(seat) == FAILED) {
        race.failed = race.failed.saturating_add(1);
        return;
    }
    let winner = seen.first().copied().map_or(usize::MAX, usize::from);
    let agreed = seen.iter().all(|one| usize::from(*one) == winner) && winner < words.len();
    let others_won = (0..words.len()).any(|seat| seat != winner && said(seat) == WON);
    if !agreed || others_won {
        race.broken = race.broken.saturating_add(1);
        return;
    }
    race.denied = race.denied.saturating_add(u32::from(said(winner) != WON));
    race.won = race.won.saturating_add(u32::from(usize::try_from(own) == Ok(winner)));
}

fn stage(company: &Company<'_>, primitive: Primitive, from: &str) -> io::Result<()> {
    let room = company.room()?;
    let (dir, name) = match primitive {
        Primitive::RenameDirectory => {
            company.storage.make_dir(&room, from)?;
            (company.storage.open_dir(&room, from)?, CONTENT)
        }
        _ => (room, from),
    };
    let file = company.storage.create_exclusive(&dir, name)?;
    let written = write_all_at(company.storage, &file, &[company.seat.to_le_bytes()[0]], 0);
    written.and(company.storage.close(file))
}

fn publish(company: &Company<'_>, primitive: Primitive, from: &str, to: &str) -> u8 {
    let put = company.room().and_then(|room| match primitive {
        Primitive::RenameDirectory => company.storage.rename(&room, from, &room, to),
        _ => put::put(company.storage, primitive, &room, from, &room, to),
    });
    match put {
        Ok(()) => WON,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) =>
        {
            LOST
        }
        // sshfs says EPERM to those who lose: whether this was a loss is told by what is there.
        Err(_) if winner(company, primitive, to).is_ok() => LOST,
        Err(_) => FAILED,
    }
}

/// Whose file has the name.
fn winner(company: &Company<'_>, primitive: Primitive, to: &str) -> io::Result<u8> {
    let room = company.room()?;
    let (dir, name) = match primitive {
        Primitive::RenameDirectory => (company.storage.open_dir(&room, to)?, CONTENT),
        _ => (room, to),
    };
    let file = company.storage.open(&dir, name, Access::Read)?;
    let mut seat = [0];
    read_exact_at(company.storage, &file, &mut seat, 0)?;
    let [seat] = seat;
    Ok(seat)
}

fn clear(company: &Company<'_>, primitive: Primitive, name: &str) -> io::Result<()> {
    if primitive != Primitive::RenameDirectory {
        return company.remove(name);
    }
    let room = company.room()?;
    match company.storage.open_dir(&room, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        inner => absent_is_fine(company.storage.remove(&inner?, CONTENT))?,
    }
    absent_is_fine(company.storage.remove_dir(&room, name))
}

/// What one has seen of a name that another had made.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    listed: Option<Duration>,
    opened: Option<Duration>,
    held: Option<Duration>,
}

fn freshness(company: &mut Company<'_>) -> Result<Freshness> {
    let (mut looks, mut stale_listings, mut stale_opens, mut stale_both) = (0u32, 0u32, 0u32, 0u32);
    let (mut listing, mut open, mut held) = (Some(0), Some(0), Some(0));
    for round in 0..LOOKS {
        // Each changes something in its turn, and the others look.
        let changer = round.checked_rem(company.count).unwrap_or(0);
        // What has taken too long once isn't waited for again.
        let awaited = [listing, open, held].map(|delay| delay.is_some());
        let seen = look(company, round, changer, awaited)?;
        let word = [seen.listed, seen.opened, seen.held].map(|one| one.map_or(u64::MAX, micros));
        let words = company.meet(&word.map(u64::to_le_bytes).concat())?;
        for (_, word) in (0u32..).zip(words).filter(|(seat, _)| *seat != changer) {
            let (pieces, _) = word.as_chunks::<8>();
            let mut delays = pieces.iter().map(|piece| u64::from_le_bytes(*piece));
            let (listed, opened, kept) = (delays.next(), delays.next(), delays.next());
            looks = looks.saturating_add(1);
            let stale = |delay: Option<u64>| delay != Some(0);
            stale_listings = stale_listings.saturating_add(u32::from(stale(listed)));
            stale_opens = stale_opens.saturating_add(u32::from(stale(opened)));
            stale_both = stale_both.saturating_add(u32::from(stale(listed) && stale(opened)));
            listing = longest(listing, listed);
            open = longest(open, opened);
            held = longest(held, kept);
        }
    }
    Ok(Freshness {
        looks,
        stale_listings,
        stale_opens,
        stale_both,
        listing_ms: listing,
        open_ms: open,
        held_ms: held,
    })
}

/// The longer of a delay in milliseconds and one in microseconds; none if either is.
fn longest(milliseconds: Option<u64>, microseconds: Option<u64>) -> Option<u64> {
    let later = microseconds.filter(|delay| *delay != u64::MAX)?;
    milliseconds.map(|one| one.max(later.div_ceil(1000)))
}

fn look(company: &mut Company<'_>, round: u32, changer: u32, awaited: [bool; 3]) -> Result<Seen> {
    let (mark, own_gate) = (format!("mark-{round}"), |seat: u32| format!("gate-{round}-{seat}"));
    let failed = |company: &Company<'_>, error: io::Error| company.failed(error);
    let held = company.room().map_err(|error| failed(company, error))?;
    let others: Vec<u32> = (0..company.count).filter(|seat| *seat != changer).collect();
    if company.seat == changer {
        for seat in &others {
            create(company, &held, &own_gate(*seat)).map_err(|error| failed(company, error))?;
        }
    } else {
        // So that what isn't there is cached wherever such things are.
        let absent = company.storage.open(&held, &mark, Access::Read);
        absent_is_fine(absent.map(drop)).map_err(|error| failed(company, error))?;
        company.storage.list(&held).map_err(|error| failed(company, error))?;
    }
    company.meet(&[])?;
    let seen = if company.seat == changer {
        create(company, &held, &mark).map_err(|error| failed(company, error))?;
        for seat in &others {
            company.remove(&own_gate(*seat)).map_err(|error| failed(company, error))?;
        }
        Seen::default()
    } else {
        let gate = own_gate(company.seat);
        pass(company, &gate, changer)?;
        let seen = watch(company, &held, &mark, awaited).map_err(|error| failed(company, error))?;
        company.remove(&gate).map_err(|error| failed(company, error))?;
        seen
    };
    company.meet(&[])?;
    if company.seat == changer {
        company.remove(&mark).map_err(|error| failed(company, error))?;
    }
    Ok(seen)
}

/// Waits until the gate is gone, by making it oneself: no cache has a say in that.
fn pass(company: &Company<'_>, gate: &str, changer: u32) -> Result<()> {
    let until = company.env.now().saturating_add(company.timeout());
    loop {
        let room = company.room().map_err(|error| company.failed(error))?;
        match create(company, &room, gate) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if company.is_over(until) {
                    return Err(company.nobody_came(changer));
                }
                company.env.sleep(PAUSE);
            }
            Err(error) => return Err(company.failed(error)),
        }
    }
}

/// How long it takes until each way to look shows a name that is there; zero if it does at once.
fn watch(company: &Company<'_>, held: &Dir, mark: &str, awaited: [bool; 3]) -> io::Result<Seen> {
    let (storage, began) = (company.storage, company.env.now());
    let mut seen = Seen::default();
    let mut at_once = true;
    loop {
        let since = if at_once { Duration::ZERO } else { company.env.now().saturating_sub(began) };
        if seen.listed.is_none() && storage.list(&company.room()?)?.iter().any(|name| name == mark) {
            seen.listed = Some(since);
        }
        let found = |seen: &mut Option<Duration>, dir: &Dir| -> io::Result<()> {
            if seen.is_none() && is_there(storage, dir, mark)? {
                *seen = Some(since);
            }
            Ok(())
        };
        found(&mut seen.opened, &company.room()?)?;
        found(&mut seen.held, held)?;
        let each = [seen.listed, seen.opened, seen.held];
        let done = each.iter().zip(awaited).all(|(seen, awaited)| seen.is_some() || !awaited);
        if done || company.env.now().saturating_sub(began) >= PATIENCE {
            return Ok(seen);
        }
        at_once = false;
        company.env.sleep(PAUSE);
    }
}

fn create(company: &Company<'_>, dir: &Dir, name: &str) -> io::Result<()> {
    let file = company.storage.create_exclusive(dir, name)?;
    company.storage.close(file)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
