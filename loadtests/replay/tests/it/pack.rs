//! The packing replay on a small cluster: the procedure, the measure, the published policies, what is written.

use footplate_replay::pack::arrivals::{drawn, inflated};
use footplate_replay::pack::fragmentation::Targets;
use footplate_replay::pack::openb::{Cluster, Pod, parse_pods};
use footplate_replay::pack::policies::{BestFit, Fgd, Policy, Random, Ranked};
use footplate_replay::pack::published::Table;
use footplate_replay::pack::replay::{Past, order_of_nodes, replay};
use footplate_replay::pack::{self, Options};
use footplate_replay::trace::Data;
use footplate_scheduler_core::pack::{Demand, Host, Models, Packing, Prices, classes};
use std::path::Path;
use std::process::Command;

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\n\
    n0,96000,393216,8,G2\nn1,96000,393216,8,G2\nn2,96000,393216,8,G2\nn3,96000,393216,8,G2\n\
    n4,104000,524288,2,T4\nn5,104000,524288,2,T4\nn6,16000,122880,2,P100\n";
const PUBLISHED: &str = ",,100,100,130,130\n,,mean,std,mean,std\nworkload,sc_policy,,,,\n\
    default,01-Random,86.3,0.33,87.47,0.32\ndefault,06-FGD,95.23,0.11,95.39,0.08\nabsent,06-FGD,1,0,2,0\n";

/// Shares, whole GPUs, whole nodes, CPUs alone.
fn trace() -> String {
    let asks = ["3152,5120,1,810", "11300,49152,1,1000", "11908,47104,1,470", "4000,8192,1,160", "12500,57344,0,0", "88000,262144,8,1000"];
    let mut text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n".to_owned();
    for at in 0..48 {
        let ask = asks[if at % 24 == 7 { 5 } else { at * 5 % 9 % 5 }];
        let spec = if at % 11 == 3 { "T4|P100" } else { "" };
        text += &format!("pod-{at:02},{ask},{spec}\n");
    }
    text
}

fn small() -> (Cluster, Vec<Pod>, Targets) {
    let cluster = Cluster::parse(NODES).unwrap();
    let pods = parse_pods(&trace(), &cluster).unwrap();
    let targets = Targets::of(pods.iter().map(|pod| &pod.demand));
    (cluster, pods, targets)
}

