//! The nats-server fixture, spoken to in the plain text protocol so that this crate needs no client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use footplate_testkit::{NatsServer, nats, try_eventually};

/// One request and its answer over a fresh connection.
fn ask(server: &NatsServer, subject: &str, payload: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port()))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let size = payload.len();
    write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {size}\r\n{payload}\r\nPING\r\n")?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(rest) = line.strip_prefix("MSG answer 1 ") {
            let size = rest.trim().rsplit(' ').next().and_then(|size| size.parse().ok()).unwrap_or(0);
            let mut body = vec![0; size];
            lines.read_exact(&mut body)?;
            return Ok(String::from_utf8_lossy(&body).into_owned());
        }
        if line.starts_with("-ERR") || line.starts_with("HMSG") {
            return Ok(line);
        }
    }
}

const STREAM: &str = r#"{"name":"S","subjects":["s.>"],"storage":"file"}"#;

#[tokio::test]
async fn a_killed_server_comes_back_on_the_same_port_with_its_store() {
    let server = nats().start().await;
    assert!(ask(&server, "$JS.API.STREAM.CREATE.S", STREAM).unwrap().contains("\"config\""));
    assert!(ask(&server, "s.one", "hello").unwrap().contains("\"seq\":1"));
    let (port, pid) = (server.port(), server.pid());
    server.kill9().await.unwrap();
    assert!(ask(&server, "s.two", "nobody listens").is_err());
    server.restart().await.unwrap();
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    assert!(ask(&server, "s.two", "again").unwrap().contains("\"seq\":2"));
}

#[tokio::test]
async fn two_servers_of_one_test_share_nothing() {
    let (one, other) = (nats().start().await, nats().start().await);
    assert_ne!(one.port(), other.port());
    ask(&one, "$JS.API.STREAM.CREATE.S", STREAM).unwrap();
    assert!(ask(&other, "$JS.API.STREAM.INFO.S", "").unwrap().contains("stream not found"));
}

#[tokio::test]
async fn a_small_disk_refuses_what_does_not_fit() {
    let server = nats().max_disk_bytes(64 << 10).start().await;
    ask(&server, "$JS.API.STREAM.CREATE.S", STREAM).unwrap();
    let block = "x".repeat(40 << 10);
    assert!(ask(&server, "s.one", &block).unwrap().contains("\"seq\":1"));
    // The limit is looked at before a write, so the write that crosses it still passes.
    let refused = (0..4).map(|_| ask(&server, "s.two", &block).unwrap()).find(|answer| answer.contains("\"error\""));
    assert!(refused.is_some_and(|answer| answer.contains("insufficient") || answer.contains("exceeded")));
}

#[tokio::test]
async fn a_paused_server_answers_nothing_until_it_is_resumed() {
    let server = nats().start().await;
    ask(&server, "$JS.API.STREAM.CREATE.S", STREAM).unwrap();
    server.pause().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(stream.read(&mut [0; 16]).is_err(), "a paused server does not greet");
    server.resume().unwrap();
    let answered = || async { ask(&server, "s.one", "hello").ok().filter(|answer| answer.contains("\"seq\"")) };
    try_eventually(Duration::from_secs(10), "the resumed server answers", answered).await.unwrap();
}

#[tokio::test]
async fn a_bad_configuration_fails_with_what_the_server_said() {
    let error = nats().config("no_such_key: {").try_start().await.unwrap_err();
    assert!(format!("{error:#}").contains("Parse error"), "{error:#}");
}
