//! `footplate up` with its objects in a bucket of a real S3 server, which agents reach without anybody between.

use crate::guide;
use crate::up::Up;
use footplate_api::{Client, Target, v1};
use footplate_blobs::{Blobs, Existing, S3Options};
use footplate_testkit::{S3Server, eventually, files_below, repository_root, s3};
use footplate_types::Digest;
use std::path::Path;
use std::time::Duration;

/// Saves a checkpoint and asks to be requeued; then resumes from it, waits until it may go on, and logs an artifact.
const TRAINING: &str = r#"
import hashlib, os, sys, time
sys.path.insert(0, os.environ["PACKAGE"])
import footplate

footplate.init()
checkpoint = footplate.latest_checkpoint()
if checkpoint is None:
    with open("weights.bin", "wb") as out:
        out.write(os.environ["SEED"].encode() * (10 << 20))
    footplate.save_checkpoint("weights.bin", step=7).wait()
    sys.exit(75)
with open(checkpoint.path, "rb") as kept:
    weights = kept.read()
print("resumed at", checkpoint.step, hashlib.sha256(weights).hexdigest(), flush=True)
while not os.path.exists(os.environ["GO_ON"]):
    time.sleep(0.05)
with open("model.bin", "wb") as out:
    out.write(weights + b"trained")
footplate.log_artifact("model.bin")
open(os.environ["GO_ON"] + ".logged", "w").close()
footplate.finish()
"#;

const PATIENCE: Duration = Duration::from_secs(60);

pub fn settings(server: &S3Server) -> Vec<(&'static str, String)> {
    let (key, secret) = server.key();
    vec![
        ("--blobs", "s3://models/team/vision".to_owned()),
        ("blobs.endpoint", server.endpoint()),
        ("blobs.allow-http", "true".to_owned()),
        ("blobs.access-key", key),
        ("blobs.secret-key", secret),
        ("blobs.retry", "1s".to_owned()),
    ]
}

/// The bucket as somebody else sees it.
fn bucket(server: &S3Server) -> Blobs {
    let mut options = S3Options::parse("s3://models/team/vision").unwrap();
    options.endpoint = Some(server.endpoint());
    options.key = Some(server.key());
    options.allow_http = true;
    Blobs::s3(&options).unwrap()
}

/// A training by its seed: what its checkpoint and its artifact will hold.
struct Training {
    run: String,
    go_on: std::path::PathBuf,
    weights: Vec<u8>,
    model: Vec<u8>,
}

fn submit(up: &Up, seed: char) -> Training {
    let go_on = up.folder.path().join(format!("go-on-{seed}"));
    std::fs::write(up.work().join("training.py"), TRAINING).unwrap();
    let job = format!(
        "apiVersion: footplate/v1\nkind: Job\nname: bucket-{seed}\nrun: python3 training.py\nresources: {{nodes: 1, slots: 1}}\n\
         env:\n  vars:\n    PACKAGE: {:?}\n    GO_ON: {go_on:?}\n    SEED: {seed:?}\n",
        repository_root().join("libs/python")
    );
    std::fs::write(up.work().join("training.yaml"), job.replace('\'', "\"")).unwrap();
    let run = up.done(&["submit", "-q", "training.yaml"]).trim().lines().last().unwrap().to_owned();
    let weights = seed.to_string().into_bytes().repeat(10 << 20);
    let model = [weights.as_slice(), b"trained"].concat();
    Training { run, go_on, weights, model }
}

