//! What people see: bars on a terminal, else a line for each event; and the table at the end.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::corpus::{Corpus, STORED};
use crate::driver::Driven;
use crate::job::{PARTITIONS, Role, Said};
use crate::proof::Proof;
use crate::space::Space;

pub struct Screen {
    bars: MultiProgress,
    producers: Vec<ProgressBar>,
    trainer: ProgressBar,
}

impl Screen {
    pub fn new(corpus: &Corpus) -> Self {
        let bars = MultiProgress::new();
        let style = ProgressStyle::with_template("{prefix:12} {wide_bar} {pos:>6}/{len} {msg:12}");
        let bar = |role: Role, length| {
            let bar = ProgressBar::new(length).with_prefix(role.to_string());
            bars.add(match &style {
                Ok(style) => bar.with_style(style.clone()),
                Err(_) => bar,
            })
        };
        let producers =
            (0..PARTITIONS).map(|partition| bar(Role::Producer(partition), corpus.batches(partition)));
        Self {
            producers: producers.collect(),
            trainer: bar(Role::Trainer, corpus.steps()),
            bars: bars.clone(),
        }
    }

    pub fn show(&self, role: Role, said: &Said) {
        match (role, said) {
            (Role::Producer(partition), Said::Opened { batches } | Said::Published { batches }) => {
                self.producers[partition].set_message("batches");
                self.producers[partition].set_position(*batches);
            }
            (_, Said::Trained { step, loss }) => {
                self.trainer.set_message(format!("loss {loss:.3}"));
                self.trainer.set_position(step + 1);
            }
            _ => {}
        }
    }

    pub fn say(&self, event: &str) {
        if self.bars.is_hidden() || self.bars.println(event).is_err() {
            println!("         {event}");
        }
    }

    pub fn finish(&self) {
        self.producers.iter().chain([&self.trainer]).for_each(ProgressBar::finish_and_clear);
    }
}

/// What is to be remembered of a run.
pub fn table(driven: &Driven, proof: &Proof, space: &Space, corpus: &Corpus) {
    let windows: u64 = (0..PARTITIONS).map(|partition| corpus.windows(partition)).sum();
    let megabytes = (windows * STORED as u64) as f64 / 1e6;
    let rate = |time: Duration| {
        let seconds = time.as_secs_f64();
        format!("{:.1} MB/s over {seconds:.1} s", megabytes / seconds)
    };
    println!();
    println!("in       {megabytes:.1} MB, {windows} windows: {}", rate(driven.published_in));
    println!("out      {megabytes:.1} MB, {} steps: {}", corpus.steps(), rate(driven.trained_in));
    println!(
        "waits    in next_batch: p50 {:.0} us, p99 {:.0} us",
        proof.waited_us(0.5),
        proof.waited_us(0.99)
    );
    println!("loss     {:.3} at the start, {:.3} at the end", proof.loss_first, proof.loss_last);
    let (written, dropped) =
        (megabytes + driven.rewound.bytes as f64 / 1e6, driven.rewound.bytes as f64 / 1e6);
    let (retained, on_disk) = (space.retained_bytes as f64 / 1e6, space.disk_bytes as f64 / 1e6);
    println!("written  {written:.1} MB, {dropped:.1} MB of it rewound again");
    println!("retained {retained:.1} MB of it, from step {}; on disk {on_disk:.1} MB", space.floor);
    println!("order    {:016x} of steps and windows", proof.order);
    println!("freed    {} segments, {} indexes", space.segments, space.indexes);
    for event in &driven.events {
        println!("event    {event}");
    }
    for what in &proof.proved {
        println!("proved   {what}");
    }
    for what in &proof.failed {
        println!("FAILED   {what}");
    }
}
