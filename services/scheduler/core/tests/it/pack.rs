//! Packing: nothing is had twice, places are found where there are any, and what the scores' memory says is what a fresh look says.

use footplate_scheduler_core::pack::{Class, Demand, GpuSet, Host, Models, Packing, Prices, Spot, WHOLE, classes};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn share(cpu_milli: u64, gpus: u8, gpu_milli: u16) -> Demand {
    Demand { cpu_milli, memory_bytes: 4 * GIB, gpus, gpu_milli, models: Models::ANY }
}

fn host(cpus: u64, gpus: usize) -> Host {
    Host::new(cpus * 1_000, 256 * GIB, 0, &vec![WHOLE; gpus]).unwrap()
}

/// The shapes of the properties: shares, whole GPUs, many of them, CPUs alone, one model only, nonsense.
fn shapes() -> Vec<Demand> {
    let on = |model, demand| Demand { models: Models::only([model]), ..demand };
    vec![
        share(3_000, 1, 810),
        share(8_000, 1, 470),
        share(4_000, 1, 160),
        share(11_000, 1, WHOLE),
        share(3_000, 1, WHOLE),
        share(16_000, 2, WHOLE),
        share(64_000, 8, WHOLE),
        share(4_000, 2, 400),
        share(12_000, 0, 0),
        on(1, share(6_000, 1, 330)),
        on(0, share(9_000, 1, WHOLE)),
        share(1_000, 1, 0),
        share(1_000, 1, 1_001),
    ]
}

fn hosts() -> impl Strategy<Value = Vec<Host>> {
    let one = (1..100u64, 0..9usize, 0..2u8, prop_oneof![3 => Just(WHOLE), 1 => 0..WHOLE]);
    prop::collection::vec(one, 1..80).prop_map(|hosts| {
        let host = |(cpus, gpus, model, first): (u64, usize, u8, u16)| {
            let mut left = vec![WHOLE; gpus];
            left.iter_mut().take(1).for_each(|left| *left = first);
            Host::new(cpus * 1_000, cpus * 4 * GIB, model, &left).unwrap()
        };
        hosts.into_iter().map(host).collect()
    })
}

/// Arrivals and departures: which shape comes, or which of those that are there goes.
fn steps() -> impl Strategy<Value = Vec<Result<usize, usize>>> {
    let step = prop_oneof![3 => (0..shapes().len()).prop_map(Ok), 1 => any::<usize>().prop_map(Err)];
    prop::collection::vec(step, 1..300)
}

fn expected() -> Vec<Class> {
    classes(shapes().into_iter().enumerate().flat_map(|(at, demand)| vec![demand; 1 + at % 4]))
}

/// Counts everything anew, with no code of the core's: what is held on a node is what it lacks, and a whole GPU has one holder.
fn audit(begun: &[Host], packing: &Packing, held: &[(Spot, Demand)]) {
    for (at, (begun, now)) in begun.iter().zip(packing.hosts()).enumerate() {
        let here: Vec<&(Spot, Demand)> = held.iter().filter(|(spot, _)| spot.host == at).collect();
        assert_eq!(begun.cpu_milli() - now.cpu_milli(), here.iter().map(|(_, demand)| demand.cpu_milli).sum::<u64>());
        assert_eq!(begun.memory_bytes() - now.memory_bytes(), here.iter().map(|(_, demand)| demand.memory_bytes).sum::<u64>());
        for gpu in 0..begun.gpus().len() {
            let holders: Vec<u16> =
                here.iter().filter(|(spot, _)| spot.gpus.positions().any(|at| at == gpu)).map(|(_, demand)| demand.gpu_milli).collect();
            let all: u32 = holders.iter().map(|milli| u32::from(*milli)).sum();
            assert!(all <= u32::from(begun.gpus()[gpu]), "{holders:?} of {}", begun.gpus()[gpu]);
            assert_eq!(u32::from(begun.gpus()[gpu]) - all, u32::from(now.gpus()[gpu]));
            assert!(holders.len() <= 1 || !holders.contains(&WHOLE), "a whole GPU is shared: {holders:?}");
        }
        assert!(here.iter().all(|(spot, demand)| spot.gpus.len() == usize::from(demand.gpus)));
        assert!(here.iter().all(|(_, demand)| demand.gpus == 0 || demand.models.allow(begun.model())));
    }
}

/// Whether there is room, found out without the core's own test.
fn room(host: &Host, demand: &Demand) -> bool {
    let possible = (1..=WHOLE).contains(&demand.gpu_milli) && demand.models.allow(host.model());
    let gpus = host.gpus().iter().filter(|left| possible && **left >= demand.gpu_milli).count();
    host.cpu_milli() >= demand.cpu_milli && host.memory_bytes() >= demand.memory_bytes && gpus >= usize::from(demand.gpus)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_had_twice_nothing_that_fits_is_refused_and_memory_says_what_a_fresh_look_says(hosts in hosts(), steps in steps()) {
        let mut packing = Packing::new(hosts.clone(), Prices::expecting(&expected()));
        let (shapes, mut held) = (shapes(), Vec::new());
        for step in steps {
            match step {
                Ok(shape) => {
                    let demand = shapes[shape];
                    let spot = packing.place(&demand);
                    prop_assert_eq!(spot, packing.place_afresh(&demand));
                    prop_assert_eq!(spot.is_some(), packing.hosts().iter().any(|host| room(host, &demand)));
                    if let Some(spot) = spot {
                        prop_assert!(packing.take(&spot, &demand));
                        held.push((spot, demand));
                    }
                }
                Err(_) if held.is_empty() => {}
                Err(leaver) => {
                    let (spot, demand) = held.swap_remove(leaver % held.len());
                    prop_assert!(packing.give(&spot, &demand));
                }
            }
            audit(&hosts, &packing, &held);
        }
        for (spot, demand) in held {
            prop_assert!(packing.give(&spot, &demand));
        }
        prop_assert_eq!(packing.hosts(), &hosts[..]);
    }

    #[test]
    fn learning_is_a_function_of_what_it_is_given_and_its_prices_refuse_nothing(hosts in hosts(), steps in steps()) {
        let arrivals: Vec<Demand> = steps.iter().filter_map(|step| step.ok().map(|shape| shapes()[shape])).collect();
        let rehearsals = vec![arrivals.clone(), arrivals.iter().rev().copied().collect(), arrivals.clone(), arrivals.clone()];
        let learned = || Prices::learned(&expected(), &hosts, &rehearsals);
        prop_assert_eq!(learned(), learned());
        let mut packing = Packing::new(hosts.clone(), learned());
        for demand in &arrivals {
            let spot = packing.place(demand);
            prop_assert_eq!(spot, packing.place_afresh(demand));
            prop_assert_eq!(spot.is_some(), packing.hosts().iter().any(|host| room(host, demand)));
            spot.iter().for_each(|spot| assert!(packing.take(spot, demand)));
        }
    }
}

