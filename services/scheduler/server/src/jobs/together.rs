//! Jobs that are submitted together: they stand in the ledger all or none, so a client that dies half-way and asks again under its key ends with exactly
//! one of each.

use super::Jobs;
use super::submit::{Known, Submission, known};
use footplate_api::Refusal;
use footplate_types::PrincipalId;

/// Ids that are looked up in the ledger at once.
const LOOKED_UP_AT_ONCE: usize = 32;

/// One of the jobs, before anything is looked up.
pub(super) struct Part {
    /// What the submission calls it.
    pub(super) name: String,
    /// Where it stands in the request (`jobs.train`), when it has a place of its own there.
    pub(super) place: Option<String>,
    pub(super) submission: Submission,
}

impl Part {
    /// A no, told of this one.
    pub(super) fn told(&self, refusal: Refusal) -> Refusal {
        of_part(&self.name, self.place.as_deref(), refusal)
    }
}

/// The same no, told of one of the jobs.
pub(super) fn of_part(name: &str, place: Option<&str>, refusal: Refusal) -> Refusal {
    let field = place.and_then(|place| Some(format!("{place}.{}", refusal.field.as_deref()?)));
    let mut told = Refusal { message: format!("job {name}: {}", refusal.message), ..refusal };
    told.field = field.or(told.field);
    told
}

/// The sequences of jobs of which something stands already: the same ones, or a conflict. They stand all or none; of others of which some do a client
/// chose the ids again.
fn repeated(parts: &[Part], standing: &[Option<Known>]) -> Result<Vec<u64>, Refusal> {
    let mut sequences = Vec::with_capacity(parts.len());
    for (part, known) in parts.iter().zip(standing) {
        if let Some(known) = known {
            sequences.push(part.submission.repeated(known).map_err(|refusal| part.told(refusal))?.sequence);
        }
    }
    match parts.iter().zip(standing).find(|(_, known)| known.is_none()) {
        None => Ok(sequences),
        Some((part, _)) => Err(Refusal::internal(format!("job {} does not stand, and others that were submitted with it do", part.name))),
    }
}

impl Jobs {
    /// Where the jobs stand already; `None` when none of them does.
    pub(super) async fn together_standing(&self, parts: &[Part]) -> Result<Option<Vec<u64>>, Refusal> {
        let mut standing: Vec<Option<Known>> = {
            let state = self.shell.live.read();
            parts.iter().map(|part| known(&state, &part.submission.run)).collect()
        };
        if standing.iter().all(Option::is_none) {
            return Ok(None);
        }
        // The view folds one event after the other: it may have come half way through the append.
        for (part, known) in parts.iter().zip(&mut standing).filter(|(_, known)| known.is_none()) {
            *known = self.standing(&part.submission).await.map_err(|refusal| part.told(refusal))?;
        }
        repeated(parts, &standing).map(Some)
    }

    /// Submits jobs that were let in: all of them, in this order, or none. Where each stands.
    pub(super) async fn append_together(&self, parts: &[Part], actor: &PrincipalId) -> Result<Vec<u64>, Refusal> {
        for some in parts.chunks(LOOKED_UP_AT_ONCE) {
            let mut look_ups = Vec::with_capacity(some.len());
            for part in some {
                look_ups.push(self.refuse_taken(&part.submission));
            }
            for (part, looked_up) in some.iter().zip(futures::future::join_all(look_ups).await) {
                looked_up.map_err(|refusal| part.told(refusal))?;
            }
        }
        let envelope = |part: &Part| {
            let (id, fact) = part.submission.event();
            self.shell.envelope(id, part.submission.subject(), fact, actor.clone())
        };
        let mut envelopes: Vec<_> = parts.iter().map(envelope).collect();
        // One submit, one chain.
        if let Some(correlation) = envelopes.first().map(|first| first.correlation) {
            envelopes.iter_mut().for_each(|envelope| envelope.correlation = correlation);
        }
        if let Some(sequences) = self.shell.append_new(envelopes).await? {
            return Ok(sequences);
        }
        let mut standing = Vec::with_capacity(parts.len());
        for part in parts {
            standing.push(self.standing(&part.submission).await?);
        }
        repeated(parts, &standing)
    }
}
