//! Hostile submissions over gRPC: each is refused with a reason and a field, or taken; and whatever was taken, the leader goes on deciding.

use crate::stage::*;
use footplate_api::{Kind, types, v1};
use prost::Message;

/// Numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.roll() % most as u64) as usize
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn count(&mut self) -> u32 {
        self.of(&[0, 1, 1, 2, 1_024, 1_025, 1 << 31, u32::MAX])
    }

    fn amount(&mut self) -> u64 {
        self.of(&[0, 1, 1 << 40, 1 << 60, 1 << 63, u64::MAX])
    }

    fn text(&mut self) -> String {
        let unit = self.of(&["a", "\0", "\"", "\u{202e}", "视", "../", "%", "a.b", "*", ">", " "]);
        unit.repeat(self.of(&[0, 1, 2, 64, 257, 5_000, 60_000]))
    }

    fn texts(&mut self) -> Vec<String> {
        vec![self.text(); self.of(&[0, 1, 2, 257])]
    }
}

fn twist(dice: &mut Dice, request: &mut v1::SubmitJobRequest) {
    let Some(spec) = request.spec.as_mut() else { return };
    match dice.below(22) {
        0 => request.spec = None,
        1 => request.project = dice.text(),
        2 => request.request_id = dice.text(),
        3 => request.run_id = dice.text(),
        4 => spec.name = dice.text(),
        5 => spec.experiment = dice.text(),
        6 => spec.labels = [(dice.text(), dice.text())].into(),
        7 => spec.why = Some(types::Why { hypothesis: dice.text(), success: dice.text(), baseline: dice.text() }),
        8 => spec.resources = None,
        9 => {
            let (gpus, slots, cpus) = (dice.count(), dice.count(), dice.count());
            let (gpu_memory_bytes, memory_bytes, disk_bytes) = (dice.amount(), dice.amount(), dice.amount());
            let gpu_models = dice.texts();
            let (gpu_profile, gpu_share) = (dice.text(), dice.count());
            let per_node =
                types::PerNode { gpus, slots, gpu_models, gpu_memory_bytes, cpus, memory_bytes, disk_bytes, gpu_profile, gpu_share };
            spec.resources = Some(types::ResourceAsk { nodes: dice.count(), per_node: Some(per_node) });
        }
        10 => {
            let labels = dice.texts().into_iter().take(2).map(|key| (key, dice.text())).collect();
            let (pool, nodes, exclude) = (dice.text(), dice.texts(), dice.texts());
            let tolerations = dice.texts();
            spec.placement = Some(types::PlacementAsk { pool, nodes, exclude, labels, same_rack: true, tolerations });
        }
        11 => spec.queue = dice.text(),
        12 => spec.priority = dice.of(&[i32::MIN, -1_000_001, i32::MAX, 1_000_000]),
        13 => spec.launcher = dice.of(&[-1, 2, 99, i32::MAX]),
        14 => {
            let deadline = if dice.of(&[true, false]) { dice.text() } else { "2026-12-24T18:00:00Z".to_owned() };
            let (max_duration_ms, max_pending_ms, min_run_ms) = (dice.amount(), dice.amount(), dice.amount());
            let deadline_missed = dice.of(&[-1, 0, 1, 2, 3]);
            spec.limits = Some(types::Limits { max_duration_ms, max_pending_ms, min_run_ms, deadline, deadline_missed });
        }
        15 => {
            let (signal, notice_signal) = (dice.of(&[-1, 0, 3, 77]), dice.of(&[-1, 0, 3, 77]));
            let (grace_ms, notice_before_ms) = (Some(dice.amount()), dice.amount());
            spec.stop = Some(types::StopPolicy { signal, grace_ms, notice_signal, notice_before_ms });
        }
        16 => {
            let (count, backoff_ms) = (Some(dice.count()), Some(dice.amount()));
            let exit_codes = vec![i32::MIN; dice.of(&[0, 257])];
            let retry = types::RetryPolicy { user_code: count, lost: count, exit_codes, backoff_ms, ..types::RetryPolicy::default() };
            spec.retry = Some(retry);
        }
        17 => spec.launch = Some(types::DocumentRef { digest: dice.text(), bytes: u64::MAX }),
        18 => spec.inputs = vec![types::InputRef { name: dice.text(), snapshot: dice.text(), digest: dice.text() }; dice.of(&[1, 257])],
        19 => spec.masked = dice.texts(),
        20 => spec.objectives = dice.texts(),
        _ => {
            let source = types::SourceRef { commit: dice.text(), remote: dice.text(), tree: dice.text(), ..types::SourceRef::default() };
            spec.source = Some(source);
        }
    }
}

