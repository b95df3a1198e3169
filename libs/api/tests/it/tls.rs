//! The port and the client within TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use footplate_api::server::{ServerTls, TlsError};
use footplate_api::v1::{ListQueuesRequest, WatchEventsRequest};
use footplate_api::{ApiError, Client, Target};
use footplate_service::Exit;
use footplate_testkit::{Authority, CertificateFiles};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::StreamExt;

use crate::fixture::{Fixture, http, http_over, start, start_within};

const HOUR: Duration = Duration::from_secs(3_600);
const ROUND: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

async fn within(files: &CertificateFiles) -> Fixture {
    start_within(ServerTls::read(&files.certificate, &files.key).unwrap(), ROUND).await
}

async fn asked(address: &str, ca: Option<&Path>) -> Result<String, ApiError> {
    let client = Client::connect(Target::new(address).project("vision").ca(ca.map(Path::to_owned)))?;
    let queues = client.safely(|| async { client.queues().list_queues(ListQueuesRequest::default()).await }).await?.queues;
    Ok(queues[0].name.clone())
}

/// A connection whose own first protocol is `alpn`.
async fn connected(address: SocketAddr, ca: &Path, alpn: &str, versions: &[&'static SupportedProtocolVersion]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let mut config = config.with_protocol_versions(versions).unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// What the server shows to a fresh connection.
async fn shown(address: SocketAddr, ca: &Path) -> CertificateDer<'static> {
    let stream = connected(address, ca, "h2", rustls::DEFAULT_VERSIONS).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn grpc_and_json_and_streams_go_through_it() {
    let authority = Authority::new();
    let server = within(&authority.sign("server", &["localhost", "127.0.0.1"])).await;
    for host in ["localhost", "127.0.0.1"] {
        let told = asked(&format!("https://{host}:{}", server.address.port()), Some(&authority.file())).await.unwrap();
        assert_eq!(told, "ada/vision/true");
    }
    let target = Target::new(format!("https://{}", server.address)).ca(Some(authority.file()));
    let client = Client::connect(target).unwrap();
    let mut events = client.once(client.events().watch_events(WatchEventsRequest::default())).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 1);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let stream = connected(server.address, &authority.file(), "http/1.1", &[version]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let path = "/footplate.api.v1.QueueService/ListQueues";
        let answer = http_over(stream, "POST", path, &[("content-type", "application/json")], "{}").await;
        assert_eq!((answer.status, answer.json()["queues"][0]["name"].as_str()), (200, Some("ada/-/false")), "{answer:?}");
    }
    let stream = connected(server.address, &authority.file(), "h2", rustls::DEFAULT_VERSIONS).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn who_speaks_in_the_clear_is_let_go_and_the_others_are_served() {
    let authority = Authority::new();
    let server = within(&authority.sign("server", &["127.0.0.1"])).await;
    let answer = http(server.address, "GET", "/", &[], "").await;
    assert!(answer.status == 0 && !answer.head.contains("http/"), "{answer:?}");
    let error = asked(&server.address.to_string(), None).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("UNREACHABLE", Exit::Unavailable));
    assert!(error.advice.as_deref().is_some_and(|advice| advice.contains("https://")), "{error:?}");
    assert!(asked(&format!("https://{}", server.address), Some(&authority.file())).await.is_ok());
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_told_apart_by_why() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = within(&authority.sign("server", &["footplate.lab"])).await;
    let address = format!("https://{}", server.address);
    let error = asked(&address, Some(&other.file())).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("CERTIFICATE_UNTRUSTED", Exit::Unavailable));
    assert!(error.message.ends_with("comes from an authority that is not trusted here"), "{error:?}");
    assert!(error.message.contains(&address) && error.advice.as_deref().is_some_and(|advice| advice.contains("--ca")), "{error:?}");
    let error = asked(&address, Some(&authority.file())).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("CERTIFICATE_NAME", Exit::Unavailable));
    assert!(error.advice.as_deref().is_some_and(|advice| advice.contains("footplate.lab")), "{error:?}");
    let plain = start().await;
    let error = asked(&format!("https://{}", plain.address), Some(&authority.file())).await.unwrap_err();
    assert_eq!((error.reason.as_str(), error.exit()), ("TLS_FAILED", Exit::Unavailable));
    assert!(error.message.ends_with("does not speak TLS"), "{error:?}");
}

