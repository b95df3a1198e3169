//! Three servers of one operator: what one is told, all of them hold to.

use crate::servers::connect;
use async_nats::jetstream;
use footplate_credentials::{
    Access, MirrorLimits, Operator, Resolver, Revocation, ServerConfig, ensure_project_mirror, now_seconds, revoke_subscriber,
};
use footplate_testkit::{NatsServer, eventually, nats};
use footplate_types::ProjectName;
use futures::future::join_all;
use std::time::Duration;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(60);
const SERVERS: usize = 3;

async fn cluster() -> (Vec<NatsServer>, Operator, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let operator = Operator::create(&home.path().join("operator")).unwrap();
    let ports: Vec<_> = (0..SERVERS).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let routes: Vec<String> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
    drop(ports);
    let peers = routes.iter().map(|route| format!("nats://{route}")).collect::<Vec<_>>().join(", ");
    let servers = routes.iter().enumerate().map(|(number, route)| {
        let who = ServerConfig::new(&operator, &home.path().join(format!("accounts{number}")), now_seconds()).unwrap();
        let lines =
            format!("server_name: s{number}\ncluster {{ name: footplate, listen: \"{route}\", routes: [{peers}] }}\n{}", who.as_str());
        async move { nats().config(&lines).start().await }
    });
    let servers = join_all(servers).await;
    (servers, operator, home)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_server_is_told_all_of_them_hold_to_and_a_mirror_has_the_ledgers_replicas() {
    let (servers, operator, _home) = cluster().await;
    let url = servers[0].url();
    let everything = Access::new([">"], [">"]);
    let platform = connect(&servers[0], &operator.platform_user("all", &everything, now_seconds(), None)).await.unwrap();
    let context = jetstream::new(platform);
    let config = jetstream::stream::Config {
        name: "LEDGER".to_owned(),
        subjects: vec!["fp.ledger.>".to_owned()],
        max_bytes: 64 << 20,
        num_replicas: SERVERS,
        allow_direct: true,
        ..Default::default()
    };
    // The servers elect who leads them first.
    let made = || async { context.create_stream(config.clone()).await.ok().map(|_| ()) };
    eventually(SOON, "the ledger is there", made).await;
    let written = || async { context.publish("fp.ledger.vision.run.1", "x".into()).await.ok()?.await.ok().map(|ack| ack.sequence) };
    let last = eventually(SOON, "an event is written", written).await;

    let (vision, limits) = (ProjectName::parse("vision").unwrap(), MirrorLimits { replicas: 3, ..MirrorLimits::default() });
    let ensured = || async { ensure_project_mirror(&url, &operator, &vision, &limits, now_seconds()).await.ok().map(|_| ()) };
    eventually(SOON, "the mirror is there", ensured).await;
    let team = operator.project(&vision).subscriber("team", now_seconds() - 2, None);
    let mut connected = Vec::new();
    for server in &servers {
        let let_in = || async { connect(server, &team).await.ok() };
        let client = eventually(SOON, "every server knows the project's account", let_in).await;
        let stands = || async {
            let mut stream = jetstream::new(client.clone()).get_stream("LEDGER").await.ok()?;
            let info = stream.info().await.ok()?;
            (info.state.last_sequence >= last && info.config.num_replicas == SERVERS).then_some(())
        };
        eventually(SOON, "the mirror has the ledger's events", stands).await;
        connected.push(client);
    }

    revoke_subscriber(&url, &operator, &vision, team.public(), &limits, now_seconds() - 1).await.unwrap();
    for (server, client) in servers.iter().zip(&connected) {
        let is_out = || async { (client.connection_state() != async_nats::connection::State::Connected).then_some(()) };
        eventually(SOON, "it is put out at every server", is_out).await;
        assert!(connect(server, &team).await.is_err());
    }

    // A server that was away hears of it when it is back.
    let node = operator.platform_user("n1", &everything, now_seconds() - 2, None);
    drop(connect(&servers[2], &node).await.unwrap());
    servers[2].stop().await.unwrap();
    operator
        .revoke(&Revocation { account: operator.platform_account().to_owned(), user: node.public().to_owned(), at: now_seconds() - 1 })
        .unwrap();
    let resolver = Resolver::connect(&url, &operator, now_seconds()).await.unwrap();
    resolver.push(&operator.platform_token(now_seconds()).unwrap()).await.unwrap();
    servers[2].restart().await.unwrap();
    let refused = || async { connect(&servers[2], &node).await.is_err().then_some(()) };
    eventually(SOON, "a server that was away holds to it, too", refused).await;
}
