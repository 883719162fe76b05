//! Properties of names: who gets one, what has it, what is left.

use std::collections::BTreeSet;
use std::path::Path;

use batchweave::storage::{Access, Dir, Kind, Storage};

use super::{Ground, Property, Verdict, expect_fails, or_skip};
use crate::errno;

pub(super) const PROPERTIES: &[Property] = &[
    ("create-is-exclusive", create_is_exclusive),
    ("link-takes-a-free-name-only", link_takes_a_free_name_only),
    ("link-gives-the-same-file", link_gives_the_same_file),
    ("link-needs-a-source", link_needs_a_source),
    ("rename-replaces", rename_replaces),
    ("rename-noreplace", rename_noreplace),
    ("rename-of-a-directory", rename_of_a_directory),
    ("rename-onto-a-full-directory", rename_onto_a_full_directory),
    ("absent-names-are-not-found", absent_names_are_not_found),
    ("kinds", kinds),
    ("list-names-all", list_names_all),
    ("fresh-directories-see-new-names", fresh_directories_see_new_names),
    ("full-directories-stay", full_directories_stay),
    ("removed-directories-are-gone", removed_directories_are_gone),
    ("handles-survive-unlink", handles_survive_unlink),
    ("syncs-and-questions", syncs_and_questions),
];

/// What a mount without hard links answers.
const NO_LINKS: &[i32] = &[errno::EPERM, errno::EOPNOTSUPP, errno::ENOSYS];

fn listed(ground: &Ground<'_>, dir: &Dir) -> BTreeSet<String> {
    let names = ground.storage.list(dir).expect("list");
    let count = names.len();
    let names: BTreeSet<String> =
        names.into_iter().map(|name| name.into_string().expect("a name in UTF-8")).collect();
    assert_eq!(names.len(), count, "a name was listed twice");
    names
}

fn create_is_exclusive(ground: &Ground<'_>) -> Verdict {
    ground.put("a", b"first");
    expect_fails(ground.storage.create_exclusive(&ground.dir, "a"), &[errno::EEXIST], "a second create");
    ground.subdir("d");
    expect_fails(
        ground.storage.create_exclusive(&ground.dir, "d"),
        &[errno::EEXIST],
        "create over a directory",
    );
    assert_eq!(ground.read_name("a"), b"first", "a create that lost changed the file");
    Verdict::Kept
}

fn link_takes_a_free_name_only(ground: &Ground<'_>) -> Verdict {
    ground.put("one", b"one");
    ground.put("two", b"two");
    let to = ground.subdir("to");
    if let Err(skip) =
        or_skip(ground.storage.link(&ground.dir, "one", &to, "v"), NO_LINKS, "link to a free name")
    {
        return skip;
    }
    let link = |from, to_name| ground.storage.link(&ground.dir, from, &to, to_name);
    // Some clients answer a loser with EPERM; that it lost is what counts (R2).
    let taken = &[errno::EEXIST, errno::EPERM];
    expect_fails(link("two", "v"), taken, "link to a taken name");
    expect_fails(link("one", "v"), taken, "link to a name of the same file");
    ground.storage.make_dir(&to, "d").expect("make_dir");
    expect_fails(link("two", "d"), taken, "link to the name of a directory");
    let winner = ground.storage.open(&to, "v", Access::Read).expect("open of what was linked");
    assert_eq!(ground.read(&winner), b"one", "a link that lost replaced the winner");
    Verdict::Kept
}

fn link_gives_the_same_file(ground: &Ground<'_>) -> Verdict {
    let staged = ground.create("staged");
    ground.write(&staged, b"before", 0);
    let link = ground.storage.link(&ground.dir, "staged", &ground.dir, "final");
    if let Err(skip) = or_skip(link, NO_LINKS, "link") {
        return skip;
    }
    assert_eq!(
        ground.storage.kind(&ground.dir, "final").expect("kind"),
        Kind::File,
        "a link that isn't a file"
    );
    ground.write(&staged, b" after", 6);
    ground.storage.close(staged).expect("close");
    assert_eq!(ground.read_name("staged"), b"before after");
    // Some FUSE clients have a cache for each name. Nobody leans on what is written after the link (R3).
    let is_shared = ground.read_name("final") != b"before";
    let check = |why| {
        let seen = ground.read_name("final");
        assert!(seen == b"before after" || !is_shared && seen == b"before", "{why}: {seen:?}");
    };
    check("a link has other bytes");
    ground.storage.remove(&ground.dir, "staged").expect("remove of the first of two names");
    ground.expect_absent("staged");
    check("removing one name took the other's bytes");
    if !is_shared {
        return Verdict::Skipped("what is written after the link isn't seen by the other name".to_owned());
    }
    Verdict::Kept
}

