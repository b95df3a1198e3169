//! What each queue is entitled to at a moment: what is its own first, then the rest by weight, from the top of the tree down, and never more than it has
//! work for. A yardstick of its own: it asks the scheduler's core nothing.

/// One queue of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Knot {
    pub(crate) parent: Option<usize>,
    pub(crate) weight: u32,
    pub(crate) guarantee: u64,
    pub(crate) quota: Option<u64>,
}

/// What each queue is entitled to of `capacity`, given what the jobs of each hold and wait for (`demand`, its own jobs alone).
pub(crate) fn entitled(tree: &[Knot], demand: &[u64], capacity: u64) -> Vec<f64> {
    let below = |at: Option<usize>| -> Vec<usize> { (0..tree.len()).filter(|below| tree[*below].parent == at).collect() };
    let mut wants = vec![0.0; tree.len()];
    for top in below(None) {
        want(tree, demand, top, &mut wants, 0);
    }
    let mut given = vec![0.0; tree.len()];
    let mut open = vec![(None, capacity as f64)];
    while let Some((parent, amount)) = open.pop() {
        let siblings = below(parent);
        for (at, part) in siblings.iter().zip(fill(tree, &siblings, &wants, amount)) {
            given[*at] = part;
            open.push((Some(*at), part));
        }
    }
    given
}

/// How much a queue and all below it could use.
fn want(tree: &[Knot], demand: &[u64], at: usize, wants: &mut Vec<f64>, depth: usize) -> f64 {
    let mut sum = demand[at] as f64;
    // A tree is at most so deep; a circle ends here.
    if depth < footplate_scheduler_core::DEPTH_MAX {
        for below in (0..tree.len()).filter(|below| tree[*below].parent == Some(at)) {
            sum += want(tree, demand, below, wants, depth + 1);
        }
    }
    wants[at] = tree[at].quota.map_or(sum, |quota| sum.min(quota as f64));
    wants[at]
}

/// Divides an amount among siblings: to each what is its own, the rest by weight, to none more than it wants.
fn fill(tree: &[Knot], siblings: &[usize], wants: &[f64], amount: f64) -> Vec<f64> {
    let own: Vec<f64> = siblings.iter().map(|at| wants[*at].min(tree[*at].guarantee as f64)).collect();
    let sum: f64 = own.iter().sum();
    if sum >= amount {
        let part = if sum > 0.0 { amount / sum } else { 0.0 };
        return own.into_iter().map(|own| own * part).collect();
    }
    let mut given = own;
    let mut left = amount - sum;
    let mut hungry: Vec<usize> = (0..siblings.len()).filter(|at| given[*at] < wants[siblings[*at]]).collect();
    while left > 1e-9 && !hungry.is_empty() {
        let weights: f64 = hungry.iter().map(|at| f64::from(tree[siblings[*at]].weight)).sum();
        let round = left;
        for at in &hungry {
            let part = round * f64::from(tree[siblings[*at]].weight) / weights;
            let takes = part.min(wants[siblings[*at]] - given[*at]);
            given[*at] += takes;
            left -= takes;
        }
        let before = hungry.len();
        hungry.retain(|at| wants[siblings[*at]] - given[*at] > 1e-9);
        if hungry.len() == before {
            break;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knot(parent: Option<usize>, weight: u32, guarantee: u64, quota: Option<u64>) -> Knot {
        Knot { parent, weight, guarantee, quota }
    }

    fn rounded(given: Vec<f64>) -> Vec<u64> {
        given.into_iter().map(|given| given.round() as u64).collect()
    }

    #[test]
    fn who_wants_less_leaves_the_rest_to_others_by_weight() {
        let tree = [knot(None, 1, 0, None), knot(None, 3, 0, None), knot(None, 1, 0, None)];
        assert_eq!(rounded(entitled(&tree, &[100, 100, 100], 100)), [20, 60, 20]);
        assert_eq!(rounded(entitled(&tree, &[100, 10, 100], 100)), [45, 10, 45]);
        assert_eq!(rounded(entitled(&tree, &[5, 10, 0], 100)), [5, 10, 0]);
    }

    #[test]
    fn what_is_guaranteed_comes_first_and_a_quota_binds_all_below_together() {
        let tree = [knot(None, 1, 60, None), knot(None, 9, 0, None)];
        assert_eq!(rounded(entitled(&tree, &[100, 100], 100)), [64, 36]);
        let team = [knot(None, 1, 0, Some(30)), knot(Some(0), 2, 0, None), knot(Some(0), 1, 0, None), knot(None, 1, 0, None)];
        assert_eq!(rounded(entitled(&team, &[0, 100, 100, 100], 100)), [30, 20, 10, 70]);
    }
}
