//! Gangs of roles over the API: asked without resources, placed as one, shown member by member.

use crate::hands::Hands;
use crate::stage::*;
use footplate_api::types;

fn role(name: &str, nodes: u32, slots: u32) -> types::GangRole {
    types::GangRole { name: name.to_owned(), nodes, per_node: Some(types::PerNode { slots, ..types::PerNode::default() }) }
}

fn gang(roles: Vec<types::GangRole>) -> types::JobSpec {
    types::JobSpec { resources: None, roles, ..spec(1, 1) }
}

#[tokio::test]
async fn a_gang_of_roles_is_placed_as_one_and_every_member_is_told_its_role() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    register(stage.broker.as_ref(), "n2", 2).await;
    let hands = Hands::new(stage.broker.clone(), false);
    let run = stage.scheduler.submitted(gang(vec![role("chief", 1, 1), role("worker", 2, 2)])).await;
    let job = stage.scheduler.reaches(&run, "launched").await;
    let members: Vec<(&str, &str, u32)> =
        job.members.iter().map(|member| (member.role.as_str(), member.node.as_str(), member.first_rank)).collect();
    assert_eq!(members, [("chief", "n1", 0), ("worker", "n1", 1), ("worker", "n2", 3)]);
    assert_eq!((job.nodes, job.roles.len(), job.roles[1].name.as_str()), (3, 2, "worker"));
    let (_, assignment) = assigned(stage.broker.as_ref(), "n1").await.unwrap();
    let roles: Vec<(u32, &str, u32)> = assignment
        .tasks
        .iter()
        .map(|task| {
            let role = task.role.as_ref().unwrap();
            assert_eq!(role.roles.iter().map(|size| (size.members, size.workers)).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
            (task.member.0, role.name.as_str(), task.world_size)
        })
        .collect();
    assert_eq!(roles, [(0, "chief", 5), (1, "worker", 5)]);
    hands.finish();
    let ended = stage.scheduler.reaches(&run, "ended").await;
    assert_eq!((ended.outcome(), ended.nodes, ended.roles.len()), (types::Outcome::Succeeded, 3, 2));
    let spec = ended.spec.unwrap();
    assert_eq!((spec.roles.len(), spec.resources.unwrap().nodes), (2, 1), "who knows no roles finds the first");
    let verified = stage.scheduler.verified().await;
    assert!(verified.equal, "{}", verified.difference);
    stage.scheduler.stop().await;
}

#[tokio::test]
async fn a_role_that_cannot_be_is_refused_by_its_name() {
    let stage = stage().await;
    register(stage.broker.as_ref(), "n1", 4).await;
    let end = stage.scheduler.ledger.end().await.unwrap();
    stage.scheduler.handle.live().at_least(end, SOON).await.unwrap();
    let refused = |spec: types::JobSpec| async {
        let refused = stage.scheduler.submit(submission(spec)).await.unwrap_err();
        (refused.reason.clone(), refused.field.clone().unwrap_or_default(), refused.message)
    };
    let both = types::JobSpec { resources: spec(1, 4).resources, ..gang(vec![role("chief", 1, 1)]) };
    assert_eq!(refused(both).await.1, "resources");
    assert_eq!(refused(gang(vec![role("chief", 1, 1), role("chief", 1, 1)])).await.1, "roles");
    let bare = types::GangRole { per_node: None, ..role("ps", 1, 1) };
    assert_eq!(refused(gang(vec![role("chief", 1, 1), bare])).await.1, "roles.ps.resources");
    let (reason, _, message) = refused(gang(vec![role("chief", 1, 1), role("worker", 2, 1)])).await;
    assert!(reason == "NO_NODE_FITS" && message.contains("role worker: 2 nodes asked"), "{message}");
    let (reason, _, message) = refused(gang(vec![role("chief", 1, 2), role("worker", 1, 3)])).await;
    assert!(reason == "NO_NODE_FITS" && message.contains("not all of them beside each other"), "{message}");
    assert!(stage.scheduler.handle.live().read().jobs().is_empty());
    stage.scheduler.stop().await;
}