fn resumed(up: &Up, training: &Training) {
    let expected = format!("resumed at 7 {}", Digest::of(&training.weights));
    let began = std::time::Instant::now();
    while !up.done(&["run", "logs", &training.run]).contains(&expected) {
        assert!(began.elapsed() < Duration::from_secs(90), "{}\n{}", up.done(&["run", "logs", &training.run]), up.process.stderr());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What a client of the platform gets for a digest.
async fn downloaded(up: &Up, digest: Digest) -> Vec<u8> {
    let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap();
    let client = Client::connect(Target::new(up.addr.as_str()).token(token.trim())).unwrap();
    let asked = v1::DownloadRequest { project: "default".to_owned(), digest: digest.to_string(), from: 0 };
    let mut pieces = client.blobs().download(asked).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        bytes.extend(piece.data);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_keeps_its_checkpoints_and_artifacts_in_the_bucket_whatever_happens_to_the_server() {
    let server = s3().await;
    server.make_bucket("models");
    let up = Up::start(&settings(&server));
    guide::follow_the_quick_start(&up);

    let calm = submit(&up, 'a');
    std::fs::write(&calm.go_on, b"").unwrap();
    resumed(&up, &calm);
    up.done(&["run", "wait", &calm.run]);

    let struck = submit(&up, 'b');
    resumed(&up, &struck);
    server.kill9().await.unwrap();
    std::fs::write(&struck.go_on, b"").unwrap();
    // The worker has logged its artifact before the server is back: the node holds it until then.
    let logged = struck.go_on.with_extension("logged");
    eventually(PATIENCE, "the artifact is logged", || async { logged.exists().then_some(()) }).await;
    server.restart().await.unwrap();
    up.done(&["run", "wait", &struck.run]);

    let blobs = bucket(&server);
    for training in [&calm, &struck] {
        let shown = up.json(&["artifact", "list", &training.run]).to_string();
        assert!(shown.contains(&Digest::of(&training.model).to_string()), "the artifact is in the record: {shown}");
        for content in [&training.weights, &training.model] {
            let digest = Digest::of(content);
            assert_eq!(blobs.verify(&digest).await.unwrap().bytes, content.len() as u64);
            assert!(downloaded(&up, digest).await == *content);
        }
    }
    assert_eq!(blobs.verify_all().await.unwrap(), []);
    let lies = files_below(&server.bucket("models"));
    assert!(!lies.iter().any(|name| name.contains("/blobs/uploads/") || name.contains("/blobs/staging/")), "{lies:?}");
    assert!(!up.folder.path().join("data/objects").exists(), "nothing lies in the data folder");
    rebuilds_equal(&up);
    says_nothing_of_the_key(&up, &server);
    doctor_looks(&up, &server);
    // Everything is there for whoever comes with the same bucket later.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.bin"), &calm.model).unwrap();
    assert_eq!(blobs.upload_dir(folder.path(), Existing::Verify).await.unwrap().sent_files, 0);
}

fn rebuilds_equal(up: &Up) {
    up.done(&["replay", "--verify"]);
}

fn says_nothing_of_the_key(up: &Up, server: &S3Server) {
    let (key, secret) = server.key();
    let said = up.process.stdout() + &up.process.stderr();
    assert!(!said.contains(&secret) && !said.contains(&key), "{said}");
    assert!(!holds(&up.folder.path().join("data"), secret.as_bytes()));
}

/// Whether any file below a folder holds these bytes.
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    files_below(folder)
        .iter()
        .filter_map(|name| std::fs::read(folder.join(name)).ok())
        .any(|file| file.windows(bytes.len()).any(|part| part == bytes))
}

fn doctor_looks(up: &Up, server: &S3Server) {
    let with = |more: &[(&'static str, String)]| {
        let mut words = ["doctor", "-o", "json"].map(str::to_owned).to_vec();
        let kept = settings(server).into_iter().filter(|(known, _)| !more.iter().any(|(key, _)| key == known));
        for (key, value) in kept.chain(more.iter().cloned()) {
            words.extend(if key.starts_with("--") { [key.to_owned(), value] } else { ["--set".to_owned(), format!("{key}={value}")] });
        }
        let output = up.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        rows.iter().find(|row| row["check"] == "object store").unwrap().to_string()
    };
    let good = with(&[]);
    assert!(good.contains("good") && good.contains("s3://models/team/vision") && good.contains("answers"), "{good}");
    let wrong = with(&[("blobs.secret-key", "a-wrong-one".to_owned())]);
    assert!(wrong.contains("\"bad\"") && wrong.contains("does not accept the access key") && !wrong.contains("a-wrong-one"), "{wrong}");
    let gone = with(&[("--blobs", "s3://never-made".to_owned())]);
    assert!(gone.contains("\"bad\"") && gone.contains("the bucket does not exist"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_cannot_be_used_keeps_the_platform_from_starting_and_is_told() {
    let server = s3().await;
    server.make_bucket("models");
    let cases: [(&str, &str, i32, &[&str]); 4] = [
        ("--blobs", "s3://never-made/x", 1, &["s3://never-made/x", "the bucket does not exist", "make the bucket"]),
        ("blobs.secret-key", "a-wrong-one", 1, &["does not accept the access key"]),
        ("blobs.endpoint", "http://127.0.0.1:1", 5, &["does not answer", "look whether it runs"]),
        ("--blobs", "models", 2, &["blobs", "s3://BUCKET"]),
    ];
    for (key, value, exit, told) in cases {
        let mut settings = settings(&server);
        settings.retain(|(known, _)| *known != key);
        settings.push((key, value.to_owned()));
        let (status, said) = Up::refused(&settings);
        assert_eq!(status, Some(exit), "{said}");
        assert!(told.iter().all(|part| said.contains(part)) && !said.contains("a-wrong-one"), "{said}");
    }
}
