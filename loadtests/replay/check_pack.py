#!/usr/bin/env python3
"""Replays placements that `footplate-replay pack --placements FILE` wrote, against the trace, and computes the paper's figures anew.

Shares no code with what it checks. A placement that takes more than there is, or a refusal of what fits, is an error. The figures are those
of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): the allocated share of GPUs when 130 % had been asked for, and the expected
fragment for a pod drawn from the most frequent classes that make up 95 % of the trace.

    check_pack.py FILE --data DIR [--reference fgd_ref.py]

With --reference the fragments are computed a second time, by that program's `frag` and `typical`, and must agree.
"""

import argparse
import csv
import importlib.util
import pathlib
import statistics
import sys
from collections import Counter, defaultdict

WHOLE = 1000
SHOWN = (50, 80, 90, 100, 130)


class Node:
    """What is left on a node."""

    def __init__(self, row):
        self.cpu = int(row["cpu_milli"])
        self.memory = int(row["memory_mib"])
        self.gpus = [WHOLE] * int(row["gpu"])
        self.model = row["model"]

    def has_room(self, pod):
        """Whether a pod fits: real GPUs, one by one."""
        cpu, memory, count, part, models = pod
        if cpu > self.cpu or memory > self.memory:
            return False
        if count == 0:
            return True
        return (not models or self.model in models) and sum(left >= part for left in self.gpus) >= count

    def take(self, pod, positions):
        """Takes a pod's part of these GPUs; false where that cannot be."""
        cpu, memory, count, part, _ = pod
        if not self.has_room(pod) or len(set(positions)) != count or any(self.gpus[at] < part for at in positions):
            return False
        self.cpu -= cpu
        self.memory -= memory
        for at in positions:
            self.gpus[at] -= part
        return True

    def fragment(self, targets):
        """The thousandths of idle GPUs that a pod of the targets is expected not to be able to use."""
        idle = sum(self.gpus)
        expected = 0.0
        for (cpu, part, count, models), frequency in targets:
            usable = 0
            if count and self.cpu >= cpu and (not models or self.model in models):
                open_gpus = [left for left in self.gpus if left >= part]
                usable = sum(open_gpus) if len(open_gpus) >= count else 0
            expected += frequency * (idle - usable)
        return expected


def read_pods(path):
    """The pods of a trace by name: CPU, memory, GPUs, part of each, models (empty: any)."""
    pods = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            count = int(row["num_gpu"])
            part = min(int(row["gpu_milli"]), WHOLE) if count else 0
            models = frozenset(filter(None, (row.get("gpu_spec") or "").split("|"))) if count else frozenset()
            pods[row["name"]] = (int(row["cpu_milli"]), int(row["memory_mib"]), count, part, models)
    return pods


def frequent(pods):
    """The most frequent classes that make up 95 % of the pods, with their frequencies among these."""
    counts = Counter((cpu, part, count, models) for cpu, _, count, part, models in pods.values())
    ranked = sorted(counts.items(), key=lambda one: (one[1], one[0][:3], sorted(one[0][3])), reverse=True)
    chosen, seen = [], 0
    for one, count in ranked:
        if seen >= 0.95 * len(pods):
            break
        chosen.append((one, count))
        seen += count
    return [(one, count / seen) for one, count in chosen]


class Reference:
    """The same fragments by another's program."""

    def __init__(self, path, folder, variant):
        import numpy

        spec = importlib.util.spec_from_file_location("reference", path)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.module.D = str(folder)
        *_, self.models = self.module.load_nodes()
        self.classes, self.frequencies = self.module.typical(self.module.load_pods(variant, self.models))
        self.numpy = numpy

    def fragment(self, node):
        """Of one node."""
        gpus = self.numpy.full(8, -1, self.numpy.int64)
        gpus[: len(node.gpus)] = node.gpus
        return self.module.frag(node.cpu, gpus, len(node.gpus), self.models[node.model], self.classes, self.frequencies)


def replay(arrivals, rows, pods, targets, reference):
    """The allocated and fragmented percent, by the percent that had been asked for, and what is wrong."""
    nodes = {row["sn"]: Node(row) for row in rows}
    whole = sum(sum(node.gpus) for node in nodes.values())
    fragments = {name: node.fragment(targets) for name, node in nodes.items()}
    of_all = sum(fragments.values())
    asked = used = refused = 0
    wrong, moments = [], defaultdict(list)
    for arrival, pod_name, node_name, gpus in arrivals:
        pod = pods[pod_name]
        size = pod[2] * pod[3]
        asked += size
        if node_name:
            node = nodes[node_name]
            if not node.take(pod, [int(at) for at in gpus.split("|") if at]):
                wrong.append(f"arrival {arrival}: {pod_name} does not fit on {node_name} [{gpus}]")
                continue
            used += size
            fragment = node.fragment(targets)
            if reference and abs(reference.fragment(node) - fragment) > 1e-6:
                wrong.append(f"arrival {arrival}: {node_name} is fragmented by {fragment}, the reference says {reference.fragment(node)}")
            of_all += fragment - fragments[node_name]
            fragments[node_name] = fragment
        else:
            refused += 1
            if any(node.has_room(pod) for node in nodes.values()):
                wrong.append(f"arrival {arrival}: {pod_name} was refused though there was room")
        moments[round(100 * asked / whole)].append((100 * used / whole, 100 * of_all / whole))
    means = {}
    for percent in SHOWN:
        # Of a small cluster no moment may be at just this percent.
        nearest = max((there for there in moments if there <= percent), default=None)
        if nearest is not None:
            means[percent] = tuple(statistics.fmean(column) for column in zip(*moments[nearest]))
    return means, refused, wrong


def main():
    """Reads, replays, prints; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("placements", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="the folder of the traces, with openb/ in it")
    parser.add_argument("--reference", type=pathlib.Path, help="a program with the functions `typical` and `frag` to compare with")
    arguments = parser.parse_args()
    folder = arguments.data / "openb"
    with open(folder / "openb_node_list_gpu_node.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    runs = defaultdict(list)
    with open(arguments.placements, newline="") as file:
        for row in csv.DictReader(file):
            runs[row["variant"], int(row["seed"])].append((int(row["arrival"]), row["pod"], row["node"], row["gpus"]))
    figures, failed = defaultdict(list), False
    for (variant, seed), arrivals in runs.items():
        pods = read_pods(folder / f"openb_pod_list_{variant}.csv")
        reference = Reference(arguments.reference, folder, variant) if arguments.reference else None
        means, refused, wrong = replay(sorted(arrivals), rows, pods, frequent(pods), reference)
        shown = " ".join(f"{percent}%: {allocated:.3f}/{fragmented:.3f}" for percent, (allocated, fragmented) in means.items())
        print(f"{variant} seed {seed}: {len(arrivals)} arrivals, {refused} refused; allocated/fragmented % at {shown}")
        for line in wrong[:5]:
            print(f"  WRONG {line}")
        failed |= bool(wrong)
        figures[variant].append(means)
    for variant, of_runs in figures.items():
        for what, at in (("allocated", 0), ("fragmented", 1)):
            by_percent = {percent: statistics.fmean(means[percent][at] for means in of_runs) for percent in of_runs[0]}
            print(f"{variant} {what} %, mean of {len(of_runs)}: " + " ".join(f"{percent}: {mean:.3f}" for percent, mean in by_percent.items()))
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
