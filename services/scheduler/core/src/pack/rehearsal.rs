//! Prices learned by rehearsal: pack what is to be expected, see what stays idle, price by that, and again.

use super::demand::{Class, Demand};
use super::host::Host;
use super::packing::Packing;
use super::prices::Prices;

/// Rehearsals under the same prices, before they are corrected.
const ROUND: usize = 2;
/// Rehearsals that are kept for the choice among prices.
const FINAL: usize = 4;
/// As how many observations what was believed of a situation counts.
const BELIEF: i64 = 5;
/// How many rounds' prices are candidates beside the average.
const CANDIDATES: usize = 3;

/// What became of every situation: how much of a GPU stayed idle in all, in thousandths, and how often it was seen.
struct Outcome {
    idle: Vec<i64>,
    seen: Vec<i64>,
}

impl Prices {
    /// Prices for these nodes when these classes are to be expected, learned by packing the rehearsals, each onto the nodes as they are.
    /// A rehearsal is a sequence of arrivals as they might come, long enough that not all of it fits; who calls draws them (from the classes,
    /// or from recent requests). With none the prices are those of [`Prices::expecting`].
    pub fn learned(classes: &[Class], hosts: &[Host], rehearsals: &[Vec<Demand>]) -> Self {
        let mut prices = Self::expecting(classes);
        let (finals, rounds) = rehearsals.split_at(FINAL.min(rehearsals.len() / 2));
        let count = rounds.len().div_ceil(ROUND);
        let mut later = vec![0i64; prices.len()];
        let mut candidates: Vec<(u64, Self)> = Vec::new();
        for (at, round) in rounds.chunks(ROUND).enumerate() {
            let mut outcome = Outcome { idle: vec![0; prices.len()], seen: vec![0; prices.len()] };
            let left: u64 = round.iter().map(|arrivals| rehearse(&prices, hosts, arrivals, Some(&mut outcome))).sum();
            if round.len() == ROUND {
                candidates.push((left, prices.clone()));
                candidates.sort_by_key(|(left, _)| *left);
                candidates.truncate(CANDIDATES);
            }
            prices.correct(&outcome);
            if at >= count / 2 {
                later.iter_mut().zip(prices.idle()).for_each(|(sum, idle)| *sum += i64::from(*idle));
            }
        }
        if count == 0 {
            return prices;
        }
        let averaged = (count - count / 2) as i64;
        prices.idle_mut().iter_mut().zip(later).for_each(|(idle, sum)| *idle = (sum / averaged) as i32);
        let candidates = std::iter::once(prices).chain(candidates.into_iter().map(|(_, prices)| prices));
        let judged = candidates.map(|prices| {
            let left: u64 = finals.iter().map(|arrivals| rehearse(&prices, hosts, arrivals, None)).sum();
            (left, prices)
        });
        judged.min_by_key(|(left, _)| *left).map_or_else(|| Self::expecting(classes), |(_, prices)| prices)
    }

    /// Prices each situation by what was seen of it, and what was seen seldom partly by what was believed.
    fn correct(&mut self, outcome: &Outcome) {
        for ((idle, sum), seen) in self.idle_mut().iter_mut().zip(&outcome.idle).zip(&outcome.seen) {
            let believed = i64::from(*idle);
            *idle = ((sum * 1_000 + believed * BELIEF) / (seen + BELIEF)) as i32;
        }
    }
}

/// Packs the arrivals; answers what stays idle of all GPUs, in thousandths.
fn rehearse(prices: &Prices, hosts: &[Host], arrivals: &[Demand], outcome: Option<&mut Outcome>) -> u64 {
    let mut packing = Packing::new(hosts.to_vec(), prices.clone());
    let mut seen: Vec<(u32, u8, u32)> = Vec::new();
    for demand in arrivals {
        let Some(spot) = packing.place(demand).filter(|spot| packing.take(spot, demand)) else { continue };
        if outcome.is_some() {
            let situations = prices.situations(&packing.hosts()[spot.host]);
            seen.extend(situations.map(|(gpu, situation)| (spot.host as u32, gpu as u8, situation as u32)));
        }
    }
    if let Some(outcome) = outcome {
        for (host, gpu, situation) in seen {
            outcome.idle[situation as usize] += i64::from(packing.hosts()[host as usize].gpus()[usize::from(gpu)]);
            outcome.seen[situation as usize] += 1;
        }
    }
    packing.hosts().iter().map(|host| u64::from(host.gpu_milli())).sum()
}
