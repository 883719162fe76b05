//! A small language model on bytes: three bytes embedded, a hidden layer, a softmax over the next byte.
//!
//! Everything is in one order of f32 operations, so equal batches give equal weights, bit for bit.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

/// How many bytes the model sees.
const CONTEXT: usize = 3;
const VOCABULARY: usize = 256;
const EMBEDDED: usize = 8;
const INPUT: usize = CONTEXT * EMBEDDED;
const HIDDEN: usize = 32;
/// It learns from every so-manieth byte of a window: this example is about data, not about a good model.
const STRIDE: usize = 8;
const LEARNING_RATE: f32 = 0.5;

const EMBEDDING: Range<usize> = 0..VOCABULARY * EMBEDDED;
const INNER: Range<usize> = EMBEDDING.end..EMBEDDING.end + HIDDEN * INPUT;
/// A row for each hidden unit, and one for the bias.
const OUTER: Range<usize> = INNER.end..INNER.end + (HIDDEN + 1) * VOCABULARY;

/// All weights in a row; the gradient has the same shape.
#[derive(Clone)]
pub struct Model {
    pub weights: Vec<f32>,
}

/// What was learnt from some samples: sums, so that shares add up.
#[derive(Clone)]
pub struct Gradient {
    pub weights: Vec<f32>,
    pub loss: f32,
    pub samples: u32,
}

impl Gradient {
    pub fn zero() -> Self {
        Self { weights: vec![0.0; OUTER.end], loss: 0.0, samples: 0 }
    }

    pub fn add(&mut self, other: &Self) {
        add_scaled(&mut self.weights, &other.weights, 1.0);
        self.loss += other.loss;
        self.samples += other.samples;
    }

    pub fn mean_loss(&self) -> f32 {
        self.loss / self.samples as f32
    }
}

impl Model {
    /// The same weights in every run.
    pub fn new() -> Self {
        let mut seed = 17;
        let mut weights: Vec<f32> = (0..OUTER.end).map(|_| uniform(&mut seed)).collect();
        weights[INNER].iter_mut().for_each(|weight| *weight *= (INPUT as f32).sqrt().recip() * 1.7);
        weights[OUTER].iter_mut().for_each(|weight| *weight *= 0.01);
        Self { weights }
    }

    /// Of all weights to the last bit.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.weights.iter().for_each(|weight| hasher.write_u32(weight.to_bits()));
        hasher.finish()
    }

    /// Adds what a window teaches.
    pub fn learn(&self, tokens: &[u8], gradient: &mut Gradient) {
        for at in (CONTEXT..tokens.len()).step_by(STRIDE) {
            self.learn_one(&tokens[at - CONTEXT..at], tokens[at], gradient);
        }
    }

    fn learn_one(&self, context: &[u8], target: u8, gradient: &mut Gradient) {
        let embedding = |byte: u8| usize::from(byte) * EMBEDDED..(usize::from(byte) + 1) * EMBEDDED;
        let inner = self.weights[INNER].chunks_exact(INPUT);
        let (outer, bias) = self.weights[OUTER].split_at(HIDDEN * VOCABULARY);

        let mut input = [0.0; INPUT];
        for (embedded, byte) in input.chunks_exact_mut(EMBEDDED).zip(context) {
            embedded.copy_from_slice(&self.weights[embedding(*byte)]);
        }
        let mut hidden = [0.0; HIDDEN];
        let mut scores: [f32; VOCABULARY] = bias.try_into().expect("the bias is a row");
        for ((unit, inner), outer) in hidden.iter_mut().zip(inner.clone()).zip(outer.chunks_exact(VOCABULARY))
        {
            *unit = dot(inner, &input).tanh();
            add_scaled(&mut scores, outer, *unit);
        }

        // Softmax and its loss; `scores` becomes the gradient by the scores.
        let highest = scores.iter().copied().fold(f32::MIN, f32::max);
        let loss_of = highest - scores[usize::from(target)];
        scores.iter_mut().for_each(|score| *score = (*score - highest).exp());
        let sum: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
        scores[usize::from(target)] -= 1.0;
        gradient.loss += loss_of + sum.ln();
        gradient.samples += 1;

        let mut by_input = [0.0; INPUT];
        let (lower, by_outer) = gradient.weights.split_at_mut(OUTER.start);
        let (by_outer, by_bias) = by_outer.split_at_mut(HIDDEN * VOCABULARY);
        add_scaled(by_bias, &scores, 1.0);
        let rows = by_outer.chunks_exact_mut(VOCABULARY).zip(outer.chunks_exact(VOCABULARY));
        let inner_rows = lower[INNER].chunks_exact_mut(INPUT).zip(inner);
        for ((unit, (by_outer, outer)), (by_inner, inner)) in hidden.iter().zip(rows).zip(inner_rows) {
            let by_unit = dot(outer, &scores) * (1.0 - unit * unit);
            add_scaled(by_outer, &scores, *unit);
            add_scaled(by_inner, &input, by_unit);
            add_scaled(&mut by_input, inner, by_unit);
        }
        for (by_embedded, byte) in by_input.chunks_exact(EMBEDDED).zip(context) {
            add_scaled(&mut lower[embedding(*byte)], by_embedded, 1.0);
        }
    }

    /// One step of gradient descent.
    pub fn step(&mut self, gradient: &Gradient) {
        add_scaled(&mut self.weights, &gradient.weights, -LEARNING_RATE / gradient.samples as f32);
    }
}

fn add_scaled(sum: &mut [f32], values: &[f32], scale: f32) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value * scale);
}

/// The dot product of rows whose length is a multiple of 8, in 8 running sums that the compiler makes vectors
/// of.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}

/// The next number of splitmix64, as -1.0..1.0.
fn uniform(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *seed;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)) as i64 as f32 / i64::MAX as f32
}
