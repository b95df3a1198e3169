//! What a spool promises across crashes, bounds and many appenders.

use footplate_executor_agent::spool::{Spool, SpoolError, SpoolOptions};
use footplate_types::SpoolId;
use proptest::prelude::*;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

fn options() -> SpoolOptions {
    SpoolOptions { max_bytes: 1 << 20, segment_bytes: 1 << 10, max_record_bytes: 1 << 16, sync: true }
}

async fn open(dir: &Path) -> Spool {
    open_with(dir, SpoolId::from_bytes([1; 16])).await
}

/// An earlier owner may still be on its way out.
async fn open_with(dir: &Path, id: SpoolId) -> Spool {
    footplate_testkit::eventually(Duration::from_secs(10), "the folder is free", || async { Spool::open(dir, options(), || id).ok() }).await
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    found.sort();
    found
}

async fn texts(spool: &Spool, from: u64) -> Vec<(u64, String)> {
    let records = spool.read_from(from, usize::MAX).await.unwrap();
    records.into_iter().map(|record| (record.offset, String::from_utf8(record.payload.to_vec()).unwrap())).collect()
}

#[tokio::test]
async fn offsets_count_from_one_and_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    let id = spool.id();
    assert_eq!(spool.append("a").await.unwrap(), 1);
    assert_eq!(spool.append_all(vec!["b".into(), "c".into()]).await.unwrap(), 3);
    drop(spool);
    let again = open_with(dir.path(), SpoolId::from_bytes([9; 16])).await;
    assert_eq!(again.id(), id, "the id is minted once a folder");
    assert_eq!(again.append("d").await.unwrap(), 4);
    assert_eq!(texts(&again, 2).await, [(2, "b".to_owned()), (3, "c".to_owned()), (4, "d".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_appenders_share_commits_and_each_gets_its_own_offset() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    let tasks: Vec<_> = (0..400)
        .map(|number| {
            let spool = spool.clone();
            tokio::spawn(async move { (spool.append(format!("r{number}")).await.unwrap(), number) })
        })
        .collect();
    let mut told = Vec::new();
    for task in tasks {
        let (offset, number) = task.await.unwrap();
        told.push((offset, format!("r{number}")));
    }
    told.sort();
    assert_eq!(told.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), (1..=400).collect::<Vec<_>>());
    assert_eq!(texts(&spool, 1).await, told);
    assert_eq!(spool.durable(), 400);
}

#[tokio::test]
async fn a_torn_tail_is_cut_at_any_length_and_nothing_before_it_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    for text in ["first", "second", "third"] {
        spool.append(text).await.unwrap();
    }
    drop(spool);
    let path = segments(dir.path()).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let second_ends = whole.len() - (28 + "third".len());
    for length in second_ends..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let spool = open(dir.path()).await;
        assert_eq!(texts(&spool, 1).await, [(1, "first".to_owned()), (2, "second".to_owned())], "cut at {length}");
        assert_eq!(spool.append("again").await.unwrap(), 3, "cut at {length}");
    }
}

#[tokio::test]
async fn damage_in_the_middle_costs_that_record_alone() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    for text in ["first", "second", "third"] {
        spool.append(text).await.unwrap();
    }
    drop(spool);
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[(28 + 5) + 28] ^= 1;
    fs::write(&path, bytes).unwrap();
    let spool = open(dir.path()).await;
    assert_eq!(texts(&spool, 1).await, [(1, "first".to_owned()), (3, "third".to_owned())]);
    assert_eq!(spool.append("fourth").await.unwrap(), 4, "the offset of a damaged record is never given again");
}

#[tokio::test]
async fn trimming_frees_segments_and_the_count_survives_an_empty_spool() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    for number in 0..100 {
        spool.append(vec![b'x'; 100 + number % 7]).await.unwrap();
    }
    let held = spool.held_bytes();
    spool.trim(50).await.unwrap();
    assert!(spool.held_bytes() < held);
    assert!(spool.first() > 1 && spool.first() <= 51, "{}", spool.first());
    let kept = spool.read_from(51, usize::MAX).await.unwrap();
    assert_eq!(kept.iter().map(|record| record.offset).collect::<Vec<_>>(), (51..=100).collect::<Vec<_>>());
    spool.trim(100).await.unwrap();
    assert_eq!((spool.held_bytes(), segments(dir.path()).len()), (0, 1));
    drop(spool);
    assert_eq!(open(dir.path()).await.append("next").await.unwrap(), 101);
}

#[tokio::test]
async fn a_full_spool_refuses_says_so_and_takes_again_after_a_trim() {
    let dir = tempfile::tempdir().unwrap();
    let small = SpoolOptions { max_bytes: 4096, ..options() };
    let spool = Spool::open(dir.path(), small, footplate_clock::spool_id).unwrap();
    let mut last = 0;
    let refusal = loop {
        match spool.append(vec![7u8; 500]).await {
            Ok(offset) => last = offset,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, SpoolError::Full { most: 4096, .. }), "{refusal}");
    assert_eq!(spool.read_from(1, usize::MAX).await.unwrap().len() as u64, last, "what was taken stays");
    spool.trim(last).await.unwrap();
    assert_eq!(spool.append("room again").await.unwrap(), last + 1);
    let too_large = spool.append(vec![0u8; options().max_record_bytes + 1]).await;
    assert!(matches!(too_large, Err(SpoolError::TooLarge { .. })));
}

#[tokio::test]
async fn reading_is_bounded_and_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let spool = open(dir.path()).await;
    for number in 0..60u64 {
        spool.append(vec![number as u8; 200]).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut next = 1;
    loop {
        let page = spool.read_from(next, 700).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 4);
        next = last.offset + 1;
        seen.extend(page);
    }
    assert_eq!(seen.len(), 60);
    assert!(seen.iter().enumerate().all(|(at, record)| record.offset == at as u64 + 1 && record.payload[0] == at as u8));
    let large = Spool::open(&dir.path().join("large"), SpoolOptions { max_record_bytes: 1 << 19, ..options() }, footplate_clock::spool_id);
    let large = large.unwrap();
    large.append(vec![3u8; 400_000]).await.unwrap();
    large.append("after").await.unwrap();
    assert_eq!(large.read_from(1, usize::MAX).await.unwrap().len(), 2, "a record above the read window is read whole");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn whatever_was_acknowledged_is_read_back_after_any_tail_damage(
        sizes in prop::collection::vec(0usize..300, 1..20),
        cut in 0usize..400,
        garbage in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let spool = open(dir.path()).await;
            for size in &sizes {
                spool.append(vec![*size as u8; *size]).await.unwrap();
            }
            drop(spool);
            // What a crash can add behind the last acknowledged byte: part of a frame, or garbage.
            let path = segments(dir.path()).pop().unwrap();
            let mut bytes = fs::read(&path).unwrap();
            let torn = bytes[..cut.min(bytes.len())].to_vec();
            bytes.extend(garbage.iter().chain(torn.iter().take(20)));
            fs::write(&path, bytes).unwrap();
            let spool = open(dir.path()).await;
            let read = spool.read_from(1, usize::MAX).await.unwrap();
            assert_eq!(read.iter().map(|record| record.payload.len()).collect::<Vec<_>>(), sizes);
            assert_eq!(spool.append("x").await.unwrap(), sizes.len() as u64 + 1);
        });
    }
}
