//! Where stores live: directories that several users of a group share, mounts for reading only, paths of any
//! bytes under any locale, roots that are links, moved, or seen through another mount.
//!
//! Who acts as another user is a child that has become that user, and who sees another mount has a mount
//! namespace of its own: both need root, and say that they were skipped without it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::time::Duration;
use std::{env, fs};

use batchweave::{Next, ReclaimOptions, Share, Start, Step};
use rustix::fs::{Gid, Mode, Uid, XattrFlags};

use super::*;

/// The root that a life works on, whatever its bytes.
const ROOT: &str = "BATCHWEAVE_TEST_ROOT";
const ALICE: u32 = 64_001;
const BOB: u32 = 64_002;
const GROUP: u32 = 64_100;
/// Of a member in one life: over two boundaries.
const PARTS: u64 = 40;
/// What a life beside a mount ends with that couldn't be mounted.
const NO_MOUNT: i32 = 77;
/// What a reader may ask of a storage: none of these changes anything.
const READING: [&str; 14] = [
    "open_root",
    "open_dir",
    "open",
    "size",
    "kind",
    "list",
    "space",
    "mount",
    "close",
    "read_at",
    "map",
    "populate",
    "map_word",
    "wait",
];

/// This binary again, with just that life. By a name that whoever may execute it can reach, wherever it lies.
fn life(life: &str, root: &Path, task: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", &format!("cluster::{life}"), "--ignored", "--nocapture"]);
    command.env(ROOT, root).env(TASK, task);
    command
}

/// The root and the words of this life; none in a run of all tests.
fn task() -> Option<(PathBuf, Vec<String>)> {
    let words = env::var(TASK).ok()?.split(' ').map(str::to_owned).collect();
    Some((env::var_os(ROOT)?.into(), words))
}

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        batchweave_sim::skipped(what, &"it takes root to act as somebody else");
    }
    is_root
}

/// A directory that others may reach.
fn shared_home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), PermissionsExt::from_mode(0o755)).unwrap();
    home
}

/// All that is below a directory.
fn below(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    names
        .flat_map(|path| if path.is_dir() { [below(&path), vec![path]].concat() } else { vec![path] })
        .collect()
}

