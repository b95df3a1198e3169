//! Gangs of roles: a chief, workers, parameter servers, an evaluator, each with resources of its own, placed as one.

use super::{JobSpec, Launcher, PerNode, ResourceAsk};
use footplate_types::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One role of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GangRole {
    /// What it is called: 1 to 63 of a-z, 0-9, `-` and `_`.
    pub name: String,
    /// How many members it has. They stand on nodes of their own; members of other roles may stand beside them.
    pub nodes: u32,
    /// What each of them asks.
    pub per_node: PerNode,
}

impl GangRole {
    /// The most roles of one gang.
    pub const LIST_MAX: usize = 16;
    /// The longest name, in bytes.
    const NAME_MAX: usize = 63;

    fn validate_name(&self) -> Result<(), Invalid> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        if (1..=Self::NAME_MAX).contains(&self.name.len()) && self.name.bytes().all(fits) {
            return Ok(());
        }
        Err(Invalid::new("roles.name", &self.name, format!("1 to {} of a-z, 0-9, - and _", Self::NAME_MAX)))
    }
}

/// What a number of members ask, each on a node.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'s> {
    /// Where it stands in the specification: `resources`, or `roles.` and a name.
    pub role: Option<&'s str>,
    /// How many members.
    pub nodes: u32,
    /// What each asks.
    pub per_node: &'s PerNode,
}

impl Asked<'_> {
    /// Workers of a member: one a GPU or slot.
    pub const fn workers_per_node(&self) -> u32 {
        self.per_node.workers()
    }

    /// Its field, in refusals.
    pub(super) fn field(&self, below: &str) -> String {
        match self.role {
            None => format!("resources{below}"),
            Some(role) => format!("roles.{role}.resources{below}"),
        }
    }
}

impl PerNode {
    /// Workers of a member: one a GPU or slot.
    pub const fn workers(&self) -> u32 {
        if self.gpus > 0 { self.gpus } else { self.slots }
    }
}

impl JobSpec {
    /// What is asked, in the order of the members: of each role, or of the one gang that a job without roles is.
    pub fn asks(&self) -> impl Iterator<Item = Asked<'_>> {
        let one = self.roles.is_empty().then_some(Asked { role: None, nodes: self.resources.nodes, per_node: &self.resources.per_node });
        let of_roles = self.roles.iter().map(|role| Asked { role: Some(role.name.as_str()), nodes: role.nodes, per_node: &role.per_node });
        one.into_iter().chain(of_roles)
    }

    /// How many members the whole gang has.
    pub fn members(&self) -> u32 {
        self.asks().fold(0, |sum, asked| sum.saturating_add(asked.nodes))
    }

    /// Units that the whole gang asks.
    fn of_all(&self, units: impl Fn(&PerNode) -> u64) -> u64 {
        // Asked for every job at every look: most have no roles.
        if self.roles.is_empty() {
            return u64::from(self.resources.nodes).saturating_mul(units(&self.resources.per_node));
        }
        self.asks().fold(0, |sum: u64, asked| sum.saturating_add(u64::from(asked.nodes).saturating_mul(units(asked.per_node))))
    }

    /// GPUs of the whole gang, in thousandths of one.
    pub fn all_gpu_milli(&self) -> u64 {
        self.of_all(|per_node| per_node.gpu_milli().0)
    }

    /// CPU slots of the whole gang.
    pub fn all_slots(&self) -> u64 {
        self.of_all(|per_node| per_node.slots.into())
    }

    /// Checks the roles beside each other. The first fault is told.
    pub(super) fn validate_roles(&self) -> Result<(), Invalid> {
        let Some(first) = self.roles.first() else { return Ok(()) };
        if self.roles.len() > GangRole::LIST_MAX {
            return Err(Invalid::new("roles (count)", self.roles.len(), format!("at most {}", GangRole::LIST_MAX)));
        }
        let mut seen = BTreeSet::new();
        for role in &self.roles {
            role.validate_name()?;
            if !seen.insert(&role.name) {
                return Err(Invalid::new("roles", &role.name, "each name once"));
            }
        }
        // Who knows no roles reads of the first one.
        let of_first = ResourceAsk { nodes: first.nodes, per_node: first.per_node.clone() };
        if self.resources != of_first {
            return Err(Invalid::new("resources", "other than those of the first role", "nothing beside roles, each of which has its own"));
        }
        if self.launcher == Launcher::Torchrun {
            return Err(Invalid::new("launcher", "torchrun", "direct: a role's command may start torchrun itself"));
        }
        Ok(())
    }
}