/// The bytes of a request with some of them changed, left out or doubled, as far as they still read as one.
fn damaged(dice: &mut Dice, request: &v1::SubmitJobRequest) -> Option<v1::SubmitJobRequest> {
    let mut bytes = request.encode_to_vec();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len().max(1));
        match dice.below(3) {
            _ if bytes.is_empty() => {}
            0 => bytes[at] = dice.of(&[0, 1, 0x7f, 0x80, 0xff]),
            1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, bytes[at]),
        }
    }
    v1::SubmitJobRequest::decode(bytes.as_slice()).ok()
}

#[tokio::test]
async fn of_hundreds_of_hostile_submissions_each_is_refused_with_a_field_or_taken_and_the_leader_goes_on() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    register(stage.broker.as_ref(), "n2", 4).await;
    let mut dice = Dice(7);
    let (mut taken, mut refused, mut unread) = (Vec::new(), 0, 0);
    for _ in 0..600 {
        let mut request = v1::SubmitJobRequest { queue_anyway: dice.below(2) == 0, ..submission(spec(1, 1)) };
        let damage = dice.below(3) == 0;
        if damage {
            match damaged(&mut dice, &request) {
                Some(read) => request = read,
                None => {
                    unread += 1;
                    continue;
                }
            }
        } else {
            (0..1 + dice.below(2)).for_each(|_| twist(&mut dice, &mut request));
        }
        let project = request.project.clone();
        match stage.scheduler.submit(request.clone()).await {
            Ok(answer) if request.dry_run => assert!(!answer.remark.is_empty()),
            Ok(answer) => taken.push((project, answer.run_id)),
            Err(error) => {
                assert!(!matches!(error.kind, Kind::Internal | Kind::Unavailable), "{error:?}");
                // What is too large to be read at all has no fields.
                let named = error.field.as_ref().is_some_and(|field| !field.is_empty())
                    || matches!(error.reason.as_str(), "TOO_LARGE" | "OUT_OF_RANGE");
                assert!(named && !error.reason.is_empty(), "{error:?}");
                refused += 1;
            }
        }
    }
    assert!(taken.len() > 50 && refused > 200 && unread > 0, "{} taken, {refused} refused, {unread} not read", taken.len());
    for (project, run_id) in taken {
        let asked = v1::JobRequest { project, run_id, reason: "enough".to_owned(), ..v1::JobRequest::default() };
        stage.scheduler.client.once(stage.scheduler.client.jobs().cancel_job(asked)).await.unwrap();
    }
    // Nothing of it stands in the way of a plain job on a node of its own.
    register(stage.broker.as_ref(), "free", 1).await;
    let placement = types::PlacementAsk { nodes: vec!["free".to_owned()], ..types::PlacementAsk::default() };
    let last = v1::SubmitJobRequest { queue_anyway: true, ..submission(types::JobSpec { placement: Some(placement), ..spec(1, 1) }) };
    let run = stage.scheduler.submit(last).await.unwrap().run_id;
    stage.scheduler.reaches(&run, "placed").await;
    stage.scheduler.stop().await;
}
