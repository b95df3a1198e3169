//! Policies by their knobs, as people write them: `patience=30m,reservations_max=0`.

use footplate_scheduler_core::Policy;
use footplate_types::{Invalid, Millis};

/// The knobs and what each is.
pub const KNOBS: [(&str, &str); 6] = [
    ("ready_within", "how long a gang may take from its placement until every member is ready (a time, such as 10m)"),
    ("patience", "how long a job waits before nodes are kept free for it (a time, such as 10m)"),
    ("deadline_near", "how long before its latest start a job with a deadline goes before others of its priority in its queue (a time)"),
    ("reservations_max", "for how many jobs nodes are kept free at once"),
    ("decisions_max", "the most events of one look"),
    ("members_max", "the most members placed by one look"),
];

/// The service's policy with some knobs turned; `default` turns none. Its name is the text.
///
/// # Errors
/// A knob that is not there, or a value that it cannot have.
pub fn policy(text: &str) -> Result<Policy, Invalid> {
    let mut policy = Policy::default();
    if text.trim() == "default" {
        "default".clone_into(&mut policy.name);
        return Ok(policy);
    }
    text.trim().clone_into(&mut policy.name);
    for turn in text.split(',').map(str::trim) {
        let (knob, value) = turn.split_once('=').ok_or_else(|| Invalid::new("policy", turn, "default, or KNOB=VALUE joined by commas"))?;
        let time = || Millis::parse(value).map_err(|invalid| invalid.of(format!("policy {knob}")));
        let count = |least: usize| {
            let read = value.parse::<usize>().ok().filter(|count| *count >= least);
            read.ok_or_else(|| Invalid::new(format!("policy {knob}"), value, format!("a whole number of at least {least}")))
        };
        match knob {
            "ready_within" => policy.ready_within = time()?,
            "patience" => policy.patience = time()?,
            "deadline_near" => policy.deadline_near = time()?,
            "reservations_max" => policy.reservations_max = count(0)?,
            "decisions_max" => policy.decisions_max = count(1)?,
            "members_max" => policy.members_max = count(1)?,
            _ => {
                let known: Vec<&str> = KNOBS.iter().map(|(name, _)| *name).collect();
                return Err(Invalid::new("policy", knob, known.join(", ")));
            }
        }
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_turned_by_name_and_an_unknown_one_or_a_wrong_value_is_refused_with_what_there_is() {
        let turned = policy("patience=1h, reservations_max=0").unwrap();
        assert_eq!((turned.patience, turned.reservations_max, turned.ready_within), (Millis(3_600_000), 0, Policy::default().ready_within));
        assert!(policy("patients=1h").unwrap_err().allowed.contains("patience"));
        for wrong in ["patience", "patience=1", "decisions_max=0", ""] {
            assert!(policy(wrong).is_err(), "{wrong}");
        }
        assert_eq!(policy("default").unwrap().patience, Policy::default().patience);
    }
}
