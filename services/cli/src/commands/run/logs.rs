//! `run logs`: the bytes that the workers wrote. Standard output goes to standard output, everything else to standard error, so that a file
//! made by `>` equals what the program printed.

use crate::{
    call,
    context::{Context, find_run},
    output::{Exit, print_bytes, tell},
    view,
    waiting::{Wait, wait},
};
use footplate_api::{ApiError, Client, types::Run, v1};
use std::{collections::BTreeMap, io::Write as _, time::Duration};

/// How often in a row a followed stream may break without a byte having come.
const BROKEN_MAX: u32 = 5;
/// The pause before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  footplate run logs 0190f3a2
  footplate run logs -f 0190f3a2
  footplate run logs --attempt 1 --rank 3 --stream stderr 0190f3a2

With several workers each line begins with its rank; one --rank alone gives bare bytes.
Exit codes of -f: 0 the run succeeded, 7 it failed, 8 it was cancelled.";

/// Print the log of a run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Id of the run, or a unique prefix of it
    #[arg(value_name = "RUN")]
    pub run: String,
    /// Go on until the run's last byte
    #[arg(short, long)]
    pub follow: bool,
    /// One attempt (default: the newest that has a log)
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub attempt: u32,
    /// One worker alone
    #[arg(long, value_name = "RANK")]
    pub rank: Option<u32>,
    /// Only this stream; may be given many times
    #[arg(long = "stream", value_name = "STREAM", value_parser = ["stdout", "stderr", "setup", "platform"])]
    pub streams: Vec<String>,
    /// Only the last so many bytes of each log
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub tail: u64,
}

/// Prints the log.
///
/// # Errors
/// No such run, or no answer.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let client = ctx.client()?;
    let found = find_run(&client, &args.run).await?;
    let mut printer = Printer { prefixed: args.rank.is_none() && workers(&found) > 1, ..Printer::default() };
    let request = v1::ReadLogsRequest {
        project: client.project().to_owned(),
        run_id: found.run_id.clone(),
        attempt: args.attempt,
        rank: args.rank,
        streams: args.streams.clone(),
        follow: args.follow,
        tail_bytes: args.tail,
    };
    if found.has_job {
        // The logs are another service's: let it have read of the run what was just read of it here.
        let asked =
            v1::ListAttemptsRequest { project: client.project().to_owned(), run_id: found.run_id.clone(), at_least: found.sequence };
        call!(client, attempts.list_attempts(asked))?;
    }
    let mut broken = 0;
    loop {
        let before = printer.bytes;
        match read(&client, &request, &mut printer, &args).await? {
            Ok(()) => break,
            // What was printed is skipped when the stream is opened again: each piece says where it stands in its log.
            Err(error) if args.follow && broken < BROKEN_MAX && error.is_worth_another_try() => {
                broken = if printer.bytes > before { 1 } else { broken + 1 };
                tell(format!("the log stream broke ({error}); opening it again"));
                tokio::time::sleep(REOPEN_AFTER).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    printer.finish()?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    let ended = wait(&ctx, &client, &found.run_id, Wait { ended_is_enough: true, timeout: None }).await?;
    Ok(view::exit_of(&ended))
}

/// Reads one stream to its end; the inner error is a stream that could not be opened or broke.
async fn read(client: &Client, request: &v1::ReadLogsRequest, printer: &mut Printer, args: &Args) -> anyhow::Result<Result<(), ApiError>> {
    let mut stream = match client.once(client.logs().read_logs(request.clone())).await {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        match stream.message().await {
            Ok(Some(piece)) => printer.take(client, &piece, args).await?,
            Ok(None) => return Ok(Ok(())),
            Err(status) => return Ok(Err(ApiError::from_status(&status, &client.target().address))),
        }
    }
}

fn workers(run: &Run) -> u32 {
    run.attempts.last().map_or(0, |attempt| attempt.members.iter().map(|member| member.workers).sum())
}

/// Prints pieces as they come, each byte of each log once.
#[derive(Debug, Default)]
struct Printer {
    prefixed: bool,
    bytes: u64,
    /// Where each log stands, by (attempt, rank, stream).
    at: BTreeMap<(u32, u32, String), u64>,
    /// The open line of each log, when lines are prefixed.
    open: BTreeMap<(u32, u32, String), Vec<u8>>,
}

impl Printer {
    async fn take(&mut self, client: &Client, piece: &v1::ReadLogsResponse, args: &Args) -> anyhow::Result<()> {
        if !piece.remark.is_empty() {
            tell(&piece.remark);
        }
        if piece.data.is_empty() {
            return Ok(());
        }
        if self.at.is_empty() && args.rank.is_none() && !self.prefixed {
            // A run that was pending when we looked: how many workers it has is known only now.
            self.prefixed = find_run(client, &args.run).await.is_ok_and(|run| workers(&run) > 1);
        }
        let key = (piece.attempt, piece.rank, piece.stream.clone());
        let seen = self.at.entry(key.clone()).or_insert(piece.at);
        let known = usize::try_from(seen.saturating_sub(piece.at)).unwrap_or(usize::MAX);
        let Some(fresh) = piece.data.get(known..).filter(|fresh| !fresh.is_empty()) else { return Ok(()) };
        *seen = piece.at + piece.data.len() as u64;
        self.bytes += fresh.len() as u64;
        if !self.prefixed || matches!(piece.stream.as_str(), "setup" | "platform") {
            return write(&piece.stream, fresh);
        }
        let open = self.open.entry(key).or_default();
        let mut lines = Vec::new();
        for part in fresh.split_inclusive(|byte| *byte == b'\n') {
            open.extend_from_slice(part);
            if part.ends_with(b"\n") {
                lines.extend_from_slice(format!("[{}] ", piece.rank).as_bytes());
                lines.append(open);
            }
        }
        write(&piece.stream, &lines)
    }

    /// Prints what has no line end.
    fn finish(&mut self) -> anyhow::Result<()> {
        for ((_, rank, stream), line) in std::mem::take(&mut self.open) {
            if !line.is_empty() {
                write(&stream, &[format!("[{rank}] ").as_bytes(), &line, b"\n"].concat())?;
            }
        }
        Ok(())
    }
}

fn write(stream: &str, bytes: &[u8]) -> anyhow::Result<()> {
    if stream == "stdout" {
        return Ok(print_bytes(bytes)?);
    }
    let mut err = std::io::stderr().lock();
    Ok(err.write_all(bytes).and_then(|()| err.flush())?)
}