fn link_needs_a_source(ground: &Ground<'_>) -> Verdict {
    let link = ground.storage.link(&ground.dir, "absent", &ground.dir, "b");
    expect_fails(link, &[errno::ENOENT], "link of an absent file");
    ground.expect_absent("b");
    Verdict::Kept
}

fn rename_replaces(ground: &Ground<'_>) -> Verdict {
    ground.put("new", b"new");
    ground.put("old", b"old");
    let held = ground.open("old");
    ground.storage.rename(&ground.dir, "new", &ground.dir, "old").expect("rename over a file");
    ground.expect_absent("new");
    assert_eq!(ground.read_name("old"), b"new");
    assert_eq!(ground.read(&held), b"old", "who has the replaced file open reads its bytes");
    let rename = ground.storage.rename(&ground.dir, "absent", &ground.dir, "old");
    expect_fails(rename, &[errno::ENOENT], "rename of an absent file");
    assert_eq!(ground.read_name("old"), b"new");
    let to = ground.subdir("to");
    ground
        .storage
        .rename(&ground.dir, "old", &to, "free")
        .expect("rename to a free name of another directory");
    ground.expect_absent("old");
    assert_eq!(listed(ground, &to), BTreeSet::from(["free".to_owned()]));
    Verdict::Kept
}

fn rename_noreplace(ground: &Ground<'_>) -> Verdict {
    ground.put("one", b"one");
    ground.put("two", b"two");
    let rename = |from| ground.storage.rename_noreplace(&ground.dir, from, &ground.dir, "v");
    // Only a free name tells: on a taken one the kernel says EEXIST even where the filesystem can't.
    let cannot = &[errno::EINVAL, errno::ENOSYS, errno::EOPNOTSUPP];
    if let Err(skip) = or_skip(rename("one"), cannot, "rename_noreplace to a free name") {
        assert_eq!(ground.read_name("one"), b"one", "a rename that isn't supported moved the file");
        ground.expect_absent("v");
        return skip;
    }
    ground.expect_absent("one");
    expect_fails(rename("two"), &[errno::EEXIST], "rename_noreplace to a taken name");
    assert_eq!(ground.read_name("v"), b"one", "a rename that lost replaced the winner");
    assert_eq!(ground.read_name("two"), b"two", "a rename that lost took its source");
    Verdict::Kept
}

fn rename_of_a_directory(ground: &Ground<'_>) -> Verdict {
    let staged = ground.subdir("staged");
    drop(ground.storage.create_exclusive(&staged, "c").expect("create"));
    let to = ground.subdir("to");
    ground.storage.rename(&ground.dir, "staged", &to, "v").expect("rename of a directory to a free name");
    ground.expect_absent("staged");
    let moved = ground.storage.open_dir(&to, "v").expect("open_dir of what was renamed");
    assert_eq!(listed(ground, &moved), BTreeSet::from(["c".to_owned()]));
    Verdict::Kept
}

/// What makes the third primitive exclusive.
fn rename_onto_a_full_directory(ground: &Ground<'_>) -> Verdict {
    for name in ["one", "two"] {
        let dir = ground.subdir(name);
        drop(ground.storage.create_exclusive(&dir, "c").expect("create"));
    }
    let rename = |from, to| ground.storage.rename(&ground.dir, from, &ground.dir, to);
    let full = &[errno::ENOTEMPTY, errno::EEXIST];
    expect_fails(rename("one", "two"), full, "rename of a directory onto one that holds a file");
    ground.put("file", b"");
    expect_fails(rename("one", "file"), &[errno::ENOTDIR], "rename of a directory onto a file");
    expect_fails(rename("file", "one"), &[errno::EISDIR, errno::EEXIST], "rename of a file onto a directory");
    assert_eq!(listed(ground, &ground.dir), ["file", "one", "two"].map(str::to_owned).into());
    Verdict::Kept
}

