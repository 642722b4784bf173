//! Intervals of shares from blocks of time. Samples of a program come in phases, so that a binomial interval is far too
//! narrow (it covers 58 % instead of 95 % at phases of 20 samples); the scatter of the share from block to block is not.

use super::quantile::t_975;
use crate::answers::rounded;

/// A 95 % interval, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    /// Lower and upper end; 0 and 1 where nothing can be said.
    pub(crate) ends: [f64; 2],
    /// Why nothing can be said.
    pub(crate) note: Option<&'static str>,
}

/// There are too few samples for ten blocks of ten.
pub(crate) const FEW_SAMPLES: &str = "few-samples";
/// What happens in one block depends on the block before: phases are too long for this recording.
pub(crate) const LONG_PHASES: &str = "long-phases";

impl Interval {
    /// Nothing can be said.
    pub(crate) fn unknown(note: &'static str) -> Self {
        Self { ends: [0.0, 1.0], note: Some(note) }
    }
}

/// The selection, block by block.
#[derive(Debug, Clone, Default)]
pub(crate) struct Blocks {
    /// The metric's sum in each block.
    pub(crate) totals: Vec<u64>,
    /// Samples in the selection, or `None` where the metric was measured and not sampled.
    pub(crate) samples: Option<u64>,
}

/// The fewest blocks that say something.
const FEWEST: usize = 10;
/// Samples that a block should have on average.
const SAMPLES_A_BLOCK: u64 = 10;

impl Blocks {
    /// The interval of the share that `hits`, block by block, have of the total.
    pub(crate) fn interval(&self, hits: &[u64]) -> Interval {
        let Some(merge) = self.merge() else { return Interval::unknown(FEW_SAMPLES) };
        let sums = |values: &[u64]| -> Vec<f64> {
            values.chunks(merge).map(|block| block.iter().map(|value| *value as f64).sum()).collect()
        };
        let blocks: Vec<(f64, f64)> =
            sums(hits).into_iter().zip(sums(&self.totals)).filter(|(_, total)| *total > 0.0).collect();
        if blocks.len() < FEWEST {
            return Interval::unknown(FEW_SAMPLES);
        }
        if lag_one_correlation(&blocks) > longest_correlation(blocks.len()) {
            return Interval::unknown(LONG_PHASES);
        }
        Interval { ends: ratio_interval(&blocks), note: None }
    }

    /// How many neighbours become one block, so that blocks have enough samples.
    fn merge(&self) -> Option<usize> {
        let slots = self.totals.len();
        let enough = |blocks: usize| match self.samples {
            Some(samples) => samples >= SAMPLES_A_BLOCK * blocks as u64,
            None => true,
        };
        [1, 2, 4].into_iter().find(|merge| slots / merge >= FEWEST && enough(slots / merge))
    }
}

/// A correlation above this is no accident: 0.3, and more where there are so few blocks that chance alone gives it.
fn longest_correlation(blocks: usize) -> f64 {
    (1.9 / (blocks as f64).sqrt()).max(0.3)
}

/// How much the share of a block resembles that of the block before.
fn lag_one_correlation(blocks: &[(f64, f64)]) -> f64 {
    let shares: Vec<f64> = blocks.iter().map(|(hits, total)| hits / total).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let variance: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    let covariance: f64 = shares.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    // Rounding leaves a little variance where all shares are equal.
    if variance > 1e-18 { covariance / variance } else { 0.0 }
}

/// The ratio estimator: the sum of hits over the sum of totals, its error from the scatter of the residuals.
fn ratio_interval(blocks: &[(f64, f64)]) -> [f64; 2] {
    let (share, reach) = ratio(blocks);
    [rounded((share - reach).max(0.0)), rounded((share + reach).min(1.0))]
}

