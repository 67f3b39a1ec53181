//! The random part of pauses, so that what failed together is not retried together.

/// A number in 0..1.
#[cfg(not(any(test, feature = "testing")))]
pub fn jitter() -> f64 {
    rand::random()
}

#[cfg(any(test, feature = "testing"))]
pub use seeded::{jitter, seed};

#[cfg(any(test, feature = "testing"))]
mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// A number in 0..1: random, or the next one of the sequence that a test [chose](seed).
    pub fn jitter() -> f64 {
        let Some(state) = STATE.get() else { return rand::random() };
        // The constants of Knuth's linear congruential generator.
        let next = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        STATE.set(Some(next));
        f64::from(u32::try_from(next >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }

    /// Makes [`jitter`] on this thread a function of the seed.
    pub fn seed(seed: u64) {
        STATE.set(Some(seed));
    }
}
