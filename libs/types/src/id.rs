//! Ids: 32 lower-case hex digits each, every kind its own type; and the small numbers that count attempts, ranks and epochs.

use crate::{Invalid, text_form::text_form};
use sha2::{Digest as _, Sha256};
use std::fmt;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Every event carries several ids: one write of the whole text, not one a digit.
fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for part in bytes.chunks(32) {
        let mut digits = [0u8; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(part) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&digits[..part.len() * 2]).map_err(|_| fmt::Error)?)?;
    }
    Ok(())
}

fn read_hex<const N: usize>(kind: &str, text: &str) -> Result<[u8; N], Invalid> {
    let refused = || Invalid::new(kind, text, format!("{} lower-case hex digits", N * 2));
    if text.len() != N * 2 {
        return Err(refused());
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0u8; N];
    for (at, pair) in text.as_bytes().chunks_exact(2).enumerate() {
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(refused()) };
        out[at] = high << 4 | low;
    }
    Ok(out)
}

/// SHA-256 over the parts, each preceded by its length (8 bytes, big-endian), so that no two lists of parts collide by shifting a border.
fn hash_parts(kind: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in std::iter::once(kind.as_bytes()).chain(parts.iter().copied()) {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// The id with these bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes of the id.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// An id fixed by what it is derived from: the first 16 bytes of SHA-256 over the kind of id and the parts.
            pub fn derived(parts: &[&[u8]]) -> Self {
                let hash = hash_parts(stringify!($name), parts);
                let mut bytes = [0u8; 16];
                bytes.copy_from_slice(&hash[..16]);
                Self(bytes)
            }

            /// Reads 32 lower-case hex digits.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                read_hex(stringify!($name), text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        text_form!($name, Some("^[0-9a-f]{32}$"));
    };
}

id! {
    /// One recorded training, from submit to registry; a run's job carries the same id.
    RunId
}
id! {
    /// A named group of runs; derived from (project, name), so that a name is unique in its project.
    ExperimentId
}
id! {
    /// A model of the registry; derived from (project, name), so that a name is unique in its project.
    ModelId
}
id! {
    /// One event; caused events derive theirs from (cause, reactor, target, ordinal).
    EventId
}
id! {
    /// One request of a client about a job or a node (cancel, hold, cordon, ...).
    RequestId
}
id! {
    /// One process that opened a run for logging; with a counter it makes a metric batch unique for ever.
    SessionId
}
id! {
    /// One life of an agent's spool folder; offsets of different spools are not comparable.
    SpoolId
}

id! {
    /// One search over a space of params.
    SweepId
}

id! {
    /// A token that stands for a principal: its public name, not its secret.
    TokenId
}

impl ExperimentId {
    /// The id of the experiment called `name` in `project`.
    pub fn of(project: &crate::ProjectName, name: &crate::DisplayName) -> Self {
        Self::derived(&[project.as_str().as_bytes(), name.as_str().as_bytes()])
    }
}

impl ModelId {
    /// The id of the model called `name` in `project`.
    pub fn of(project: &crate::ProjectName, name: &crate::ModelName) -> Self {
        Self::derived(&[project.as_str().as_bytes(), name.as_str().as_bytes()])
    }
}

impl RunId {
    /// The id fixed by a client's idempotency key: the same key in the same project names the same run. `what` is the kind of thing that is
    /// made (`job`, `run`), so that one key at two doors does not make one thing of two.
    pub fn for_key(project: &crate::ProjectName, what: &str, key: &str) -> Self {
        Self::derived(&[project.as_str().as_bytes(), what.as_bytes(), key.as_bytes()])
    }

    /// The shard of the metric stream: the first 8 bytes, big-endian, of SHA-256 of the id's text, mod 64.
    pub fn shard(&self) -> u8 {
        shard_of(&self.to_string())
    }
}

/// The metric shard of any source text (`node:<name>` or a run id).
fn shard_of(source: &str) -> u8 {
    let hash: [u8; 32] = Sha256::digest(source.as_bytes()).into();
    let mut head = [0u8; 8];
    head.copy_from_slice(&hash[..8]);
    (u64::from_be_bytes(head) % 64) as u8
}

impl EventId {
    /// The id of an event caused by another: hash(cause, reactor, target, ordinal), so that a reaction repeated is the same event.
    pub fn caused(cause: &EventId, reactor: &str, target: &str, ordinal: u32) -> Self {
        Self::derived(&[cause.as_bytes(), reactor.as_bytes(), target.as_bytes(), &ordinal.to_be_bytes()])
    }
}

/// The SHA-256 of some bytes, as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest computed elsewhere (streaming hashers).
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 lower-case hex digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        read_hex("digest", text).map(Self)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

text_form!(Digest, Some("^[0-9a-f]{64}$"));

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $of:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Which try of a job, counted from 1; 0 stands for "no attempt" (a run without a job).
    AttemptNumber, u32
}
number! {
    /// A worker's place in its gang, from 0.
    Rank, u32
}
number! {
    /// A member's place in its attempt (the node rank), from 0.
    MemberIndex, u32
}
number! {
    /// A node's generation: raised by every fence, so that what an older generation says or holds is void.
    Epoch, u64
}

number! {
    /// Which version of a model, counted from 1 without gaps.
    VersionNumber, u32
}

