//! A mount that stops doing the primitive by which the store publishes: mounted otherwise, or a server of
//! another make behind it. The method: from each link or rename of a publish on, all of them fail, by each
//! errno that says so; nothing is acknowledged, and once the mount does it again the same producer goes on.

use std::sync::Arc;

use batchweave::{ErrorKind, Primitive, Settings};
use batchweave_sim::{Fault, Match, Memory, Method, errno};

use crate::prepared;
use crate::support::*;

/// What says that a mount doesn't do it, whatever the primitive is.
const REFUSALS: [i32; 5] = [errno::EPERM, errno::EXDEV, errno::EOPNOTSUPP, errno::ENOSYS, errno::EMLINK];

/// The call that gives a name.
fn call_of(primitive: Primitive) -> Method {
    match primitive {
        Primitive::Link => Method::Link,
        Primitive::RenameNoreplace => Method::RenameNoreplace,
        // Of a directory that encloses the file.
        Primitive::RenameDirectory => Method::Rename,
        other => panic!("no test knows of {other}"),
    }
}

/// From the n-th name in log/ or index/ on none is given, for good; false if a publish gives fewer.
fn refuse_from(disk: &Memory, primitive: Primitive, errno: i32, nth: u64, kind: ErrorKind) -> bool {
    let how = format!("{primitive} {nth}, {}", errno::error(errno));
    let process = Arc::new(Fault::new(Arc::new(disk.fork()), mount_with(primitive)));
    let store = open_with(process.clone(), 2, &Settings::new()).unwrap();
    let mut producer = store.producer("a").unwrap();
    let sequence = producer.next_sequence().get();
    let parts = || replay(open_with(process.clone(), 3, &Settings::new()).unwrap().inner()).parts().len();
    let before = parts();
    let giving = |on: &str| on.contains("-> log/") || on.contains("-> index/");
    let refused = Match::method(call_of(primitive)).when(giving).from_nth(nth);
    process.set_plan(mount_with(primitive).fail(refused, errno));
    let whole = draft(&mut producer, 1).unwrap();
    let Err(failed) = producer.publish_now(whole, state("a", sequence)) else { return false };
    assert_eq!((failed.error.kind(), failed.error.errno()), (kind, Some(errno)), "{how}: {}", failed.error);
    let is_unknown = failed.draft.is_none();
    assert_eq!(failed.error.to_string().contains("whether it comes is unknown"), is_unknown, "{how}");
    process.set_plan(mount_with(primitive));
    assert_eq!(parts(), before, "{how}: nothing is in");
    match failed.draft {
        Some(given_back) => drop(producer.publish_now(*given_back, state("a", sequence)).unwrap()),
        None => producer.flush().unwrap_or_else(|error| panic!("{how}: {error}")),
    }
    publish(&mut producer).unwrap_or_else(|error| panic!("{how}: {error}"));
    let parts = check_replay(&open_with(process, 4, &Settings::new()).unwrap()).parts();
    assert_eq!(check_dense(&parts)["a"], sequence + 2, "{how}: once");
    true
}

/// At each name of a publish, within a segment and across a boundary; gives how many there were.
fn refuse_everywhere(primitive: Primitive, errno: i32, kind: ErrorKind) -> u64 {
    let mut ways = 0;
    for commits in [3, 15] {
        let (disk, _) = prepared(commits, mount_with(primitive));
        ways += (1..).take_while(|nth| refuse_from(&disk, primitive, errno, *nth, kind)).count() as u64;
    }
    ways
}

#[test]
fn a_primitive_that_a_mount_stops_doing_is_unsupported_until_it_does_it_again() {
    for primitive in [Primitive::Link, Primitive::RenameNoreplace, Primitive::RenameDirectory] {
        for errno in REFUSALS {
            assert_eq!(refuse_everywhere(primitive, errno, ErrorKind::Unsupported), 3, "{primitive} {errno}");
        }
    }
}

/// It is how the kernel says that a filesystem has no RENAME_NOREPLACE; of any other call it says nothing.
#[test]
fn einval_is_a_refusal_of_the_rename_that_replaces_nothing_only() {
    let of = |primitive, kind| assert_eq!(refuse_everywhere(primitive, errno::EINVAL, kind), 3);
    of(Primitive::RenameNoreplace, ErrorKind::Unsupported);
    of(Primitive::Link, ErrorKind::Io);
    of(Primitive::RenameDirectory, ErrorKind::Io);
}

/// There is no store yet that could have been mounted otherwise.
#[test]
fn a_creation_that_is_refused_after_its_probe_says_what_that_means() {
    for (primitive, errno) in [
        (Primitive::Link, errno::EOPNOTSUPP),
        (Primitive::Link, errno::EPERM),
        (Primitive::RenameNoreplace, errno::EINVAL),
    ] {
        let store = Match::method(call_of(primitive)).when(|on| on.ends_with("-> STORE"));
        let plan = mount_with(primitive).fail(store, errno);
        let process = Arc::new(Fault::new(Arc::new(Memory::new()), plan));
        let error = create(process, 1, options(), &Settings::new()).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Unsupported, Some(errno)), "{error}");
        let said = error.to_string();
        assert!(said.contains("probed") && !said.contains("when the store was made"), "{said}");
    }
}