#[tokio::test]
async fn a_certificate_that_expired_under_way_is_told_with_its_time() {
    let authority = Authority::new();
    let files = authority.sign_until("server", &["127.0.0.1"], SystemTime::now() + Duration::from_secs(2));
    let server = within(&files).await;
    let address = format!("https://{}", server.address);
    let began = tokio::time::Instant::now();
    let error = loop {
        match asked(&address, Some(&authority.file())).await {
            Ok(_) => assert!(began.elapsed() < PATIENCE, "it never expires"),
            Err(error) => break error,
        }
        tokio::time::sleep(ROUND).await;
    };
    assert_eq!((error.reason.as_str(), error.exit()), ("CERTIFICATE_EXPIRED", Exit::Unavailable));
    assert!(error.message.contains("expired at 20"), "{error:?}");
}

#[tokio::test]
async fn a_file_of_authorities_that_is_none_is_a_wrong_use() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, empty) = (folder.path().join("missing.pem"), folder.path().join("empty.pem"));
    std::fs::write(&empty, "no certificate\n").unwrap();
    for file in [missing, empty] {
        let error = asked("https://127.0.0.1:1", Some(&file)).await.unwrap_err();
        assert_eq!((error.field.as_deref(), error.exit()), (Some("FOOTPLATE_CA"), Exit::Usage), "{error:?}");
        assert!(error.message.contains(&file.display().to_string()), "{error:?}");
    }
}

#[test]
fn what_no_client_would_take_is_refused_before_anybody_is_served() {
    let authority = Authority::new();
    let good = authority.sign("good", &["localhost"]);
    let other = authority.sign("other", &["localhost"]);
    let over = authority.sign_until("over", &["localhost"], SystemTime::now() - HOUR);
    let early = authority.sign_until("early", &["localhost"], SystemTime::now() + 100 * HOUR);
    let read = |certificate: &Path, key: &Path| ServerTls::read(certificate, key).unwrap_err();
    assert!(matches!(read(&good.certificate, &other.key), TlsError::Mismatch { .. }));
    for (files, told) in [(&over, "expired at 20"), (&early, "is not valid before 20")] {
        let error = read(&files.certificate, &files.key);
        assert!(matches!(&error, TlsError::Time { .. }) && error.to_string().contains(told), "{error}");
    }
    let missing = authority.file().with_file_name("missing.pem");
    for (certificate, key, told) in [
        (&missing, &good.key, "missing.pem cannot be read"),
        (&good.key, &good.key, "good.key holds no certificate"),
        (&good.certificate, &good.certificate, "good.pem holds no key"),
    ] {
        let error = read(certificate, key);
        assert!(matches!(&error, TlsError::File { .. }) && error.to_string().contains(told), "{error}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_served_without_a_restart_and_a_broken_one_is_not() {
    let authority = Authority::new();
    let files = authority.sign("server", &["localhost", "127.0.0.1"]);
    let server = within(&files).await;
    let client = Client::connect(Target::new(format!("https://{}", server.address)).ca(Some(authority.file()))).unwrap();
    let mut events = client.once(client.events().watch_events(WatchEventsRequest::default())).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 1);
    let first = shown(server.address, &authority.file()).await;
    std::fs::write(&files.key, "half of a").unwrap();
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!(shown(server.address, &authority.file()).await, first);
    authority.sign_into(&files, &["localhost", "127.0.0.1"], SystemTime::now() + HOUR).unwrap();
    let began = tokio::time::Instant::now();
    while shown(server.address, &authority.file()).await == first {
        assert!(began.elapsed() < PATIENCE, "the old certificate is still served");
        tokio::time::sleep(ROUND).await;
    }
    // What was open stays so.
    assert_eq!(events.next().await.unwrap().unwrap().sequence, 2);
}

#[tokio::test(start_paused = true)]
async fn who_never_says_hello_is_let_go() {
    let authority = Authority::new();
    let files = authority.sign("server", &["127.0.0.1"]);
    let server = start_within(ServerTls::read(&files.certificate, &files.key).unwrap(), HOUR).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut nothing = Vec::new();
    assert_eq!(silent.read_to_end(&mut nothing).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_begins_and_never_says_in_which_protocol_is_let_go() {
    let server = crate::fixture::start().await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(b"P").await.unwrap();
    let mut nothing = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), silent.read_to_end(&mut nothing)).await;
    assert!(ended.is_ok(), "it holds its place for ever");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_handshakes() {
    let authority = Authority::new();
    let mut server = within(&authority.sign("server", &["127.0.0.1"])).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    silent.write_all(&[0x16, 3, 1]).await.unwrap();
    // Once this one is through, the earlier one is known.
    let _ = asked(&format!("https://{}", server.address), Some(&authority.file())).await.unwrap();
    server.shutdown.request();
    tokio::time::timeout(Duration::from_secs(5), &mut server.serving).await.unwrap().unwrap().unwrap();
}
