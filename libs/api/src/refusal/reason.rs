//! The one table of reasons. A reason is for ever: programs go by its word. `docs/errors/README.md` is made from this table.

use super::Kind;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The stable word, as `google.rpc.ErrorInfo.reason` carries it.
    pub word: &'static str,
    /// What kind of no it is.
    pub kind: Kind,
    /// What it means.
    pub meaning: &'static str,
    /// What to do next, when the service cannot say better.
    pub advice: &'static str,
}

macro_rules! reasons {
    ($($word:ident: $kind:ident, $meaning:literal, $advice:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $word: Reason = Reason { word: stringify!($word), kind: Kind::$kind, meaning: $meaning, advice: $advice };
        )*

        /// Every reason, in the order of the kinds.
        pub const ALL: &[Reason] = &[$($word),*];
    };
}

reasons! {
    INVALID_FIELD: Invalid, "a field has a value that is not allowed", "mend the named field";
    MISSING_FIELD: Invalid, "a field that is needed is empty", "fill in the named field";
    UNKNOWN_FIELD: Invalid, "the request names a field that does not exist", "write the field as the message names it; the nearest known one is given";
    MALFORMED_REQUEST: Invalid, "the body is not what its content type says", "send valid JSON of the method's request message";
    AMBIGUOUS_ID: Invalid, "the prefix fits more than one id", "give more characters of the id";
    INVALID_SWEEP: Invalid, "the sweep asks for something that cannot be", "mend the named field of the sweep";
    INVALID_FILTER: Invalid, "the filter or order cannot be understood", "mend the filter at the place that is named";
    INVALID_PAGE_TOKEN: Invalid, "the page token is none of ours, or belongs to another query", "begin again without a page token";
    INVALID_SPEC: Invalid, "the job asks for something that cannot be", "mend the named field of the job";
    DIGEST_MISMATCH: Invalid, "the bytes do not have the digest that was stated", "send the bytes again, or the digest that they have";
    NOT_SUPPORTED_YET: Invalid, "the field is known, and what it asks for is not built yet", "leave the named field out";

    METHOD_NOT_FOUND: Unimplemented, "there is no such method, or another service serves it", "ask the address that serves it; reflection lists all methods";
    STREAMING_ONLY: Unimplemented, "the method streams, and the JSON door carries single messages only", "call it over gRPC";

    PROJECT_NOT_FOUND: NotFound, "no such project", "list the projects you may see, or create it";
    PRINCIPAL_NOT_FOUND: NotFound, "no such principal", "list the principals, or make it: `footplate user create`";
    SUBSCRIPTION_NOT_FOUND: NotFound, "no such subscription in this project", "list them: `footplate subscription list`";
    TOKEN_NOT_FOUND: NotFound, "no such token that the caller may see", "list the tokens: `footplate token list --all`";
    EXPERIMENT_NOT_FOUND: NotFound, "no such experiment", "list the project's experiments";
    RUN_NOT_FOUND: NotFound, "no such run in this project", "list the project's runs; an id may be given by a unique prefix";
    JOB_NOT_FOUND: NotFound, "the run has no job", "list the project's jobs; a run without a job was logged from outside";
    ATTEMPT_NOT_FOUND: NotFound, "the run has no such attempt", "show the run: it lists its attempts";
    QUEUE_NOT_FOUND: NotFound, "no such queue", "list the queues";
    NODE_NOT_FOUND: NotFound, "no such node", "list the nodes";
    EVENT_NOT_FOUND: NotFound, "no such event in the ledger", "look in the catalogue of the project's events";
    BLOB_NOT_FOUND: NotFound, "no object of this digest is stored", "upload it first";
    ARTIFACT_NOT_FOUND: NotFound, "the run has no artifact at this path", "list the run's artifacts";
    LOG_NOT_FOUND: NotFound, "no such log of this run", "list the run's logs: attempts, ranks and streams";
    MODEL_NOT_FOUND: NotFound, "no such model in this project", "list the project's models, or create it";
    VERSION_NOT_FOUND: NotFound, "the model has no such version, or none in that stage", "list the model's versions";
    ALIAS_NOT_FOUND: NotFound, "the model has no such alias", "show the model: it lists its aliases";
    SWEEP_NOT_FOUND: NotFound, "no such sweep in this project", "list the project's sweeps; an id may be given by a unique prefix";
    WEBHOOK_NOT_FOUND: NotFound, "no such webhook in this project", "list the project's webhooks: `footplate webhook list`";
    SERIES_NOT_FOUND: NotFound, "the run has no metric of this name", "list the run's latest values";

    IDEMPOTENCY_KEY_REUSED: Conflict, "the request id was used before with another body", "use a fresh request id, or send the same body";
    ID_TAKEN: Conflict, "something of this id or name exists already", "choose another id or name, or use what is there";
    PRINCIPAL_DISABLED: Conflict, "the principal is shut out", "let it in again: `footplate user enable`";
    NO_OPERATOR: Conflict, "this platform does not issue credentials of its broker", "start its registry with the operator's folder: --set nats.operator=DIR; see `footplate nats init --help`";
    RUN_ENDED: Conflict, "the run has ended, and its record is closed to this", "log to a run that is open";
    RUN_HAS_JOB: Conflict, "the run is a job's: its platform ends it, not a client", "cancel the job instead";
    JOB_ENDED: Conflict, "the job has ended", "submit it again: `footplate run rerun`";
    JOB_NOT_HELD: Conflict, "the job is not held", "show the job's state";
    SWEEP_STATE: Conflict, "the sweep is not in a state that allows this", "show the sweep's state";
    QUEUE_CLOSED: Conflict, "the queue takes no jobs", "submit to another queue, or open this one";
    QUEUE_NOT_A_LEAF: Conflict, "the queue has others below it, and takes no jobs itself", "submit to one of those below: `footplate queue list`";
    QUEUE_TREE: Conflict, "the settings do not hold together with those of the queues above and below", "list the queues, and change those first: `footplate queue list`";
    NODE_STATE: Conflict, "the node is not in a state that allows this", "show the node's state";
    STALE_CHECKPOINT: Conflict, "a later attempt has saved a checkpoint already", "nothing: the later attempt's checkpoint stands";
    STALE_EPOCH: Conflict, "the node was fenced meanwhile; what it says of its former epoch no longer counts", "restart the agent";
    RUN_NOT_SEALED: Conflict, "the run is not sealed: its record may still change", "wait for it: `footplate run wait`";
    RUN_NOT_SUCCEEDED: Conflict, "the run failed or was cancelled", "take another run, or say that you mean it: `--allow-failed`";
    RUN_INCOMPLETE: Conflict, "the run was sealed with something missing", "take another run, or say that you mean it: `--allow-incomplete`";
    METRIC_NOT_FINITE: Conflict, "the metric is not a finite number, and cannot be compared", "look at the run: `footplate run show`";
    NOT_PROPOSED: Conflict, "the version has no open proposal", "propose it first";
    PROPOSAL_OPEN: Conflict, "someone else's proposal of the version waits for an answer", "approve or reject that one";
    ALREADY_APPROVED: Conflict, "the version is approved, and that stands", "promote it";
    NOT_APPROVED: Conflict, "the version is not approved, and may not serve", "propose it, and have someone else approve it";
    NEVER_SERVED: Conflict, "there is nothing that served before", "promote a version instead";
    VERSION_ARCHIVED: Conflict, "the version is archived", "move it to stage None first, or take another version";
    VERSION_SERVES: Conflict, "the version serves", "promote another, or move it to stage None first";
    VERSION_HAS_ALIASES: Conflict, "aliases name the version", "move them first, or take them away with it: `--free-aliases`";
    OVERTAKEN: Conflict, "someone else has changed it since you looked", "look again, and ask again if you still want it";
    CHANGED_MEANWHILE: Conflict, "it was changed by another writer too often in a row", "read it again and repeat the request";
    UNREADABLE_HISTORY: Conflict, "the ledger holds an event of it that this build cannot read", "upgrade this service; until then nothing may be written to it";

    TOKEN_MISSING: Unauthenticated, "the call carries no token", "set FOOTPLATE_TOKEN; on your own machine `footplate up` makes a token and the command line finds it, once it says that it is up";
    TOKEN_UNKNOWN: Unauthenticated, "the token is not known, or was revoked", "ask for a new token";
    PROJECT_DENIED: Denied, "the caller may not do this in this project", "ask an admin of the project: `footplate project show PROJECT` names them";
    PLATFORM_DENIED: Denied, "it belongs to no project, and the caller may not do it", "ask an admin of the platform: `footplate project show _` names them";
    OWN_ACCESS: Denied, "nobody takes from themselves what only an admin can give back", "ask another admin of the platform";
    OWN_PROPOSAL: Denied, "nobody approves what they proposed themselves, unless they are the project's only member", "ask another member to approve it";
    WEBHOOK_ADDRESS_DENIED: Denied, "the webhook's address is inside the platform's own network", "name a public address, or ask the operator to allow this one: `webhooks.allow-inside`";
    NODE_DENIED: Denied, "a node spoke for a run that is not placed on it", "look whether two nodes share a name";

    QUOTA_EXCEEDED: Exhausted, "it asks for more than the queue's quota will ever allow", "ask for less, or raise the quota: `footplate queue set`";
    LIMIT_REACHED: Exhausted, "there are as many as there may be", "take away some that are not needed";
    TOO_LARGE: Exhausted, "the request is larger than is taken at once", "send it in smaller parts, or store it and send its digest";
    NO_NODE_FITS: Exhausted, "no node that is known could ever hold it", "ask for less, or let it wait for such a node: `footplate submit --queue-anyway`";
    TOO_MANY_REQUESTS: Exhausted, "more is asked at once than is served at once", "ask again in a moment";
    DISK_FULL: Exhausted, "the disk is full; nothing that was acknowledged is lost", "free space, then start the broker again: docs/guides/full-disk.md";

    BROKER_AWAY: Unavailable, "the broker does not answer; nothing that was acknowledged is lost", "look whether nats-server runs: `footplate doctor`";
    STORE_AWAY: Unavailable, "the object or series store does not answer", "look whether it runs: `footplate doctor`";
    STARTING: Unavailable, "the service is reading the ledger and cannot answer yet", "ask again in a moment";
    STOPPING: Unavailable, "the service is stopping", "ask again: another instance, or this one when it is back";
    UNREACHABLE: Unavailable, "nothing answers at the address", "start the platform with `footplate up`, or set FOOTPLATE_ADDR";
    CERTIFICATE_UNTRUSTED: Unavailable, "the server's certificate leads to no authority that is trusted here", "name the platform's own authority with --ca FILE or FOOTPLATE_CA; whoever runs the platform has the file";
    CERTIFICATE_NAME: Unavailable, "the server's certificate is for another name than the one it was called by", "call it by a name of its certificate, or have one made that names it";
    CERTIFICATE_EXPIRED: Unavailable, "the server's certificate is not valid at this time", "see whether this machine's clock is right, else ask whoever runs the platform to renew the certificate";
    TLS_FAILED: Unavailable, "no connection within TLS could be agreed on", "look whether the address and its port are the platform's";
    NO_LEADER: Unavailable, "no instance of the service leads now, so nothing is decided", "ask again in a moment";

    VIEW_BEHIND: DeadlineExceeded, "the view did not reach the sequence that was asked for in time", "ask again: it is still reading";
    DEADLINE_PASSED: DeadlineExceeded, "it was not done by the call's deadline; it may still happen", "look before repeating it, or allow more time";
    OUTCOME_UNKNOWN: DeadlineExceeded, "the broker did not say whether it was written", "repeat the request with the same request id";

    INTERNAL: Internal, "a fault of ours", "see the service's log; please report it";
}

/// The row of a word.
pub fn of_word(word: &str) -> Option<&'static Reason> {
    ALL.iter().find(|reason| reason.word == word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_are_unique_and_every_kind_has_one() {
        let words: BTreeSet<&str> = ALL.iter().map(|reason| reason.word).collect();
        assert_eq!(words.len(), ALL.len());
        for kind in Kind::ALL {
            assert!(ALL.iter().any(|reason| reason.kind == kind), "{kind:?} has no reason");
        }
    }

    #[test]
    fn sentences_are_parts_of_sentences() {
        for reason in ALL {
            for text in [reason.meaning, reason.advice] {
                assert!(!text.is_empty() && !text.ends_with('.') && !text.starts_with(char::is_uppercase), "{}: {text}", reason.word);
            }
        }
    }
}
