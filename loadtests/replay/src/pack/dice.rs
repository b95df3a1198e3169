//! Random numbers from a seed: the same on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed for one concern; another concern's draws do not move them.
    pub fn of(seed: u64, concern: u64) -> Self {
        let mut dice = Self(seed);
        dice.0 = dice.next().wrapping_add(concern);
        dice.0 = dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Puts things in random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_fixed_by_seed_and_concern() {
        let counts = |seed, concern| {
            let (mut dice, mut counts) = (Dice::of(seed, concern), [0u32; 7]);
            (0..70_000).for_each(|_| counts[dice.below(7) as usize] += 1);
            counts
        };
        assert!(counts(42, 0).iter().all(|count| count.abs_diff(10_000) < 500));
        assert_eq!(counts(42, 0), counts(42, 0));
        assert_ne!(counts(42, 0), counts(42, 1));
        assert_ne!(counts(42, 0), counts(43, 0));
    }
}
