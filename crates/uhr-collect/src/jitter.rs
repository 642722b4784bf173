//! Chance, so that no program can keep step with the moments at which it is looked at.

/// xorshift64 (Marsaglia 2003): good enough to lose step, and nothing hangs on it.
#[derive(Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number between two.
    pub(crate) fn between(&mut self, least: f64, most: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        least + (most - least) * (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}
