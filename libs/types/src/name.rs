//! Names: slugs for what stands in a subject, any Unicode for what people read.

use crate::{Invalid, text_form::text_form};
use std::fmt;

/// A slug: `[a-z0-9][a-z0-9-]{0,62}`. It is a token of a NATS subject, so no dot, blank, `*` or `>` may pass.
fn check_slug(field: &str, text: &str) -> Result<(), Invalid> {
    let well_formed = (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if well_formed {
        return Ok(());
    }
    Err(Invalid::new(field, text, "1 to 63 characters of a-z, 0-9 and -, not starting with -"))
}

fn check_text(field: &str, text: &str, most: usize) -> Result<(), Invalid> {
    let allowed = || format!("1 to {most} characters without control characters, not starting or ending with a blank");
    let count = text.chars().count();
    let refused = count == 0 || count > most || text.trim() != text || text.chars().any(char::is_control);
    if refused { Err(Invalid::new(field, text, allowed())) } else { Ok(()) }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $field:literal, $pattern:expr, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Reads and checks a name.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                let check: fn(&str, &str) -> Result<(), Invalid> = $check;
                check($field, text)?;
                Ok(Self(text.to_owned()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_form!($name, $pattern);
    };
}

#[cfg(feature = "schema")]
const SLUG: Option<&str> = Some("^[a-z0-9][a-z0-9-]{0,62}$");

name! {
    /// A tenant: a slug, or `_`, the platform's own token (nodes, queues, terms).
    ProjectName, "project", Some("^(_|[a-z0-9][a-z0-9-]{0,62})$"),
    |field, text| if text == "_" { Ok(()) } else { check_slug(field, text) }
}
name! {
    /// A machine with an agent: a slug (a host name with its dots turned into `-`).
    NodeName, "node", SLUG, check_slug
}
name! {
    /// A queue of jobs: a slug.
    QueueName, "queue", SLUG, check_slug
}
name! {
    /// What somebody subscribes to of a project's events under: a slug.
    SubscriptionName, "subscription", SLUG, check_slug
}
name! {
    /// A webhook of a project: a slug.
    WebhookName, "webhook", SLUG, check_slug
}
name! {
    /// A service of the platform (`scheduler`, `tracker`, ...): a slug.
    ServiceName, "service", SLUG, check_slug
}
name! {
    /// Who acts: an opaque id of at most 128 printable ASCII characters without blanks.
    PrincipalId, "principal", None,
    |field, text| if (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) { Ok(()) }
        else { Err(Invalid::new(field, text, "1 to 128 printable ASCII characters without blanks")) }
}
name! {
    /// What people call a run, a job or an experiment: any Unicode, at most 250 characters.
    DisplayName, "name", None, |field, text| check_text(field, text, 250)
}
name! {
    /// A metric: any Unicode, `/` allowed, at most 250 characters.
    MetricName, "metric", None, |field, text| check_text(field, text, 250)
}
name! {
    /// A param or tag: any Unicode, at most 250 characters.
    ParamKey, "key", None, |field, text| check_text(field, text, 250)
}
name! {
    /// An artifact inside its run: a relative path with `/`, at most 1,024 bytes, no empty, `.` or `..` part, no backslash.
    ArtifactPath, "artifact", None, check_path
}

name! {
    /// A model: any Unicode, at most 250 characters, no `/` and no `:`, not `.` or `..` (as MLflow has it).
    ModelName, "model", None, |field, text| {
        check_text(field, text, 250)?;
        if text.contains(['/', ':']) || text == "." || text == ".." {
            return Err(Invalid::new(field, text, "a name without / and :, and neither . nor .."));
        }
        Ok(())
    }
}
name! {
    /// What people call one version of a model (`champion`): letters, digits, `_` and `-`, at most 255 characters; not `latest`, not `v` and a
    /// number (as MLflow has it).
    AliasName, "alias", None, check_alias
}

fn check_alias(field: &str, text: &str) -> Result<(), Invalid> {
    let count = text.chars().count();
    let well_formed = (1..=255).contains(&count) && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let looks_like_a_version =
        text.strip_prefix(['v', 'V']).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
    if well_formed && !looks_like_a_version && !text.eq_ignore_ascii_case("latest") {
        return Ok(());
    }
    Err(Invalid::new(field, text, "1 to 255 letters, digits, _ and -; not `latest`, and not v with a number"))
}

fn check_path(field: &str, text: &str) -> Result<(), Invalid> {
    let well_formed = !text.is_empty()
        && text.len() <= 1024
        && !text.chars().any(|c| c.is_control() || c == '\\')
        && text.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if well_formed {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        text,
        "a relative path of at most 1,024 bytes without empty, `.` or `..` parts, backslashes or control characters",
    ))
}

impl PrincipalId {
    /// The agent of a node: `node:<name>`.
    pub fn of_node(node: &NodeName) -> Self {
        Self(format!("{NODE}{node}"))
    }

    /// Whoever runs the platform on their own machine: `local:<user>`, with the user's name made a slug.
    pub fn of_local_user(user: &str) -> Self {
        Self(format!("{LOCAL}{}", NodeName::from_host(user).map_or_else(|_| "user".to_owned(), |slug| slug.0)))
    }

    /// Whether this is a node's agent rather than a person or a program.
    pub fn is_node(&self) -> bool {
        self.0.starts_with(NODE)
    }

    /// What kind of principal this is; `None` for one that can hold no role and no token, as its form is none of those that are known.
    pub fn kind(&self) -> Option<PrincipalKind> {
        let slug = |text: &str| check_slug("principal", text).is_ok();
        let (kind, name) = self.0.split_once(':')?;
        match (kind, name.split_once(':')) {
            ("user", None) if slug(name) => Some(PrincipalKind::User),
            ("local", None) if slug(name) => Some(PrincipalKind::Local),
            ("service", None) if slug(name) => Some(PrincipalKind::Service { project: None }),
            ("service", Some((project, name))) if slug(name) && slug(project) => {
                Some(PrincipalKind::Service { project: Some(ProjectName(project.to_owned())) })
            }
            ("node", None) => NodeName::parse(name).ok().map(PrincipalKind::Node),
            _ => None,
        }
    }
}

/// What a principal is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrincipalKind {
    /// A person, `user:<slug>`.
    User,
    /// Whoever runs the platform on their own machine, `local:<slug>`.
    Local,
    /// A program: `service:<slug>` of the platform, `service:<project>:<slug>` of one project.
    Service {
        /// The project that it belongs to.
        project: Option<ProjectName>,
    },
    /// A node's agent, `node:<name>`.
    Node(NodeName),
}

