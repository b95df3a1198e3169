//! Decide, evolve, react, project: the shapes of a pure core and the harness that tests it.
