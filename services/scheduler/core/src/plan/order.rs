//! The order in which waiting jobs of equal rights should start, in virtual time: every job has a rank that never changes, so whoever
//! stands before another stays there.

use footplate_types::Millis;

/// What an order looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applicant {
    /// When it was submitted, on the clock of the plan.
    pub submitted: Millis,
    /// How many units it takes.
    pub units: u32,
    /// How long it is expected to take.
    pub estimate: Millis,
}

/// An order of waiting jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they came: FCFS.
    Arrival,
    /// The shortest first: SJF. Starves who is long.
    Shortest,
    /// The smallest first, aged: the rank is the time of the submission, put off by `doubling` for every doubling of the job's area
    /// (units times estimate).
    ///
    /// Small ones first is Smith's rule for a mean slowdown, and the area is what a job takes from the others (Carastan-Santos and
    /// others, "One can only gain by replacing EASY backfilling", CCGRID 2019). The logarithm makes of it an order that ages: a job
    /// is only ever overtaken by those submitted less than `doubling` times log2(its area / theirs) after it, so nobody starves; and an
    /// hour of waiting is worth the same to everybody, so the rank needs no clock. (F1 of the same group, SC 2017, has this form as well,
    /// with factors fitted to one workload.)
    Aged {
        /// How long a job yields to those of half its area.
        doubling: Millis,
        /// No estimate counts as shorter: what is over in seconds gains nothing by being over in milliseconds.
        shortest: Millis,
    },
}

impl Default for Order {
    /// Aged by a day a doubling: on windows of the Lublin workloads other than the published ones, the shortest mean slowdown of those
    /// orders whose longest wait stays below FCFS's.
    fn default() -> Self {
        Self::Aged { doubling: Millis::from_secs(24 * 3_600), shortest: Millis::from_secs(10) }
    }
}

impl Order {
    /// The job's place: a lower rank first. Among equals the one that came first, which is the caller's to keep.
    pub fn rank(&self, applicant: &Applicant) -> u64 {
        match self {
            Self::Arrival => applicant.submitted.0,
            Self::Shortest => applicant.estimate.0,
            Self::Aged { doubling, shortest } => {
                let length = applicant.estimate.0.max(shortest.0).max(1);
                let area = u128::from(length) * u128::from(applicant.units.max(1));
                let delay = (u128::from(doubling.0) * u128::from(log2_of(area))) >> FRACTION_BITS;
                applicant.submitted.0.saturating_add(u64::try_from(delay).unwrap_or(u64::MAX))
            }
        }
    }
}

/// How many binary digits behind the point [`log2_of`] has.
const FRACTION_BITS: u32 = 16;

/// The binary logarithm of a number above 0 with [`FRACTION_BITS`] binary digits, rounded down. In integers, so that it is the same on every
/// machine: by squaring, each of which gives one more digit (Knuth, TAOCP 1, section 1.2.2, exercise 25).
fn log2_of(number: u128) -> u64 {
    let whole = number.max(1).ilog2();
    // The mantissa, from 1 to 2, with 63 digits behind the point.
    let mut mantissa = if whole >= 63 { number >> (whole - 63) } else { number.max(1) << (63 - whole) };
    let mut digits = u64::from(whole);
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 63;
        let digit = u64::from(mantissa >= 1 << 64);
        mantissa >>= digit;
        digits = digits * 2 + digit;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3_600_000;

    fn applicant(submitted: u64, units: u32, estimate: u64) -> Applicant {
        Applicant { submitted: Millis(submitted), units, estimate: Millis(estimate) }
    }

    #[test]
    fn the_logarithm_is_that_of_the_mathematicians() {
        for number in [1u128, 2, 3, 7, 10, 1_000, 86_400_000, 1 << 62, (1 << 63) + 1, 1 << 64, u128::from(u64::MAX) * 4_096] {
            let (ours, theirs) = (log2_of(number) as f64 / 65_536.0, (number as f64).log2());
            assert!(ours <= theirs + 1e-9 && theirs - ours < 1.6e-5, "{number}: {ours} {theirs}");
        }
    }

    #[test]
    fn who_is_twice_as_large_yields_a_day_and_no_more() {
        let order = Order::default();
        let large = order.rank(&applicant(0, 2, 3_600_000));
        assert!(order.rank(&applicant(DAY - 10_000, 1, 3_600_000)) < large);
        assert!(order.rank(&applicant(DAY + 10_000, 1, 3_600_000)) > large);
        assert_eq!(order.rank(&applicant(0, 1, 7_200_000)), large);
    }

    #[test]
    fn what_is_over_at_once_gains_nothing_by_being_shorter() {
        let order = Order::default();
        assert_eq!(order.rank(&applicant(5, 1, 0)), order.rank(&applicant(5, 1, 10_000)));
    }

    #[test]
    fn no_job_is_too_large_for_a_rank() {
        let order = Order::Aged { doubling: Millis(u64::MAX), shortest: Millis(0) };
        assert_eq!(order.rank(&applicant(u64::MAX, u32::MAX, u64::MAX)), u64::MAX);
        assert_eq!(order.rank(&applicant(7, 0, 0)), 7);
    }
}
