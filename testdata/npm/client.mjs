// A client of the official TypeScript SDK: it uses everything of one server and prints what it got, one JSON line each.
//
//   node client.mjs stdio COMMAND ARG…
//   node client.mjs http URL TOKEN
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

const [how, ...rest] = process.argv.slice(2);
const transport = how === "stdio"
  ? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env, stderr: "inherit" })
  : new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${rest[1]}` } } });

const client = new Client({ name: "ts", version: "1" },
  { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } });
const asked = [];
client.setRequestHandler(types.CreateMessageRequestSchema, async (r) => {
  asked.push({ sampling: r.params });
  return { model: "m-1", role: "assistant", stopReason: "endTurn", content: { type: "text", text: "sampled" } };
});
client.setRequestHandler(types.ElicitRequestSchema, async (r) => {
  asked.push({ elicit: r.params.message, schema: r.params.requestedSchema });
  return { action: "accept", content: { check: true, name: "Ada" } };
});
client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: "file:///home/ada", name: "home" }] }));

// next is settled by the next notification of a kind.
const next = (schema) => new Promise((resolve) => client.setNotificationHandler(schema, (n) => resolve(n.params ?? {})));
const say = (what, value) => console.log(JSON.stringify([what, value]));
const attempt = (what, promise) => promise.then((v) => say(what, v), (e) => say(what, { error: e.code, message: e.message, data: e.data }));

await client.connect(transport);
say("capabilities", Object.keys(client.getServerCapabilities()).sort());
say("instructions", client.getInstructions());
await client.ping();

const { tools } = await client.listTools();
say("tools", tools.sort((a, b) => (a.name < b.name ? -1 : 1)));
for (const [name, args] of [
  ["echo", { message: "hello" }], ["echo", {}], ["get-sum", { a: 2, b: 3 }], ["get-tiny-image", {}],
  ["get-annotated-message", { messageType: "error", includeImage: true }], ["get-structured-content", { location: "New York" }],
  ["get-resource-links", { count: 2 }], ["get-resource-reference", { resourceType: "Text", resourceId: 1 }],
  ["trigger-sampling-request", { prompt: "hi", maxTokens: 5 }], ["trigger-elicitation-request", {}], ["get-roots-list", {}],
]) await attempt(`call ${name}`, client.callTool({ name, arguments: args }).then((r) => JSON.parse(JSON.stringify(r).replace(/\d\d?:\d\d:\d\d[^"\\]*/g, "TIME"))));
say("asked", asked);

const progress = [];
await attempt("long", client.callTool({ name: "trigger-long-running-operation", arguments: { duration: 0.2, steps: 4 } }, undefined,
  { onprogress: (p) => progress.push(p) }));
say("progress", progress.length > 0 && progress.every((p) => p.total === 4)); // the last one may come with the answer

const cancel = new AbortController();
const cut = client.callTool({ name: "trigger-long-running-operation", arguments: { duration: 60, steps: 600 } }, undefined,
  { signal: cancel.signal, onprogress: () => cancel.abort("enough") });
await cut.then(() => say("cut", "answered"), (e) => say("cut", String(e.message ?? e)));

await attempt("resources", client.listResources());
await attempt("templates", client.listResourceTemplates());
await attempt("read", client.readResource({ uri: "demo://resource/dynamic/text/1" }).then((r) => r.contents.map(({ uri, mimeType }) => ({ uri, mimeType }))));
await attempt("read none", client.readResource({ uri: "demo://nowhere" }));
await attempt("subscribe", client.subscribeResource({ uri: "demo://resource/dynamic/text/1" }));
const updated = next(types.ResourceUpdatedNotificationSchema);
await client.callTool({ name: "toggle-subscriber-updates", arguments: {} });
say("updated", await updated);
await client.callTool({ name: "toggle-subscriber-updates", arguments: {} });
await attempt("unsubscribe", client.unsubscribeResource({ uri: "demo://resource/dynamic/text/1" }));

await attempt("prompts", client.listPrompts());
await attempt("prompt", client.getPrompt({ name: "args-prompt", arguments: { city: "Bern", state: "BE" } }));
await attempt("prompt none", client.getPrompt({ name: "nothing" }));
await attempt("complete", client.complete({ ref: { type: "ref/prompt", name: "completable-prompt" }, argument: { name: "department", value: "E" } }));

await attempt("level", client.setLoggingLevel("debug"));
const logged = next(types.LoggingMessageNotificationSchema);
await client.callTool({ name: "toggle-simulated-logging", arguments: {} });
say("logged", Object.keys(await logged).sort());
await client.callTool({ name: "toggle-simulated-logging", arguments: {} });
await client.close();
