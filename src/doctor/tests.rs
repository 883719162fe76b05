//! A company of threads on a real directory, all well or with one storage that is odd.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::env::System;
use crate::storage::Posix;
use crate::storage::odd::{Does, Odd};

/// What each of a company finds, over the storage that `storage` makes for it.
fn meet(path: &Path, peers: &Peers, storage: impl Fn(u32) -> Arc<dyn Storage>) -> Vec<Result<PeerReport>> {
    let found = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..peers.count)
            .map(|number| {
                let storage = storage(number);
                scope.spawn(move || with_peers(&*storage, &System::new(), path, peers))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(std::fs::read_dir(path).expect("listed").count(), 0, "something is left");
    found
}

#[test]
fn a_company_of_any_size_comes_to_one_verdict_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    for count in [2, 3, 8] {
        let found = meet(home.path(), &Peers::new(count), |_| Arc::new(Posix));
        let reports: Vec<PeerReport> = found.into_iter().map(|one| one.expect("found")).collect();
        for (place, race) in reports[0].races.iter().enumerate() {
            assert_eq!((race.failed, race.broken, race.denied), (0, 0, 0), "{race:?}");
            let won: u32 = reports.iter().map(|report| report.races[place].won).sum();
            assert_eq!(won, race.rounds, "each race has one winner");
        }
        let seats: std::collections::BTreeSet<u32> = reports.iter().map(|report| report.seat).collect();
        assert_eq!(seats.len() as u32, count);
        for report in &reports {
            assert_eq!(report.refusal, None);
            assert_eq!(report.freshness, reports[0].freshness, "all judge by the same words");
            assert_eq!((report.freshness.stale_both, report.freshness.open_ms), (0, Some(0)));
        }
    }
}

#[test]
fn where_names_are_replaced_or_marks_are_missed_no_store_may_live() {
    type Bend = fn(&mut Odd);
    let cases: [(&str, Bend); 3] = [
        ("in 12 of 12 races by link not exactly one has won", |odd| odd.link = Does::Replace),
        ("in 12 of 12 races by renameat2(RENAME_NOREPLACE)", |odd| {
            (odd.link, odd.noreplace) = (Does::Fail(1), Does::Replace);
        }),
        ("neither a listing nor an open", |odd| (odd.hides_marks, odd.loses_marks) = (true, true)),
    ];
    let home = tempfile::tempdir().expect("a directory");
    for (words, bend) in cases {
        let found = meet(home.path(), &Peers::new(2), |_| {
            let mut odd = Odd::new();
            bend(&mut odd);
            Arc::new(odd)
        });
        for report in found {
            let refusal = report.expect("a refusal is no error").refusal.expect("refused");
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}

#[test]
fn one_way_of_looking_is_enough() {
    let home = tempfile::tempdir().expect("a directory");
    for (hides, loses) in [(true, false), (false, true)] {
        let found = meet(home.path(), &Peers::new(2), |_| {
            Arc::new(Odd { hides_marks: hides, loses_marks: loses, ..Odd::new() })
        });
        for report in found {
            let report = report.expect("found");
            assert_eq!(report.refusal, None);
            let fresh = report.freshness;
            assert_eq!((fresh.stale_listings > 0, fresh.stale_opens > 0), (hides, loses), "{fresh:?}");
        }
    }
}

#[test]
fn a_primitive_that_fails_is_said_and_the_next_is_used() {
    let home = tempfile::tempdir().expect("a directory");
    let found = meet(home.path(), &Peers::new(2), |number| match number {
        0 => Arc::new(Odd { link: Does::Fail(1), ..Odd::new() }),
        _ => Arc::new(Posix),
    });
    for report in found {
        let report = report.expect("found");
        assert_eq!(report.refusal, None);
        assert!(report.races[0].failed > 0, "link fails for one of them: {report:?}");
    }
}

#[test]
fn who_is_alone_says_so_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    let peers = Peers::new(2).timeout(Duration::ZERO);
    let error = with_peers(&Posix, &System::new(), home.path(), &peers).expect_err("alone");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("number 2 didn't come"), "{error}");
    assert_eq!(std::fs::read_dir(home.path()).expect("listed").count(), 0);
}

#[test]
fn what_is_left_in_the_room_is_named() {
    let home = tempfile::tempdir().expect("a directory");
    let room = home.path().join(".doctor-peers");
    std::fs::create_dir(&room).expect("made");
    for seat in ["seat-0", "seat-1"] {
        std::fs::write(room.join(seat), "").expect("written");
    }
    let error = with_peers(&Posix, &System::new(), home.path(), &Peers::new(2)).expect_err("full");
    assert!(error.to_string().contains(&format!("{}", room.display())), "{error}");
    for peers in [Peers::new(1), Peers::new(65), Peers::new(2).room("a/b"), Peers::new(2).room("plain")] {
        let error = with_peers(&Posix, &System::new(), home.path(), &peers).expect_err("no such peers");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn what_a_commit_costs_is_measured_by_each_primitive() {
    use crate::options::Primitive::{Link, RenameDirectory, RenameNoreplace};
    let home = tempfile::tempdir().expect("a directory");
    let dir = Posix.open_root(home.path()).expect("it opens");
    for primitive in [Link, RenameNoreplace, RenameDirectory] {
        let costs = costs::measure(&Posix, &System::new(), &dir, home.path(), primitive).expect("measured");
        assert!(costs.commit_us >= costs.sync_us.max(costs.publish_us).max(costs.look_us), "{costs:?}");
        assert_eq!(Posix.list(&dir).expect("listed"), [""; 0], "something is left");
    }
}
