//! A job's specification between the wire and the ledger, for every service that takes or shows one. Absent fields get their documented
//! defaults here, once. It decides nothing.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod from_wire;
mod to_wire;

pub use from_wire::{after_when, job_spec_from_wire};
pub use to_wire::{array_to_wire, job_spec_to_wire, per_node_to_wire, role_to_wire};

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_api::types;
    use footplate_events::facts::{AfterWhen, RetryPolicy, StopPolicy};
    use footplate_types::Digest;

    fn least() -> types::JobSpec {
        types::JobSpec {
            name: "train".to_owned(),
            resources: Some(types::ResourceAsk { nodes: 1, per_node: Some(types::PerNode { slots: 1, ..types::PerNode::default() }) }),
            launch: Some(types::DocumentRef { digest: Digest::of(b"launch").to_string(), bytes: 6 }),
            ..types::JobSpec::default()
        }
    }

    #[test]
    fn absent_fields_get_the_documented_defaults() {
        let spec = job_spec_from_wire(&least()).unwrap();
        assert_eq!((spec.queue.as_str(), spec.experiment.as_str(), spec.priority), ("default", "default", 0));
        assert_eq!((spec.retry, spec.stop), (RetryPolicy::default(), StopPolicy::default()));
    }

    #[test]
    fn what_the_ledger_holds_reads_back_from_the_wire() {
        let mut wire = least();
        wire.labels.insert("team".to_owned(), "视觉".to_owned());
        wire.retry = Some(types::RetryPolicy { user_code: Some(2), exit_codes: vec![3], ..types::RetryPolicy::default() });
        wire.stop = Some(types::StopPolicy {
            signal: types::StopSignal::Int.into(),
            grace_ms: Some(0),
            notice_signal: types::StopSignal::Usr1.into(),
            notice_before_ms: 500,
        });
        wire.placement =
            Some(types::PlacementAsk { pool: "a".to_owned(), nodes: vec!["n1".to_owned()], same_rack: true, ..Default::default() });
        wire.placement.as_mut().unwrap().tolerations = vec!["dedicated".to_owned(), "net=ib".to_owned()];
        let (deadline, end) = ("2026-12-24T18:00:00Z".to_owned(), types::DeadlineMissed::End);
        wire.limits = Some(types::Limits { deadline, deadline_missed: end.into(), max_duration_ms: 7, ..types::Limits::default() });
        wire.seed = Some(7);
        let after = |n: u8, when: types::AfterWhen| types::AfterJob { run_id: format!("{n:02x}").repeat(16), when: when.into() };
        wire.after = vec![after(1, types::AfterWhen::Failure), after(2, types::AfterWhen::Any), after(3, types::AfterWhen::Unspecified)];
        wire.objectives = vec!["val/loss".to_owned()];
        wire.array = Some(types::ArrayMember { id: "17".repeat(16), index: 7, count: 10, at_once: 2 });
        wire.launcher = types::Launcher::Torchrun.into();
        let spec = job_spec_from_wire(&wire).unwrap();
        assert_eq!(spec.stop.grace.0, 0, "0 is not absent");
        assert_eq!(spec.after[2].when, AfterWhen::Success, "where nothing is said");
        assert_eq!(job_spec_from_wire(&job_spec_to_wire(&spec)), Ok(spec));
        let of_gpus = |per_node| Some(types::ResourceAsk { nodes: 1, per_node: Some(per_node) });
        let share = types::PerNode { gpus: 1, gpu_share: 250, ..types::PerNode::default() };
        let slices = types::PerNode { gpus: 2, gpu_profile: "1g.10gb".to_owned(), ..types::PerNode::default() };
        for resources in [of_gpus(share), of_gpus(slices)] {
            let spec = job_spec_from_wire(&types::JobSpec { resources: resources.clone(), ..least() }).unwrap();
            assert_eq!(job_spec_to_wire(&spec).resources, resources);
        }
    }

    #[test]
    fn with_roles_the_resources_are_those_of_the_first() {
        let per_node = |slots| Some(types::PerNode { slots, ..types::PerNode::default() });
        let role = |name: &str, nodes, slots| types::GangRole { name: name.to_owned(), nodes, per_node: per_node(slots) };
        let wire = types::JobSpec { resources: None, roles: vec![role("chief", 1, 2), role("worker", 4, 3)], ..least() };
        let spec = job_spec_from_wire(&wire).unwrap();
        assert_eq!((spec.resources.nodes, spec.resources.per_node.slots, spec.members(), spec.world_size()), (1, 2, 5, 14));
        assert_eq!(job_spec_from_wire(&job_spec_to_wire(&spec)), Ok(spec));
        let bare = types::JobSpec { resources: None, roles: vec![types::GangRole { per_node: None, ..role("chief", 1, 1) }], ..least() };
        assert_eq!(job_spec_from_wire(&bare).unwrap_err().field, "roles.chief.resources");
    }

    #[test]
    fn a_fault_names_its_field() {
        let fault = |change: fn(&mut types::JobSpec)| {
            let mut wire = least();
            change(&mut wire);
            job_spec_from_wire(&wire).unwrap_err().field
        };
        assert_eq!(fault(|wire| wire.launch = None), "launch");
        assert_eq!(fault(|wire| wire.launch.as_mut().unwrap().digest = "x".to_owned()), "launch.digest");
        assert_eq!(fault(|wire| wire.name = String::new()), "name");
        assert_eq!(fault(|wire| wire.queue = "a.b".to_owned()), "queue.name");
        assert_eq!(fault(|wire| wire.resources = None), "resources");
        let profile = |wire: &mut types::JobSpec| {
            let per_node = types::PerNode { gpus: 1, gpu_profile: "tenth".to_owned(), ..types::PerNode::default() };
            wire.resources = Some(types::ResourceAsk { nodes: 1, per_node: Some(per_node) });
        };
        assert_eq!(fault(profile), "resources.gpu.mig");
        assert_eq!(
            fault(|wire| wire.placement = Some(types::PlacementAsk { exclude: vec!["*".to_owned()], ..Default::default() })),
            "placement.exclude"
        );
        assert_eq!(fault(|wire| wire.rerun_of = "zz".to_owned()), "rerun_of");
        assert_eq!(fault(|wire| wire.launcher = 99), "launcher");
        assert_eq!(fault(|wire| wire.after = vec![types::AfterJob { run_id: "17".to_owned(), when: 0 }]), "after.run");
        assert_eq!(fault(|wire| wire.after = vec![types::AfterJob { run_id: "17".repeat(16), when: 9 }]), "after.when");
        assert_eq!(fault(|wire| wire.array = Some(types::ArrayMember { id: "17".to_owned(), ..Default::default() })), "array.id");
        assert_eq!(fault(|wire| wire.objectives = vec![String::new()]), "objectives");
    }
}
