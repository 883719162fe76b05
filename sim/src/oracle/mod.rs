//! What is true: a plain list of who was told what, against which every run is held (P1-P9).
//!
//! - The [`Ledger`] is written by the actors, as they are told: acknowledged parts, opened names, delivered
//!   steps. It contradicts at once what can't be.
//! - The [truth](replay()) is read from the log when a run is over, and at moments in between, on a copy of
//!   the filesystem that nobody else uses: [`examine`].
//! - Where history changes and segments are removed, the [`Annals`] take the ledger's place, and the
//!   [`truth()`] is held against a plain [`Model`].
//! - It knows nothing of how the engine works: producers, sequences, steps, texts.

mod annals;
mod examine;
mod known;
mod ledger;
mod model;
mod replay;
mod retained;
mod stream;
mod truth;
mod turns;

pub use annals::{Annals, Said};
pub(crate) use examine::texts_of;
pub use examine::{examine, examine_after_power_cut, examine_tail, goes_on, newest_open, visible_of};
pub use known::Seen;
pub use ledger::Ledger;
pub use model::Model;
pub use replay::{Replayed, check_replay, replay};
pub use retained::examine_reclaimed;
pub use stream::Stream;
pub use truth::{Truth, truth, truth_at};
pub use turns::{Taken, check_turns, took_turns};

/// What part `sequence` of a producer holds, written by process `writer`: two processes that take
/// themselves for the same producer never write the same.
pub fn text(producer: &str, sequence: u64, writer: usize) -> String {
    format!("{producer}/{sequence}/{writer}")
}

/// What a producer commits with a part.
pub fn state(text: &str) -> String {
    format!("after {text}")
}

/// Producer, sequence and writer of a text.
///
/// # Errors
/// It is no such text.
pub fn parse(text: &str) -> Result<(&str, u64, usize), String> {
    let mut pieces = text.split('/');
    let parsed = match (pieces.next(), pieces.next(), pieces.next(), pieces.next()) {
        (Some(producer), Some(sequence), Some(writer), None) => sequence
            .parse()
            .ok()
            .zip(writer.parse().ok())
            .map(|(sequence, writer)| (producer, sequence, writer)),
        _ => None,
    };
    parsed.ok_or_else(|| format!("{text:?} isn't what any part holds"))
}