#[test]
fn what_does_not_fit_is_neither_taken_nor_given() {
    let mut packing = Packing::new(vec![host(16, 2)], Prices::expecting(&expected()));
    let (whole, begun) = (share(4_000, 1, WHOLE), packing.hosts().to_vec());
    let spot = |gpus: &[usize]| Spot { host: 0, gpus: GpuSet::of(gpus.iter().copied()) };
    for (wrong, demand) in [
        (spot(&[0, 1]), whole),
        (spot(&[]), whole),
        (spot(&[2]), whole),
        (Spot { host: 1, ..spot(&[0]) }, whole),
        (spot(&[0]), share(17_000, 1, 10)),
        (spot(&[0]), share(1_000, 1, 0)),
        (spot(&[0]), Demand { models: Models::only([1]), ..whole }),
    ] {
        assert!(!packing.take(&wrong, &demand), "{wrong:?}");
        assert!(!packing.give(&wrong, &demand), "{wrong:?}");
    }
    assert_eq!(packing.hosts(), begun);
    assert!(packing.take(&spot(&[0]), &whole));
    assert!(!packing.take(&spot(&[0]), &share(1_000, 1, 1)), "a whole GPU is nobody else's");
    assert!(packing.give(&spot(&[0]), &whole) && !packing.give(&spot(&[0]), &whole), "once");
}

#[test]
fn a_node_of_too_many_or_of_impossible_gpus_is_none() {
    assert!(Host::new(1, 1, 0, &[WHOLE; 17]).is_none());
    assert!(Host::new(1, 1, 0, &[WHOLE + 1]).is_none());
    assert!(Host::new(1, 1, 0, &[WHOLE; 16]).is_some());
}

#[test]
fn gpus_are_not_stranded_by_work_that_needs_none() {
    // Two nodes that would do; on one the GPUs are taken.
    let full = Host::new(32_000, 256 * GIB, 0, &[0, 0]).unwrap();
    let mut packing = Packing::new(vec![host(32, 2), full], Prices::expecting(&expected()));
    assert_eq!(packing.place(&share(16_000, 0, 0)).unwrap().host, 1);
}

#[test]
fn small_work_leaves_whole_nodes_whole() {
    let used = Host::new(96_000, 384 * GIB, 0, &[WHOLE, WHOLE, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut packing = Packing::new(vec![host(96, 8), used], Prices::expecting(&expected()));
    assert_eq!(packing.place(&share(8_000, 1, WHOLE)).unwrap().host, 1);
}

/// Arrivals in an order fixed by a salt, of the mix of a cluster where some ask for few CPUs and some for many.
fn mixed(salt: u64) -> Vec<Demand> {
    let mix =
        [(3_000, 810, 3), (11_000, WHOLE, 4), (18_000, WHOLE, 2), (3_000, WHOLE, 2), (12_000, 470, 2), (4_000, 320, 1), (4_000, 160, 1)];
    let mix: Vec<Demand> = mix.iter().flat_map(|(cpu, part, count)| vec![share(*cpu, 1, *part); *count]).collect();
    let mut state = salt;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        mix[(state >> 33) as usize % mix.len()]
    };
    (0..170).map(|_| next()).collect()
}

#[test]
fn a_rehearsal_teaches_what_one_step_cannot_see() {
    let begun: Vec<Host> = (0..16).map(|at| if at % 3 == 0 { host(104, 2) } else { host(96, 8) }).collect();
    let idle = |prices: &Prices, salt| {
        let mut packing = Packing::new(begun.clone(), prices.clone());
        for demand in mixed(salt) {
            packing.place(&demand).iter().for_each(|spot| assert!(packing.take(spot, &demand)));
        }
        packing.hosts().iter().map(Host::gpu_milli).sum::<u32>()
    };
    let expected = classes(mixed(0));
    let rehearsals: Vec<_> = (1..15).map(mixed).collect();
    let learned = Prices::learned(&expected, &begun, &rehearsals);
    let all = |prices: &Prices| (100..106).map(|salt| idle(prices, salt)).sum::<u32>();
    let (learned, one_step) = (all(&learned), all(&Prices::expecting(&expected)));
    assert!(learned * 10 < one_step * 9, "{learned} of {one_step}");
}

#[test]
fn classes_are_counted_and_the_frequent_come_first() {
    let (a, b) = (share(1, 1, 10), share(2, 8, WHOLE));
    let weights: Vec<(Demand, u64)> = classes([a, b, b]).into_iter().map(|class| (class.demand, class.weight)).collect();
    assert_eq!(weights, [(b, 2), (a, 1)]);
}