/// What principals' ids look like, for refusals.
pub const PRINCIPAL_FORMS: &str =
    "user:<name>, service:<name>, service:<project>:<name>, local:<name> or node:<name>; names of a-z, 0-9 and -";
/// How the principal of whoever runs the platform on their own machine begins.
const LOCAL: &str = "local:";

/// How the principal of a node's agent begins.
const NODE: &str = "node:";

impl ProjectName {
    /// The platform's own token, `_`.
    pub fn platform() -> Self {
        Self("_".to_owned())
    }

    /// Whether this is the platform's own token rather than a tenant.
    pub fn is_platform(&self) -> bool {
        self.0 == "_"
    }
}

impl NodeName {
    /// The node name for a host name: lower case, every other character turned into `-`, cut to 63.
    pub fn from_host(host: &str) -> Result<Self, Invalid> {
        let slug: String = host
            .to_ascii_lowercase()
            .chars()
            .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
            .take(63)
            .collect();
        Self::parse(slug.trim_matches('-'))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_principal_that_can_hold_a_token_has_one_of_the_known_forms() {
        let kind = |text: &str| PrincipalId::parse(text).unwrap().kind();
        assert_eq!(kind("user:ada"), Some(PrincipalKind::User));
        assert_eq!(kind("service:ci"), Some(PrincipalKind::Service { project: None }));
        let project = ProjectName::parse("vision").unwrap();
        assert_eq!(kind("service:vision:ci"), Some(PrincipalKind::Service { project: Some(project) }));
        assert_eq!(kind("node:gpu-1"), Some(PrincipalKind::Node(NodeName::parse("gpu-1").unwrap())));
        for text in
            ["ada", "user:", "user:Ada", "user:a.b", "user:a:b", "service:_:ci", "service:a:b:c", "node:a:b", "user:*", "user:>", ":x"]
        {
            assert_eq!(kind(text), None, "{text}");
        }
        for (user, id) in [("ada", "local:ada"), ("Ada.L_x", "local:ada-l-x"), ("", "local:user"), ("é", "local:user")] {
            let made = PrincipalId::of_local_user(user);
            assert_eq!((made.as_str(), made.kind()), (id, Some(PrincipalKind::Local)), "{user}");
        }
    }

    #[test]
    fn a_slug_lets_nothing_pass_that_means_something_in_a_subject() {
        for text in ["", "a.b", "a b", "*", ">", "a*", "-a", "A", "..", &"a".repeat(64), "é", "_"] {
            assert!(NodeName::parse(text).is_err(), "{text}");
        }
        assert!(NodeName::parse("gpu-01").is_ok());
        assert!(ProjectName::parse("_").is_ok());
    }

    #[test]
    fn a_nodes_agent_is_told_from_people() {
        let agent = NodeName::parse("gpu-01").map(|node| PrincipalId::of_node(&node));
        assert_eq!(agent, PrincipalId::parse("node:gpu-01"));
        assert!(agent.is_ok_and(|agent| agent.is_node()));
        assert!(PrincipalId::parse("local:node").is_ok_and(|person| !person.is_node()));
    }

    #[test]
    fn names_for_people_take_any_script_but_no_control_character() {
        for text in ["推荐模型", "val/acc", "a b (top 1)", "é"] {
            assert!(DisplayName::parse(text).is_ok(), "{text}");
            assert!(MetricName::parse(text).is_ok(), "{text}");
        }
        for text in ["", " a", "a\n", &"x".repeat(10_000)] {
            assert!(DisplayName::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_model_and_its_aliases_are_named_as_mlflow_has_it() {
        for text in ["", " a", "a/b", "a:b", ".", "..", "a\n"] {
            assert!(ModelName::parse(text).is_err(), "{text}");
        }
        for text in ["digits", "推荐模型", "a b", "a@b", "a..b"] {
            assert!(ModelName::parse(text).is_ok(), "{text}");
        }
        for text in ["", "latest", "Latest", "v1", "V12", "a b", "a@b", "a.b"] {
            assert!(AliasName::parse(text).is_err(), "{text}");
        }
        for text in ["champion", "blue-green_2", "v", "vx1", "冠军", "3"] {
            assert!(AliasName::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_artifact_path_cannot_leave_its_run() {
        for text in ["..", "a/../b", "/etc/passwd", "a//b", "a/", ".", "a\\b", "a\0b"] {
            assert!(ArtifactPath::parse(text).is_err(), "{text}");
        }
        for text in ["图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", ".hidden", "..a/b.."] {
            assert!(ArtifactPath::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_host_name_becomes_a_node_name() {
        assert_eq!(NodeName::from_host("GPU01.lab.example").map(|n| n.to_string()), Ok("gpu01-lab-example".to_owned()));
        assert!(NodeName::from_host("...").is_err());
    }
}