#[test]
fn the_trace_is_read_by_its_columns() {
    let cluster = Cluster::parse(NODES).unwrap();
    assert_eq!((cluster.hosts.len(), cluster.gpu_milli(), cluster.names[4].as_str()), (7, 38_000, "n4"));
    let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\nb,1,2,1,500,T4|X9,LS\na,1,2,0,0,T4,BE\nc,1,2,2,1000,,LS\nd,1,2,1,10,X9,LS\n";
    let pods = parse_pods(text, &cluster).unwrap();
    let names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let fits = |pod: usize| (0..7).filter(|at| cluster.hosts[*at].fits(&pods[pod].demand)).collect::<Vec<_>>();
    assert_eq!((fits(0).len(), fits(1), fits(2).len(), fits(3).len()), (7, vec![4, 5], 7, 0));
    assert!(parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,2,0,0\n", &cluster).unwrap()[0].demand.models == Models::ANY);
    assert!(parse_pods("name,cpu\na,1\n", &cluster).is_err());
    let refused = parse_pods("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,x,2,0,0\n", &cluster).unwrap_err();
    assert!(format!("{refused:#}").contains("\"x\""), "{refused:#}");
}

#[test]
fn arrivals_begin_with_the_trace_in_random_order_and_end_just_below_the_limit() {
    let (cluster, pods, _) = small();
    let asked = |order: &[usize]| order.iter().map(|at| pods[*at].demand.gpu_milli_whole()).sum::<u64>();
    let order = inflated(&pods, cluster.gpu_milli(), 130, 42);
    let mut first = order[..pods.len()].to_vec();
    assert_ne!(first, (0..pods.len()).collect::<Vec<_>>());
    first.sort_unstable();
    assert_eq!(first, (0..pods.len()).collect::<Vec<_>>());
    // A drawn pod's whole demand may go beyond by seven GPUs: only one GPU's part of it is looked at.
    assert!((cluster.gpu_milli() * 13 / 10 - 1_000..cluster.gpu_milli() * 13 / 10 + 7_000).contains(&asked(&order)));
    assert_eq!(order, inflated(&pods, cluster.gpu_milli(), 130, 42));
    assert_ne!(order, inflated(&pods, cluster.gpu_milli(), 130, 43));
    let less = inflated(&pods, cluster.gpu_milli(), 40, 42);
    assert!(asked(&less) <= cluster.gpu_milli() * 4 / 10 && less.len() < pods.len(), "{}", less.len());
    let without: Vec<Pod> = pods.iter().filter(|pod| pod.demand.gpus == 0).cloned().collect();
    assert_eq!(inflated(&without, cluster.gpu_milli(), 130, 42).len(), without.len());
}

#[test]
fn rehearsals_are_drawn_by_the_classes_weights() {
    let (cluster, pods, _) = small();
    let classes = classes(pods.iter().map(|pod| pod.demand));
    let arrivals = drawn(&classes, cluster.gpu_milli() * 1_000, 130, 7);
    for class in &classes {
        let share = arrivals.iter().filter(|demand| **demand == class.demand).count() as f64 / arrivals.len() as f64;
        assert!((share - class.weight as f64 / pods.len() as f64).abs() < 0.01, "{class:?}: {share}");
    }
    let cpus: Vec<_> = classes.iter().filter(|class| class.demand.gpus == 0).copied().collect();
    assert!(drawn(&cpus, 1_000, 130, 7).is_empty());
}

#[test]
fn fragments_are_as_counted_by_hand() {
    let demand = |cpu_milli, gpus, gpu_milli| Demand { cpu_milli, memory_bytes: 0, gpus, gpu_milli, models: Models::ANY };
    let asked = [demand(8_000, 1, 500), demand(8_000, 1, 500), demand(4_000, 2, 1_000), demand(4_000, 0, 0)];
    let targets = Targets::of(&asked);
    let host = |cpu_milli, gpus: &[u16]| Host::new(cpu_milli, 1 << 40, 0, gpus).unwrap();
    // Half the classes use 500 and more; a quarter wants two whole ones; a quarter wants none.
    assert!((targets.fragment(&host(8_000, &[1_000, 1_000])) - 500.0).abs() < 1e-9);
    assert!((targets.fragment(&host(8_000, &[1_000, 300])) - (150.0 + 325.0 + 325.0)).abs() < 1e-9);
    assert!((targets.fragment(&host(5_000, &[1_000, 1_000])) - (1_000.0 + 500.0)).abs() < 1e-9, "no CPUs for a share");
    assert!(targets.fragment(&host(8_000, &[0, 0])).abs() < 1e-9);
}

/// Counts a run anew, by the placements alone: the used percent, averaged over the moments of the last percent that had been asked for.
fn recount(cluster: &Cluster, pods: &[Pod], past: &Past) -> f64 {
    let mut hosts = cluster.hosts.clone();
    let (mut asked, mut moments) = (0, Vec::new());
    for (pod, spot) in &past.placements {
        match spot {
            Some(spot) => assert!(hosts[spot.host].take(&pods[*pod].demand, spot.gpus), "{spot:?}"),
            None => assert!(!hosts.iter().any(|host| host.fits(&pods[*pod].demand))),
        }
        asked += pods[*pod].demand.gpu_milli_whole();
        let idle: u32 = hosts.iter().map(Host::gpu_milli).sum();
        moments.push(((asked as f64 / 380.0).round(), 100.0 - f64::from(idle) / 380.0));
    }
    let last: Vec<f64> = moments.iter().filter(|moment| moment.0 == moments.last().unwrap().0).map(|moment| moment.1).collect();
    last.iter().sum::<f64>() / last.len() as f64
}

#[test]
fn every_policy_places_what_fits_and_what_it_reports_is_what_its_placements_say() {
    let (cluster, pods, targets) = small();
    let prices = Prices::expecting(&classes(pods.iter().map(|pod| pod.demand)));
    for seed in 42..46 {
        let pasts = [
            replay(&cluster, &pods, &targets, seed, |hosts| Packing::new(hosts, prices.clone())),
            replay(&cluster, &pods, &targets, seed, |hosts| Random::new(hosts, seed)),
            replay(&cluster, &pods, &targets, seed, |hosts| Ranked::new(hosts, BestFit)),
            replay(&cluster, &pods, &targets, seed, |hosts| Ranked::new(hosts, Fgd(targets.clone()))),
        ];
        for past in &pasts {
            let used = recount(&cluster, &pods, past);
            assert_eq!(past.refused_wrongly, 0);
            assert!((past.allocated(1_000) - used).abs() < 1e-9, "{} {used}", past.allocated(1_000));
        }
    }
}

#[test]
fn best_fit_takes_the_fullest_and_fgd_of_equals_the_first_in_order() {
    let demand = Demand { cpu_milli: 1_000, memory_bytes: 0, gpus: 1, gpu_milli: 500, models: Models::ANY };
    let host = |gpus: &[u16]| Host::new(32_000, 1 << 40, 0, gpus).unwrap();
    let hosts = vec![host(&[1_000, 1_000]), host(&[1_000, 1_000]), host(&[1_000, 600]), host(&[1_000, 600])];
    let spot = Ranked::new(hosts.clone(), BestFit).seat(&demand).unwrap();
    assert_eq!((spot.host, spot.gpus.positions().collect::<Vec<_>>()), (2, vec![1]));
    let spot = Ranked::new(hosts[..2].to_vec(), Fgd(Targets::of([&demand]))).seat(&demand).unwrap();
    assert_eq!(spot.host, 0);
    assert_ne!(order_of_nodes(100, 42), order_of_nodes(100, 43));
}

fn options(folder: &Path) -> Options {
    Options {
        data: Data { data: Some(folder.to_owned()) },
        variants: Vec::new(),
        seeds: "42-44".to_owned(),
        beside: vec!["random".to_owned(), "bestfit".to_owned(), "fgd".to_owned()],
        rehearsals: 6,
        rehearse_to: 130,
        placements: Some(folder.join("placements.csv")),
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("openb")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join("openb").join(name), text).unwrap();
    write("openb_node_list_gpu_node.csv", NODES);
    write("openb_pod_list_default.csv", &trace());
    write("published_allocation.csv", PUBLISHED);
    folder
}

#[test]
fn the_report_has_its_keys_and_another_program_counts_the_same_from_the_placements() {
    let folder = folder();
    let report = pack::run(&options(folder.path())).unwrap();
    assert_eq!(report.wrong(), &[] as &[String]);
    let figure = |key: &str| report.get(key).unwrap_or_else(|| panic!("no {key}")).clone();
    let allocated = figure("default_allocated_percent").as_f64().unwrap();
    assert_eq!(figure("default_fgd_published"), 95.39);
    assert_eq!(figure("variants_above_fgd_all"), allocated > 95.39);
    assert_eq!((figure("variants_published"), figure("variants_compared")), (2.into(), 1.into()));
    assert_eq!(figure("variants_absent").as_array().unwrap().len(), pack::VARIANTS.len() - 1);
    for key in ["default_fgd_allocated_percent", "default_bestfit_allocated_percent", "decisions_per_s", "decision_p99_us", "learn_s"] {
        assert!(figure(key).as_f64().unwrap() > 0.0, "{key}");
    }
    let fragmented = figure("frag_130").as_f64().unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("check_pack.py");
    let check = |placements: &Path| {
        let mut command = Command::new("python3");
        command.arg(&program).arg(placements).arg("--data").arg(folder.path()).output().unwrap()
    };
    let placements = folder.path().join("placements.csv");
    let output = check(&placements);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for (what, ours) in [("allocated", allocated), ("fragmented", fragmented)] {
        let line = text.lines().find(|line| line.starts_with(&format!("default {what}"))).unwrap();
        let theirs: f64 = line.rsplit_once("130: ").unwrap().1.parse().unwrap();
        assert!((theirs - ours).abs() < 0.002, "{what}: {theirs} {ours}");
    }
    // A placement left out is room that somebody was refused, or a sum that differs; one taken twice is more than there is.
    let written = std::fs::read_to_string(&placements).unwrap();
    let doubled = written.replace(",n1,", ",n0,");
    std::fs::write(&placements, doubled).unwrap();
    assert!(!check(&placements).status.success());
}

#[test]
fn what_is_not_there_is_named() {
    let folder = folder();
    let asked = Options { variants: vec!["gpuspec99".to_owned()], ..options(folder.path()) };
    assert!(format!("{:#}", pack::run(&asked).unwrap_err()).contains("openb_pod_list_gpuspec99.csv"));
    let nowhere = Options { data: Data { data: Some("/nowhere/at/all".into()) }, ..options(folder.path()) };
    assert!(format!("{:#}", pack::run(&nowhere).unwrap_err()).contains("/nowhere/at/all"));
    for wrong in
        [Options { seeds: "x".to_owned(), ..options(folder.path()) }, Options { seeds: "5-4".to_owned(), ..options(folder.path()) }]
    {
        assert!(pack::run(&wrong).is_err());
    }
    assert!(pack::run(&Options { beside: vec!["worst".to_owned()], ..options(folder.path()) }).is_err());
    assert!(Table::parse("a\nb\nc\nx,y\n").is_err());
}