fn absent_names_are_not_found(ground: &Ground<'_>) -> Verdict {
    let (storage, dir) = (ground.storage, &ground.dir);
    ground.expect_absent("a");
    expect_fails(
        storage.open(dir, "a", Access::Update),
        &[errno::ENOENT],
        "open of an absent name for update",
    );
    expect_fails(storage.open_dir(dir, "a"), &[errno::ENOENT], "open_dir of an absent name");
    expect_fails(storage.remove(dir, "a"), &[errno::ENOENT], "remove of an absent name");
    expect_fails(storage.remove_dir(dir, "a"), &[errno::ENOENT], "remove_dir of an absent name");
    let long = "n".repeat(256);
    expect_fails(storage.create_exclusive(dir, &long), &[errno::ENAMETOOLONG], "a name of 256 bytes");
    drop(ground.create(&long[..255]));
    Verdict::Kept
}

fn kinds(ground: &Ground<'_>) -> Verdict {
    let (storage, dir) = (ground.storage, &ground.dir);
    ground.put("f", b"");
    ground.subdir("d");
    assert_eq!(storage.kind(dir, "f").expect("kind of a file"), Kind::File);
    assert_eq!(storage.kind(dir, "d").expect("kind of a directory"), Kind::Directory);
    expect_fails(storage.open_dir(dir, "f"), &[errno::ENOTDIR], "open_dir of a file");
    expect_fails(storage.open(dir, "d", Access::Update), &[errno::EISDIR], "open of a directory for update");
    expect_fails(storage.remove_dir(dir, "f"), &[errno::ENOTDIR], "remove_dir of a file");
    expect_fails(storage.remove(dir, "d"), &[errno::EISDIR, errno::EPERM], "remove of a directory");
    expect_fails(storage.make_dir(dir, "f"), &[errno::EEXIST], "make_dir over a file");
    expect_fails(storage.make_dir(dir, "d"), &[errno::EEXIST], "make_dir over a directory");
    Verdict::Kept
}

fn list_names_all(ground: &Ground<'_>) -> Verdict {
    assert!(listed(ground, &ground.dir).is_empty(), "an empty directory lists names");
    let mut names: BTreeSet<String> = (0..1000).map(|n| format!("{n:020}")).collect();
    for name in &names {
        ground.put(name, b"");
    }
    assert_eq!(listed(ground, &ground.dir), names, "a listing of 1000 files");
    ground.subdir("d");
    names.insert("d".to_owned());
    ground.storage.remove(&ground.dir, &format!("{:020}", 7)).expect("remove");
    names.remove(&format!("{:020}", 7));
    assert_eq!(listed(ground, &ground.dir), names, "a second listing through the same handle");
    Verdict::Kept
}

fn fresh_directories_see_new_names(ground: &Ground<'_>) -> Verdict {
    let dir = ground.subdir("d");
    for round in 0..20 {
        let name = format!("{round}");
        let fresh = || ground.storage.open_dir(&ground.dir, "d").expect("open_dir");
        expect_fails(
            ground.storage.open(&fresh(), &name, Access::Read),
            &[errno::ENOENT],
            "open before create",
        );
        drop(ground.storage.create_exclusive(&dir, &name).expect("create"));
        let found = ground.storage.open(&fresh(), &name, Access::Read);
        found.expect("a directory opened afresh doesn't see a file that was made before");
    }
    Verdict::Kept
}

fn full_directories_stay(ground: &Ground<'_>) -> Verdict {
    let dir = ground.subdir("d");
    drop(ground.storage.create_exclusive(&dir, "f").expect("create"));
    let full = &[errno::ENOTEMPTY, errno::EEXIST];
    expect_fails(
        ground.storage.remove_dir(&ground.dir, "d"),
        full,
        "remove_dir of a directory that holds a file",
    );
    ground.storage.remove(&dir, "f").expect("remove");
    ground.storage.remove_dir(&ground.dir, "d").expect("remove_dir of an empty directory");
    Verdict::Kept
}

