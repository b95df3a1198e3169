//! Randomness from a seed: one stream a group of jobs, so that a change of one group does not move the others.

/// Numbers from a seed (SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.roll();
        dice
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// An exponentially distributed time with this mean, at least 1 unless the mean is 0.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        // Of (0, 1]: the logarithm is finite.
        let part = ((self.roll() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        ((-part.ln() * mean as f64).round() as u64).max(u64::from(mean > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_their_mean_and_each_stream_its_own() {
        let mut dice = Dice::new(1, 2);
        let draws: Vec<u64> = (0..20_000).map(|_| dice.exponential(1_000)).collect();
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        assert!((970..1_030).contains(&mean), "{mean}");
        assert_ne!(Dice::new(1, 3).exponential(1 << 40), Dice::new(1, 2).exponential(1 << 40));
        assert_eq!(Dice::new(1, 3).exponential(0), 0);
    }
}
