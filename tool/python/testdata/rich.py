"""A file with every way to write a tool that the worker knows."""
from __future__ import annotations

import asyncio
import enum
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Dict, List, Literal, Optional, TypedDict, Union

from semantic_kernel.functions import kernel_function
from kdcube_ai_app.apps.chat.sdk.runtime.tool_traits import tool_trait

EARLY = {
    "trigger": "tool_call_complete",
    "concurrency": "parallel_with_generation",
    "result_dependency": "detached",
    "replay": "at_most_once_per_round",
}
Query = Annotated[str, "what to look for"]
STATE = {"entered": 0}
LOCK = threading.Condition()


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict, total=False):
    city: str
    zip: Annotated[int, "five digits"]


@dataclass
class Order:
    item: str
    count: int = 1
    tags: List[str] = field(default_factory=list)


@kernel_function(name="types")
@tool_trait(strategy="exploration")
def all_types(
    query: Query,
    count: int,
    ratio: float = 0.5,
    flag: bool = False,
    color: Color = Color.RED,
    mode: Literal["fast", "slow"] = "fast",
    place: Optional[Place] = None,
    order: Order = None,
    many: Union[List[str], str, None] = None,
    table: Dict[str, List[int]] = {},
    either: int | str = 3,
    pair: tuple[int, str] = (1, "a"),
    unique: set[str] = frozenset(),
    anything: Any = None,
    untyped=7,
):
    """Takes every type.

    Args:
        count (int): how many
            of them
        ratio: between 0 and 1
    """
    return {
        "color": type(color).__name__, "order": type(order).__name__, "unique": type(unique).__name__,
        "pair": type(pair).__name__, "ratio": type(ratio).__name__, "query": query,
    }


@tool_trait(strategy=["neutral"], execution=EARLY)
@kernel_function
async def detached(note: str) -> None:
    """Schedules.

    :param note: what to note
    """


@tool_trait(strategy=["exploration"])
@tool_trait(strategy=["exploitation"])
@kernel_function(name="mixed", description="Reads " + "and writes")
def mixed(**kwargs: Any) -> dict:
    return kwargs


@kernel_function(name="echo", description="Gives back")
def echo(value: Any = None) -> Any:
    return value


@kernel_function(name="meet", description="Returns when n calls of it run at the same time")
def meet(n: int) -> str:
    with LOCK:
        STATE["entered"] += 1
        LOCK.notify_all()
        ok = LOCK.wait_for(lambda: STATE["entered"] >= n, timeout=20)
    return "met" if ok else "alone"


@kernel_function(name="meet_async", description="The same, on the event loop")
async def meet_async(n: int) -> str:
    STATE["async"] = STATE.get("async", 0) + 1
    for _ in range(2000):
        if STATE["async"] >= n:
            return "met"
        await asyncio.sleep(0.01)
    return "alone"


@kernel_function(name="hang_async", description="Never returns; leaves a mark in the file when it is cancelled")
async def hang_async(mark: str) -> str:
    with open(mark, "a") as f:
        f.write("started\n")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        with open(mark, "a") as f:
            f.write("cancelled\n")
        raise
    return "never"


@kernel_function(name="hang_sync", description="Runs until the file is there")
def hang_sync(started: str, until: str) -> str:
    open(started, "w").close()
    while not os.path.exists(until):
        time.sleep(0.01)
    return "late"


@kernel_function(name="noisy", description="Prints in every way")
def noisy() -> str:
    print("printed \ud800 \u00e9")
    sys.stdout.write("{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}}\n")
    os.write(1, b"raw write to fd 1\n")
    os.system("echo from a child process")
    return "quiet"


@kernel_function(name="read_stdin", description="stdin is empty")
def read_stdin() -> str:
    return sys.stdin.read()


@kernel_function(name="boom", description="Raises")
def boom() -> None:
    raise ValueError("no such thing: \u00fc")


@kernel_function(name="boom_async", description="Raises")
async def boom_async() -> None:
    raise KeyError("k")


@kernel_function(name="leave", description="sys.exit")
def leave() -> None:
    sys.exit(3)


@kernel_function(name="leave_async", description="sys.exit")
async def leave_async() -> None:
    sys.exit(4)


@kernel_function(name="crash", description="Ends the process after its effect")
def crash(mark: str) -> None:
    with open(mark, "a") as f:
        f.write("effect\n")
    os._exit(9)


@kernel_function(name="environment", description="The names of the environment")
def environment() -> List[str]:
    return sorted(os.environ)


@kernel_function(name="key", description="The call's own key")
async def key() -> dict:
    import writ_tool

    return {"key": writ_tool.idempotency_key(), "call": writ_tool.tool_call_id()}


@kernel_function(name="key_sync", description="The call's own key")
def key_sync() -> dict:
    import writ_tool

    return {"key": writ_tool.idempotency_key(), "call": writ_tool.tool_call_id()}


@kernel_function(name="memory", description="Takes n MiB")
def memory(mib: int) -> int:
    return len(bytearray(mib << 20))


@kernel_function(name="make", description="Values of every kind")
def make(kind: str, n: int = 0) -> Any:
    loop: list = []
    loop.append(loop)
    return {
        "none": None, "bytes": b"\x00\x01\xff", "png": b"\x89PNG\r\n\x1a\n", "nan": {"a": float("nan"), "b": [float("inf")]},
        "order": Order("x"), "object": {"o": object()}, "loop": loop, "surrogate": "a\ud800b", "nul": "a\x00b",
        "keys": {1: "int", None: "none"}, "set": {3}, "enum": Color.BLUE, "int": 12345678901234567890, "float": float("nan"),
        "unicode": "\U0001f600 \u00e9", "huge": "x" * n, "empty": {}, "tuple": (1, 2), "complex": 1j, "bool": True,
        "envelope": {"ok": False, "error": {"code": "nope", "message": "m"}, "ret": None},
    }[kind]


class Counter:
    """A class with state."""

    def __init__(self, start: int = 10):
        self.value = start

    @tool_trait(strategy=["neutral"])
    @kernel_function(name="count", description="Counts up")
    def count(self, by: int = 1) -> int:
        self.value += by
        return self.value

    @staticmethod
    @kernel_function(name="static", description="A static method")
    def static(x: int) -> int:
        return x


class Named:
    def __init__(self, name):
        self.name = name

    @kernel_function(name="who", description="The instance's name")
    async def who(self) -> str:
        return self.name


class Impossible:
    def __init__(self, needed):
        self.needed = needed

    @kernel_function(name="never", description="Has no instance")
    def never(self) -> None:
        pass


@tool_trait(strategy=["exploration"])
def no_tool() -> None:
    pass


@tool_trait(strategy=["explore"])
@kernel_function(name="typo", description="Its strategy is none")
def typo() -> None:
    pass


named = Named("me")
alias = echo