/// ESTALE is what a network mount says of a handle whose directory is gone.
fn removed_directories_are_gone(ground: &Ground<'_>) -> Verdict {
    let (storage, dir) = (ground.storage, ground.subdir("d"));
    storage.remove_dir(&ground.dir, "d").expect("remove_dir of an empty directory");
    let gone = &[errno::ENOENT, errno::ESTALE];
    expect_fails(storage.open_dir(&ground.dir, "d"), gone, "open_dir of a removed directory");
    expect_fails(storage.create_exclusive(&dir, "f"), gone, "create in a removed directory");
    expect_fails(storage.make_dir(&dir, "f"), gone, "make_dir in a removed directory");
    expect_fails(storage.open(&dir, "f", Access::Read), gone, "open in a removed directory");
    ground.put("f", b"");
    expect_fails(storage.rename(&ground.dir, "f", &dir, "f"), gone, "rename into a removed directory");
    let link =
        storage.link(&ground.dir, "f", &dir, "f").expect_err("link into a removed directory went well");
    assert!(
        link.raw_os_error().is_some_and(|errno| gone.contains(&errno) || NO_LINKS.contains(&errno)),
        "{link}"
    );
    ground.subdir("d");
    expect_fails(
        storage.create_exclusive(&dir, "f"),
        gone,
        "create in a directory that another has replaced",
    );
    Verdict::Kept
}

fn handles_survive_unlink(ground: &Ground<'_>) -> Verdict {
    let written = ground.create("f");
    ground.write(&written, b"bytes", 0);
    let read = ground.open("f");
    ground.storage.remove(&ground.dir, "f").expect("remove of an open file");
    ground.expect_absent("f");
    ground.put("f", b"another");
    assert_eq!(ground.read(&read), b"bytes", "a handle followed its name to another file");
    ground.write(&written, b" on", 5);
    ground.storage.close(written).expect("close of a removed file");
    assert_eq!(ground.read(&read), b"bytes on");
    Verdict::Kept
}

fn syncs_and_questions(ground: &Ground<'_>) -> Verdict {
    let (storage, dir) = (ground.storage, &ground.dir);
    let file = ground.create("f");
    ground.write(&file, b"bytes", 0);
    storage.sync_file(&file).expect("sync_file");
    storage.sync_file(&ground.open("f")).expect("sync_file of a file that is open for reading");
    storage.sync_dir(dir).expect("sync_dir");
    storage.close(file).expect("close");
    storage.close(ground.open("f")).expect("close of a file that was only read");
    let shared = ground.open("f");
    let clone = shared.clone();
    storage
        .close(shared)
        .expect_err("close of a file that a clone holds open would say nothing of its writes (R3)");
    assert_eq!(ground.read(&clone), b"bytes");
    let space = storage.space(dir).expect("space");
    assert!(space.bytes_free <= space.bytes_total, "more is free than there is: {space:?}");
    assert!(space.bytes_total > 0, "a filesystem of no bytes");
    storage.mount(dir).expect("mount");
    Verdict::Kept
}

/// Roots are paths; said of one below the root of the suite.
pub(super) fn roots(storage: &dyn Storage, root: &Path) {
    let below = root.join("roots");
    expect_fails(storage.open_root(&below), &[errno::ENOENT], "open_root of an absent path");
    let deep = below.join("deep");
    expect_fails(storage.make_root(&deep), &[errno::ENOENT], "make_root below an absent directory");
    storage.make_root(&below).expect("make_root of a free path");
    let opened = storage.open_root(&below).expect("open_root of what was made");
    assert!(storage.list(&opened).expect("list of a root").is_empty(), "a new root isn't empty");
    drop(storage.create_exclusive(&opened, "file").expect("create in a root"));
    expect_fails(storage.open_root(&below.join("file")), &[errno::ENOTDIR], "open_root of a file");
    expect_fails(storage.open_root(&below.join("file/x")), &[errno::ENOTDIR], "open_root below a file");
    let other = root.join("other");
    storage.rename_root(&below, &other).expect("rename_root to a free path");
    expect_fails(storage.open_root(&below), &[errno::ENOENT], "open_root of a path that was renamed");
    let opened = storage.open_root(&other).expect("open_root of the new path");
    drop(storage.open(&opened, "file", Access::Read).expect("what was in a root that was renamed"));
    storage.make_root(&below).expect("make_root of the path that is free again");
    storage.rename_root(&other, &below).expect("rename_root to an empty directory");
    storage.make_root(&other).expect("make_root of the other path");
    let full = [errno::ENOTEMPTY, errno::EEXIST];
    expect_fails(storage.rename_root(&other, &below), &full, "rename_root to a directory that isn't empty");
}
