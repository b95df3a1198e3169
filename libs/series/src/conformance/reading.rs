//! What a store answers.

use super::{Writer, metric, point, points};
use crate::{HistoryQuery, SeriesKey, SeriesStore, reduce};
use footplate_types::{AttemptNumber, Rank, RunId};

pub async fn pages_are_complete_and_stay_valid_while_points_arrive(store: &dyn SeriesStore) {
    let mut writer = Writer::of("pages");
    let key = writer.key("loss");
    writer.write(store, &[("loss", points(0..700))]).await;
    let mut query = HistoryQuery { limit: 100, ..HistoryQuery::default() };
    let mut read = Vec::new();
    for page_index in 0.. {
        let page = store.history(&key, query).await.unwrap();
        assert!(page.points.len() <= 100 && !page.points.is_empty());
        assert_eq!(page.floor, writer.sequence);
        read.extend(page.points);
        if page_index < 5 {
            let from = 700 + page_index * 100;
            writer.write(store, &[("loss", points(from..from + 100))]).await;
        }
        match page.next {
            Some(next) => query.after = Some(crate::PageToken::parse(&next.to_string()).unwrap()),
            None => break,
        }
    }
    assert_eq!(read, points(0..1_200));
    let exact = store.history(&key, HistoryQuery { limit: 1_200, ..HistoryQuery::default() }).await.unwrap();
    assert_eq!((exact.points.len(), exact.next), (1_200, None), "no empty last page");
}

pub async fn a_range_of_steps_is_all_of_it_and_nothing_else(store: &dyn SeriesStore) {
    let mut writer = Writer::of("ranges");
    let key = writer.key("loss");
    let steps: Vec<i64> = (0..1_500).chain(600..650).chain([i64::MIN, i64::MAX]).collect();
    let all: Vec<_> = steps.iter().enumerate().map(|(at, step)| point(*step, at as f64)).collect();
    writer.write(store, &[("loss", all.clone())]).await;
    for (from_step, to_step) in [(0, 0), (610, 620), (i64::MIN, -1), (1_499, i64::MAX), (5, 4), (i64::MIN, i64::MAX)] {
        let mut query = HistoryQuery { from_step, to_step, limit: 7, after: None };
        let mut read = Vec::new();
        loop {
            let page = store.history(&key, query).await.unwrap();
            read.extend(page.points);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        let expected: Vec<_> = all.iter().filter(|point| (from_step..=to_step).contains(&point.step)).copied().collect();
        assert_eq!(read, expected, "{from_step}..={to_step}");
    }
}

pub async fn a_reduced_answer_says_so_and_is_always_the_same(store: &dyn SeriesStore) {
    let mut writer = Writer::of("sample");
    let key = writer.key("a");
    let mut all = points(0..20_000);
    all[13_337].value = 99.0;
    for part in all.chunks(5_000) {
        let every_seventh = part.iter().step_by(7).copied().collect();
        writer.write(store, &[("a", part.to_vec()), ("b", every_seventh)]).await;
    }
    let first = store.sample(&key, 500).await.unwrap();
    assert!(first.reduced && first.points.len() <= 500);
    assert_eq!((first.count, first.points[0], first.points.last()), (20_000, all[0], all.last()));
    assert!(first.points.contains(&all[13_337]));
    assert_eq!(first.stats.unwrap().max, Some(99.0));
    for _ in 0..3 {
        assert_eq!(store.sample(&key, 500).await.unwrap(), first);
    }
    assert_eq!(first, reduce(&all, 500), "every back end chooses the same points");
    let whole = store.sample(&key, 20_000).await.unwrap();
    assert_eq!((whole.reduced, whole.points), (false, all));
    assert_eq!(store.sample(&writer.key("b"), usize::MAX).await.unwrap().count, 4 * 715);
}

pub async fn figures_count_what_is_not_finite_apart(store: &dyn SeriesStore) {
    let mut writer = Writer::of("figures");
    let values = [2.0, f64::NAN, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5.0];
    for (step, value) in (0..).zip(values) {
        writer.write(store, &[("loss", vec![point(step, value)]), ("nan", vec![point(-step, f64::NAN)])]).await;
    }
    let latest = store.latest(&writer.source).await.unwrap();
    let (loss, nan) = (latest[0].stats, latest[1].stats);
    assert_eq!((loss.count, loss.nan_count, loss.inf_count), (7, 2, 2));
    assert_eq!((loss.min, loss.max, loss.latest), (Some(-1.0), Some(5.0), point(6, 5.0)));
    assert_eq!((nan.count, nan.nan_count, nan.min, nan.max), (7, 7, None, None));
    assert_eq!((nan.min_step, nan.max_step, nan.latest.step), (-6, 0, 0));
    assert_eq!(loss, crate::SeriesStats::of(&store.points(&writer.key("loss")).await.unwrap()).unwrap());
}

pub async fn a_later_attempt_shadows_what_it_repeats_and_both_can_be_asked_for(store: &dyn SeriesStore) {
    let mut first = Writer::of("attempts");
    first.write(store, &[("loss", points(0..100)), ("once", points(0..3))]).await;
    let mut second = Writer { attempt: AttemptNumber(2), session: footplate_types::SessionId::derived(&[b"2"]), n: 0, ..first.clone() };
    let resumed: Vec<_> = (60..120).map(|step| point(step, -1.0)).collect();
    second.write(store, &[("loss", resumed.clone())]).await;
    let mut other = Writer { rank: Rank(1), ..second.clone() };
    other.write(store, &[("loss", points(5..6))]).await;
    let run = RunId::derived(&[b"attempts"]);
    let merged = store.merged(run, Rank(0), &metric("loss")).await.unwrap();
    let expected: Vec<_> = points(0..60).into_iter().chain(resumed.clone()).collect();
    assert_eq!(merged.iter().map(|merged| merged.point).collect::<Vec<_>>(), expected);
    assert!(merged.iter().all(|merged| merged.attempt.0 == if merged.point.step < 60 { 1 } else { 2 }));
    assert_eq!(store.points(&first.key("loss")).await.unwrap(), points(0..100));
    assert_eq!(store.points(&second.key("loss")).await.unwrap(), resumed);
    assert_eq!(store.merged(run, Rank(0), &metric("once")).await.unwrap().len(), 3, "an attempt that never logged it shadows nothing");
    let keys = store.list(&first.source).await.unwrap();
    let expected: Vec<SeriesKey> = vec![first.key("loss"), first.key("once"), second.key("loss"), other.key("loss")];
    assert_eq!(keys, expected, "by attempt, rank, name");
}
