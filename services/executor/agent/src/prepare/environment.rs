//! What a worker finds in its environment: the torchrun contract, our own variables, and of the agent's environment only what is listed.

use crate::shim::MARKER_VARIABLE;
use footplate_events::{
    facts::{Launcher, Rendezvous},
    messages::{LaunchDocument, Task},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Variables of the agent's own environment that every worker gets.
const PASSED: [&str; 16] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

/// What the environment takes from the machine and the agent's settings.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The agent's own environment.
    pub own: BTreeMap<String, String>,
    /// Set for every worker unless the job says otherwise.
    pub defaults: BTreeMap<String, String>,
    /// The local socket.
    pub socket: PathBuf,
    /// The platform's address, for the read side.
    pub addr: Option<String>,
    /// The member's folder.
    pub member_dir: PathBuf,
    /// The config file.
    pub config: PathBuf,
    /// The marker of the member's processes.
    pub marker: String,
}

/// The environment of worker number `local` of the member; for `torchrun`, of the one command. Later layers win: the agent's listed
/// variables, the settings' defaults, the job's own, the platform's.
pub fn worker_environment(
    task: &Task,
    launch: &LaunchDocument,
    machine: &Machine,
    rendezvous: &Rendezvous,
    peers: &[String],
    local: u32,
) -> BTreeMap<String, String> {
    let mut env = base_environment(task, launch, machine);
    env.insert("MASTER_ADDR".to_owned(), rendezvous.address.clone());
    env.insert("MASTER_PORT".to_owned(), rendezvous.port.to_string());
    env.insert("FOOTPLATE_PEERS".to_owned(), peers.join(","));
    match task.launcher {
        Launcher::Direct => direct(&mut env, task, &machine.member_dir, local),
        Launcher::Torchrun => torchrun(&mut env, task, &machine.member_dir, rendezvous),
    }
    super::role::environment(&mut env, task, peers, local);
    if task.workers > 1 {
        env.entry("OMP_NUM_THREADS".to_owned()).or_insert_with(|| "1".to_owned());
    }
    env
}

/// The environment of the set-up, and the part of a worker's that does not depend on its rank.
pub fn base_environment(task: &Task, launch: &LaunchDocument, machine: &Machine) -> BTreeMap<String, String> {
    let passed = PASSED.iter().copied().chain(launch.pass.iter().map(String::as_str));
    let mut env: BTreeMap<String, String> =
        passed.filter_map(|name| machine.own.get(name).map(|value| (name.to_owned(), value.clone()))).collect();
    env.extend(machine.defaults.clone());
    env.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    env.extend(launch.env.clone());
    let gpus: Vec<&str> = task.gpus.iter().map(footplate_types::GpuUuid::as_str).collect();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    // Always set: absent would mean every GPU of the node.
    set("CUDA_VISIBLE_DEVICES", gpus.join(","));
    set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
    set("FOOTPLATE_SOCKET", machine.socket.display().to_string());
    set("FOOTPLATE_RUN_ID", task.run.to_string());
    set("FOOTPLATE_RUN_NAME", task.name.to_string());
    set("FOOTPLATE_ATTEMPT", task.attempt.to_string());
    set("FOOTPLATE_PROJECT", task.project.to_string());
    set("FOOTPLATE_CONFIG", machine.config.display().to_string());
    set(MARKER_VARIABLE, machine.marker.clone());
    let slots: Vec<String> = task.slots.iter().map(|slot| slot.0.to_string()).collect();
    set("FOOTPLATE_SLOTS", slots.join(","));
    if task.gpu_share > 0 {
        set("FOOTPLATE_GPU_SHARE", task.gpu_share.to_string());
        // Heeded where an MPS daemon runs, and by nobody else. In whole percent, of which a part counts as one.
        set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", task.gpu_share.div_ceil(10).to_string());
    }
    if task.gpu_memory_bytes > 0 {
        set("FOOTPLATE_GPU_MEMORY", task.gpu_memory_bytes.to_string());
    }
    let mut set_some = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            env.insert(name.to_owned(), value);
        }
    };
    set_some("FOOTPLATE_ADDR", machine.addr.clone());
    set_some("FOOTPLATE_SEED", task.seed.map(|seed| seed.to_string()));
    set_some("FOOTPLATE_OBJECTIVE", task.objective.as_ref().map(ToString::to_string));
    set_some("FOOTPLATE_ARRAY_ID", task.array.map(|array| array.id.to_string()));
    set_some("FOOTPLATE_ARRAY_INDEX", task.array.map(|array| array.index.to_string()));
    set_some("FOOTPLATE_ARRAY_COUNT", task.array.map(|array| array.count.to_string()));
    set_some("TRACEPARENT", task.traceparent.clone());
    if let Some(source) = &task.source {
        set_some("FOOTPLATE_TREE", Some(source.tree.to_string()));
        set_some("FOOTPLATE_COMMIT", Some(source.commit.clone()).filter(|text| !text.is_empty()));
        set_some("FOOTPLATE_BRANCH", Some(source.branch.clone()).filter(|text| !text.is_empty()));
    }
    env
}

