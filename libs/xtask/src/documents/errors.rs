//! `docs/errors/README.md`: every reason for a no, and every exit code.

use std::fmt::Write;

use footplate_api::refusal::{Kind, reason};
use footplate_api::{ApiError, Refusal};

/// The page.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         A refusal is a gRPC status with one `google.rpc.ErrorInfo` of the domain `footplate`: its `reason` is one of the words below and never \
         changes; its metadata may hold `field`, `value`, `allowed` and `next` (what to do). The JSON door answers the same as \
         `{\"code\", \"message\", \"details\"}`. The command line prints the message, the reason and what to do next, and ends with the exit code.\n\n\
         | reason | gRPC code | exit | meaning | what to do |\n|---|---|---|---|---|\n",
    );
    for reason in reason::ALL {
        let error = ApiError::from(Refusal::new(reason, ""));
        let (word, code, exit) = (reason.word, reason.kind.code(), error.exit().code());
        writeln!(page, "| `{word}` | {code:?} | {exit} | {} | {} |", reason.meaning, reason.advice).expect("a string takes any text");
    }
    page.push_str("\n## Exit codes\n\nThe same for every command, and for every command that waits.\n\n| code | means |\n|---|---|\n");
    for (code, meaning) in EXITS {
        writeln!(page, "| {code} | {meaning} |").expect("a string takes any text");
    }
    writeln!(page, "\nA refusal's kind decides: {}.", kinds()).expect("a string takes any text");
    page
}

const EXITS: [(u8, &str); 10] = [
    (0, "done"),
    (1, "failed, for a reason that is none of the others"),
    (2, "the command line, a configuration or an input file cannot be understood"),
    (3, "what was named does not exist"),
    (4, "refused: permission, quota, conflict"),
    (5, "what it needs cannot be reached now; the same command may work later"),
    (6, "not done in time; it may still happen"),
    (7, "the command worked, and the run that it waited for failed"),
    (8, "the run that it waited for was cancelled"),
    (9, "of a gate: everything could be told, and something falls short of what was wanted"),
];

fn kinds() -> String {
    let exit = |kind: Kind| {
        reason::ALL.iter().find(|reason| reason.kind == kind).map(|reason| ApiError::from(Refusal::new(reason, "")).exit().code())
    };
    let told = Kind::ALL.into_iter().filter_map(|kind| Some(format!("{:?} ends with {}", kind.code(), exit(kind)?)));
    told.collect::<Vec<_>>().join(", ")
}
