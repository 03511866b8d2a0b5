# The worker: imports one Python file and serves its tools as an MCP server over stdin and stdout. Standard library
# only, Python 3.9 and newer. Arguments: the file, the address-space limit in bytes (0 = none). common.py, hints.py
# and results.py run before this.
import asyncio
import atexit
import collections.abc
import contextvars
import enum
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import pathlib
import queue
import sys
import threading
import time
import traceback
import typing

CALL = contextvars.ContextVar("writ_call", default=None)
KDCUBE = "kdcube_ai_app.apps.chat.sdk.runtime.tool_traits"


def log(*words):
    print("writ worker:", *words, file=sys.stderr, flush=True)


# ---- stand-ins -----------------------------------------------------------------------------------------------------

def kernel_function(func=None, name=None, description=None, **_):
    """Marks a function as Semantic Kernel's decorator of this name does."""
    def mark(f):
        f.__kernel_function__ = True
        f.__kernel_function_name__ = name or f.__name__
        f.__kernel_function_description__ = description or f.__doc__ or ""
        return f
    return mark(func) if callable(func) else mark


def tool_trait(strategy=None, execution=None, **extra):
    """Puts traits on a function as KDCube's decorator of this name does; stacked ones add up."""
    given = dict(extra)
    if strategy is not None:
        given["strategy"] = as_list(strategy)
    if execution is not None:
        given["execution"] = execution

    def mark(f):
        f.__kdcube_tool_traits__ = merge_traits(getattr(f, "__kdcube_tool_traits__", None) or {}, given)
        return f
    return mark


def idempotency_key():
    """The key of the running call: the same for a repeat of the same action. None outside of a call."""
    call = CALL.get()
    return call.get("writ/key") if call else None


