//! Why a job waits: what no node could ever give, or what is in use just now.

use super::board::{Board, Shape, When};
use super::roles::{lack_of_roles, never_of_roles};
use super::room::{Room, Shortage, shape_lacks};
use super::wanted::Wanted;
use crate::state::{Node, State};
use footplate_events::facts::JobSpec;
use footplate_types::{NodeName, NodeShape, Taint};
use std::collections::{BTreeMap, BTreeSet};

/// What keeps a job from being placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// No set of nodes that ever registered could take it, were they empty.
    Never(String),
    /// It would fit, but what it asks is in use or its nodes are closed.
    Now(String),
}

/// What keeps the job from being placed on this board.
pub(crate) fn lack(state: &State, board: &mut Board<'_>, shape: Shape<'_>) -> Lack {
    if shape.has_roles() {
        return lack_of_roles(state, board, shape);
    }
    if board.suiting(shape) >= shape.nodes() {
        return Lack::Now(now(state, board, shape));
    }
    let never = never(state, shape.spec).unwrap_or_else(|| {
        format!("{} nodes of one rack asked, at most {} of one could take a member", shape.nodes(), board.suiting(shape))
    });
    Lack::Never(never)
}

/// Why no set of the known nodes could ever take it; `None` when one could.
pub(crate) fn never(state: &State, spec: &JobSpec) -> Option<String> {
    if !spec.roles.is_empty() {
        return never_of_roles(state, spec);
    }
    let asked = spec.resources.nodes;
    let suiting = state.nodes().iter().filter(|(name, node)| shape_lacks(name, &node.shape, spec).is_none()).count() as u32;
    if suiting >= asked {
        let (most, rack) = most_in_one_rack(state, spec).filter(|_| spec.placement.same_rack && asked > 1)?;
        return (most < asked).then(|| format!("{asked} nodes asked in one rack, at most {most} of one ({rack}) could take a member"));
    }
    if state.nodes().is_empty() {
        return Some("no node has registered yet; start an agent".to_owned());
    }
    let unknown: Vec<&str> = spec.placement.nodes.iter().filter(|name| !state.nodes().contains_key(name)).map(NodeName::as_str).collect();
    if !unknown.is_empty() && suiting == 0 {
        return Some(format!("no such node: {}", unknown.join(", ")));
    }
    if suiting > 0 {
        return Some(format!("{asked} nodes asked, {suiting} of {} could take a member; {}", state.nodes().len(), nearest(state, spec)));
    }
    Some(nearest(state, spec))
}

/// The most nodes of one rack among those that could take a member of a gang that must stand in one.
fn most_in_one_rack(state: &State, spec: &JobSpec) -> Option<(u32, String)> {
    let mut racks: BTreeMap<&str, u32> = BTreeMap::new();
    let suiting = state.nodes().iter().filter(|(name, node)| shape_lacks(name, &node.shape, spec).is_none());
    suiting.filter_map(|(_, node)| node.shape.rack.as_deref()).for_each(|rack| *racks.entry(rack).or_default() += 1);
    racks.into_iter().max_by_key(|(_, count)| *count).map(|(rack, count)| (count, rack.to_owned()))
}

/// What the nearest node that cannot take a member lacks.
fn nearest(state: &State, spec: &JobSpec) -> String {
    let lacks = |(name, node): (&'_ NodeName, &'_ Node)| shape_lacks(name, &node.shape, spec).map(|lack| (name.clone(), lack));
    let nearest = state.nodes().iter().filter_map(lacks).max_by_key(|(_, lack)| lack.nearness());
    match nearest {
        Some((_, Shortage::Excluded)) => "every node is excluded by placement.exclude".to_owned(),
        Some((_, Shortage::Pool(pool))) => format!("no node is in pool {pool}"),
        Some((_, Shortage::Label { key, asked })) => format!("no node has the label {key}={asked} of placement.labels"),
        Some((name, lack @ Shortage::Tainted(_))) => format!("{name} {lack}"),
        Some((name, lack)) => format!("the largest node ({name}) {lack}"),
        None => "every other node could".to_owned(),
    }
}

impl Board<'_> {
    /// What binds a job among these nodes, in words, by what [`Board::fit`] found last.
    pub(crate) fn binds(&self, shape: Shape<'_>, nodes: &[usize]) -> String {
        let Some(fit) = self.ground.known(&shape.class) else { return String::new() };
        let (wanted, count) = (Wanted(&shape.spec.resources.per_node), shape.nodes());
        let lacks = |at: usize| shape_lacks(self.name(at), &self.node(at).shape, shape.spec);
        let suiting: Vec<usize> = nodes.iter().copied().filter(|at| fit.suits(*at)).collect();
        if suiting.is_empty() {
            let nearest = nodes.iter().filter_map(|at| Some((*at, lacks(*at)?))).max_by_key(|(_, lack)| lack.nearness());
            return nearest.map_or_else(String::new, |(at, lack)| format!("no node could take a member: {} {lack}", self.name(at)));
        }
        if suiting.len() < count {
            return format!("{count} nodes asked, {} of {} could take a member", suiting.len(), nodes.len());
        }
        let open: Vec<usize> = suiting.iter().copied().filter(|at| fit.is_eligible(*at)).collect();
        if open.len() < count {
            return format!("{count} nodes asked, {} of {} that could take a member are open", open.len(), suiting.len());
        }
        let fitting = open.iter().filter(|at| fit.places(When::Now).score(**at).is_some() && !self.is_kept(**at)).count();
        if fitting >= count {
            return format!("there is room: {fitting} nodes have it, {count} asked");
        }
        let (what, each) = (wanted.what(), wanted.text(wanted.each()));
        let units = |at: &usize| wanted.of(&self.plot(*at).free, self.node(*at));
        let free: u64 = open.iter().map(units).sum();
        let most = open.iter().map(units).max().unwrap_or(0);
        if most >= wanted.each() && fitting == 0 {
            return format!("{what} are free, {} beside them are not: {each} {what} asked on each of {count} nodes", wanted.beside());
        }
        if wanted.is_share() {
            return format!(
                "{each} of the {what} asked on each of {count} nodes, {fitting} have it: at most {} is free",
                wanted.text(most)
            );
        }
        format!(
            "{each} {what} asked on each of {count} nodes, {fitting} have them: {free} are free on {} nodes, at most {most} on one",
            open.len()
        )
    }
}

