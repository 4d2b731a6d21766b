"""A worker with the Function shop.reserve. Generate the client first, in this folder:

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I PROTO --python_out=. --grpc_python_out=. PROTO/lockstep/autoflow/v1/autoflow.proto

where PROTO is the folder proto of the repository. Then: WORKER_TOKEN=… python worker.py workflow.example.com:8083 [--plain]

A Function that needs a secret of Lockstep declares the argument with its name, secrets=["key"], and reads call.secrets["key"]: the value of the
credential that the program has named there, if that credential is for the Function (worker://shop.reserve among its URLs). It belongs into no
log and no result.

A call comes at least once: whoever is killed between an effect and its answer is given the call again, under the same id. So the effect is
stored with the id of its call.
"""

import json
import os
import queue
import signal
import sqlite3
import sys
import threading
import time

import grpc

from lockstep.autoflow.v1 import autoflow_pb2 as pb
from lockstep.autoflow.v1 import autoflow_pb2_grpc as rpc

WAREHOUSE = os.environ.get("WAREHOUSE", "warehouse.db")  # a file in place of a warehouse


def reserve(call_id, arguments, secrets):
    """Reserves once for each call, by its id: a call that is repeated, also after this process was killed, finds its number."""
    if "key" in arguments and len(secrets["key"]) < 8:  # a real warehouse would be asked with it
        return pb.WorkResult(call_id=call_id, failure=pb.WorkFailure(code="unauthorized", message="the key is not one of the warehouse"))
    if arguments["count"] > 100:
        return pb.WorkResult(call_id=call_id, failure=pb.WorkFailure(code="sold_out", message="there are not so many"))
    warehouse = sqlite3.connect(WAREHOUSE, timeout=10)
    try:
        with warehouse:  # one transaction: all of it is stored, or nothing
            warehouse.execute("CREATE TABLE IF NOT EXISTS reservation (number INTEGER PRIMARY KEY, call_id TEXT UNIQUE, item TEXT, count INTEGER)")
            warehouse.execute("INSERT OR IGNORE INTO reservation (call_id, item, count) VALUES (?, ?, ?)", (call_id, arguments["item"], arguments["count"]))
            (number,) = warehouse.execute("SELECT number FROM reservation WHERE call_id = ?", (call_id,)).fetchone()
    finally:
        warehouse.close()
    return pb.WorkResult(call_id=call_id, value=json.dumps({"number": "R-%d" % number}).encode())


RESERVE = pb.WorkerFunction(
    name="shop.reserve",
    doc="Reserves items of the warehouse. Answers `{number}`.",
    arguments_schema=json.dumps({
        "type": "object",
        "required": ["item", "count"],
        "properties": {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}, "key": {"type": "string"}},
    }).encode(),
    effect=pb.FUNCTION_EFFECT_READS,
    secrets=["key"],
)


def work(stub, token, stopping):
    """Serves one connection, until it breaks or all calls are answered after stopping was set."""
    to_send = queue.Queue()
    ended = threading.Event()
    to_send.put(pb.WorkRequest(register=pb.RegisterWorker(worker="python", functions=[RESERVE], max_in_flight=4, version="1.0")))
    stream = stub.Work(iter(to_send.get, None), metadata=[("authorization", "Bearer " + token)])

    def beat(interval):
        draining = False
        while not ended.wait(interval):
            to_send.put(pb.WorkRequest(heartbeat=pb.WorkHeartbeat()))
            if stopping.is_set() and not draining:
                draining = True
                to_send.put(pb.WorkRequest(drain=pb.WorkDrain()))

    def carry_out(call):
        try:
            result = reserve(call.call_id, json.loads(call.arguments), call.secrets)
        except Exception as problem:  # the failure of this call, and of no other
            print("call", call.call_id, "failed:", problem, file=sys.stderr)
            result = pb.WorkResult(call_id=call.call_id, failure=pb.WorkFailure(code="internal", message="see the worker's log"))
        to_send.put(pb.WorkRequest(result=result))

    try:
        for message in stream:
            kind = message.WhichOneof("message")
            if kind == "registered":
                interval = message.registered.heartbeat_interval.ToTimedelta().total_seconds()
                threading.Thread(target=beat, args=(interval,), daemon=True).start()
            elif kind == "call":
                threading.Thread(target=carry_out, args=(message.call,), daemon=True).start()
            elif kind == "rejected":
                print("result of", message.rejected.call_id, "rejected:", message.rejected.reason, file=sys.stderr)
            elif kind == "drained":
                return
    finally:
        ended.set()
        to_send.put(None)
        stream.cancel()


def main():
    stopping = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    address, plain = sys.argv[1], "--plain" in sys.argv
    channel = grpc.insecure_channel(address) if plain else grpc.secure_channel(address, grpc.ssl_channel_credentials())
    stub = rpc.AutoFlowStub(channel)
    while not stopping.is_set():
        try:
            work(stub, os.environ["WORKER_TOKEN"], stopping)
        except grpc.RpcError as problem:
            if problem.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                sys.exit(problem.details())
            print("the connection was lost:", problem.details(), file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    main()