def tool_call_id():
    """The id of the running call. None outside of a call."""
    call = CALL.get()
    return call.get("writ/tool_call_id") if call else None


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides exactly the modules below, each only where the real one cannot be imported: it stands last."""

    def __init__(self):
        self.modules = {"semantic_kernel": {}, "semantic_kernel.functions": {"kernel_function": kernel_function},
                        "writ_tool": {"idempotency_key": idempotency_key, "tool_call_id": tool_call_id},
                        KDCUBE: {"tool_trait": tool_trait}}
        parts = KDCUBE.split(".")
        for i in range(1, len(parts)):
            self.modules.setdefault(".".join(parts[:i]), {})

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        top = sys.modules.get(name.split(".")[0])
        if "." in name and (top is None or not isinstance(getattr(top.__spec__, "loader", None), StandIns)):
            return None  # the real package is there; what it lacks is its own affair
        package = any(m.startswith(name + ".") for m in self.modules)
        return importlib.machinery.ModuleSpec(name, self, is_package=package)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(self.modules[module.__name__])


# ---- tools ---------------------------------------------------------------------------------------------------------

class Tool:
    """One decorated function, bound to its instance when it is a method."""

    def __init__(self, func, owner=None, mode="function", instance=None):
        self.func, self.owner, self.mode, self.instance = func, owner, mode, instance
        raw = inspect.unwrap(func)
        self.name = getattr(func, "__kernel_function_name__", None) or func.__name__
        self.hints = hints_of(raw)
        parameters = list(inspect.signature(raw).parameters.values())
        if mode in ("method", "class"):
            parameters = parameters[1:]
        self.parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self.extra = any(p.kind == p.VAR_KEYWORD for p in parameters)

    def entry(self):
        params = []
        for p in self.parameters:
            schema, text = Hints.schema(self.hint(p))
            out = Param(p.name, schema, text, has_default=p.default is not p.empty)
            if out.has_default:
                value = p.default.value if isinstance(p.default, enum.Enum) else p.default
                value = as_list(value) if isinstance(value, (tuple, set, frozenset)) else value
                try:
                    json.dumps(value, allow_nan=False)
                    out.default, out.default_known = value, True
                except (TypeError, ValueError, RecursionError):
                    pass
            params.append(out)
        doc = inspect.unwrap(self.func).__doc__ or ""
        given = getattr(self.func, "__kernel_function_description__", "") or ""
        description = inspect.cleandoc(given) if given == doc else given
        traits = getattr(self.func, "__kdcube_tool_traits__", None) or {}
        return tool(self.name, describe(description, doc), function_schema(params, doc, self.extra), plain_traits(traits))

    def hint(self, p):
        if p.name in self.hints:
            return self.hints[p.name]
        return p.annotation if p.annotation is not p.empty and not isinstance(p.annotation, str) else typing.Any

    def bind(self, given):
        args, named = [], dict(given)
        for p in self.parameters:
            if p.name not in named:
                continue
            try:
                value = Hints.convert(named[p.name], self.hint(p))
            except Exception as e:
                raise ValueError("argument %s: %s" % (p.name, e)) from None
            if p.kind == p.POSITIONAL_ONLY:
                args.append(value)
                del named[p.name]
            else:
                named[p.name] = value
        target = self.func
        if self.mode == "method":
            target = target.__get__(self.instance())
        elif self.mode == "class":
            target = target.__get__(self.owner)
        return target, args, named


def plain_traits(traits):
    out = {}
    for k, v in dict(traits).items():
        if k == "strategy":
            out[k] = [x.value if isinstance(x, enum.Enum) else x for x in as_list(v)]
        else:
            out[k] = dict(v) if isinstance(v, collections.abc.Mapping) else v
    try:
        json.dumps(out, allow_nan=False)
    except (TypeError, ValueError):
        return {"strategy": repr(traits)}  # no value there is: reported, and unknown
    return out


def decorated(f):
    return callable(f) and getattr(f, "__kernel_function__", False) is True


def decorated_in(cls):
    """(function, mode) of every decorated one in the body of a class."""
    for attr in list(vars(cls).values()):
        mode = "static" if isinstance(attr, staticmethod) else "class" if isinstance(attr, classmethod) else "method"
        for f in (getattr(attr, "__func__", None), attr):
            if f is not None and decorated(f):
                yield f, mode
                break


def find_tools(module):
    """(tools in order of definition, problems)"""
    tools, problems, seen = [], [], set()
    for name, obj in list(vars(module).items()):
        if getattr(obj, "__module__", None) != module.__name__ or id(obj) in seen:
            continue
        seen.add(id(obj))
        if isinstance(obj, type):
            found = list(decorated_in(obj))
            instance = instance_of(module, obj) if found else None
            for f, mode in found:
                if instance is not None or mode != "method":
                    tools.append(Tool(f, obj, mode, instance))
                else:
                    problems.append(problem(getattr(f, "__kernel_function_name__", None) or f.__name__, NO_INSTANCE % obj.__name__))
        elif decorated(obj):
            tools.append(Tool(obj))
        elif inspect.isfunction(obj) and getattr(obj, "__kdcube_tool_traits__", None):
            problems.append(problem(name, ONLY_TRAIT))
    return tools, problems


def instance_of(module, cls):
    """A function that gives the one instance whose methods are called, made at the first call; None if there is no way."""
    for obj in vars(module).values():
        if type(obj) is cls:
            return lambda: obj
    try:
        if inspect.isabstract(cls):
            return None
        inspect.signature(cls).bind()
    except (TypeError, ValueError):
        return None
    made, lock = [], threading.Lock()

    def make():
        with lock:
            if not made:
                made.append(cls())
            return made[0]
    return make


def load(path):
    """Imports the file under its own name, or another where that name is taken."""
    stem = pathlib.Path(path).stem
    if stem in sys.modules or stem in getattr(sys, "stdlib_module_names", ()) or not stem.isidentifier():
        stem = "writ_tools_" + "".join(c if c.isalnum() else "_" for c in stem)
    spec = importlib.util.spec_from_file_location(stem, path, loader=importlib.machinery.SourceFileLoader(stem, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(stem, None)
        raise
    return module


def where(exc, path):
    """"file:line: source" of the last frame in the user's file, else of the last frame."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return "%s:%s" % (exc.filename, exc.lineno or 1)
    frames = traceback.extract_tb(exc.__traceback__)
    mine = [f for f in frames if f.filename == path] or [f for f in frames if not f.filename.startswith("<")]
    if not mine:
        return ""
    line = linecache.getline(mine[-1].filename, mine[-1].lineno).strip()
    return "%s:%d%s" % (mine[-1].filename, mine[-1].lineno, ": " + line if line else "")


