//! The guide to parts of GPUs, typed against a real platform whose node is declared: real processes, with what they are shown of which GPU.

use crate::guide::shell_words;
use crate::up::Up;
use footplate_testkit::repository_root;

/// A node as the guide declares it.
fn start(guide: &str) -> (Up, tempfile::TempDir) {
    let toml = guide.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inventory.toml");
    std::fs::write(&file, toml).unwrap();
    (Up::start(&[("agent.node", "here".to_owned()), ("agent.inventory", file.display().to_string())]), folder)
}

#[test]
fn the_guide_to_parts_of_gpus_does_what_it_says() {
    let guide = std::fs::read_to_string(repository_root().join("docs/guides/sharing-gpus.md")).unwrap();
    let (up, _folder) = start(&guide);
    let gpus = up.json(&["node", "list"])[0]["gpus"].as_array().unwrap().clone();
    let uuids = |is_slice: bool| -> Vec<String> {
        let sort = gpus.iter().filter(|gpu| gpu["migProfile"].as_str().is_some_and(|profile| !profile.is_empty()) == is_slice);
        sort.map(|gpu| gpu["uuid"].as_str().unwrap().to_owned()).collect()
    };
    let (whole, slices) = (uuids(false), uuids(true));
    assert_eq!((whole.len(), slices.len()), (1, 7), "{gpus:?}");
    for line in guide.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let words = shell_words(line);
        let out = up.done(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        if line.ends_with("node list") {
            assert!(out.contains("1x H100, 7x H100 1g.10gb, shared"), "{out}");
        } else if line.contains("--dry-run") {
            assert!(out.contains("share: 500"), "{out}");
        } else {
            let run = up.json(&["run", "list"])[0]["runId"].as_str().unwrap().to_owned();
            let logs = up.done(&["run", "logs", &run]);
            let shown = |uuids: &[String]| uuids.iter().filter(|uuid| logs.contains(uuid.as_str())).count();
            if line.contains("--gpu-share") {
                assert!(logs.contains("share 250 of ") && shown(&whole) == 1, "{logs}");
            } else if line.contains("--mig") {
                assert!(shown(&slices) == 2 && !logs.contains(",MIG-"), "each of the two workers sees its own alone: {logs}");
            } else {
                assert!(shown(&whole) == 1 && shown(&slices) == 0, "{logs}");
            }
        }
    }
    // Four quarters stand on the one GPU at once; a fifth waits, and so does who wants it alone.
    let submit = |more: &[&str]| {
        let command = ["--queue-anyway", "--", "sleep", "60"];
        let args: Vec<&str> = ["submit", "-q"].iter().chain(more).chain(&command).copied().collect();
        up.done(&args).trim().to_owned()
    };
    let quarters: Vec<String> = (0..4).map(|_| submit(&["--gpu-share", "250"])).collect();
    let (fifth, alone) = (submit(&["--gpu-share", "250"]), submit(&["--gpus", "1"]));
    let state = |run: &str| {
        let jobs = up.json(&["ps", "-a"]);
        let job = jobs.as_array().unwrap().iter().find(|job| job["runId"] == run).cloned().unwrap();
        job["state"].as_str().unwrap().to_owned()
    };
    let began = std::time::Instant::now();
    while quarters.iter().any(|run| state(run) != "launched") {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", up.done(&["ps", "-a"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!((state(&fifth), state(&alone)), ("pending".to_owned(), "pending".to_owned()));
    let why = up.done(&["why", &fifth]);
    assert!(why.contains("0.25 of one") && why.contains("here with 0 of one"), "{why}");
    assert!(up.done(&["ps"]).contains("1x0.25 gpus"));
    assert!(up.done(&["queue", "list"]).contains("1 of unlimited"));
    let never = up.run(&["submit", "--gpus", "2", "--", "true"]);
    let told = String::from_utf8_lossy(&never.stderr).into_owned();
    assert!(!never.status.success() && told.contains("has 1 whole gpu, 2 asked of each node"), "{told}");
    let wrong = up.run(&["submit", "--gpu-share", "250", "--gpus", "2", "--", "true"]);
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && told.contains("resources.gpu.share"), "{told}");
    for run in quarters.iter().chain([&fifth, &alone]) {
        up.done(&["run", "cancel", run]);
    }
}
