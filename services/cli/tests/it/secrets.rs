//! A secret reaches the script that needs it and nobody else.

use crate::up::Up;

#[test]
fn a_masked_value_reaches_the_script_and_stands_in_no_record() {
    let up = Up::start(&[]);
    let yaml = "apiVersion: footplate/v1
kind: Job
name: secret
run: grep -q k-12345-real \"$FOOTPLATE_CONFIG\" && echo the-real-one
resources: {nodes: 1, slots: 1}
config: {api_key: k-12345-real, use_cls_token: true}
";
    std::fs::write(up.work().join("job.yaml"), yaml).unwrap();
    let run = up.done(&["submit", "-q", "--no-source", "job.yaml"]).trim().lines().last().unwrap().to_owned();
    up.done(&["run", "wait", &run]);
    assert!(up.done(&["run", "logs", &run]).contains("the-real-one"));
    let shown = up.done(&["run", "show", &run, "-o", "json"]);
    assert!(!shown.contains("k-12345-real") && shown.contains("use_cls_token"), "{shown}");
    let lineage = up.json(&["lineage", &run]);
    assert!(!lineage.to_string().contains("k-12345-real"));
    let events = up.done(&["event", "tail", "-n", "100", "-A", "-o", "json"]);
    assert!(!events.contains("k-12345-real"));
}
