//! Properties under contention: of many who want a name, one gets it, and what has the name is that one's.

use std::io;
use std::sync::Barrier;

use batchweave::storage::{Access, Dir};

use super::{Ground, Property, Verdict, expect_errno, unsupported};
use crate::errno;

pub(super) const PROPERTIES: &[Property] = &[
    ("one-creates", one_creates),
    ("one-links", one_links),
    ("one-renames-noreplace", one_renames_noreplace),
    ("one-renames-a-directory", one_renames_a_directory),
];

const RACERS: usize = 8;
const ROUNDS: usize = 50;

fn one_creates(ground: &Ground<'_>) -> Verdict {
    race(ground, "", &[errno::EEXIST], |racer, name| {
        let file = ground.storage.create_exclusive(&ground.dir, name)?;
        ground.write(&file, &[racer], 0);
        ground.storage.close(file)
    })
}

fn one_links(ground: &Ground<'_>) -> Verdict {
    race(ground, "", &[errno::EEXIST, errno::EPERM], |racer, name| {
        let staged = format!("stage-{racer}-{name}");
        ground.put(&staged, &[racer]);
        let result = ground.storage.link(&ground.dir, &staged, &ground.dir, name);
        ground.storage.remove(&ground.dir, &staged).expect("remove of a staged file");
        result
    })
}

fn one_renames_noreplace(ground: &Ground<'_>) -> Verdict {
    race(ground, "", &[errno::EEXIST], |racer, name| {
        let staged = format!("stage-{racer}-{name}");
        ground.put(&staged, &[racer]);
        ground.storage.rename_noreplace(&ground.dir, &staged, &ground.dir, name)
    })
}

fn one_renames_a_directory(ground: &Ground<'_>) -> Verdict {
    race(ground, "c", &[errno::ENOTEMPTY, errno::EEXIST], |racer, name| {
        let staged = format!("stage-{racer}-{name}");
        let dir = ground.subdir(&staged);
        let file = ground.storage.create_exclusive(&dir, "c").expect("create");
        ground.write(&file, &[racer], 0);
        ground.storage.close(file).expect("close");
        ground.storage.rename(&ground.dir, &staged, &ground.dir, name)
    })
}

/// Racers go for the name of each round together. The name is then a file that holds its winner's number, or
/// a directory with such a file of the name `inner`. Who loses has to be told so with one of `lost`.
fn race(
    ground: &Ground<'_>,
    inner: &str,
    lost: &[i32],
    attempt: impl Fn(u8, &str) -> io::Result<()> + Sync,
) -> Verdict {
    for round in 0..ROUNDS {
        let name = format!("v{round}");
        let barrier = Barrier::new(RACERS);
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let go = |racer| {
                barrier.wait();
                attempt(racer, &name)
            };
            let racers: Vec<_> = (0..RACERS as u8).map(|racer| scope.spawn(move || go(racer))).collect();
            racers.into_iter().map(|racer| racer.join().expect("a racer panicked")).collect()
        });
        let cannot = &[errno::EPERM, errno::EINVAL, errno::ENOSYS, errno::EOPNOTSUPP];
        let skips = || results.iter().map(|result| unsupported(result.as_ref().err()?, cannot)).collect();
        let refused: Option<Vec<Verdict>> = skips();
        if let Some(skip) = refused.and_then(|mut skips| skips.pop()) {
            return skip;
        }
        for error in results.iter().filter_map(|result| result.as_ref().err()) {
            expect_errno(error, lost, "losing a race for a name");
        }
        let winners: Vec<usize> = (0..RACERS).filter(|racer| results[*racer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "of {RACERS} who raced for {name}, these got it: {winners:?}");
        let holder = holder(ground, &name, inner);
        assert_eq!(holder, [winners[0] as u8], "{name} isn't what its winner put there");
    }
    Verdict::Kept
}

fn holder(ground: &Ground<'_>, name: &str, inner: &str) -> Vec<u8> {
    if inner.is_empty() {
        return ground.read_name(name);
    }
    let dir: Dir = ground.storage.open_dir(&ground.dir, name).expect("open_dir of what was won");
    ground.read(&ground.storage.open(&dir, inner, Access::Read).expect("open of what was won"))
}
