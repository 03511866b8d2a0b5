"""A stdio MCP server that misbehaves in the way its first argument names. Standard library only."""
import json
import os
import subprocess
import sys
import threading
import time

MODE, ARGS = sys.argv[1], sys.argv[2:]
OBJECT = {"type": "object", "properties": {}}
LOCK = threading.Lock()
STATE = {"gone": False}


def send(**message):
    with LOCK:
        sys.stdout.write(json.dumps(dict(jsonrpc="2.0", **message)) + "\n")
        sys.stdout.flush()


def answer(id, text, **more):
    send(id=id, result=dict(content=[{"type": "text", "text": text}], **more))


def mark(word):
    with open(ARGS[0], "a") as f:
        f.write(word + "\n")


def tool(name, schema=OBJECT, **more):
    return dict(name=name, description="a tool", inputSchema=schema, **more)


def deep(n):
    schema = {"type": "string"}
    for _ in range(n):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


LISTS = {
    "schemas": [
        tool("good", {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}),
        tool("zz-good", annotations={"readOnlyHint": True}),
        tool("string-schema", {"type": "string"}),
        tool("null-schema", None),
        tool("list-schema", []),
        tool("bad-type", {"type": "object", "properties": {"a": {"type": 7}}}),
        tool("bad-pattern", {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}),
        tool("remote-ref", {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}),
        tool("missing-ref", {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}),
        tool("old-dialect", {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}),
        tool("too-deep", deep(60)),
        tool("deep-enough", deep(20)),
        tool("twice"),
        tool("twice", {"type": "object", "properties": {"b": {}}}),
        tool(""),
        tool("x" * 129),
        tool("new\nline"),
        tool("bidi\u202ename"),
        tool(7),
        tool("bad-description") | {"description": {"a": 1}},
        "no tool at all",
    ],
    "traits": [
        tool("full", _meta={"writ/tool_traits": {"strategy": ["neutral"], "execution": {
            "trigger": "tool_call_complete", "concurrency": "parallel_with_generation",
            "result_dependency": "detached", "replay": "at_most_once_per_round"}}}),
        tool("plain", _meta={"tool_traits": {"strategy": [" Exploration ", "exploitation", "unknown"]}}),
        tool("bad-strategy", _meta={"tool_traits": {"strategy": ["explore"]}}),
        tool("bad-execution", _meta={"tool_traits": {"strategy": ["neutral"], "execution": {"trigger": "now"}}}),
        tool("bad-field", _meta={"tool_traits": {"execution": {"queue": "x"}}}),
        tool("no-mapping", _meta={"tool_traits": "neutral"}),
        tool("extra", _meta={"tool_traits": {"strategy": "neutral", "color": "red"}}),
        tool("silent", _meta={"other": 1}),
    ],
}


def lists(id, params):
    if MODE == "pages":
        total, size, start = int(ARGS[0]), int(ARGS[1]), int(params.get("cursor") or 0)
        more = {"nextCursor": str(start + size)} if start + size < total else {}
        send(id=id, result=dict(tools=[tool("t%05d" % i, {"type": "object"}) for i in range(start, min(start + size, total))], **more))
    elif MODE == "empty-pages":
        send(id=id, result={"tools": [], "nextCursor": str(int(params.get("cursor") or 0) + 1)})
    elif MODE == "same-page":
        send(id=id, result={"tools": [tool("t")] if not params.get("cursor") else [], "nextCursor": "again"})
    elif MODE == "list-error":
        send(id=id, error={"code": -32603, "message": "the database is down"})
    elif MODE == "no-list":
        send(id=id, result={"things": []})
    elif MODE == "fat-schemas":
        fat = {"type": "object", "description": "x" * 600000}
        send(id=id, result={"tools": [tool("t%d" % i, fat) for i in range(8)]})
    elif MODE == "vanish":
        names = ["remove", "stays"] if STATE["gone"] else ["goes", "remove", "stays"]
        mark("listed")
        send(id=id, result={"tools": [tool(n) for n in names]})
    else:
        send(id=id, result={"tools": LISTS.get(MODE, [tool("echo")])})


