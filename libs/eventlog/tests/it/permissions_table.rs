//! Everybody against everything: each cell of the table is tried on a real nats-server.

use crate::permissions::subjects;
use crate::principals::{Principals, services};
use async_nats::{Client, ConnectOptions, Event, ServerError};
use footplate_credentials::{MirrorLimits, UserCreds, ensure_project_mirror, now_seconds};
use footplate_eventlog::{Broker as _, StreamName};
use footplate_events::Aggregate;
use footplate_types::{NodeName, ProjectName};
use std::time::Duration;
use tokio::sync::mpsc;

const WITHIN: Duration = Duration::from_secs(20);

/// `P` publishes or asks, `S` subscribes. Who may is marked `y`; the columns: tracker, scheduler, executor, sweep, gpu-inventory,
/// registry, node n1, a subscriber of project vision, nobody in particular, a node n3 whose credentials are revoked.
const TABLE: &str = include_str!("permissions_table.txt");
const COLUMNS: usize = 10;

struct Row {
    kind: String,
    subject: String,
    may: Vec<bool>,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (kind, subject) = (words.next().unwrap(), words.next().unwrap());
            let may: Vec<bool> = words.map(|mark| mark == "y").collect();
            assert_eq!(may.len(), COLUMNS, "{line}");
            Row { kind, subject, may }
        })
        .collect()
}

/// A connection, and what the server says against what it does.
struct Tried {
    client: Client,
    violations: mpsc::UnboundedReceiver<String>,
    barriers: u64,
}

async fn connect(url: &str, creds: Option<&UserCreds>) -> Option<Tried> {
    let (told, violations) = mpsc::unbounded_channel();
    let options = match creds {
        Some(creds) => ConnectOptions::with_credentials(&creds.to_text()).unwrap(),
        None => ConnectOptions::new(),
    };
    let options = options.event_callback(move |event| {
        if let Event::ServerError(ServerError::Other(said)) = event {
            let _ = told.send(said);
        }
        std::future::ready(())
    });
    let client = options.connect(url).await.ok()?;
    Some(Tried { client, violations, barriers: 0 })
}

impl Tried {
    /// Whether the server lets it. What comes after it is refused for sure, and the server answers in order: so it is known, without
    /// waiting, whether the first was refused too.
    async fn may(&mut self, kind: &str, subject: &str) -> bool {
        // Dropped only after the answer, as an unsubscription would go before it.
        let _held = match kind {
            "P" => {
                self.client.publish(subject.to_owned(), "".into()).await.unwrap();
                None
            }
            "S" => Some(self.client.subscribe(subject.to_owned()).await.unwrap()),
            other => panic!("{other}"),
        };
        self.barriers += 1;
        let barrier = format!("barrier.{}", self.barriers);
        self.client.publish(barrier.clone(), "".into()).await.unwrap();
        let mut allowed = true;
        loop {
            let said = tokio::time::timeout(WITHIN, self.violations.recv()).await.expect("the barrier is refused").unwrap();
            let said = said.to_lowercase();
            assert!(said.contains("permissions violation"), "{said}");
            if said.contains(&format!("\"{barrier}\"")) {
                return allowed;
            }
            let verb = if kind == "P" { "publish" } else { "subscription" };
            assert!(said.contains(verb) && said.contains(&format!("\"{}\"", subject.to_lowercase())), "{said} for {subject}");
            allowed = false;
        }
    }
}

/// What a principal does with every row.
async fn column(url: &str, creds: Option<&UserCreds>, rows: &[Row]) -> Vec<bool> {
    let mut all = Vec::new();
    let mut tried = connect(url, creds).await;
    for row in rows {
        match &mut tried {
            Some(tried) => all.push(tried.may(&row.kind, &row.subject).await),
            // Who is not let in tries anew for every cell.
            None => all.push(connect(url, creds).await.is_some()),
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_may_do_what_the_table_says_and_nothing_else() {
    let principals = Principals::start().await;
    let (operator, url) = (&principals.operator, principals.server.url());
    let platform = principals.platform_broker().await;
    let vision = ProjectName::parse("vision").unwrap();
    ensure_project_mirror(&url, operator, &vision, &MirrorLimits::default(), now_seconds()).await.unwrap();
    let mut everybody: Vec<Option<UserCreds>> = services().iter().map(|service| Some(principals.service(service))).collect();
    everybody.push(Some(principals.node(&NodeName::parse("n1").unwrap())));
    everybody.push(Some(operator.project(&vision).subscriber("team", now_seconds(), None)));
    everybody.push(None);
    let revoked = principals.node(&NodeName::parse("n3").unwrap());
    assert!(connect(&url, Some(&revoked)).await.is_some(), "it was let in before");
    principals.revoke(&revoked).await;
    everybody.push(Some(revoked));
    assert_eq!(everybody.len(), COLUMNS);

    let rows = rows();
    let columns = futures::future::join_all(everybody.iter().map(|creds| column(&url, creds.as_ref(), &rows))).await;
    let mut wrong = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let is: Vec<bool> = columns.iter().map(|column| column[index]).collect();
        if is != row.may {
            let marks = is.iter().map(|may| if *may { "y" } else { "." }).collect::<Vec<_>>().join(" ");
            wrong.push(format!("{} {:60} {marks}", row.kind, row.subject));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows are not so:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    for stream in StreamName::ALL {
        platform.bounds(stream).await.unwrap();
    }
}

#[test]
fn every_fact_and_every_stream_stands_in_the_table() {
    let rows = rows();
    for subject in subjects(&services()) {
        assert!(rows.iter().any(|row| row.subject == subject.to_string()), "{subject}");
    }
    for aggregate in Aggregate::ALL {
        let kind = format!(".{}.", aggregate.as_str());
        assert!(rows.iter().any(|row| row.subject.starts_with("fp.ledger.") && row.subject.contains(&kind)), "{aggregate:?}");
    }
    for stream in StreamName::ALL {
        for asked in ["PURGE", "DELETE", "UPDATE"] {
            let subject = format!("$JS.API.STREAM.{asked}.{}", stream.as_str());
            assert!(rows.iter().any(|row| row.subject == subject), "{subject}");
        }
        assert!(rows.iter().any(|row| row.subject == format!("$JS.API.CONSUMER.CREATE.{}", stream.as_str())), "{stream:?}");
    }
}
