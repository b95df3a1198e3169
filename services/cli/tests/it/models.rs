//! Models on a real platform: the guide, names, refusals, and the downloads.

use crate::up::Up;
use footplate_api::{Client, Target, types, v1};
use footplate_service::Exit;
use footplate_testkit::repository_root;
use footplate_types::Digest;

/// A sealed run without a job that logged these files.
fn trained(up: &Up, files: &[(&str, &[u8])]) -> String {
    let token = std::fs::read_to_string(up.folder.path().join("data/token")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run_id = runtime.block_on(async {
        let client = Client::connect(Target::new(up.addr.as_str()).project("default").token(token.trim())).unwrap();
        log_run(&client, files).await
    });
    up.done(&["run", "wait", &run_id]);
    run_id
}

/// A run without a job that logs these files and ends; it is sealed soon.
pub async fn log_run(client: &Client, files: &[(&str, &[u8])]) -> String {
    let project = || "default".to_owned();
    let asked = v1::CreateRunRequest { project: project(), name: "train".to_owned(), ..v1::CreateRunRequest::default() };
    let run_id = client.once(client.runs().create_run(asked)).await.unwrap().run_id;
    let mut artifacts = Vec::new();
    for (path, content) in files {
        let digest = Digest::of(content).to_string();
        let asked = v1::PutBlobRequest { project: project(), digest: digest.clone(), data: content.to_vec() };
        client.once(client.blobs().put_blob(asked)).await.unwrap();
        let bytes = content.len() as u64;
        artifacts.push(v1::Artifact { path: (*path).to_owned(), digest, bytes, ..v1::Artifact::default() });
    }
    let asked = v1::LogArtifactsRequest { project: project(), run_id: run_id.clone(), artifacts, ..v1::LogArtifactsRequest::default() };
    client.once(client.artifacts().log_artifacts(asked)).await.unwrap();
    let asked = v1::FinishRunRequest {
        project: project(),
        run_id: run_id.clone(),
        outcome: types::Outcome::Succeeded.into(),
        ..v1::FinishRunRequest::default()
    };
    client.once(client.runs().finish_run(asked)).await.unwrap();
    run_id
}

/// Splits as a shell does where only blanks and single quotes matter.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            1 => words.push(part.to_owned()),
            _ => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    words
}

#[test]
fn the_guide_does_what_it_says_and_everything_can_be_told_afterwards() {
    let up = Up::start(&[]);
    let run = trained(&up, &[("model.bin", b"weights"), ("other/a.bin", b"a"), ("other/b.bin", b"b")]);
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/models.md")).unwrap();
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("$ footplate ")).collect();
    assert!(lines.len() >= 15, "{lines:?}");
    for line in lines {
        let line = line.replace("RUN", &run);
        up.done(&words(&line).iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert_eq!(std::fs::read(up.work().join("served/model.bin")).unwrap(), b"weights");

    let model = up.json(&["model", "show", "digits"]);
    assert_eq!((model["serving"].as_u64(), model["history"].clone()), (Some(1), serde_json::json!([1, 2, 1])));
    let first = up.json(&["model", "show", "models:/digits@champion"]);
    assert_eq!((first["stage"].as_str(), first["asOnlyMember"].as_bool()), (Some("Production"), Some(true)));
    assert_eq!(first["figures"]["acc"].as_f64(), Some(0.91));
    let lineage = up.done(&["model", "lineage", "digits", "1"]);
    for told in ["rolled back", "reason=latency doubled", "run train", "model.bin"] {
        assert!(lineage.contains(told), "{told} is not in\n{lineage}");
    }

    let code = |args: &[&str]| up.run(args).status.code().and_then(|code| u8::try_from(code).ok());
    let runs_folder = format!("runs:/{run}/other");
    up.done(&["artifact", "download", &runs_folder, "--to", "served"]);
    assert_eq!(std::fs::read(up.work().join("served/b.bin")).unwrap(), b"b");
    std::fs::write(up.work().join("served/b.bin"), b"mine").unwrap();
    assert_eq!(code(&["artifact", "download", &runs_folder, "--to", "served"]), Some(Exit::Refused.code()));
    up.done(&["artifact", "download", &runs_folder, "--to", "served", "--overwrite"]);
    assert_eq!(std::fs::read(up.work().join("served/b.bin")).unwrap(), b"b");

    let missing = format!("runs:/{run}/model.pt");
    for (args, wanted) in [
        (&["model", "show", "dogits"][..], Exit::NotFound),
        (&["model", "show", "models:/digits@nobody"], Exit::NotFound),
        (&["model", "show", "models:/digits"], Exit::Usage),
        (&["model", "register", "digits", &missing], Exit::NotFound),
        (&["model", "register", "digits", "models:/digits/1"], Exit::Usage),
        (&["model", "promote", "digits", "2"], Exit::Refused),
        (&["model", "promote", "digits", "0"], Exit::Usage),
        (&["model", "archive", "digits", "1"], Exit::Refused),
        (&["model", "evaluate", "digits", "1", "acc=nan"], Exit::Usage),
        (&["artifact", "download", &missing], Exit::NotFound),
        (&["artifact", "download", "model.bin"], Exit::Usage),
    ] {
        assert_eq!(code(args), Some(wanted.code()), "{args:?}: {}", String::from_utf8_lossy(&up.run(args).stderr));
    }
    let views = up.json(&["replay", "--verify"]);
    let registry = views.as_array().unwrap().iter().find(|view| view["service"] == "registry").unwrap();
    assert!(registry["equal"] == true && registry["events"].as_str().is_some_and(|count| count != "0"), "{views}");
}