def call(id, params):
    name = params["name"]
    if name == "echo":
        answer(id, json.dumps({"arguments": params.get("arguments"), "_meta": params.get("_meta"), "env": dict(os.environ),
                               "pid": os.getpid(), "pgid": os.getpgid(0)}))
    elif name == "die":  # the effect, then the end
        mark("effect")
        os._exit(7)
    elif name == "die-loudly":
        print("out of memory", file=sys.stderr, flush=True)
        os._exit(1)
    elif name == "half":
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[' % id)
        sys.stdout.flush()
        os._exit(0)
    elif name == "answer-and-die":
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}]}}))
        sys.stdout.flush()
        os._exit(0)
    elif name == "close-stdout":
        os.close(1)
    elif name == "hang":
        mark("started")
    elif name == "huge":
        answer(id, "x" * params["arguments"]["bytes"])
    elif name == "huge-id-last":
        big = json.dumps("x\\\"," * (params["arguments"]["bytes"] // 4))
        sys.stdout.write('{"jsonrpc":"2.0","result":{"id":99,"content":[{"type":"text","text":%s}]},"id":%d}\n' % (big, id))
        sys.stdout.flush()
    elif name == "deep":
        n = params["arguments"]["levels"]
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}\n' % (id, "[" * n + "]" * n))
        sys.stdout.flush()
    elif name == "rpc-error":
        send(id=id, error={"code": params["arguments"]["code"], "message": "no", "data": {"a": 1}})
    elif name == "raw":
        send(id=id, result=params["arguments"]["result"])
    elif name == "remove":
        STATE["gone"] = True
        for _ in range(4):
            send(method="notifications/tools/list_changed")
        answer(id, "removed")
    elif name == "ask":
        STATE["answer-to"] = id
        send(id="q1", method=params["arguments"]["method"], params={"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": OBJECT})
    elif name == "grandchild":
        p = subprocess.Popen(["sleep", "1000"])
        answer(id, str(p.pid))
    elif name == "input-required":
        mark("asked")
        send(id=id, result={"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": {}}}})
    else:
        send(id=id, error={"code": -32602, "message": "unknown tool: " + name})


def handle(m):
    method, id, params = m.get("method"), m.get("id"), m.get("params") or {}
    if MODE == "modern":
        if method == "initialize":
            send(id=id, error={"code": -32601, "message": "initialize is not known"})
            return
        if method == "server/discover":
            send(id=id, result={"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete",
                                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}}})
            return
    elif "greeted" not in STATE and method != "initialize":
        os._exit(5)  # as strict servers do
    STATE["greeted"] = True
    if method == "initialize":
        if MODE == "slow":
            while not os.path.exists(ARGS[0]):
                time.sleep(0.01)
        if MODE == "no-protocol":
            send(id=id, result={"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}})
            return
        send(id=id, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {"listChanged": True}},
                            "serverInfo": {"name": "hostile", "version": "1"}, "_client": params})
        STATE["client"] = params
    elif method == "tools/list":
        lists(id, params)
    elif method == "tools/call":
        call(id, params)
    elif method == "notifications/cancelled":
        if ARGS:
            mark("cancelled")
    elif method is None and "answer-to" in STATE:
        answer(STATE.pop("answer-to"), json.dumps({"reply": m.get("error") or m.get("result"), "client": STATE["client"]}))


if MODE == "exit":
    print("cannot find module 'x'", file=sys.stderr, flush=True)
    sys.exit(3)
if MODE == "mute":
    time.sleep(1000)
if MODE == "garbage":
    print("Welcome to the server!\n\n{not json}\n[]\n{\"jsonrpc\":\"1.0\"}\n\x00\xff", flush=True)
if MODE == "chatty":
    for i in range(20000):
        print("noise %d" % i, file=sys.stderr)
if MODE == "immortal":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    if MODE == "garbage":
        print("working ...", flush=True)
    handle(json.loads(line))
    if MODE == "no-read" and json.loads(line).get("method") == "tools/list":
        time.sleep(1000)
if MODE == "immortal":
    while True:
        time.sleep(1)
