//! Files: bytes under their digest, names under their run.

use crate::world::*;
use footplate_api::v1;
use footplate_types::Digest;

async fn upload(world: &World, content: &[u8], digest: &str) -> Result<String, footplate_api::ApiError> {
    let mut pieces: Vec<v1::UploadRequest> =
        content.chunks(100_000).map(|data| v1::UploadRequest { data: data.to_vec(), ..Default::default() }).collect();
    if pieces.is_empty() {
        pieces.push(v1::UploadRequest::default());
    }
    pieces[0].project = PROJECT.into();
    pieces[0].digest = digest.into();
    let answer = world.client().once(world.client().blobs().upload(tokio_stream::iter(pieces))).await?;
    Ok(answer.blob.unwrap().digest)
}

async fn download(world: &World, digest: &str, from: u64) -> Result<Vec<u8>, tonic::Status> {
    let request = v1::DownloadRequest { project: PROJECT.into(), digest: digest.into(), from };
    let mut pieces = world.client().blobs().download(request).await?.into_inner();
    let mut content = Vec::new();
    while let Some(piece) = pieces.message().await? {
        content.extend(piece.data);
    }
    Ok(content)
}

fn artifact(path: &str, digest: &str, bytes: usize) -> v1::Artifact {
    v1::Artifact { path: path.into(), digest: digest.into(), bytes: bytes as u64, ..Default::default() }
}

#[tokio::test]
async fn names_with_unusual_letters_come_back_with_their_bytes() {
    let world = World::new().await;
    let run = world.create("first").await;
    let content: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let digest = upload(&world, &content, &Digest::of(&content).to_string()).await.unwrap();
    let empty = upload(&world, b"", "").await.unwrap();
    let paths = ["图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", "\u{e9}", "e\u{301}", ".hidden"];
    let mut artifacts: Vec<_> = paths.iter().map(|path| artifact(path, &digest, content.len())).collect();
    artifacts.push(artifact("empty", &empty, 0));
    let request = v1::LogArtifactsRequest { project: PROJECT.into(), run_id: run.clone(), artifacts, ..Default::default() };
    let at_least = world.client().once(world.client().artifacts().log_artifacts(request)).await.unwrap().sequence;
    let mut list = v1::ListArtifactsRequest { project: PROJECT.into(), run_id: run.clone(), page_size: 4, at_least, ..Default::default() };
    let mut listed = Vec::new();
    loop {
        let page = world.client().once(world.client().artifacts().list_artifacts(list.clone())).await.unwrap();
        listed.extend(page.artifacts.into_iter().map(|artifact| artifact.path));
        list.page_token = page.next_page_token;
        if list.page_token.is_empty() {
            break;
        }
    }
    let mut expected: Vec<String> = paths.iter().map(|path| (*path).to_owned()).chain(["empty".to_owned()]).collect();
    expected.sort();
    assert_eq!(listed, expected);
    assert_eq!(download(&world, &digest, 0).await.unwrap(), content);
    assert_eq!(download(&world, &digest, 650_001).await.unwrap(), content[650_001..]);
    assert_eq!(download(&world, &empty, 0).await.unwrap(), b"");
    let below = v1::ListArtifactsRequest { prefix: "图".into(), page_size: 0, page_token: String::new(), ..list };
    assert_eq!(world.client().once(world.client().artifacts().list_artifacts(below)).await.unwrap().artifacts.len(), 1);
}

#[tokio::test]
async fn what_is_not_stored_or_not_what_was_said_is_refused_by_name() {
    let world = World::new().await;
    let run = world.create("first").await;
    let log = async |artifacts| {
        let request = v1::LogArtifactsRequest { project: PROJECT.into(), run_id: run.clone(), artifacts, ..Default::default() };
        world.client().once(world.client().artifacts().log_artifacts(request)).await.unwrap_err()
    };
    let missing = log(vec![artifact("a/b", &Digest::of(b"gone").to_string(), 4)]).await;
    assert_eq!(missing.reason, "BLOB_NOT_FOUND");
    assert!(missing.message.contains("a/b"), "{missing:?}");
    let digest = upload(&world, b"here", "").await.unwrap();
    assert_eq!(log(vec![artifact("a/b", &digest, 5)]).await.field.as_deref(), Some("artifacts.bytes"));
    assert_eq!(log(vec![artifact("../b", &digest, 4)]).await.field.as_deref(), Some("artifacts.path"));
    let wrong = upload(&world, b"other", &Digest::of(b"expected").to_string()).await.unwrap_err();
    assert_eq!(wrong.reason, "DIGEST_MISMATCH");
    let digests = vec![digest.clone(), Digest::of(b"other").to_string()];
    let stat = v1::StatRequest { project: PROJECT.into(), digests };
    let there = world.client().once(world.client().blobs().stat(stat)).await.unwrap().blobs;
    assert_eq!(there.iter().map(|blob| blob.digest.as_str()).collect::<Vec<_>>(), [digest.as_str()], "a refused upload leaves nothing");
}

#[tokio::test]
async fn a_damaged_blob_is_named_and_mended_by_uploading_it_again() {
    let world = World::new().await;
    let digest = upload(&world, b"precious", "").await.unwrap();
    let path = world.folder.path().join("objects/blobs/sha256").join(&digest[..2]).join(&digest[2..]);
    std::fs::write(&path, b"precioux").unwrap();
    let damaged = download(&world, &digest, 0).await.unwrap_err();
    assert_eq!(damaged.code(), tonic::Code::Internal);
    upload(&world, b"precious", &digest).await.unwrap();
    assert_eq!(download(&world, &digest, 0).await.unwrap(), b"precious");
}

#[tokio::test]
async fn a_sealed_document_is_given_to_nodes_alone() {
    let world = World::new().await;
    let content = [footplate_events::messages::SEALED_PREFIX, b"{}"].concat();
    let digest = upload(&world, &content, "").await.unwrap();
    let refused = download(&world, &digest, 0).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    for project in [PROJECT, "other"] {
        let asked = v1::GetBlobRequest { project: project.into(), digest: digest.clone() };
        let refused = world.client().blobs().get_blob(asked).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    }
    let target = footplate_api::Target::new(world.client().target().address.clone()).project(PROJECT).token("node:n1");
    let node = footplate_api::Client::connect(target).unwrap();
    let asked = v1::DownloadRequest { project: PROJECT.into(), digest, from: 0 };
    let mut pieces = node.blobs().download(asked).await.unwrap().into_inner();
    assert_eq!(pieces.message().await.unwrap().unwrap().data, content);
}
