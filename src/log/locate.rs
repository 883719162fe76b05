//! Finding the commit that holds a part: in the tail, or by bisection over the indexes behind it.
//!
//! - Reading on costs nothing extra: the index in use is asked first, then the next one.
//! - A seek opens at most log2(segments of its piece of history) indexes (P9). Of these the first may be
//!   reclaimed: an index that is missing has nothing that is live, or the part is nowhere.
//! - What is found names nonce and record checksum, by which a file is known to be that commit (R7).

use super::Log;
use super::index::Index;
use super::patience::unexplained;
use super::tail::Tail;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Checksum, Nonce, Part, Segment, Step, Version};

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The commit.
    pub version: Version,
    /// The part's place in it.
    pub ordinal: u32,
    /// The commit's nonce.
    pub nonce: Nonce,
    /// Its record checksum.
    pub checksum: Checksum,
}

impl Log {
    /// Finds a visible part.
    ///
    /// # Errors
    /// `Reclaimed` when its step is below the floor, `Invalid` when it isn't published, `Corrupt` when it
    /// is missing.
    pub fn locate(&self, tail: &Tail, part: Part) -> Result<Located> {
        let step = part.step(self.parts_per_step());
        if step < tail.state.floor {
            return Err(self.reclaimed(step, tail));
        }
        if part >= tail.state.next_part {
            let what = format!("the step isn't published yet: the next one is {}", tail.state.next_step());
            return Err(Error::new(ErrorKind::Invalid, what).step(step).at(&self.path));
        }
        if let Some((version, entry)) = tail.holder(part) {
            let ordinal = part.get().saturating_sub(entry.first_part.get());
            return Ok(Located {
                version,
                ordinal: u32::try_from(ordinal).unwrap_or(u32::MAX),
                nonce: entry.nonce,
                checksum: entry.checksum,
            });
        }
        self.locate_behind(tail, part).map_err(|error| self.explain(step, error).step(step))
    }

    /// What isn't found, or can't be read, may have been freed since the log was looked at (R7).
    fn explain(&self, step: Step, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return error;
        }
        match Tail::load(self) {
            Ok(now) if step < now.state.floor => self.reclaimed(step, &now),
            Ok(_) => error,
            Err(look) => unexplained(error, look),
        }
    }

    fn locate_behind(&self, tail: &Tail, part: Part) -> Result<Located> {
        let size = self.segment_size();
        let (history, step) = (&tail.state.history, part.step(self.parts_per_step()));
        // Only where this piece of history lies: elsewhere, parts of that number may have been rewound since.
        let first = history.piece_of(step).map_or(0, |piece| piece.version.segment(size).get());
        let after =
            history.piece_after(step).map(|piece| piece.version.segment(size).get().saturating_add(1));
        let end = tail.base().segment(size).get();
        let (mut low, mut high) = (first, after.unwrap_or(end).min(end));
        let inside = |index: &Index| (low..high).contains(&index.header.segment.get());
        if let Some(index) =
            self.indexes.find(|index| inside(index) && index.header.part_range().contains(&part.get()))
        {
            return found(&index, part);
        }
        // Reading on: the segment after an open index comes before any guess.
        let next = self.indexes.find(|index| inside(index) && index.header.part_range().end == part.get());
        let mut guess = next.map(|index| index.header.segment.get().saturating_add(1));
        let mut missing = None;
        // From the end backwards, twice as far each time, until the part lies behind: what a seek costs grows
        // with what is retained, not with what ever was (P9).
        let mut stride = Some(1);
        while low < high {
            let wide = high.saturating_sub(low);
            let middle = low.saturating_add(wide / 2);
            let backwards =
                stride.filter(|stride| *stride < wide / 2).map(|stride| high.saturating_sub(stride));
            let at = guess.take().filter(|guess| (low..high).contains(guess));
            let at = at.or(backwards).unwrap_or(middle);
            let Some(index) = self.indexes.get(self, Segment::new(at))? else {
                // Indexes are reclaimed from the first on, up to where nothing is live: so the part, which
                // is, lies behind.
                missing = Some(Segment::new(at));
                (low, stride) = (at.saturating_add(1), None);
                continue;
            };
            let range = index.header.part_range();
            if part.get() < range.start {
                (high, stride) = (at, stride.map(|stride| stride.saturating_mul(2)));
            } else if part.get() >= range.end {
                (low, stride) = (at.saturating_add(1), None);
            } else {
                return found(&index, part);
            }
        }
        let Some(segment) = missing else {
            return Err(Error::new(ErrorKind::Corrupt, format!("no index has part {part}")).at(&self.path));
        };
        let name = crate::format::names::segment(segment);
        let what = "an index is missing, likely purged";
        Err(Error::new(ErrorKind::Corrupt, what).at(self.path_of([crate::format::names::INDEX, &name])))
    }

    /// The lineage of a step: record checksum of the commit that holds the last part of the step before; zero
    /// for step 0.
    ///
    /// # Errors
    /// As [`Log::locate`].
    pub fn lineage(&self, tail: &Tail, step: Step) -> Result<Checksum> {
        let last = step.first_part(self.parts_per_step()).get().checked_sub(1);
        match last {
            None => Ok(Checksum::ZERO),
            // What was before the floor may be gone: its record says it.
            Some(_) if step == tail.state.floor => Ok(tail.state.floor_lineage),
            Some(part) => self.locate(tail, part.into()).map(|located| located.checksum),
        }
    }

    /// The segment of the commit that holds the first part of the floor's step, or of the head: no live part
    /// lies before it.
    ///
    /// # Errors
    /// As [`Log::locate`].
    pub fn first_live_segment(&self, tail: &Tail, floor: Step) -> Result<Segment> {
        let part = floor.first_part(self.parts_per_step());
        if part >= tail.state.next_part {
            return Ok(tail.state.next_version.segment(self.segment_size()));
        }
        Ok(self.locate(tail, part)?.version.segment(self.segment_size()))
    }

    /// The error of a step below the floor.
    pub fn reclaimed(&self, step: Step, tail: &Tail) -> Error {
        let what = format!("the step is below the floor, which is {}", tail.state.floor);
        Error::new(ErrorKind::Reclaimed, what).step(step).at(&self.path)
    }
}

fn found(index: &Index, part: Part) -> Result<Located> {
    let missing = || Error::new(ErrorKind::Corrupt, format!("the index lacks part {part}"));
    let place = index.part(part)?.ok_or_else(missing)?;
    let entry = index.version(place.version)?;
    Ok(Located {
        version: place.version,
        ordinal: place.ordinal,
        nonce: entry.nonce,
        checksum: entry.checksum,
    })
}