def words(exc):
    """Type and message of an exception, whatever its __str__ does."""
    try:
        text = exc.msg if isinstance(exc, SyntaxError) else str(exc)
    except Exception:
        text = "(its message cannot be printed)"
    return "%s: %s" % (type(exc).__name__, text) if text else type(exc).__name__


# ---- the server ----------------------------------------------------------------------------------------------------

class Server:
    """Newline-delimited JSON-RPC over the real stdin and stdout, which the tools no longer see."""

    def __init__(self, path):
        self.path = path
        self.tools, self.problems, self.loaded = {}, [], False
        self.entries = []
        self.tasks, self.cancelled = {}, set()  # by request id
        self.loop, self.switch = None, threading.Lock()
        self.incoming, self.outgoing = queue.Queue(), queue.Queue()
        self.reader, self.writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        threading.Thread(target=self.read, name="writ-reader", daemon=True).start()
        threading.Thread(target=self.write, name="writ-writer", daemon=True).start()

    def read(self):
        for raw in self.reader:
            try:
                message = json.loads(raw)
            except (ValueError, RecursionError):
                log("skipped a line that is no JSON")
                continue
            if isinstance(message, dict):
                self.deliver(message)
        self.deliver(None)
        time.sleep(10)  # a tool that holds the event loop, or an import that hangs, does not outlive its owner
        os._exit(0)

    def deliver(self, message):
        with self.switch:
            if self.loop is None:
                self.incoming.put(message)
            else:
                self.loop.call_soon_threadsafe(self.take, message)

    def write(self):
        while True:
            data = self.outgoing.get()
            if isinstance(data, threading.Event):
                data.set()
                continue
            try:
                self.writer.write(data)
                self.writer.flush()
            except OSError:
                os._exit(1)

    def send(self, id, **body):
        message = dict({"jsonrpc": "2.0", "id": id}, **body)
        try:
            try:  # what people write stays readable
                line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8")
            except UnicodeEncodeError:  # a lone surrogate, which only an escape can carry
                line = json.dumps(message, ensure_ascii=True, allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError) as e:
            line = json.dumps({"jsonrpc": "2.0", "id": id, "result": failure("the result has no JSON form: %s" % e)}).encode("ascii")
        self.outgoing.put(line + b"\n")

    def error(self, id, code, message):
        self.send(id, error={"code": code, "message": message})

    def leave(self, code=0):
        """Ends the process without waiting for threads that hang in a tool."""
        flushed = threading.Event()
        self.outgoing.put(flushed)
        flushed.wait(0.5)
        try:
            atexit._run_exitfuncs()
            sys.stderr.flush()
        finally:
            os._exit(code)

    # Until the file is imported nothing runs but this: the import has the main thread to itself, with no event loop
    # in its way.
    def greet(self):
        while True:
            message = self.incoming.get()
            if message is None:
                self.leave()
            method, id = message.get("method"), message.get("id")
            if method in ("tools/list", "tools/call"):
                if self.load(id):
                    return message
            else:
                self.common(method, id, message)

    def load(self, id):
        try:
            module = load(self.path)
            found, self.problems = find_tools(module)
        except BaseException as e:
            self.error(id, -32603, "%s: %s" % (where(e, self.path) or self.path, words(e)))
            return False
        for t in found:
            try:
                self.entries.append(t.entry())
                self.tools.setdefault(t.name, t)
            except Exception as e:
                self.problems.append(problem(t.name, "left out: " + words(e)))
        return True

    def common(self, method, id, message):
        if id is None:
            return
        if method == "initialize":
            wanted = (message.get("params") or {}).get("protocolVersion")
            known = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
            self.send(id, result={"protocolVersion": wanted if wanted in known else known[0],
                                  "capabilities": {"tools": {}},
                                  "serverInfo": {"name": "writ-python-worker", "version": "1"}})
        elif method == "ping":
            self.send(id, result={})
        elif method:
            self.error(id, -32601, "method not found: %s" % method)

    async def serve(self, first):
        self.stopped = asyncio.Event()
        with self.switch:
            self.loop = asyncio.get_running_loop()
            waiting = [first]
            while not self.incoming.empty():  # what came before the loop did
                waiting.append(self.incoming.get())
        for message in waiting:
            self.take(message)
        await self.stopped.wait()
        if self.tasks:  # stdin is closed; what still runs may finish, for as long as the owner waits
            await asyncio.wait(list(self.tasks.values()), timeout=10)

    def take(self, message):
        if message is None:
            self.stopped.set()
            return
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "tools/list":
            self.send(id, result={"tools": self.entries, "_meta": {"writ/problems": self.problems}})
        elif method == "tools/call":
            task = self.tasks[id] = self.loop.create_task(self.call(id, params))
            task.add_done_callback(lambda _: self.forget(id))
        elif method == "notifications/cancelled":
            task = self.tasks.get(params.get("requestId"))
            if task is not None:
                self.cancelled.add(params.get("requestId"))
                task.cancel()
        else:
            self.common(method, id, message)

    def forget(self, id):
        self.tasks.pop(id, None)
        self.cancelled.discard(id)

    async def call(self, id, params):
        name = params.get("name")
        found = self.tools.get(name)
        if found is None:
            self.error(id, -32602, "unknown tool: %s" % name)
            return
        CALL.set(params.get("_meta") or {})
        try:
            result = await self.run(found, params.get("arguments") or {})
        except BaseException as e:
            if id in self.cancelled:
                log("%s was cancelled" % name)
                return
            result = failure("\n".join(x for x in (words(e), where(e, self.path)) if x))
        if id in self.cancelled:
            log("%s ended after it was cancelled; its result is discarded" % name)
            return
        self.send(id, result=result)

    async def run(self, tool, arguments):
        if inspect.iscoroutinefunction(inspect.unwrap(tool.func)):
            target, args, named = tool.bind(arguments)
            return encode(await target(*args, **named))
        kind, value = await in_thread(lambda: call_sync(tool, arguments), lambda: log(
            "%s ended after it was cancelled; its result is discarded" % tool.name))
        return encode(await value) if kind == "awaitable" else value


