//! Which pods arrive, in which order: the paper's procedure, and rehearsals of it.

use super::dice::Dice;
use super::openb::Pod;
use footplate_scheduler_core::pack::{Class, Demand};

/// The paper's inflation of a trace: its pods in random order, and then pods drawn from it, until `percent` of the cluster's GPUs
/// (`gpu_milli` thousandths) have been asked for; positions in `pods`, which are by name.
///
/// To the letter of its program: a drawn pod ends the sequence when one GPU's part of it would go beyond the limit; a trace that asks for
/// more than the limit loses random pods.
pub fn inflated(pods: &[Pod], gpu_milli: u64, percent: u64, seed: u64) -> Vec<usize> {
    let limit = gpu_milli * percent / 100;
    let mut dice = Dice::of(seed, 0);
    let mut order: Vec<usize> = (0..pods.len()).collect();
    dice.shuffle(&mut order);
    let asks = |at: usize| pods[at].demand.gpu_milli_whole();
    let mut asked: u64 = order.iter().map(|at| asks(*at)).sum();
    while asked > limit && !order.is_empty() {
        let lost = order.remove(dice.below(order.len() as u64) as usize);
        asked -= asks(lost);
    }
    // A trace that asks for no GPU would never reach the limit.
    if asked == 0 {
        return order;
    }
    loop {
        let next = dice.below(pods.len() as u64) as usize;
        if asked + u64::from(pods[next].demand.gpu_milli) > limit {
            return order;
        }
        asked += asks(next);
        order.push(next);
    }
}

/// Arrivals drawn from the frequencies of classes alone, until `percent` of the cluster's GPUs have been asked for.
pub fn drawn(classes: &[Class], gpu_milli: u64, percent: u64, seed: u64) -> Vec<Demand> {
    let whole: u64 = classes.iter().map(|class| class.weight).sum();
    let (mut arrivals, mut asked) = (Vec::new(), 0);
    if classes.iter().all(|class| class.weight == 0 || class.demand.gpu_milli_whole() == 0) {
        return arrivals;
    }
    let ends: Vec<u64> = classes
        .iter()
        .scan(0, |end, class| {
            *end += class.weight;
            Some(*end)
        })
        .collect();
    let mut dice = Dice::of(seed, 1);
    while asked < gpu_milli * percent / 100 {
        let drawn = dice.below(whole);
        let demand = classes[ends.partition_point(|end| *end <= drawn)].demand;
        asked += demand.gpu_milli_whole();
        arrivals.push(demand);
    }
    arrivals
}
