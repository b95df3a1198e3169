//! The only crate that reads system time or entropy.
//!
//! Everything else gets instants and ids as arguments, or takes a [`Clock`]; so a test or a simulation can stand in for both.

use footplate_types::{EventId, RequestId, RunId, SessionId, SpoolId, SweepId, Timestamp, TokenId};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads time. Wall time is for showing and recording; elapsed time is for deciding.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall clock. May jump either way.
    fn now(&self) -> Timestamp;
    /// Time since some fixed instant of this process; never goes back.
    fn elapsed(&self) -> Duration;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The system's clocks, shared.
    pub fn shared() -> SharedClock {
        Arc::new(Self { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The wall clock of the system.
pub fn now() -> Timestamp {
    let nanos = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_nanos()).unwrap_or(i64::MAX),
    };
    Timestamp::from_nanos(nanos)
}

/// Nanoseconds since the machine booted, sleep included (`CLOCK_BOOTTIME`): what leases are measured by.
pub fn boot_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64)
}

/// Random bytes from the system. Without entropy nothing can be named safely, so a system that has none stops the process.
pub fn entropy<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).expect("the system gives entropy; without it no id would be unique");
    bytes
}

/// A UUIDv7 (RFC 9562): 48 bits of milliseconds, version 7, the rest random. Ids of one machine sort by time, roughly.
fn uuid7() -> [u8; 16] {
    let mut bytes = entropy::<16>();
    let millis = now().as_millis().max(0) as u64;
    bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    bytes[6] = (bytes[6] & 0x0F) | 0x70;
    bytes[8] = (bytes[8] & 0x3F) | 0x80;
    bytes
}

/// A new run id.
pub fn run_id() -> RunId {
    RunId::from_bytes(uuid7())
}

/// A new event id.
pub fn event_id() -> EventId {
    EventId::from_bytes(uuid7())
}

/// A new request id.
pub fn request_id() -> RequestId {
    RequestId::from_bytes(uuid7())
}

/// A new sweep id.
pub fn sweep_id() -> SweepId {
    SweepId::from_bytes(uuid7())
}

/// A new token id.
pub fn token_id() -> TokenId {
    TokenId::from_bytes(uuid7())
}

/// A new session id.
pub fn session_id() -> SessionId {
    SessionId::from_bytes(uuid7())
}

/// A new spool id.
pub fn spool_id() -> SpoolId {
    SpoolId::from_bytes(uuid7())
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_testkit::{SLEPT, Slept, on_a_machine_that_slept};

    #[test]
    fn ids_are_uuid7_and_differ() {
        let (a, b) = (run_id(), run_id());
        assert_ne!(a, b);
        assert_eq!(a.as_bytes()[6] >> 4, 7);
        assert_eq!(a.as_bytes()[8] >> 6, 2);
    }

    fn raw(clock: rustix::time::ClockId) -> u64 {
        let time = rustix::time::clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    #[test]
    fn leases_are_measured_by_a_clock_that_goes_on_while_the_machine_sleeps() {
        use rustix::time::ClockId::{Boottime, Monotonic};
        let slept = on_a_machine_that_slept("tests::leases_are_measured_by_a_clock_that_goes_on_while_the_machine_sleeps");
        let (before, read, after) = (raw(Boottime), boot_nanos(), raw(Boottime));
        assert!(before > 0 && (before..=after).contains(&read), "{before} <= {read} <= {after}");
        assert!(boot_nanos() >= read, "it does not go back");
        if slept == Slept::Here {
            let awake = raw(Monotonic);
            assert!(u128::from(read - awake.min(read)) + 1_000_000_000 > SLEPT.as_nanos(), "{read} against {awake} without the sleep");
        }
    }
}
