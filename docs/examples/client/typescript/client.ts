// A client of the workflow service in TypeScript, for Node.js 20. Generate and build it first, in this folder; protoc is Debian's
// protobuf-compiler:
//
//     npm ci && mkdir -p generated && npm run generate && npm run build
//
// Then: LOCKSTEP_TOKEN=… node build/client.js workflow.example.com:8083 greeting-1 ../greet.star [--plain]

import { readFile } from "node:fs/promises";
import { Code, ConnectError, createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { AutoFlow, WorkflowState } from "./generated/lockstep/autoflow/v1/autoflow_pb.js";

const [address, workflowId, program] = process.argv.slice(2);
if (!address || !workflowId || !program) {
  throw new Error("expected an address, the id of a workflow, and a program");
}

const authorized: Interceptor = (next) => (request) => {
  request.header.set("authorization", "Bearer " + process.env.LOCKSTEP_TOKEN);
  return next(request);
};
const scheme = process.argv.includes("--plain") ? "http" : "https";
const client = createClient(AutoFlow, createGrpcTransport({ baseUrl: `${scheme}://${address}`, interceptors: [authorized] }));

/** Sends a message to the inbox of a workflow and returns the answer. Repeated with the same requestId, it is the same message. */
async function call(client: Client<typeof AutoFlow>, workflowId: string, requestId: string, data: unknown): Promise<unknown> {
  const answer = await client.callChannel({ workflowId, requestId, data: new TextEncoder().encode(JSON.stringify(data)) });
  if (answer.error) {
    throw new Error(answer.error);
  }
  return JSON.parse(new TextDecoder().decode(answer.value));
}

const started = await client.startWorkflow({ workflowId, starlark: await readFile(program) });
console.log(started.created ? "started" : "already there");
console.log(await call(client, workflowId, "first", "Ada"));
console.log(await call(client, workflowId, "last", "end"));

let state = WorkflowState.UNSPECIFIED;
for await (const { news } of client.watchWorkflow({ workflowId })) {
  if (news.case === "workflow") {
    state = news.value.state;
  }
}
console.log("WORKFLOW_STATE_" + WorkflowState[state]);

// Waiting for the end in one call, without a stream.
const { workflow } = await client.getWorkflow({ workflowId, wait: { seconds: 20n } });
console.log("greeted", workflow?.status["greeted"]);
try {
  await client.startWorkflow({ workflowId, starlark: new TextEncoder().encode("pass") });
} catch (refused) {
  console.log(Code[ConnectError.from(refused).code]); // another program under the same id
}