/// The path of the file in which a worker may leave the text of its exception.
pub(crate) fn error_file(member_dir: &Path, rank: u32) -> PathBuf {
    member_dir.join("errors").join(format!("{rank}.json"))
}

fn direct(env: &mut BTreeMap<String, String>, task: &Task, member_dir: &Path, local: u32) {
    let rank = task.first_rank.0 + local;
    // A process can use one slice alone, whatever it is shown: each worker is shown its own.
    if let Some(slice) = task.gpus.get(local as usize).filter(|_| task.gpu_profile.is_some()) {
        env.insert("CUDA_VISIBLE_DEVICES".to_owned(), slice.to_string());
    }
    let numbers = [
        ("RANK", rank),
        ("LOCAL_RANK", local),
        ("WORLD_SIZE", task.world_size),
        ("LOCAL_WORLD_SIZE", task.workers),
        ("GROUP_RANK", task.member.0),
        ("GROUP_WORLD_SIZE", task.members),
        ("ROLE_RANK", rank),
        ("ROLE_WORLD_SIZE", task.world_size),
        ("TORCHELASTIC_RESTART_COUNT", task.attempt.0.saturating_sub(1)),
        ("TORCHELASTIC_MAX_RESTARTS", 0),
    ];
    env.extend(numbers.map(|(name, value)| (name.to_owned(), value.to_string())));
    env.insert("ROLE_NAME".to_owned(), "default".to_owned());
    env.insert("TORCHELASTIC_RUN_ID".to_owned(), format!("{}-{}", task.run, task.attempt));
    env.insert("TORCHELASTIC_USE_AGENT_STORE".to_owned(), "False".to_owned());
    env.insert("TORCHELASTIC_ERROR_FILE".to_owned(), error_file(member_dir, rank).display().to_string());
    env.entry("TORCH_NCCL_ASYNC_ERROR_HANDLING".to_owned()).or_insert_with(|| "1".to_owned());
}