/// Becomes a user whose first group is his own, as on a cluster, and who is in [`GROUP`] beside it. Only this
/// thread does, and all that the engine starts from it.
fn become_user(user: u32) {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[Gid::from_raw(GROUP)]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

/// Publishes, trains a little, checkpoints and reclaims: `name user umask`. A child's whole life.
///
/// No test by itself, so `cargo test` passes it over: the tests below start this binary again with just this,
/// since who one is holds for a whole process.
#[test]
#[ignore = "the life of a child of the other tests"]
fn member() {
    let Some((root, words)) = task() else { return };
    let [name, user, umask] = &words[..] else { panic!("not a task: {words:?}") };
    become_user(user.parse().unwrap());
    rustix::process::umask(Mode::from_raw_mode(u32::from_str_radix(umask, 8).unwrap()));
    let store = Store::open_or_create(root, options()).unwrap();
    let mut producer = store.producer(name).unwrap();
    for _ in 0..PARTS {
        publish(&mut producer).unwrap();
    }
    let head = store.info().unwrap().next_step.get();
    let run = store.group("job").unwrap().begin(Step::new(head - 4)).unwrap();
    let mut consumer = run.consumer(Share::WHOLE).unwrap();
    for _ in 0..4 {
        consumer.next_batch().unwrap().unwrap();
    }
    run.checkpoint(consumer.position(), &format!("step-{head}")).unwrap();
    let freed = store.reclaim(&ReclaimOptions::new().keep(1)).unwrap();
    assert_eq!(freed.floor.get(), head);
    say(&format!("freed {}", freed.segments.count));
}

/// Two users do, by turns, all that a job does, in a directory that `share` has prepared.
fn two_members(umask: &str, share: impl Fn(&Path)) -> tempfile::TempDir {
    let home = shared_home();
    share(home.path());
    let root = home.path().join("store");
    for (turn, (user, name)) in [(ALICE, "a"), (BOB, "b"), (ALICE, "a"), (BOB, "b")].into_iter().enumerate() {
        let said = Running::of(&mut life("member", &root, &format!("{name} {user} {umask}"))).end();
        let freed: u64 = said.strip_prefix("freed ").unwrap().parse().unwrap();
        // From the second turn on most of them are the other user's.
        assert!(freed > u64::from(turn > 0), "turn {turn} of user {user}: {said}");
    }
    let store = Store::open(&root).unwrap();
    assert!(store.verify(|_| ()).unwrap().is_clean());
    let producers = store.producers().unwrap();
    assert!(producers.len() == 2 && producers.iter().all(|one| one.sequence.get() == 2 * PARTS));
    let owners: Vec<u32> =
        below(&root).iter().map(|path| fs::symlink_metadata(path).unwrap().uid()).collect();
    assert!(owners.contains(&ALICE) && owners.contains(&BOB), "{owners:?}");
    home
}

/// Everything that has the group's bits, as the umask or the ACL has left them.
fn check_modes(root: &Path, of_others: u32) {
    for path in below(root) {
        let found = fs::symlink_metadata(&path).unwrap();
        let (all, mode) = if found.is_dir() { (0o777, 0o770) } else { (0o666, 0o660) };
        let wanted = mode | (all & of_others);
        assert_eq!(found.mode() & 0o777, wanted, "{}: {:o}", path.display(), found.mode());
    }
}

#[test]
fn two_users_of_a_group_share_a_setgid_directory() {
    if !is_root("two users of a group") {
        return;
    }
    let home = two_members("002", |home| {
        chown(home, None, Some(GROUP)).unwrap();
        fs::set_permissions(home, PermissionsExt::from_mode(0o2775)).unwrap();
    });
    let root = home.path().join("store");
    check_modes(&root, 0o005 | 0o004);
    for path in below(&root) {
        assert_eq!(fs::symlink_metadata(&path).unwrap().gid(), GROUP, "{}", path.display());
    }
}

/// The bytes of an ACL as an extended attribute: the owner's rights, each user's, the most that they have.
fn acl_of(users: [u32; 2]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [(0x01, 7, NOBODY), (0x02, 7, users[0]), (0x02, 7, users[1])];
    let rest = [(0x04, 7, NOBODY), (0x10, 7, NOBODY), (0x20, 0, NOBODY)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries.into_iter().chain(rest) {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn two_users_share_a_directory_with_a_default_acl_whatever_their_umask() {
    if !is_root("two users of a default ACL") {
        return;
    }
    let acl = acl_of([ALICE, BOB]);
    let set = |home: &Path, name: &str| rustix::fs::setxattr(home, name, &acl, XattrFlags::empty());
    let probe = shared_home();
    if let Err(error) = set(probe.path(), "system.posix_acl_default") {
        return batchweave_sim::skipped("two users of a default ACL", &error);
    }
    let home = two_members("077", |home| {
        ["system.posix_acl_access", "system.posix_acl_default"]
            .iter()
            .for_each(|name| set(home, name).unwrap());
    });
    check_modes(&home.path().join("store"), 0);
}

/// Reads and waits like any rank, and is told by `errno` where it would write: `errno`. A child's whole life.
///
/// No test by itself, so `cargo test` passes it over: the tests below start this binary again with just this,
/// as another user or beside a mount of its own.
#[test]
#[ignore = "the life of a child of the other tests"]
fn onlooker() {
    let Some((root, words)) = task() else { return };
    let errno = Some(words[0].parse::<i32>().unwrap());
    let store = Store::open(&root).unwrap();
    let snapshot = fs::read(root.with_file_name("snapshot")).unwrap();
    let run = store.join(&snapshot).unwrap();
    // With a thread that reads ahead, and without; to the end, and waiting there.
    for window in [8, 0] {
        let options = batchweave::ConsumerOptions::new().window_steps(window);
        let mut consumer = run.consumer_with(Share::WHOLE, options).unwrap();
        for step in 0..PARTS {
            let batch = consumer.next_batch().unwrap().unwrap();
            assert_eq!(*batch.slice(0).unwrap(), *text("a", step).as_bytes());
        }
        assert_eq!(
            consumer.next_batch_timeout(Duration::from_millis(1)).unwrap_err().kind(),
            ErrorKind::Timeout
        );
    }
    let mut anew = store.run(Start::Beginning).unwrap().consumer(Share::WHOLE).unwrap();
    assert!(matches!(anew.try_next().unwrap(), Next::Batch(_)));
    assert!(store.verify(|_| ()).unwrap().is_clean());
    store.groups().unwrap();
    let calls = store.stats().calls;
    for (name, count) in calls.iter().filter(|(name, _)| !READING.contains(name)) {
        assert_eq!(count, 0, "a reader called {name}");
    }
    let position = anew.position();
    for (what, error) in [
        ("checkpoint", run.checkpoint(position, "mine").map(drop).unwrap_err()),
        ("begin", store.group("mine").unwrap().begin(Start::Beginning).map(drop).unwrap_err()),
        ("producer", store.producer("b").map(drop).unwrap_err()),
        ("close", store.close(false).map(drop).unwrap_err()),
    ] {
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, errno), "{what}: {error}");
        assert!(error.path().is_some_and(|path| path.starts_with(&root)), "{what}: {error}");
    }
    say("has read");
}

/// A store that others may read and not write, and its run's snapshot beside it.
fn to_be_read() -> (tempfile::TempDir, PathBuf) {
    let home = shared_home();
    let root = home.path().join("store");
    let store = Store::create(&root, options()).unwrap();
    let mut producer = store.producer("a").unwrap();
    for _ in 0..PARTS {
        publish(&mut producer).unwrap();
    }
    let run = store.group("job").unwrap().begin(Start::Beginning).unwrap();
    fs::write(home.path().join("snapshot"), run.snapshot()).unwrap();
    (home, root)
}

/// Names, sizes, and when each was changed last.
fn looks(root: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let look = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).unwrap();
        (path, found.size(), found.ctime(), found.ctime_nsec())
    };
    let mut looks: Vec<_> = below(root).into_iter().map(look).collect();
    looks.sort();
    looks
}

