//! Random numbers from a seed: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014; constants as in
//! Vigna's reference code). One generator a concern, so that a new draw in one place does not move the others.

/// One stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of one concern of a seed.
    pub(crate) fn new(seed: u64, concern: &str) -> Self {
        let mut hash = crate::trace::Hash::default();
        hash.add(&seed.to_be_bytes());
        hash.add(concern.as_bytes());
        Self(hash.value())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `most`; 0 when that is 0. (The bias of the remainder is of no account here.)
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next().checked_rem(most).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len() as u64) as usize;
        from.get(at)
    }

    /// Sixteen random bytes, for an id.
    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        bytes
    }

    /// A number whose size is spread evenly over the magnitudes between `least` and `most`: mostly short waits, a few long ones.
    pub(crate) fn spread(&mut self, least: u64, most: u64) -> u64 {
        let mut top = least.max(1);
        while top < most && self.chance(600) {
            top = (top * 3).min(most);
        }
        self.between(least, top)
    }
}