def call_sync(tool, arguments):
    target, args, named = tool.bind(arguments)
    out = target(*args, **named)
    if inspect.isawaitable(out):
        return "awaitable", out
    return "result", encode(out)


def in_thread(work, late):
    """Runs work in a thread of its own. No pool: a thread cannot be ended from outside, and cancelled calls that
    hang would fill any pool until nothing runs. late is called when the work ends after its call was cancelled."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    context = contextvars.copy_context()

    def settle(result, exc):
        if future.done():
            late()
        elif exc is not None:
            future.set_exception(exc)
        else:
            future.set_result(result)

    def body():
        result = failed = None
        try:
            result = context.run(work)
        except BaseException as e:
            # A future cannot hold StopIteration.
            failed = RuntimeError("StopIteration: %s" % e).with_traceback(e.__traceback__) if isinstance(e, StopIteration) else e
        try:
            loop.call_soon_threadsafe(settle, result, failed)
        except RuntimeError:
            pass  # the loop is gone, and with it whoever asked

    threading.Thread(target=body, name="writ-call", daemon=True).start()
    return future


def worker_main(path, memory):
    if memory > 0:
        try:
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        except (ImportError, ValueError, OSError) as e:
            log("no memory limit: %s" % e)
    server = Server(path)
    sys.path[:] = [str(pathlib.Path(path).parent)] + [p for p in sys.path if p]
    sys.argv = [path]
    sys.meta_path.append(StandIns())
    first = server.greet()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(server.serve(first))
    finally:
        server.leave()  # not asyncio.run: it would wait for a tool's own executor threads


if __name__ == "__main__":
    if sys.version_info < (3, 9):
        sys.exit("writ worker: Python 3.9 or newer is needed, this is %d.%d" % sys.version_info[:2])
    worker_main(sys.argv[1], int(sys.argv[2]))
