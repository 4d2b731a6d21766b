"""A client of the workflow service in Python. Generate it first, in this folder:

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I PROTO --python_out=. --grpc_python_out=. PROTO/lockstep/autoflow/v1/autoflow.proto

where PROTO is the folder proto of the repository. Then:

    LOCKSTEP_TOKEN=… python client.py workflow.example.com:8083 greeting-1 ../greet.star [--plain]
"""

import json
import os
import sys

import grpc
from google.protobuf.duration_pb2 import Duration

from lockstep.autoflow.v1 import autoflow_pb2 as pb
from lockstep.autoflow.v1 import autoflow_pb2_grpc as rpc


def call(stub, workflow_id, request_id, data, credentials):
    """Sends a message to the inbox of a workflow and returns the answer. Repeated with the same request_id, it is the same message."""
    answer = stub.CallChannel(
        pb.CallChannelRequest(workflow_id=workflow_id, request_id=request_id, data=json.dumps(data).encode()),
        metadata=credentials, timeout=60,
    )
    if answer.error:
        raise RuntimeError(answer.error)
    return json.loads(answer.value)


def main():
    address, workflow_id, program = sys.argv[1:4]
    channel = grpc.insecure_channel(address) if "--plain" in sys.argv else grpc.secure_channel(address, grpc.ssl_channel_credentials())
    stub = rpc.AutoFlowStub(channel)
    credentials = [("authorization", "Bearer " + os.environ["LOCKSTEP_TOKEN"])]
    with open(program, "rb") as file:
        started = stub.StartWorkflow(pb.StartWorkflowRequest(workflow_id=workflow_id, starlark=file.read()), metadata=credentials)
    print("started" if started.created else "already there")
    print(call(stub, workflow_id, "first", "Ada", credentials))
    print(call(stub, workflow_id, "last", "end", credentials))
    for news in stub.WatchWorkflow(pb.WatchWorkflowRequest(workflow_id=workflow_id), metadata=credentials):
        if news.HasField("workflow"):
            state = news.workflow.state
    print(pb.WorkflowState.Name(state))
    # Waiting for the end in one call, without a stream.
    run = stub.GetWorkflow(pb.GetWorkflowRequest(workflow_id=workflow_id, wait=Duration(seconds=20)), metadata=credentials).workflow
    print("greeted", run.status["greeted"])
    try:
        stub.StartWorkflow(pb.StartWorkflowRequest(workflow_id=workflow_id, starlark=b"pass"), metadata=credentials)
    except grpc.RpcError as refused:
        print(refused.code().name)  # another program under the same id


if __name__ == "__main__":
    main()
