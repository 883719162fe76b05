//! The house rules that a compiler doesn't hold: layers, sizes, heads, who may name which crate, and that the
//! tests which docs/cases.md names are there.
//!
//! Each failure says how to mend it. The layer table is read from docs/design.md, section 10.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LINE_CHARS_MAX: usize = 110;
const FILE_LINES_MAX: usize = 700;
const FUNCTION_LINES_MAX: usize = 70;
const TEST_BINARIES_MAX: usize = 10;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Rust files below `dir`, as (path from the project's root, text).
fn rust_files(dir: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk(&root().join(dir), &mut found);
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    found.into_iter().filter(is_rust).map(named).collect()
}

/// The room of a file under src/: its folder, or its own name.
fn room_of(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap();
    inside.split('/').next().unwrap().trim_end_matches(".rs")
}

struct Layers {
    layer: BTreeMap<String, u32>,
    /// (room, room of the same layer that it may import).
    beside: BTreeSet<(String, String)>,
}

fn layers() -> Layers {
    let design = fs::read_to_string(root().join("docs/design.md")).unwrap();
    let mut layers = Layers { layer: BTreeMap::new(), beside: BTreeSet::new() };
    for line in design.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, rooms, beside, _, _] = cells[..] else { continue };
        let Ok(number) = number.parse() else { continue };
        for room in rooms.split('`').filter(|room| !room.trim().is_empty()) {
            layers.layer.insert(room.to_owned(), number);
        }
        for rule in beside.split(';').filter_map(|rule| rule.split_once(':')) {
            let others = rule.1.split_whitespace();
            layers.beside.extend(others.map(|other| (rule.0.trim().to_owned(), other.to_owned())));
        }
    }
    assert!(layers.layer.len() > 10, "the layer table of docs/design.md isn't read any more");
    layers
}

/// The rooms that a file imports, with the line that does.
fn imports(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        for after in line.split("crate::").skip(1) {
            let room: String =
                after.chars().take_while(|char| char.is_ascii_lowercase() || *char == '_').collect();
            if !room.is_empty() {
                found.push((number + 1, room));
            }
        }
    }
    found
}

#[test]
fn imports_point_down() {
    let layers = layers();
    let mut wrong = Vec::new();
    for (path, text) in rust_files("src") {
        let room = room_of(&path);
        if room == "lib" {
            continue;
        }
        let Some(own) = layers.layer.get(room) else {
            wrong.push(format!("{path}: the room \"{room}\" isn't in the layer table"));
            continue;
        };
        for (line, other) in imports(&text) {
            let Some(layer) = layers.layer.get(&other) else { continue };
            let beside = layers.beside.contains(&(room.to_owned(), other.clone()));
            if other != room && layer >= own && !beside {
                wrong.push(format!(
                    "{path}:{line}: \"{room}\" (layer {own}) imports \"{other}\" (layer {layer})"
                ));
            }
        }
    }
    let mend =
        "move what is needed down, or turn the call around; the table is in docs/design.md, section 10";
    assert!(wrong.is_empty(), "{}\n{mend}", wrong.join("\n"));
}

#[test]
fn the_lib_exports_by_name() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(!lib.contains("::*"), "src/lib.rs re-exports by name, so that the public API can be read there");
}

