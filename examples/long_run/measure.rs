//! What a cycle costs, and what the process and the disk hold: counted, printed, compared.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use batchweave::Store;

use crate::Failure;

/// Memory that may come and go between two measurements: an allocator's slack.
const MEMORY_SLACK_BYTES: u64 = 8 << 20;

/// Who reads looks at the log by the clock too: that much more or less.
const BY_THE_CLOCK: [&str; 2] = ["deliver", "idle poll"];
const CALLS_OF_A_LOOK: u64 = 8;
/// A producer asks for the room on the disk each so many parts, which isn't each so many cycles.
const BY_THE_PART: &str = "space";

/// Calls of each kind, and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cost {
    calls: BTreeMap<String, u64>,
    time: Duration,
    times: u32,
}

/// Counts calls by what they are for.
#[derive(Debug, Default)]
pub struct Meter {
    costs: BTreeMap<&'static str, Cost>,
    off: bool,
}

impl Meter {
    /// One that counts nothing.
    pub fn off() -> Self {
        Self { off: true, ..Self::default() }
    }

    /// Adds what `act` asks of the filesystem through this handle.
    pub fn of(
        &mut self,
        name: &'static str,
        store: &Store,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.off {
            return act();
        }
        let (before, began) = (calls(store), Instant::now());
        act()?;
        let time = began.elapsed();
        self.add(name, &before, &calls(store), time);
        Ok(())
    }

    /// Adds all that a new handle has asked for, its opening too.
    pub fn whole(
        &mut self,
        name: &'static str,
        store: &Store,
        act: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        act()?;
        self.add(name, &BTreeMap::new(), &calls(store), began.elapsed());
        Ok(())
    }

    fn add(
        &mut self,
        name: &'static str,
        before: &BTreeMap<String, u64>,
        after: &BTreeMap<String, u64>,
        time: Duration,
    ) {
        let cost = self.costs.entry(name).or_default();
        for (call, count) in after {
            let new = count - before.get(call).copied().unwrap_or(0);
            if new > 0 {
                *cost.calls.entry(call.clone()).or_default() += new;
            }
        }
        cost.time += time;
        cost.times += 1;
    }

    /// With what the process and the disk hold now.
    pub fn measured(self, root: &Path, steps: u64, store: &Store) -> Result<Measured, Failure> {
        let (mut files, mut bytes) = (0, 0);
        walk(root, &mut |length| {
            files += 1;
            bytes += length;
        })?;
        let retained_bytes = store.info()?.retained_bytes;
        Ok(Measured { steps, memory_bytes: resident()?, files, bytes, retained_bytes, costs: self.costs })
    }
}

fn calls(store: &Store) -> BTreeMap<String, u64> {
    let calls = serde_json::to_value(store.stats().calls).unwrap_or_default();
    let counted = calls.as_object().into_iter().flatten();
    counted.filter_map(|(call, count)| Some((call.clone(), count.as_u64()?))).collect()
}

fn walk(directory: &Path, found: &mut impl FnMut(u64)) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.metadata()?;
        if kind.is_dir() {
            walk(&entry.path(), found)?;
        } else {
            found(kind.len());
        }
    }
    Ok(())
}

/// What the process has in memory, in bytes.
fn resident() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// A cycle, and what there is after it.
#[derive(Debug)]
pub struct Measured {
    steps: u64,
    memory_bytes: u64,
    files: u64,
    bytes: u64,
    retained_bytes: u64,
    costs: BTreeMap<&'static str, Cost>,
}

impl Measured {
    pub fn print(&self) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "after {} steps: {:.1} MiB in memory, {} files with {:.1} MiB, {:.1} MiB of them retained parts",
            self.steps,
            mib(self.memory_bytes),
            self.files,
            mib(self.bytes),
            mib(self.retained_bytes)
        );
        for (name, cost) in &self.costs {
            let calls: u64 = cost.calls.values().sum();
            let each_us = cost.time.as_secs_f64() * 1e6 / f64::from(cost.times.max(1));
            let times = cost.times;
            println!("  {name:<18} {times:>3} times, {calls:>4} calls in all, {each_us:>8.1} us each");
        }
    }
}

/// Holds later measurements against the first.
pub fn judge(measured: &[Measured]) -> Result<(), Failure> {
    let Some((first, later)) = measured.split_first() else { return Err("nothing was measured".into()) };
    for now in later {
        for (name, cost) in &now.costs {
            let before = first.costs.get(name).ok_or("what is measured differs")?;
            if !same(name, &before.calls, &cost.calls) {
                let (steps, before, after) = (now.steps, &before.calls, &cost.calls);
                return Err(
                    format!("{name} asks for {after:?} after {steps} steps, {before:?} before").into()
                );
            }
        }
        let grown = now.memory_bytes.saturating_sub(first.memory_bytes);
        if grown > MEMORY_SLACK_BYTES {
            return Err(format!("memory has grown by {grown} bytes after {} steps", now.steps).into());
        }
        if (now.files, now.retained_bytes) != (first.files, first.retained_bytes) {
            return Err(
                format!("{} files after {} steps, {} before", now.files, now.steps, first.files).into()
            );
        }
    }
    Ok(())
}

/// Whether two cycles ask for the same.
fn same(name: &str, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> bool {
    if BY_THE_CLOCK.contains(&name) {
        let sum = |calls: &BTreeMap<String, u64>| calls.values().sum::<u64>();
        return sum(before).abs_diff(sum(after)) <= CALLS_OF_A_LOOK;
    }
    let counted = |calls: &BTreeMap<String, u64>| {
        let mut calls = calls.clone();
        calls.remove(BY_THE_PART);
        calls
    };
    counted(before) == counted(after)
}