/// The closed nodes that could take a member at once, were they opened: by name.
pub(crate) fn closed_and_free<'a>(state: &'a State, shape: Shape<'_>) -> Vec<(&'a NodeName, &'a Node)> {
    let has_room = |node: &Node, spec: &JobSpec| {
        let mut free = Room::empty_node(node);
        node.claims.values().for_each(|claim| free.take(node, claim));
        free.holds(node, &spec.resources.per_node)
    };
    let takes = |name: &NodeName, node: &Node, spec: &JobSpec| shape_lacks(name, &node.shape, spec).is_none() && has_room(node, spec);
    let takes_one = |name: &NodeName, node: &Node| match shape.parts {
        [] => takes(name, node, shape.spec),
        parts => parts.iter().any(|part| takes(name, node, &part.spec)),
    };
    state.nodes().iter().filter(|(name, node)| !node.is_open() && takes_one(name, node)).collect()
}

/// The open nodes that could take a member at once, were it not for a taint that the job does not tolerate: by name, each with the first such taint.
pub(crate) fn tainted_and_free<'a>(state: &'a State, spec: &'a JobSpec) -> impl Iterator<Item = (&'a NodeName, &'a Taint)> {
    let has_room = |node: &Node| {
        let mut free = Room::empty_node(node);
        node.claims.values().for_each(|claim| free.take(node, claim));
        free.holds(node, &spec.resources.per_node)
    };
    state.nodes().iter().filter(|(_, node)| node.is_open()).filter_map(move |(name, node)| {
        let taint = node.shape.taints.iter().find(|taint| !spec.placement.tolerates(taint))?;
        let bare = NodeShape { taints: BTreeSet::new(), ..(*node.shape).clone() };
        (shape_lacks(name, &bare, spec).is_none() && has_room(node)).then_some((name, taint))
    })
}

/// Whether the open nodes, were they empty, are too few for the whole gang.
pub(crate) fn too_few_open(board: &mut Board<'_>, shape: Shape<'_>) -> bool {
    board.eligible(shape) < shape.nodes()
}

/// What is in use or closed just now.
pub(super) fn now(state: &State, board: &mut Board<'_>, shape: Shape<'_>) -> String {
    let spec = shape.spec;
    let wanted = Wanted(&spec.resources.per_node);
    let (what, each) = (wanted.what(), wanted.text(wanted.each()));
    let fit = board.fit(shape);
    // Looked for where there are any: it takes a walk over all nodes.
    let some_closed = fit.suiting() > fit.eligible();
    let all = some_closed.then(|| state.nodes().iter()).into_iter().flatten();
    let closed: Vec<String> = all
        .filter(|(_, node)| !node.is_open())
        .filter(|(name, node)| shape_lacks(name, &node.shape, spec).is_none())
        .filter_map(|(name, node)| node.closed_because().map(|why| format!("{name} is {why}")))
        .take(3)
        .collect();
    let comes = board.fitting(shape, When::Coming) >= shape.nodes();
    let too_few = too_few_open(board, shape);
    let fitting = board.fitting_all(shape, When::Now);
    let fit = board.fit(shape);
    let eligible = fit.eligible();
    if too_few && !closed.is_empty() {
        let open = if eligible == 0 { "no open node".to_owned() } else { format!("only {eligible} open nodes") };
        return format!("{} asked, and {open} could take a member; {}", spec.resources.nodes, closed.join(", "));
    }
    let rack = if shape.in_one_rack() { " in one rack" } else { "" };
    let mut detail = format!("{what}: {each} free asked on {} of {eligible} open nodes{rack}, {fitting} have them", spec.resources.nodes);
    let all: Vec<usize> = if fitting == 0 { fit.all_eligible().collect() } else { Vec::new() };
    let most = all.into_iter().map(|at| (wanted.of(&board.plot(at).free, board.node(at)), at)).max_by_key(|(units, _)| *units);
    if let Some((units, at)) = most {
        let reserved = board.is_kept(at);
        let kept = if reserved { ", kept for a job that has waited longer" } else { "" };
        detail.push_str(&format!("; most free: {} with {}{kept}", board.name(at), wanted.text(units)));
        if units >= wanted.each() && !reserved {
            detail.push_str(&format!(" (its {} are in use)", wanted.beside()));
        }
    }
    if !closed.is_empty() {
        detail.push_str(&format!("; {}", closed.join(", ")));
    }
    if comes {
        detail.push_str("; enough is coming free");
    }
    detail
}
