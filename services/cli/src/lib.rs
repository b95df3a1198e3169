//! The footplate command line: every user command, the snapshot of the code, the job file.
//!
//! A library only so that its parts can be tested and linked: the binary is `main.rs`. It decides nothing that a service decides; it reads,
//! checks, sends and shows.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod args;
pub mod arrays;
pub mod capture;
pub mod commands;
pub mod context;
pub mod jobfile;
pub mod output;
pub mod pipelinefile;
pub mod platform;
pub mod scrub;
pub mod submission;
pub mod sweepfile;
pub mod view;
pub mod waiting;

use footplate_api::ApiError;
use footplate_service::Exit;

/// A refusal in one line: what happened, the stable reason, and what to do next.
pub fn told(error: &ApiError) -> String {
    let advice = error.advice.as_ref().map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{error} ({}){advice}", error.reason)
}

/// The exit code of a failure, and what to tell the person: what happened, and what to do next.
pub fn exit_of(error: &anyhow::Error) -> (Exit, String) {
    if let Some(failure) = error.downcast_ref::<output::Failure>() {
        return (failure.exit, failure.message.clone());
    }
    if let Some(error) = error.downcast_ref::<ApiError>() {
        return (error.exit(), told(error));
    }
    if let Some(problems) = error.downcast_ref::<jobfile::Problems>() {
        return (Exit::Usage, problems.to_string());
    }
    let chain = error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let exit = match error.downcast_ref::<capture::CaptureError>() {
        Some(capture::CaptureError::NoFolder { .. } | capture::CaptureError::NoRepository { .. } | capture::CaptureError::Bare { .. }) => {
            Exit::Usage
        }
        Some(
            capture::CaptureError::Unreadable { .. }
            | capture::CaptureError::Changed { .. }
            | capture::CaptureError::Git { .. }
            | capture::CaptureError::Scratch { .. },
        ) => Exit::Failed,
        Some(_) => Exit::Refused,
        None => Exit::Failed,
    };
    (exit, chain)
}
