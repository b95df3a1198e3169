//! Which windows of a trace the published table is about: their starts are drawn by a generator that is built here anew.
//!
//! The table's authors draw them with gym's `seeding.np_random(1)`: NumPy's legacy `RandomState`, a Mersenne Twister (Matsumoto and
//! Nishimura, ACM TOMACS 8(1), 1998), seeded by array with the first eight bytes of SHA-512 of the text "1".

/// How many jobs a window holds.
pub const JOBS: usize = 1_024;
/// How many windows the published figures average.
pub const COUNT: usize = 10;

/// The first eight bytes of SHA-512("1") as two little-endian words.
const SEED: [u32; 2] = [0xa34e_ff4d, 0x23a8_f040];

/// The first job of each of the first `count` windows of a trace of so many jobs; none where it is too short for a window.
pub fn starts(jobs: usize, count: usize) -> Vec<usize> {
    let (low, high) = (JOBS, jobs.saturating_sub(JOBS + 1));
    if high <= low {
        return Vec::new();
    }
    let mut twister = Twister::of_array(&SEED);
    let below = u32::try_from(high - low).unwrap_or(u32::MAX);
    (0..count).map(|_| low + twister.below(below) as usize).collect()
}

/// So many windows at equal distances, which do not depend on any generator.
pub fn spread(jobs: usize, count: usize) -> Vec<usize> {
    let room = jobs.saturating_sub(JOBS);
    (0..count).map(|at| room * at / count.max(1)).collect()
}

/// MT19937.
struct Twister {
    state: [u32; Self::SIZE],
    at: usize,
}

impl Twister {
    const SIZE: usize = 624;
    const OFFSET: usize = 397;

    /// The authors' `init_genrand`.
    fn of_word(seed: u32) -> Self {
        let mut state = [seed; Self::SIZE];
        for at in 1..Self::SIZE {
            let before = state[at - 1];
            state[at] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        Self { state, at: Self::SIZE }
    }

    /// The authors' `init_by_array`.
    fn of_array(key: &[u32]) -> Self {
        let mut twister = Self::of_word(19_650_218);
        let state = &mut twister.state;
        let (mut at, mut of_key) = (1, 0);
        for _ in 0..Self::SIZE.max(key.len()) {
            let before = state[at - 1];
            let mixed = state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_664_525);
            state[at] = mixed.wrapping_add(key[of_key]).wrapping_add(of_key as u32);
            (at, of_key) = (at + 1, (of_key + 1) % key.len());
            if at >= Self::SIZE {
                state[0] = state[Self::SIZE - 1];
                at = 1;
            }
        }
        for _ in 1..Self::SIZE {
            let before = state[at - 1];
            let mixed = state[at] ^ (before ^ (before >> 30)).wrapping_mul(1_566_083_941);
            state[at] = mixed.wrapping_sub(at as u32);
            at += 1;
            if at >= Self::SIZE {
                state[0] = state[Self::SIZE - 1];
                at = 1;
            }
        }
        state[0] = 0x8000_0000;
        twister
    }

    fn refill(&mut self) {
        for at in 0..Self::SIZE {
            let joined = (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % Self::SIZE] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + Self::OFFSET) % Self::SIZE] ^ (joined >> 1) ^ odd;
        }
        self.at = 0;
    }

    fn next(&mut self) -> u32 {
        if self.at >= Self::SIZE {
            self.refill();
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A number below a bound (> 0), as `RandomState.randint` draws it: masked, and drawn again while it is too large.
    fn below(&mut self, bound: u32) -> u32 {
        let largest = bound - 1;
        let mask = u32::MAX.checked_shr(largest.leading_zeros()).unwrap_or(0);
        loop {
            let drawn = self.next() & mask;
            if drawn <= largest {
                return drawn;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twister_gives_the_numbers_of_its_authors() {
        let mut twister = Twister::of_array(&[0x123, 0x234, 0x345, 0x456]);
        let drawn: Vec<u32> = (0..5).map(|_| twister.next()).collect();
        assert_eq!(drawn, [1_067_595_299, 955_945_823, 477_289_528, 4_107_218_783, 4_228_976_476]);
    }

    #[test]
    fn ten_thousand_jobs_give_the_published_windows() {
        assert_eq!(starts(10_000, COUNT), [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085]);
    }

    #[test]
    fn a_trace_too_short_for_a_window_has_none() {
        assert!(starts(2_049, COUNT).is_empty());
        assert_eq!(starts(2_050, COUNT), [1_024; COUNT]);
    }
}
