//! What a method takes of its caller, as the protos say it.

use footplate_types::{Bearer, ProjectName, Role};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor, ReflectMessage as _};

use super::gate::Gate;
use crate::refusal::{Refusal, reason};

/// The option of the methods.
const OPTION: &str = "footplate.api.v1.access";

/// Where a role is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the project that the request names.
    Project,
    /// In the platform's own.
    Platform,
    /// In the project that the request names; in the platform's own when it names none.
    ProjectOrPlatform,
    /// Nowhere.
    Anyone,
}

/// What a method takes of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Where the role is looked for.
    pub scope: Scope,
    /// The least role; none where every principal may.
    pub role: Option<Role>,
    /// Whether the agents of nodes may as well.
    pub nodes: bool,
    /// Where the request names its project: the numbers of a field, or of a field within a field.
    pub(crate) path: Vec<u32>,
    /// Whether the request is a stream, which may be opened long before its first message comes.
    pub(crate) is_stream: bool,
    method: String,
}

impl Need {
    /// What a method takes; `None` when the protos do not say it, and then nobody may call it.
    pub fn of(pool: &DescriptorPool, method: &MethodDescriptor) -> Option<Self> {
        let option = pool.get_extension_by_name(OPTION)?;
        let options = method.options();
        let said = options.get_extension(&option);
        let access = said.as_message().filter(|_| options.has_extension(&option))?;
        let scope = match word(access, "scope")?.as_str() {
            "PROJECT" => Scope::Project,
            "PLATFORM" => Scope::Platform,
            "PROJECT_OR_PLATFORM" => Scope::ProjectOrPlatform,
            "ANYONE" => Scope::Anyone,
            _ => return None,
        };
        let role = Role::parse(&word(access, "role")?.to_ascii_lowercase()).ok();
        let nodes = access.get_field_by_name("nodes")?.as_bool()?;
        let path = match scope {
            Scope::Project | Scope::ProjectOrPlatform => project_path(&method.input())?,
            Scope::Platform | Scope::Anyone => Vec::new(),
        };
        let is_whole = role.is_some() || scope == Scope::Anyone;
        let is_stream = method.is_client_streaming();
        let method = format!("{}/{}", method.parent_service().name(), method.name());
        is_whole.then_some(Self { scope, role, nodes, path, is_stream, method })
    }

    /// Whether the request's own words decide about its project.
    pub(crate) const fn looks_into_the_request(&self) -> bool {
        matches!(self.scope, Scope::Project | Scope::ProjectOrPlatform)
    }

    /// Lets a bearer call the method, for `project` where it is of one.
    pub(crate) fn admit(&self, gate: &dyn Gate, bearer: &Bearer, project: Option<&ProjectName>) -> Result<(), Refusal> {
        let Self { role, nodes, method, scope, .. } = self;
        let who = &bearer.principal;
        if who.is_node() && *nodes {
            return Ok(());
        }
        let Some(least) = role.filter(|_| *scope != Scope::Anyone) else {
            return if who.is_node() { Err(denied(project, format!("{who} may not call {method}: it is not for nodes"))) } else { Ok(()) };
        };
        let platform = ProjectName::platform();
        let held = gate.role(bearer, project.unwrap_or(&platform));
        if held >= Some(least) {
            return Ok(());
        }
        let place = project.map_or_else(|| "the platform's own project, _".to_owned(), |project| format!("project {project}"));
        let has = held.map_or_else(|| "no role there".to_owned(), |role| format!("the role {role}"));
        let limited = if bearer.only.is_some() || bearer.most.is_some() { " (with this token, which is limited)" } else { "" };
        Err(denied(project, format!("{who} may not call {method} in {place}: it takes the role {least}, and they have {has}{limited}")))
    }
}

fn denied(project: Option<&ProjectName>, told: String) -> Refusal {
    match project {
        Some(project) => Refusal::new(&reason::PROJECT_DENIED, told).field("project").value(project.as_str()),
        None => Refusal::new(&reason::PLATFORM_DENIED, told),
    }
}

fn word(message: &DynamicMessage, field: &str) -> Option<String> {
    let number = message.get_field_by_name(field)?.as_enum_number()?;
    let Kind::Enum(kind) = message.descriptor().get_field_by_name(field)?.kind() else { return None };
    kind.get_value(number).map(|value| value.name().to_owned())
}

/// `project`, or `filter.project`.
fn project_path(input: &MessageDescriptor) -> Option<Vec<u32>> {
    let project = |message: &MessageDescriptor| {
        message.get_field_by_name("project").filter(|field| field.kind() == Kind::String && !field.is_list()).map(|field| field.number())
    };
    let within = |field: FieldDescriptor| match field.kind() {
        Kind::Message(message) => project(&message).map(|number| vec![field.number(), number]),
        _ => None,
    };
    project(input).map(|number| vec![number]).or_else(|| input.get_field_by_name("filter").and_then(within))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::pool;

    fn need(path: &str) -> Need {
        let method = crate::descriptors::method_in(pool(), path).unwrap();
        Need::of(pool(), &method).unwrap()
    }

    #[test]
    fn every_method_says_what_it_takes_and_those_of_projects_where_the_project_stands() {
        for service in pool().services() {
            for method in service.methods() {
                let need = Need::of(pool(), &method);
                let need = need.unwrap_or_else(|| panic!("{} does not say what it takes of its caller", method.full_name()));
                assert_eq!(need.looks_into_the_request(), !need.path.is_empty(), "{}", method.full_name());
            }
        }
    }

    #[test]
    fn what_the_protos_say_is_read() {
        let approve = need("/footplate.api.v1.RegistryService/ApproveVersion");
        assert_eq!((approve.scope, approve.role, approve.nodes, approve.path), (Scope::Project, Some(Role::Approver), false, vec![1]));
        let watch = need("/footplate.api.v1.EventService/WatchEvents");
        assert_eq!((watch.scope, watch.role, watch.path), (Scope::ProjectOrPlatform, Some(Role::Viewer), vec![1, 1]));
        assert!(need("/footplate.api.v1.BlobService/Upload").nodes);
        let list = need("/footplate.api.v1.NodeService/ListNodes");
        assert_eq!((list.scope, list.role), (Scope::Anyone, None));
    }
}
