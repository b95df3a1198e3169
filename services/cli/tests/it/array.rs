//! Arrays from the command line: one call for many runs, and what is asked of all of them.

use crate::platform::{Platform, stderr, stdout};
use crate::up::Up;
use std::fs;

const JOB: &str = "apiVersion: footplate/v1\nkind: Job\nname: digits\nrun: python train.py\nresources: {slots: 2}\narray: 0-99%10\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("job.yaml", JOB), ("train.py", "1\n"), (".footplateignore", ".home-of-the-test/\n")] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn an_array_is_one_call_with_the_code_captured_once_and_the_same_is_sent_again() {
    let (platform, folder) = (Platform::start(), folder());
    platform.state().lost_answers = 1;
    let done = platform.run(folder.path(), &["submit", "job.yaml"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stdout(&done).ends_with("submitted: an array of 100 jobs, at most 10 at a time\n"), "{}", stdout(&done));
    {
        let state = platform.state();
        assert_eq!((state.arrays.len(), state.uploads, state.submitted.len()), (2, 1, 0));
        assert_eq!(state.arrays[0], state.arrays[1]);
        let asked = &state.arrays[0];
        assert_eq!((asked.indices.as_str(), asked.at_once, asked.array_id.len(), asked.dry_run), ("0-99", 10, 32, false));
        let spec = asked.spec.clone().unwrap();
        assert_eq!((spec.name.as_str(), spec.array), ("digits", None));
    }
    // A flag wins over the file; under a key the platform names it.
    let keyed = platform.run(folder.path(), &["submit", "-q", "--array", "7", "--request-id", "k", "job.yaml"]);
    assert_eq!(stdout(&keyed).lines().count(), 1, "{}{}", stdout(&keyed), stderr(&keyed));
    let asked = platform.state().arrays[2].clone();
    assert_eq!((asked.indices.as_str(), asked.at_once, asked.request_id.as_str(), asked.array_id.as_str()), ("7", 0, "k", ""));
    let json = platform.run(folder.path(), &["submit", "-o", "json", "job.yaml"]);
    let data: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!((data["jobs"].as_array().unwrap().len(), &data["jobs"][2]["index"]), (3, &2.into()));
    let blobs = platform.state().blobs.len();
    let dry = platform.run(folder.path(), &["submit", "--dry-run", "--set", "config.lr=9", "job.yaml"]);
    assert!(stdout(&dry).contains("# an array of 100 jobs, at most 10 at a time"), "{}{}", stdout(&dry), stderr(&dry));
    assert!(platform.state().arrays.last().unwrap().dry_run && platform.state().blobs.len() == blobs);
    let wrong = platform.run(folder.path(), &["submit", "--array", "0-1000", "job.yaml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("array.indices") && stderr(&wrong).contains("at most 1000 indices"), "{}", stderr(&wrong));
}

#[test]
fn an_array_is_listed_and_cancelled_by_the_beginning_of_an_id_of_it() {
    let (platform, folder) = (Platform::start(), folder());
    let listed = platform.run(folder.path(), &["ps", "-a", "--array", "run:0190F3A2"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    let asked = platform.state().listed.pop().unwrap();
    assert_eq!((asked.array.as_str(), asked.states.len()), ("0190f3a2", 6));
    let cancelled = platform.run(folder.path(), &["run", "cancel", "--array", "0190f3a2"]);
    assert!(cancelled.status.success(), "{}", stderr(&cancelled));
    assert_eq!(stdout(&cancelled), "0190f3a2: 3 runs are being cancelled\n");
    assert!(stderr(&cancelled).contains("1 of 3 cancellations are recorded"), "{}", stderr(&cancelled));
    for wrong in
        [&["run", "cancel"][..], &["run", "cancel", "aaaa", "--array", "bbbb"], &["run", "wait"], &["run", "wait", "a", "--array", "b"]]
    {
        assert_eq!(platform.run(folder.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(platform.run(folder.path(), &["ps", "--array", "no id"]).status.code(), Some(3));
}

/// On a real platform: each run finds its number, no more run at a time than may, one failure is told by the exit code, one of them runs again.
#[test]
fn each_run_of_an_array_has_its_number_and_a_failure_of_one_ends_no_other() {
    let up = Up::start(&[]);
    let line = "test $FOOTPLATE_ARRAY_INDEX != 3 && echo part $FOOTPLATE_ARRAY_INDEX of $FOOTPLATE_ARRAY_COUNT in $FOOTPLATE_ARRAY_ID";
    let id = up.done(&["submit", "-q", "--array", "1-4%1", "--name", "part", "--", "sh", "-c", line]);
    let id = id.trim();
    assert_eq!(up.run(&["run", "wait", "--array", id]).status.code(), Some(7));
    let jobs = up.json(&["ps", "-a", "--array", id]);
    let of = |index: u64| {
        let job = jobs.as_array().unwrap().iter().find(|job| job["array"]["index"] == index).unwrap();
        (job["name"].as_str().unwrap().to_owned(), job["outcome"].as_str().unwrap().to_owned(), job["runId"].as_str().unwrap().to_owned())
    };
    let ends = [1, 2, 3, 4].map(|index| (of(index).0, of(index).1.to_lowercase().contains("succeeded")));
    let expected = [("part-1", true), ("part-2", true), ("part-3", false), ("part-4", true)];
    assert_eq!(ends, expected.map(|(name, succeeded)| (name.to_owned(), succeeded)));
    assert_eq!(up.done(&["run", "logs", &of(4).2]).trim(), format!("part 4 of 4 in {id}"));
    let again = up.done(&["run", "rerun", "-q", &of(2).2]);
    up.done(&["run", "wait", again.trim()]);
    assert_eq!(up.done(&["run", "logs", again.trim()]).trim(), format!("part 2 of 4 in {id}"));
    assert_eq!(up.json(&["ps", "-a", "--array", again.trim()]).as_array().unwrap().len(), 5);
    let single = up.done(&["submit", "-q", "--", "true"]);
    assert_eq!(up.run(&["ps", "--array", single.trim()]).status.code(), Some(3));
}
