//! Who is let in, and who is put out.

use crate::servers::{Served, connect};
use footplate_credentials::{
    Access, MirrorLimits, Operator, Resolver, ResolverError, Revocation, ServerConfig, Servers, decode, now_seconds,
};
use footplate_testkit::{Authority, eventually, nats};
use footplate_types::ProjectName;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_server_lets_in_whom_its_operator_vouches_for_and_nobody_else() {
    let served = Served::start().await;
    let platform = served.platform().await;
    platform.flush().await.unwrap();
    assert!(async_nats::connect(served.server.url()).await.is_err(), "anonymous");
    let stranger = tempfile::tempdir().unwrap();
    let stranger = Operator::create(&stranger.path().join("operator")).unwrap();
    let theirs = stranger.platform_user("x", &Access::new([">"], [">"]), now_seconds(), None);
    assert!(connect(&served.server, &theirs).await.is_err(), "another operator's");
    let refused = Resolver::connect(&served.server.url(), &stranger, now_seconds()).await.unwrap_err();
    assert!(matches!(refused, ResolverError::NotPermitted { .. }), "{refused}");
    let late = served.operator.platform_user("x", &Access::new([">"], [">"]), now_seconds() - 60, Some(now_seconds() - 1));
    assert!(connect(&served.server, &late).await.is_err(), "no longer good");
}

#[tokio::test]
async fn a_server_with_an_authority_of_its_own_is_told_within_tls_and_by_nobody_else() {
    let (home, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let operator = Operator::create(&home.path().join("operator")).unwrap();
    let config = ServerConfig::new(&operator, &home.path().join("accounts"), now_seconds()).unwrap();
    let (server, client) = (authority.sign("server", &["localhost", "127.0.0.1"]), authority.sign("client", &["registry"]));
    let (certificate, key, ca) = (server.certificate.display(), server.key.display(), authority.file());
    let tls = format!("tls {{ cert_file: '{certificate}', key_file: '{key}', ca_file: '{}', verify: true }}", ca.display());
    let served = nats().config(&format!("{}\n{tls}\n", config.as_str())).start().await;
    let addresses = format!("tls://localhost:{}", served.port());
    let servers = Servers { addresses: addresses.clone(), ca_file: Some(ca), client_certificate: Some((client.certificate, client.key)) };
    let resolver = Resolver::connect(&servers, &operator, now_seconds()).await.unwrap();
    let token = operator.platform_token(now_seconds()).unwrap();
    resolver.push(&token).await.unwrap();
    let refused = Resolver::connect(&addresses, &operator, now_seconds()).await.unwrap_err();
    assert!(matches!(refused, ResolverError::Unreachable { .. }), "{refused}");
}

#[tokio::test]
async fn accounts_are_pushed_listed_looked_up_and_forgotten() {
    let served = Served::start().await;
    let (operator, url) = (&served.operator, served.server.url());
    let resolver = Resolver::connect(&url, operator, now_seconds()).await.unwrap();
    let vision = operator.project(&ProjectName::parse("vision").unwrap());
    let subscriber = vision.subscriber("team", now_seconds(), None);
    assert!(connect(&served.server, &subscriber).await.is_err(), "its account is not known yet");
    let token = vision.token(operator, &MirrorLimits::default(), now_seconds()).unwrap();
    resolver.push(&token).await.unwrap();
    assert_eq!(resolver.lookup(vision.public()).await.unwrap(), Some(token));
    assert_eq!(resolver.list().await.unwrap().len(), 3);
    let connected = connect(&served.server, &subscriber).await.unwrap();
    connected.flush().await.unwrap();

    resolver.delete(operator, &[vision.public()], now_seconds()).await.unwrap();
    assert_eq!(resolver.lookup(vision.public()).await.unwrap(), None);
    assert!(connect(&served.server, &subscriber).await.is_err(), "its account is forgotten");
    let refused = resolver.push("not a token").await.unwrap_err();
    assert!(matches!(refused, ResolverError::Refused(_)), "{refused}");
}

#[tokio::test]
async fn a_revoked_user_is_put_out_and_stays_out_over_restarts_while_others_stay() {
    let served = Served::start().await;
    let (operator, url) = (&served.operator, served.server.url());
    let everything = Access::new([">"], [">"]);
    let revoked = operator.platform_user("n1", &everything, now_seconds() - 5, None);
    let gone = connect(&served.server, &revoked).await.unwrap();
    let stays = served.platform().await;
    let account = operator.platform_account().to_owned();
    operator.revoke(&Revocation { account, user: revoked.public().to_owned(), at: now_seconds() - 1 }).unwrap();
    let resolver = Resolver::connect(&url, operator, now_seconds()).await.unwrap();
    resolver.push(&operator.platform_token(now_seconds()).unwrap()).await.unwrap();
    let is_out = || async { (gone.connection_state() != async_nats::connection::State::Connected).then_some(()) };
    eventually(WITHIN, "the revoked user's connection ends", is_out).await;
    assert!(connect(&served.server, &revoked).await.is_err());
    stays.flush().await.unwrap();
    assert_eq!(stays.connection_state(), async_nats::connection::State::Connected);

    served.server.restart().await.unwrap();
    assert!(connect(&served.server, &revoked).await.is_err(), "the server remembers");
    served.platform().await.flush().await.unwrap();
    let held = Resolver::connect(&url, operator, now_seconds()).await.unwrap().lookup(operator.platform_account()).await.unwrap().unwrap();
    assert_eq!(decode(&held).unwrap().claims["revocations"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_without_a_resolver_of_its_own_is_told_of_clearly() {
    let home = tempfile::tempdir().unwrap();
    let operator = Operator::create(&home.path().join("operator")).unwrap();
    let config = ServerConfig::new(&operator, &home.path().join("accounts"), now_seconds()).unwrap();
    let (before, rest) = config.as_str().split_once("resolver {").unwrap();
    let after = rest.split_once("}\n").unwrap().1;
    let server = nats().config(&format!("{before}resolver: MEMORY\n{after}")).start().await;
    let resolver = Resolver::connect(&server.url(), &operator, now_seconds()).await.unwrap();
    let refused = resolver.push(&operator.platform_token(now_seconds()).unwrap()).await.unwrap_err().to_string();
    assert!(refused.contains("type: full"), "{refused}");
}