#[test]
fn who_may_not_write_reads_without_a_write_call_and_is_told_where_he_would_write() {
    const EACCES: &str = "13";
    if !is_root("a reader who may not write") {
        return;
    }
    let (_home, root) = to_be_read();
    let before = looks(&root);
    let said = Running::of(life("onlooker", &root, EACCES).uid(BOB).gid(BOB)).end();
    assert_eq!(said, "has read");
    assert!(looks(&root) == before, "who only reads has changed something");
}

/// A life in a mount namespace of its own, in which `mount` was done with these paths as `$1` and `$2`; none
/// if this process may not mount.
fn beside_a_mount(what: &str, mount: &str, paths: [&Path; 2], life: &Command) -> Option<String> {
    let mut command = Command::new("unshare");
    let script = format!("({mount}) || exit {NO_MOUNT}; shift 2; exec \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).args(paths);
    command.arg(env::current_exe().unwrap()).args(life.get_args());
    command.envs(life.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut running = match command.stdout(Stdio::piped()).spawn() {
        Ok(process) => Running::reading(process),
        Err(error) => {
            batchweave_sim::skipped(what, &error);
            return None;
        }
    };
    let last = std::iter::from_fn(|| running.next()).last();
    let status = running.process.wait().unwrap();
    if last.is_none() && !status.success() && status.code().is_some_and(|code| code == NO_MOUNT || code == 1)
    {
        batchweave_sim::skipped(what, &"this process may not mount");
        return None;
    }
    assert!(status.success(), "{what}: {status}");
    last
}

#[test]
fn a_mount_for_reading_only_is_read_without_a_write_call_and_said_where_one_would_write() {
    const EROFS: &str = "30";
    let (home, root) = to_be_read();
    let before = looks(&root);
    let mount = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"";
    let onlooker = life("onlooker", &root, EROFS);
    if let Some(said) = beside_a_mount("a mount for reading only", mount, [home.path(), &root], &onlooker) {
        assert_eq!(said, "has read");
        assert!(looks(&root) == before, "who only reads has changed something");
    }
}

/// Opens or creates, publishes a part, reads all and says how many there are. A child's whole life.
///
/// No test by itself, so `cargo test` passes it over: the tests below start this binary again with just this,
/// in another directory and locale, which hold for a whole process.
#[test]
#[ignore = "the life of a child of the other tests"]
fn visitor() {
    let Some((root, _)) = task() else { return };
    assert_eq!(env::var("LC_ALL").unwrap(), "C");
    let store = Store::open_or_create(&root, options()).unwrap();
    publish(&mut store.producer("a").unwrap()).unwrap();
    assert!(store.verify(|_| ()).unwrap().is_clean());
    let nowhere = Store::open(root.join(OsStr::from_bytes(b"\xff"))).unwrap_err();
    assert!(nowhere.to_string().contains("no such directory"), "{nowhere}");
    say(&format!("{} parts in {}", read_all(&store).len(), store.uuid()));
}

fn visit(root: &Path, from: &Path) -> String {
    Running::of(life("visitor", root, "-").env("LC_ALL", "C").env_remove("LANG").current_dir(from)).end()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "whoever owns a store moves it as he likes")]
fn a_store_is_the_same_by_any_path_and_wherever_it_was_moved() {
    let home = shared_home();
    let (slash, home) = (Path::new("/"), home.path());
    let strange = OsStr::from_bytes(b"caf\xc3\xa9 \xff\xfe\n\"'$x");
    fs::create_dir(home.join(strange)).unwrap();
    let root = home.join(strange).join(OsStr::from_bytes(b"-\x01run"));
    let first = visit(&root, slash);
    let uuid = first.strip_prefix("1 parts in ").unwrap();
    let mut parts = 1;
    let mut same = |said: String, how: &str| {
        parts += 1;
        assert_eq!(said, format!("{parts} parts in {uuid}"), "{how}");
    };
    same(visit(Path::new(root.file_name().unwrap()), &home.join(strange)), "a relative root");
    same(
        visit(&Path::new("..").join(strange).join(root.file_name().unwrap()), &home.join(strange)),
        "a detour",
    );
    symlink(&root, home.join("root")).unwrap();
    symlink(strange, home.join("above")).unwrap();
    same(visit(&home.join("root"), slash), "a symbolic link");
    same(visit(&home.join("above").join(root.file_name().unwrap()), slash), "below a symbolic link");
    let moved = home.join("moved");
    fs::rename(&root, &moved).unwrap();
    same(visit(&moved, slash), "moved");
    fs::create_dir(home.join("bound")).unwrap();
    let mut visitor = life("visitor", &home.join("bound"), "-");
    visitor.env("LC_ALL", "C");
    let mount = "mount --bind \"$1\" \"$2\"";
    let paths = [moved.as_path(), &home.join("bound")];
    if let Some(said) = beside_a_mount("a store through another mount", mount, paths, &visitor) {
        same(said, "through another mount");
    }
    // Nothing on disk says where it lay.
    for path in below(&moved).into_iter().filter(|path| path.is_file()) {
        let bytes = fs::read(&path).unwrap();
        for name in [strange.as_bytes(), home.as_os_str().as_bytes()] {
            assert!(
                !bytes.windows(name.len()).any(|window| window == name),
                "{} names a place",
                path.display()
            );
        }
    }
}

#[test]
fn a_root_that_only_another_node_has_is_said_with_the_host_and_in_time() {
    let home = tempfile::tempdir().unwrap();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for root in [home.path().join("nowhere"), home.path().to_path_buf()] {
        let error = Store::open_wait(&root, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let said = error.to_string();
        assert!(said.contains(&format!("host {host}")), "{said}");
        assert!(said.contains(&root.display().to_string()), "{said}");
    }
}
