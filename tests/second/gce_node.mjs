// GCE by Google's client for Node: `list`, `describe` or `delete` NAME ZONE. NODE_FOLDER holds its node_modules.
import { createRequire } from "node:module";
import { join } from "node:path";

const required = createRequire(join(process.env.NODE_FOLDER, "here.js"));
const { InstancesClient, ZoneOperationsClient } = required("@google-cloud/compute");
const { PassThroughClient } = required("google-auth-library");

const url = new URL(process.env.LEDGER_GCE_ENDPOINT);
const project = process.env.GCP_PROJECT;
const options = {
  fallback: true,
  protocol: "http",
  apiEndpoint: url.hostname,
  port: Number(url.port),
  projectId: project,
  authClient: new PassThroughClient(),
};
const instances = new InstancesClient(options);
const operations = new ZoneOperationsClient(options);

const told = (row) => ({ id: String(row.id), name: row.name, zone: row.zone.split("/").pop(), status: row.status });

async function main(verb, name, zone) {
  const where = { project, zone, instance: name };
  if (verb === "list") {
    const found = [];
    for await (const [, held] of instances.aggregatedListAsync({ project, maxResults: 2 })) {
      found.push(...(held.instances ?? []).map(told));
    }
    return found;
  }
  try {
    if (verb === "describe") return told((await instances.get(where))[0]);
    let operation = (await instances.delete(where))[0].latestResponse;
    while (operation.status !== "DONE") {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      [operation] = await operations.get({ project, zone, operation: operation.name });
    }
    return operation.error?.errors?.length ? operation.error : "deleted";
  } catch (error) {
    if (error.code === 5 || error.code === 404) return null;
    throw error;
  }
}

console.log(JSON.stringify(await main(...process.argv.slice(2))));
