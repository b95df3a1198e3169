//! `health`: asks a service or an agent on this machine whether it is ready, for whatever supervises it; an image needs no shell for it.

use crate::{
    args::ServiceArgs,
    context::Context,
    output::{Exit, Failure},
    platform::{self, knobs},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The most that is read of one.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  footplate health
  footplate health --admin 127.0.0.1:7451 --live

Exit codes: 0 it is, 5 it is not, or nobody answers.";

/// Ask a service or an agent on this machine whether it is ready
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address of its admin pages (default: what its settings say)
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Ask whether it lives, ready or not
    #[arg(long)]
    pub live: bool,
    /// Settings.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Asks, and prints what is missing.
///
/// # Errors
/// Settings that cannot be used, no answer, and an answer that says no.
pub async fn run(args: Args, ctx: Context) -> anyhow::Result<Exit> {
    let more: Vec<_> = args.admin.into_iter().map(|admin| ("admin.listen", admin)).collect();
    let config = platform::load(&args.service, &more).map_err(|error| Failure::usage(error.to_string()))?;
    let address = reachable(config.get(&knobs::ADMIN));
    let (path, state) = if args.live { ("/livez", "lives") } else { ("/readyz", "ready") };
    let away = |why: String| Failure::new(Exit::Unavailable, format!("{address} does not answer {path}: {why}"));
    let answer = tokio::time::timeout(ANSWER_WITHIN, ask(address, path)).await;
    let answer = answer.map_err(|_| away(format!("nothing came within {} s", ANSWER_WITHIN.as_secs())))?;
    let answer = answer.map_err(|error| away(error.to_string()))?;
    let (status, told) = understood(&answer).ok_or_else(|| away("what came is no HTTP".to_owned()))?;
    if status != 200 {
        let pending = told.trim().replace('\n', "; ");
        return Err(Failure::new(Exit::Unavailable, format!("{address} is not {state}: {pending}")).into());
    }
    ctx.output.one(state, &serde_json::json!({ "address": address.to_string(), "state": state }), &format!("{state}\n"))?;
    Ok(Exit::Done)
}

/// Where a process of this machine is reached that listens everywhere.
fn reachable(listens: SocketAddr) -> SocketAddr {
    let ip = match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listens.port())
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The status of an HTTP answer, and its body.
fn understood(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some((status.parse().ok()?, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_asked_on_loopback() {
        for (listens, asked) in [("0.0.0.0:7451", "127.0.0.1:7451"), ("[::]:1", "[::1]:1"), ("10.1.2.3:4", "10.1.2.3:4")] {
            assert_eq!(reachable(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn an_answer_is_its_status_and_what_it_says() {
        let answer = "HTTP/1.0 503 Service Unavailable\r\ncontent-length: 18\r\n\r\nledger: at 3 of 10\n";
        assert_eq!(understood(answer), Some((503, "ledger: at 3 of 10\n")));
        assert_eq!((understood("220 mail\r\n"), understood("HTTP/1.1 OK\r\n\r\n")), (None, None));
    }
}
