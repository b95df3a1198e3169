//! The node's side: shims, spools, assignments, leases.
