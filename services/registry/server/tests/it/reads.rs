//! Pages, names, lineage.

use crate::stage::*;
use footplate_api::v1;

#[tokio::test]
async fn models_and_versions_come_in_pages() {
    let stage = stage().await;
    approved_versions(&stage, 5).await;
    let ada = stage.registry.of("ada");
    for name in ["推荐模型", "a b", "zeta"] {
        ada.create(name).await.unwrap();
    }
    assert_eq!(ada.create("zeta").await.unwrap_err().reason, "ID_TAKEN");
    let mut names = Vec::new();
    let mut asked = v1::ListModelsRequest { project: "vision".to_owned(), page_size: 3, ..v1::ListModelsRequest::default() };
    loop {
        let page = ada.client.once(ada.client.registry().list_models(asked.clone())).await.unwrap();
        names.extend(page.models.into_iter().map(|model| model.name));
        if page.next_page_token.is_empty() {
            break;
        }
        asked.page_token = page.next_page_token;
    }
    assert_eq!(names, ["a b", "digits", "zeta", "推荐模型"]);
    let mut asked = v1::ListVersionsRequest {
        project: "vision".to_owned(),
        model: "digits".to_owned(),
        page_size: 2,
        ..v1::ListVersionsRequest::default()
    };
    let mut numbers = Vec::new();
    loop {
        let page = ada.client.once(ada.client.registry().list_versions(asked.clone())).await.unwrap();
        numbers.extend(page.versions.into_iter().map(|version| version.version));
        if page.next_page_token.is_empty() {
            break;
        }
        asked.page_token = page.next_page_token;
    }
    assert_eq!(numbers, [5, 4, 3, 2, 1]);
    asked.page_token = "x".to_owned();
    assert_eq!(ada.client.once(ada.client.registry().list_versions(asked)).await.unwrap_err().reason, "INVALID_PAGE_TOKEN");
    stage.registry.stop().await;
}

#[tokio::test]
async fn names_mean_one_version_or_are_refused_by_what_is_missing() {
    let stage = stage().await;
    approved_versions(&stage, 3).await;
    let ada = stage.registry.of("ada");
    ada.promote(2).await.unwrap();
    ada.set_alias("champion", 1).await.unwrap();
    for (uri, version) in
        [("models:/digits/3", 3), ("models:/digits@champion", 1), ("models:/digits/production", 2), ("models:/digits/latest", 3)]
    {
        assert_eq!(ada.resolve(uri).await.unwrap().version.unwrap().version, version, "{uri}");
    }
    for (uri, reason) in [
        ("models:/dogits/1", "MODEL_NOT_FOUND"),
        ("models:/digits/9", "VERSION_NOT_FOUND"),
        ("models:/digits@chmpion", "ALIAS_NOT_FOUND"),
        ("models:/digits/Staging", "VERSION_NOT_FOUND"),
        ("models:/digits", "INVALID_FIELD"),
        ("runs:/0190f3a2/model.bin", "INVALID_FIELD"),
        ("/etc/passwd", "INVALID_FIELD"),
    ] {
        assert_eq!(ada.resolve(uri).await.unwrap_err().reason, reason, "{uri}");
    }
    stage.registry.stop().await;
}

#[tokio::test]
async fn a_lineage_says_who_did_what_from_the_ledger_alone() {
    let stage = stage().await;
    approved_versions(&stage, 2).await;
    let ada = stage.registry.of("ada");
    ada.promote(2).await.unwrap();
    let asked = |version| v1::GetModelLineageRequest { project: "vision".to_owned(), model: "digits".to_owned(), version };
    let lineage = ada.client.once(ada.client.registry().get_model_lineage(asked(2))).await.unwrap();
    let acts: Vec<&str> = lineage.nodes.iter().filter(|node| node.kind == "act").map(|node| node.label.as_str()).collect();
    assert_eq!(acts, ["proposed", "approved", "promoted"]);
    assert!(lineage.nodes.iter().any(|node| node.id == format!("run:{}", run_id(2))));
    let whole = ada.client.once(ada.client.registry().get_model_lineage(asked(0))).await.unwrap();
    assert_eq!(whole.nodes.iter().filter(|node| node.kind == "version").count(), 2);
    let missing = ada.client.once(ada.client.registry().get_model_lineage(asked(7))).await.unwrap_err();
    assert_eq!(
        (missing.reason.as_str(), missing.message.as_str()),
        ("VERSION_NOT_FOUND", "model digits has no version 7; the newest is 2")
    );
    stage.registry.stop().await;
}