#[test]
fn files_lines_and_heads_keep_their_size() {
    let mut wrong = Vec::new();
    for dir in ["src", "cli", "fuzz", "sim", "tests", "examples", "benches"] {
        for (path, text) in rust_files(dir) {
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX {
                wrong.push(format!("{path} has {lines} lines: split it by idea, at most {FILE_LINES_MAX}"));
            }
            if !text.starts_with("//!") {
                wrong
                    .push(format!("{path} doesn't begin with //!: say what it owns and what it must not do"));
            }
            if path.starts_with("src/") && path.matches('/').count() > 2 {
                wrong.push(format!("{path} is more than two folders deep"));
            }
            for (number, line) in text.lines().enumerate() {
                if line.chars().count() > LINE_CHARS_MAX {
                    wrong.push(format!("{path}:{}: longer than {LINE_CHARS_MAX} characters", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_keep_their_size() {
    let mut wrong = Vec::new();
    for dir in ["src", "cli/src", "fuzz/targets", "sim/src"] {
        for (path, text) in rust_files(dir) {
            for (line, length) in functions(&text) {
                // A match over all record kinds may be longer.
                let over_kinds = path == "src/format/record.rs";
                if length > FUNCTION_LINES_MAX && !over_kinds {
                    wrong.push(format!(
                        "{path}:{line}: a function of {length} lines, at most {FUNCTION_LINES_MAX}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Line and length of every function; rustfmt sees to it that one ends at its own indentation.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_function = |line: &str| {
        let line = line.trim_start();
        let words = ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "const fn ", "pub const fn "];
        words.iter().any(|word| line.starts_with(word))
    };
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let opens = lines[number..].iter().find(|line| line.ends_with('{') || line.ends_with(';'));
        if opens.is_some_and(|line| line.ends_with(';')) {
            continue;
        }
        let length = lines[number..].iter().position(|line| *line == end);
        found.push((number + 1, length.map_or(1, |length| length + 1)));
    }
    found
}

#[test]
fn crates_are_named_in_their_one_room() {
    let rules: [(&str, &[&str]); 5] = [
        ("rustix::", &["src/storage/"]),
        ("nix::", &["src/storage/"]),
        ("memmap2::", &["src/storage/mapping.rs"]),
        ("twox_hash::", &["src/format/checksum.rs"]),
        ("zstd::", &["src/format/codec.rs"]),
    ];
    let mut wrong = Vec::new();
    for (path, text) in rust_files("src") {
        for (name, rooms) in rules {
            let named = text.lines().any(|line| {
                let before = line.split(name).next().unwrap_or_default();
                line.contains(name) && !before.ends_with(|char: char| char.is_alphanumeric() || char == '_')
            });
            if named && !rooms.iter().any(|room| path.starts_with(room)) {
                wrong.push(format!("{path} names {name}, which only {rooms:?} may"));
            }
        }
        let unsafe_word = ["unsafe", " {"].concat();
        if text.contains(&unsafe_word) && path != "src/storage/mapping.rs" {
            wrong.push(format!("{path} has an unsafe block; only src/storage/mapping.rs may"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the engine never does, so what its sources never name: where a lock would hang, a map would be a
/// SIGBUS on a full disk, a page would be larger, and a size would be the node's and not the job's.
#[test]
fn locks_maps_for_writing_pages_and_the_nodes_memory_are_named_nowhere() {
    let never: [(&str, &[&str]); 5] = [
        (
            "takes a file lock",
            &["flock(", "FlockOperation", "fcntl_lock", "F_SETLK", "F_OFD_SETLK", "lockf("],
        ),
        ("opens a file past the storage trait, whose methods are counted", &["fs::File", "OpenOptions"]),
        ("writes through a map, or cuts a file", &["MmapMut", "map_mut", "ftruncate", "OFlags::TRUNC"]),
        (
            "maps from within a file or takes a page for 4 KiB, where another machine's has 64",
            &[".offset(", "page_size", "PAGE_SIZE", "PAGESIZE"],
        ),
        (
            "sizes something by the node's memory",
            &["MemTotal", "meminfo", "sysinfo", "PhysPages", "PHYS_PAGES"],
        ),
    ];
    let mut wrong = Vec::new();
    for (path, text) in rust_files("src") {
        for (number, line) in text.lines().enumerate() {
            for (does, words) in never {
                if words.iter().any(|word| line.contains(word)) {
                    wrong.push(format!("{path}:{}: {does}, which is never done (docs/cases.md)", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a text has the function, as a test: of a suite that another file runs, or an example's `main`, it
/// is enough that it is there.
fn has_test(path: &str, text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let declared = [format!("fn {name}("), format!("pub fn {name}(")];
    let at = lines.iter().position(|line| declared.iter().any(|declared| line.starts_with(declared)));
    let is_attribute = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    let is_marked =
        |at: usize| lines[..at].iter().rev().take_while(is_attribute).any(|line| *line == "#[test]");
    at.is_some_and(|at| is_marked(at) || name == "main" || path.starts_with("sim/src/contract/"))
}

#[test]
fn the_cases_name_tests_that_are_there() {
    let cases = fs::read_to_string(root().join("docs/cases.md")).unwrap();
    let mut wrong = Vec::new();
    let (mut rows, mut named) = (0, 0);
    for (number, line) in cases.lines().enumerate() {
        let tests: Vec<_> =
            line.split('`').skip(1).step_by(2).filter_map(|word| word.split_once(".rs::")).collect();
        for (file, function) in &tests {
            let path = format!("{file}.rs");
            match fs::read_to_string(root().join(&path)) {
                Ok(text) if has_test(&path, &text, function) => named += 1,
                Ok(_) => wrong.push(format!("line {}: {path} has no test {function}", number + 1)),
                Err(error) => wrong.push(format!("line {}: {path}: {error}", number + 1)),
            }
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, seen, holds, _, open, _] = cells[..] else { continue };
        if seen == "seen in" || seen.starts_with("---") {
            continue;
        }
        rows += 1;
        if holds.is_empty() || tests.is_empty() && open.is_empty() {
            wrong.push(format!("line {}: it says neither a test nor what isn't covered", number + 1));
        }
    }
    let mend = "name the test that holds the row, or say in the last column what isn't covered";
    assert!(wrong.is_empty(), "docs/cases.md, {}\n{mend}", wrong.join("\n"));
    assert!(rows >= 45 && named >= 100, "only {rows} rows and {named} tests of docs/cases.md were read");
}

#[test]
fn nothing_is_left_for_later() {
    let words =
        [["to", "do!"], ["unimple", "mented!"], ["FIX", "ME"], ["XX", "X"], ["TO", "DO"], ["#[ig", "nore]"]];
    let mut wrong = Vec::new();
    for dir in ["src", "cli", "fuzz", "sim", "tests", "examples", "benches"] {
        for (path, text) in rust_files(dir) {
            for word in words.map(|halves| halves.concat()) {
                if text.contains(&word) {
                    wrong.push(format!("{path} says {word}: finish it, or leave it out"));
                }
            }
            let allow = ["#[al", "low("].concat();
            if text.contains(&allow) || text.contains(&allow.replace("#[", "#![")) {
                wrong.push(format!("{path} allows a lint: expect it, with a reason"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn test_binaries_are_few_and_say_their_method() {
    let binaries: Vec<_> =
        rust_files("tests").into_iter().filter(|(path, _)| path.matches('/').count() == 1).collect();
    assert!(
        binaries.len() <= TEST_BINARIES_MAX,
        "{} test binaries: put tests of one method together",
        binaries.len()
    );
}
