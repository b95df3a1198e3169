"""Waits for a run, holds a metric against a number, and makes the version champion: over gRPC, without the footplate binary.

    python client.py RUN METRIC MIN MODEL ARTIFACT

It needs grpcio and the stubs of the API on PYTHONPATH (docs/guides/ci.md makes them). Exit codes are those of the command line.
"""

import math
import os
import sys
import time

import grpc

from footplate.api.v1 import model_pb2, model_pb2_grpc, run_pb2, run_pb2_grpc
from footplate.types.v1 import run_pb2 as types_pb2

DONE, FAILED, NOT_FOUND, REFUSED, UNAVAILABLE, TIMED_OUT, RUN_FAILED, CANCELLED, FALLS_SHORT = 0, 1, 3, 4, 5, 6, 7, 8, 9

PROJECT = os.environ.get("FOOTPLATE_PROJECT", "default")
CALLER = [("authorization", "Bearer " + os.environ.get("FOOTPLATE_TOKEN", ""))]
PATIENCE_S = 3600.0
ROUND_S = 25.0  # the longest that one call waits; a call is given some seconds more
CALL_S = 10.0


def call(method, request, seconds=CALL_S):
    return method(request, timeout=seconds, metadata=CALLER)


def wait(runs, run_id):
    """The run once it is sealed; None when that takes too long."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        request = run_pb2.WaitRunRequest(project=PROJECT, run_id=run_id, timeout_ms=int(ROUND_S * 1000))
        answer = call(runs.WaitRun, request, ROUND_S + CALL_S)
        if answer.done:
            return answer.run
    return None


def judge(run, metric, least):
    """The exit code, and why."""
    ends = {types_pb2.OUTCOME_FAILED: RUN_FAILED, types_pb2.OUTCOME_CANCELLED: CANCELLED}
    if run.outcome != types_pb2.OUTCOME_SUCCEEDED:
        return ends.get(run.outcome, FAILED), "the run did not succeed: " + (run.message or run.cause)
    if not run.seal_complete:
        return REFUSED, "the record is incomplete: " + ", ".join(run.seal_missing)
    values = {latest.name: latest.value for latest in run.latest if latest.rank == 0}
    if metric not in values:
        return NOT_FOUND, f"no metric {metric}; the run has: " + ", ".join(sorted(values))
    value = values[metric]
    if not math.isfinite(value):
        return REFUSED, f"{metric} is {value}"
    if value < least:
        return FALLS_SHORT, f"{metric} is {value}, wanted: at least {least}"
    return DONE, f"{metric} is {value}, at least {least}"


def make_champion(registry, run_id, model, artifact):
    # The key makes a repeated step find its version again.
    registered = call(registry.RegisterVersion, model_pb2.RegisterVersionRequest(
        project=PROJECT, model=model, run_id=run_id, path=artifact, request_id=f"ci-{run_id}"))
    call(registry.SetAlias, model_pb2.SetAliasRequest(
        project=PROJECT, model=model, alias="champion", version=registered.version, reason="passed the gate"))
    return registered.version


def main(run_id, metric, least, model, artifact):
    address = os.environ["FOOTPLATE_ADDR"]
    with grpc.insecure_channel(address) as channel:
        try:
            run = wait(run_pb2_grpc.RunServiceStub(channel), run_id)
            if run is None:
                return TIMED_OUT, "the run is not sealed yet; it goes on"
            code, why = judge(run, metric, float(least))
            if code == DONE:
                version = make_champion(model_pb2_grpc.RegistryServiceStub(channel), run_id, model, artifact)
                why += f"; models:/{model}/{version} is champion"
            return code, why
        except grpc.RpcError as error:
            ends = {grpc.StatusCode.NOT_FOUND: NOT_FOUND, grpc.StatusCode.UNAVAILABLE: UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED: TIMED_OUT, grpc.StatusCode.INTERNAL: FAILED}
            return ends.get(error.code(), REFUSED), error.details()


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: client.py RUN METRIC MIN MODEL ARTIFACT")
    exit_code, told = main(*sys.argv[1:])
    print(told, file=sys.stderr if exit_code else sys.stdout)
    sys.exit(exit_code)