/// Every flag of torchrun as a variable, so that the same script line works without them. Restarts are the platform's: with a fresh
/// rendezvous for the whole gang.
fn torchrun(env: &mut BTreeMap<String, String>, task: &Task, member_dir: &Path, rendezvous: &Rendezvous) {
    let set = [
        ("PET_NNODES", task.members.to_string()),
        ("PET_NPROC_PER_NODE", task.workers.to_string()),
        ("PET_NODE_RANK", task.member.to_string()),
        ("PET_MASTER_ADDR", rendezvous.address.clone()),
        ("PET_MASTER_PORT", rendezvous.port.to_string()),
        ("PET_RDZV_ID", format!("{}-{}", task.run, task.attempt)),
        ("PET_MAX_RESTARTS", "0".to_owned()),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1".to_owned()),
        // torchrun copies the file of the worker that failed first here.
        ("TORCHELASTIC_ERROR_FILE", error_file(member_dir, task.first_rank.0).display().to_string()),
    ];
    env.extend(set.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_events::{
        facts::{ArrayMember, DocumentRef, StopPolicy},
        messages::{Order, RunCommand},
    };
    use footplate_types::{AttemptNumber, Digest, DisplayName, Epoch, GpuUuid, MemberIndex, MetricName, ProjectName, Rank, RunId};

    fn task(launcher: Launcher) -> Task {
        Task {
            project: ProjectName::parse("vision").unwrap(),
            run: RunId::from_bytes([1; 16]),
            name: DisplayName::parse("try").unwrap(),
            attempt: AttemptNumber(3),
            member: MemberIndex(1),
            epoch: Epoch(1),
            placed_at: 1,
            order: Order::Prepare,
            members: 2,
            world_size: 8,
            first_rank: Rank(4),
            workers: 4,
            gpus: vec![GpuUuid::parse("GPU-b").unwrap(), GpuUuid::parse("GPU-a").unwrap()],
            gpu_profile: None,
            gpu_share: 0,
            gpu_memory_bytes: 0,
            slots: Vec::new(),
            memory_bytes: 0,
            launcher,
            stop: StopPolicy::default(),
            launch: DocumentRef { digest: Digest::of(b""), bytes: 0 },
            config: None,
            source: None,
            checkpoint: None,
            seed: Some(17),
            objective: Some(MetricName::parse("val/loss").unwrap()),
            role: None,
            array: None,
            traceparent: None,
        }
    }

    fn environment(task: &Task, env: &[(&str, &str)], pass: &[&str]) -> BTreeMap<String, String> {
        let pairs = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let launch = LaunchDocument {
            run: RunCommand::Shell("true".to_owned()),
            setup: String::new(),
            env: pairs(env),
            pass: pass.iter().map(|name| (*name).to_owned()).collect(),
            origin: BTreeMap::new(),
            roles: BTreeMap::new(),
            sealed: None,
        };
        let machine = Machine {
            own: pairs(&[("PATH", "/bin"), ("AWS_SECRET", "x"), ("HF_HOME", "/hf"), ("RANK", "99")]),
            defaults: pairs(&[("A", "default"), ("B", "default")]),
            socket: "/run/s".into(),
            addr: None,
            member_dir: "/member".into(),
            config: "/member/config.json".into(),
            marker: "m".to_owned(),
        };
        let rendezvous = Rendezvous { address: "n0".to_owned(), port: 20_001 };
        worker_environment(task, &launch, &machine, &rendezvous, &["n0".to_owned(), "n1".to_owned()], 2)
    }

    fn has(env: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
        for (name, value) in expected {
            assert_eq!(env.get(*name).map(String::as_str), Some(*value), "{name}");
        }
    }

    #[test]
    fn a_direct_worker_finds_the_torchrun_contract() {
        let env = environment(&task(Launcher::Direct), &[("A", "job"), ("RANK", "7")], &["HF_HOME"]);
        has(
            &env,
            &[
                ("RANK", "6"),
                ("LOCAL_RANK", "2"),
                ("WORLD_SIZE", "8"),
                ("LOCAL_WORLD_SIZE", "4"),
                ("GROUP_RANK", "1"),
                ("GROUP_WORLD_SIZE", "2"),
                ("ROLE_RANK", "6"),
                ("ROLE_NAME", "default"),
                ("MASTER_ADDR", "n0"),
                ("MASTER_PORT", "20001"),
                ("TORCHELASTIC_RESTART_COUNT", "2"),
                ("OMP_NUM_THREADS", "1"),
                ("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a"),
                ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
                ("FOOTPLATE_ATTEMPT", "3"),
                ("FOOTPLATE_SEED", "17"),
                ("FOOTPLATE_OBJECTIVE", "val/loss"),
                ("FOOTPLATE_PEERS", "n0,n1"),
                ("HF_HOME", "/hf"),
                ("A", "job"),
                ("B", "default"),
            ],
        );
        assert!(!env.contains_key("AWS_SECRET"), "nothing of the agent's own that is not listed");
        assert!(!env.contains_key("PET_NNODES"));
    }

    #[test]
    fn torchrun_finds_its_flags_and_sets_the_ranks_itself() {
        let env = environment(&task(Launcher::Torchrun), &[("OMP_NUM_THREADS", "6")], &[]);
        has(
            &env,
            &[
                ("PET_NNODES", "2"),
                ("PET_NPROC_PER_NODE", "4"),
                ("PET_NODE_RANK", "1"),
                ("PET_MASTER_ADDR", "n0"),
                ("PET_MASTER_PORT", "20001"),
                ("PET_MAX_RESTARTS", "0"),
                ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"),
                ("OMP_NUM_THREADS", "6"),
            ],
        );
        assert!(!env.contains_key("RANK") && !env.contains_key("WORLD_SIZE"));
    }

    #[test]
    fn one_of_an_array_finds_which_it_is_and_another_job_finds_nothing() {
        let array = ArrayMember { id: RunId::from_bytes([0x17; 16]), index: 7, count: 100, at_once: 3 };
        let env = environment(&Task { array: Some(array), ..task(Launcher::Direct) }, &[], &[]);
        let id = "17".repeat(16);
        has(&env, &[("FOOTPLATE_ARRAY_ID", id.as_str()), ("FOOTPLATE_ARRAY_INDEX", "7"), ("FOOTPLATE_ARRAY_COUNT", "100")]);
        let env = environment(&task(Launcher::Direct), &[], &[]);
        assert!(env.keys().all(|name| !name.starts_with("FOOTPLATE_ARRAY")));
    }

    #[test]
    fn a_share_is_told_to_its_program_and_to_mps_in_whole_percent() {
        let task = Task {
            gpus: vec![GpuUuid::parse("GPU-a").unwrap()],
            workers: 1,
            gpu_share: 251,
            gpu_memory_bytes: 1 << 30,
            ..task(Launcher::Direct)
        };
        let env = environment(&task, &[("FOOTPLATE_GPU_SHARE", "900"), ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100")], &[]);
        let told = [
            ("CUDA_VISIBLE_DEVICES", "GPU-a"),
            ("FOOTPLATE_GPU_SHARE", "251"),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "26"),
            ("FOOTPLATE_GPU_MEMORY", "1073741824"),
        ];
        has(&env, &told);
        let alone = environment(&self::task(Launcher::Direct), &[], &[]);
        assert!(!alone.contains_key("FOOTPLATE_GPU_SHARE") && !alone.contains_key("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
    }

    #[test]
    fn a_direct_worker_sees_its_own_slice_and_torchrun_all_of_them() {
        let slices = ["MIG-0", "MIG-1", "MIG-2", "MIG-3"].map(|uuid| GpuUuid::parse(uuid).unwrap()).to_vec();
        let of =
            |launcher| Task { gpus: slices.clone(), gpu_profile: footplate_types::MigProfile::parse("1g.10gb").ok(), ..task(launcher) };
        has(&environment(&of(Launcher::Direct), &[], &[]), &[("CUDA_VISIBLE_DEVICES", "MIG-2"), ("LOCAL_RANK", "2")]);
        has(&environment(&of(Launcher::Torchrun), &[], &[]), &[("CUDA_VISIBLE_DEVICES", "MIG-0,MIG-1,MIG-2,MIG-3")]);
    }

    #[test]
    fn a_job_without_gpus_sees_none() {
        let task = Task { gpus: Vec::new(), workers: 1, ..task(Launcher::Direct) };
        let env = environment(&task, &[], &[]);
        has(&env, &[("CUDA_VISIBLE_DEVICES", "")]);
        assert!(!env.contains_key("OMP_NUM_THREADS"), "one worker may use every core");
    }
}
