//! Whether parts come in the order of the ring: by whose parts came since it was set, and who had finished
//! then; nothing else.

use std::collections::BTreeSet;

use batchweave::format::record::Record;

/// What has an effect on whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A ring was set, or ended, if it has no members.
    Ring(Vec<String>, u32),
    /// A part came.
    Part(String),
    /// A name was opened.
    Opened(String),
    /// A name was retired.
    Retired(String),
}

impl Taken {
    /// Adds what a record that has effect does to turns.
    pub(super) fn note(record: &Record, to: &mut Vec<Self>) {
        match record {
            Record::Turns { names, parts_per_turn, .. } => {
                let names = names.iter().map(|name| name.to_string()).collect();
                to.push(Self::Ring(names, *parts_per_turn));
            }
            Record::Parts(parts) => {
                let name = parts.producer.to_string();
                to.extend(parts.parts.iter().map(|_| Self::Part(name.clone())));
            }
            Record::Open { producer, .. } => to.push(Self::Opened(producer.to_string())),
            Record::Retire { producer, .. } => to.push(Self::Retired(producer.to_string())),
            _ => {}
        }
    }
}

/// Whose turn it is.
fn turn<'r>(ring: &'r [String], each: u32, came: &[String], finished: &BTreeSet<String>) -> Option<&'r str> {
    let first = match came.last() {
        None => 0,
        Some(last) => {
            let run = came.iter().rev().take_while(|name| *name == last).count();
            let place = ring.iter().position(|name| name == last)?;
            place + usize::from(run.is_multiple_of(each.max(1) as usize))
        }
    };
    let mut around = (first..first + ring.len()).map(|place| ring[place % ring.len()].as_str());
    around.find(|name| !finished.contains(*name))
}

/// Holds the parts against the ring. Of a log without rewinds.
///
/// # Errors
/// One comes out of turn.
pub fn check_turns(taken: &[Taken]) -> Result<(), String> {
    let (mut ring, mut each, mut came) = (Vec::new(), 0, Vec::new());
    let mut finished = BTreeSet::new();
    for (number, one) in taken.iter().enumerate() {
        match one {
            Taken::Ring(names, parts) => {
                (ring, each) = (names.clone(), *parts);
                came.clear();
            }
            Taken::Part(name) => {
                let turn = turn(&ring, each, &came, &finished);
                if let Some(turn) = turn.filter(|turn| turn != name) {
                    let before = &taken[number.saturating_sub(12)..number];
                    return Err(format!(
                        "P2: a part of {name} came in the turn of {turn}: the ring is {ring:?}, {each} parts \
                         each, and before it came {before:?}"
                    ));
                }
                if ring.contains(name) {
                    came.push(name.clone());
                }
            }
            Taken::Opened(name) => drop(finished.remove(name)),
            Taken::Retired(name) => drop(finished.insert(name.clone())),
        }
    }
    Ok(())
}

/// Whether more than one member of a ring has published.
pub fn took_turns(taken: &[Taken]) -> bool {
    let since = taken.iter().skip_while(|one| !matches!(one, Taken::Ring(..)));
    let who = since.filter_map(|one| if let Taken::Part(name) = one { Some(name) } else { None });
    who.collect::<BTreeSet<_>>().len() > 1
}
