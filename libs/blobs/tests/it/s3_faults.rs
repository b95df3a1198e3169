//! A bucket that cannot be used: each reason is told by who has to mend it, soon, and nothing is taken for a missing blob.

use crate::s3::{options, own_server};
use footplate_blobs::{
    BlobError, Blobs, BucketFault, S3Options,
    conformance::{content, listed, pieces},
};
use footplate_types::Digest;
use futures::TryStreamExt;
use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const MIB: usize = 1 << 20;

/// Tries everything; each must fail for the same reason.
async fn everything_tells(blobs: &Blobs, expected: BucketFault) {
    let (small, large) = (content(1, 100), content(2, 20 * MIB));
    let digest = Digest::of(&small);
    let told = |what: &str, error: BlobError| {
        assert!(matches!(&error, BlobError::Bucket { fault, .. } if *fault == expected), "{what}: {error:?}");
        assert!(error.to_string().contains(expected.advice()), "{error}");
    };
    told("check", blobs.check().await.unwrap_err());
    told("put_bytes", blobs.put_bytes(small).await.unwrap_err());
    told("announced", blobs.put_stream(pieces(&large, MIB), Some(Digest::of(&large)), u64::MAX).await.unwrap_err());
    told("unannounced", blobs.put_stream(pieces(&large, MIB), None, u64::MAX).await.unwrap_err());
    told("stat", blobs.stat(&digest).await.unwrap_err());
    told("exists", blobs.exists(&digest).await.unwrap_err());
    told("get", blobs.get(&digest).await.err().unwrap());
    told("verify", blobs.verify(&digest).await.unwrap_err());
    told("list", blobs.list().try_collect::<Vec<_>>().await.unwrap_err());
    told("delete", blobs.delete(&digest).await.unwrap_err());
    told("sweep", blobs.sweep_staged(Duration::ZERO).await.unwrap_err());
}

#[tokio::test]
async fn a_wrong_key_and_a_wrong_secret_are_told_and_stand_in_no_message() {
    let (server, blobs) = own_server().await;
    let kept = blobs.put_bytes("kept".into()).await.unwrap();
    let (key, secret) = server.key();
    for wrong in [("somebody-else".to_owned(), secret), (key, "a-wrong-secret".to_owned())] {
        let mut options = options(&server, "models");
        options.key = Some(wrong.clone());
        let stranger = Blobs::s3(&options).unwrap();
        everything_tells(&stranger, BucketFault::WrongKey).await;
        let told = format!("{:#}", stranger.check().await.unwrap_err());
        assert!(!told.contains(&wrong.0) && !told.contains(&wrong.1), "{told}");
    }
    assert_eq!(listed(&blobs).await, [kept]);
}

#[tokio::test]
async fn a_bucket_that_is_gone_is_no_missing_blob() {
    let (server, blobs) = own_server().await;
    let kept = blobs.put_bytes("kept".into()).await.unwrap();
    everything_tells(&Blobs::s3(&options(&server, "never-made")).unwrap(), BucketFault::NoBucket).await;
    server.remove_bucket("models");
    let gone = blobs.verify(&kept.digest).await.unwrap_err();
    assert!(matches!(gone, BlobError::Bucket { fault: BucketFault::NoBucket, .. }), "{gone:?}");
    server.make_bucket("models");
    assert_eq!(blobs.put_bytes("kept".into()).await.unwrap(), kept, "once it is there again, all goes on");
}

#[tokio::test]
async fn a_server_that_is_away_is_told_within_the_time_that_is_set_and_found_again_when_it_is_back() {
    let (server, _) = own_server().await;
    let mut options = options(&server, "models");
    options.retry_for = Duration::from_millis(100);
    let blobs = Blobs::s3(&options).unwrap();
    server.kill9().await.unwrap();
    everything_tells(&blobs, BucketFault::Away).await;
    server.restart().await.unwrap();
    let blob = blobs.put_bytes("back".into()).await.unwrap();
    assert_eq!(blobs.verify(&blob.digest).await.unwrap(), blob);
}

/// A store that gives every request the same answer; the requests are counted.
fn answering(status: &'static str, code: &'static str) -> (Blobs, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = S3Options::parse("s3://models").unwrap();
    options.endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    options.key = Some(("key".to_owned(), "secret".to_owned()));
    options.allow_http = true;
    options.retry_for = Duration::from_millis(700);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            });
        }
    });
    (Blobs::s3(&options).unwrap(), asked)
}

#[tokio::test]
async fn an_overloaded_store_is_asked_again_and_one_that_refuses_is_not() {
    let digest = Digest::of(b"x");
    let (blobs, asked) = answering("503 Slow Down", "SlowDown");
    let busy = blobs.get(&digest).await.err().unwrap();
    assert!(matches!(busy, BlobError::Bucket { fault: BucketFault::Busy, .. }) && busy.is_passing(), "{busy:?}");
    let tries = asked.load(Ordering::Relaxed);
    assert!((2..=21).contains(&tries), "asked {tries} times");
    for (status, code, expected) in [
        ("403 Forbidden", "RequestTimeTooSkewed", BucketFault::ClockSkew),
        ("403 Forbidden", "AccessDenied", BucketFault::Denied),
        ("400 Bad Request", "AuthorizationHeaderMalformed", BucketFault::WrongRegion),
    ] {
        let (blobs, asked) = answering(status, code);
        let refused = blobs.get(&digest).await.err().unwrap();
        assert!(matches!(refused, BlobError::Bucket { fault, .. } if fault == expected) && !refused.is_passing(), "{refused:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{code}");
    }
}