/// The sum of the first parts over the sum of the second, and how far a 95 % interval reaches to both sides of it.
pub(crate) fn ratio(blocks: &[(f64, f64)]) -> (f64, f64) {
    let count = blocks.len() as f64;
    let (hits, total) = blocks.iter().fold((0.0, 0.0), |sum, block| (sum.0 + block.0, sum.1 + block.1));
    let share = hits / total;
    let squares: f64 = blocks.iter().map(|(hits, total)| (hits - share * total).powi(2)).sum();
    let error = (count / (count - 1.0) * squares).sqrt() / total;
    (share, t_975(blocks.len().saturating_sub(1) as u32) * error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(totals: &[u64]) -> Blocks {
        Blocks { totals: totals.to_vec(), samples: Some(totals.iter().sum()) }
    }

    #[test]
    fn a_share_without_scatter_is_certain() {
        let all = blocks(&[100; 40]);
        assert_eq!(all.interval(&[100; 40]), Interval { ends: [1.0, 1.0], note: None });
        assert_eq!(all.interval(&[25; 40]).ends, [0.25, 0.25]);
    }

    #[test]
    fn too_few_samples_and_long_phases_say_so() {
        assert_eq!(blocks(&[2; 40]).interval(&[1; 40]), Interval::unknown(FEW_SAMPLES));
        assert_eq!(blocks(&[3; 40]).interval(&[1; 40]).note, None, "ten blocks of twelve");
        let half: Vec<u64> = (0..40).map(|at| if at < 20 { 100 } else { 0 }).collect();
        assert_eq!(blocks(&[100; 40]).interval(&half), Interval::unknown(LONG_PHASES));
    }

    #[test]
    fn by_hand() {
        // Shares alternate between 0.2 and 0.4: residuals are 10 each, 40/39 * 40 * 100 = 4102.6, its root is 64.05.
        let hits: Vec<u64> = (0..40).map(|at| if at % 2 == 0 { 20 } else { 40 }).collect();
        let [low, high] = blocks(&[100; 40]).interval(&hits).ends;
        let reach = 2.022_691 * 64.051 / 4_000.0;
        assert!((low - (0.3 - reach)).abs() < 1e-4 && (high - (0.3 + reach)).abs() < 1e-4, "{low} {high}");
    }

    /// Deterministic noise (splitmix64), so that the test is the same test every time.
    struct Noise(u64);

    impl Noise {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// How often the interval covers the true share, and how often there is one: a function that is active in phases
    /// of `length` samples on average, half of the time, with a share of 40 % while it is (20 % over all).
    fn coverage(length: f64, runs: u64) -> (f64, f64) {
        const SAMPLES: usize = 10_000;
        let (mut covered, mut given) = (0u32, 0u32);
        for run in 0..runs {
            let mut noise = Noise(run * 7919 + 13);
            let mut active = noise.uniform() < 0.5;
            let mut hits = [0u64; 40];
            for sample in 0..SAMPLES {
                if noise.uniform() < 1.0 / length {
                    active = !active;
                }
                hits[sample * 40 / SAMPLES] += u64::from(active && noise.uniform() < 0.4);
            }
            let interval = blocks(&[SAMPLES as u64 / 40; 40]).interval(&hits);
            given += u32::from(interval.note.is_none());
            covered +=
                u32::from(interval.note.is_none() && (interval.ends[0]..=interval.ends[1]).contains(&0.2));
        }
        (f64::from(covered) / f64::from(given.max(1)), f64::from(given) / runs as f64)
    }

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        for length in [1.0, 20.0] {
            let (covered, given) = coverage(length, 400);
            assert!(covered >= 0.88, "phases of {length} samples: covered {covered}");
            assert!(given >= 0.9, "phases of {length} samples: an interval in {given}");
        }
        let (_, given) = coverage(1000.0, 100);
        assert!(given < 0.5, "phases of a tenth of the recording must be noticed: {given}");
    }

    #[test]
    fn two_halves_of_the_same_program_rarely_differ() {
        // An A/A comparison: two recordings of the same program, 20 samples a phase. Intervals that do not overlap by
        // the usual test of the difference are false alarms.
        let mut alarms = 0;
        for run in 0..400u64 {
            let side = |seed: u64| {
                let mut noise = Noise(seed);
                let mut active = noise.uniform() < 0.5;
                let mut hits = [0u64; 40];
                for sample in 0..10_000usize {
                    if noise.uniform() < 0.05 {
                        active = !active;
                    }
                    hits[sample * 40 / 10_000] += u64::from(active && noise.uniform() < 0.4);
                }
                blocks(&[250; 40]).interval(&hits)
            };
            let (a, b) = (side(run * 2 + 1_000_003), side(run * 2 + 2_000_003));
            let middle = |interval: &Interval| f64::midpoint(interval.ends[0], interval.ends[1]);
            let reach = |interval: &Interval| (interval.ends[1] - interval.ends[0]) / 2.0;
            let apart = (middle(&a) - middle(&b)).abs();
            alarms += u32::from(apart > reach(&a).hypot(reach(&b)));
        }
        assert!(f64::from(alarms) / 400.0 <= 0.08, "{alarms} false alarms in 400");
    }
}