impl VersionNumber {
    /// Reads a number from 1, without a sign or a leading zero.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("version", text, "a whole number from 1");
        if text.starts_with(['0', '+']) {
            return Err(refused());
        }
        text.parse().map(Self).map_err(|_| refused())
    }

    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl AttemptNumber {
    /// The try after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One try of one run: `<run>-<n>` as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The run.
    pub run: RunId,
    /// Which try of it.
    pub attempt: AttemptNumber,
}

impl AttemptId {
    /// Reads `<run>-<n>`, n from 1, no leading zero.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("attempt", text, "<run id>-<number from 1>");
        let (run, number) = text.split_once('-').ok_or_else(refused)?;
        let attempt: u32 = number.parse().map_err(|_| refused())?;
        if attempt == 0 || number.starts_with('0') || number.starts_with('+') {
            return Err(refused());
        }
        Ok(Self { run: RunId::parse(run)?, attempt: AttemptNumber(attempt) })
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.attempt)
    }
}

text_form!(AttemptId, Some("^[0-9a-f]{32}-[1-9][0-9]*$"));

/// One version of one model: `<model>-<n>` as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelVersionId {
    /// The model.
    pub model: ModelId,
    /// Which version of it.
    pub version: VersionNumber,
}

impl ModelVersionId {
    /// Reads `<model>-<n>`, n from 1, no leading zero.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("model version", text, "<model id>-<number from 1>");
        let (model, number) = text.split_once('-').ok_or_else(refused)?;
        Ok(Self { model: ModelId::parse(model)?, version: VersionNumber::parse(number).map_err(|_| refused())? })
    }
}

impl fmt::Display for ModelVersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.model, self.version)
    }
}

text_form!(ModelVersionId, Some("^[0-9a-f]{32}-[1-9][0-9]*$"));

number! {
    /// Which trial of a sweep, counted from 1.
    TrialNumber, u32
}

impl TrialNumber {
    /// The trial after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One trial of one sweep: `<sweep>-<n>` as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrialId {
    /// The sweep.
    pub sweep: SweepId,
    /// Which trial of it.
    pub trial: TrialNumber,
}

impl TrialId {
    /// Reads `<sweep>-<n>`, n from 1, no leading zero.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("trial", text, "<sweep id>-<number from 1>");
        let (sweep, number) = text.split_once('-').ok_or_else(refused)?;
        let trial: u32 = number.parse().map_err(|_| refused())?;
        if trial == 0 || number.starts_with('0') || number.starts_with('+') {
            return Err(refused());
        }
        Ok(Self { sweep: SweepId::parse(sweep)?, trial: TrialNumber(trial) })
    }

    /// The run that is the trial: fixed by the trial, so that it can be submitted once only.
    pub fn run(&self) -> RunId {
        RunId::derived(&[b"trial", self.sweep.as_bytes(), &self.trial.0.to_be_bytes()])
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.sweep, self.trial)
    }
}

text_form!(TrialId, Some("^[0-9a-f]{32}-[1-9][0-9]*$"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_from_its_text() {
        let id = RunId::from_bytes([0xAB; 16]);
        assert_eq!(RunId::parse(&id.to_string()), Ok(id));
        assert_eq!(id.to_string().len(), 32);
    }

    #[test]
    fn an_id_refuses_upper_case_wrong_length_and_other_letters() {
        for text in ["", "ab", &"AB".repeat(16), &"g0".repeat(16), &"é".repeat(16)] {
            assert!(RunId::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn derived_ids_do_not_collide_when_a_border_moves() {
        assert_ne!(RunId::derived(&[b"ab", b"c"]), RunId::derived(&[b"a", b"bc"]));
        assert_ne!(RunId::derived(&[b"a"]).as_bytes(), EventId::derived(&[b"a"]).as_bytes());
    }

    #[test]
    fn an_attempt_id_reads_back_and_refuses_zero() {
        let id = AttemptId { run: RunId::from_bytes([7; 16]), attempt: AttemptNumber(12) };
        assert_eq!(AttemptId::parse(&id.to_string()), Ok(id));
        assert!(AttemptId::parse(&format!("{}-0", id.run)).is_err());
        assert!(AttemptId::parse(&format!("{}-01", id.run)).is_err());
    }

    #[test]
    fn a_model_version_id_reads_back_and_refuses_zero_signs_and_overflow() {
        let id = ModelVersionId { model: ModelId::from_bytes([7; 16]), version: VersionNumber(12) };
        assert_eq!(ModelVersionId::parse(&id.to_string()), Ok(id));
        for number in ["0", "01", "+1", "-1", "", "4294967296", "1 "] {
            assert!(ModelVersionId::parse(&format!("{}-{number}", id.model)).is_err(), "{number}");
        }
    }

    #[test]
    fn a_trial_id_reads_back_refuses_zero_and_fixes_its_run() {
        let id = TrialId { sweep: SweepId::from_bytes([7; 16]), trial: TrialNumber(12) };
        assert_eq!(TrialId::parse(&id.to_string()), Ok(id));
        assert_ne!(id.run(), TrialId { trial: id.trial.next(), ..id }.run());
        for number in ["0", "01", "+1", "", "x"] {
            assert!(TrialId::parse(&format!("{}-{number}", id.sweep)).is_err(), "{number}");
        }
    }

    #[test]
    fn a_shard_is_below_64_and_stable() {
        let run = RunId::from_bytes([1; 16]);
        assert!(run.shard() < 64);
        assert_eq!(run.shard(), shard_of(&run.to_string()));
    }
}
