//! Looking for tamer decisions that go wrong too.
//!
//! - A run cut short and tamed is another run, so it may go wrong in another way; as long as it breaks the
//!   same promise it is kept.
//! - First whole stretches are tamed, then smaller ones, then single decisions are lowered: what is left is
//!   what the fault needs.

use super::{Report, Shape, repeat};

/// The tamest run that was found within `runs` tries to go wrong as this one does; itself if there is none.
pub fn shrink(report: &Report, shape: Option<Shape>, runs: u32) -> Report {
    let mut best = report.clone();
    let mut left = runs;
    let mut stretch = best.decisions.len().max(1);
    while stretch >= 1 && left > 0 {
        let mut tamed = false;
        let mut start = 0;
        while start < best.decisions.len() && left > 0 {
            let mut answers: Vec<u32> = best.decisions.iter().map(|taken| taken.answer).collect();
            let end = (start + stretch).min(answers.len());
            if answers[start..end].iter().any(|answer| *answer > 0) {
                answers[start..end].fill(0);
                left -= 1;
                let tried = repeat(report.seed, shape, answers);
                if promise(&tried) == promise(report) && wild(&tried) < wild(&best) {
                    best = tried;
                    tamed = true;
                }
            }
            start += stretch;
        }
        if stretch == 1 && !tamed {
            break;
        }
        stretch = (stretch / 2).max(1);
    }
    best
}

/// Which promise is broken: what its words begin with.
fn promise(report: &Report) -> Option<&str> {
    let words = report.trouble.as_deref()?;
    let named = words.match_indices('P').map(|(at, _)| &words[at..]);
    let mut named = named.filter(|rest| rest.as_bytes().get(2) == Some(&b':')).map(|rest| &rest[..2]);
    Some(named.next().unwrap_or("none by its number"))
}

fn wild(report: &Report) -> (usize, usize) {
    let wild = report.decisions.iter().filter(|taken| taken.answer > 0).count();
    (wild, report.decisions.len())
}
