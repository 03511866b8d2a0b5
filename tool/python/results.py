# What a function returned as an MCP result. Part of the worker; common.py runs before this.
import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import uuid


class Plain:
    """A Python value as JSON. What has no JSON form is shown by repr, and said so."""

    def __init__(self):
        self.notes, self.open = [], set()

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def value(self, v, depth=0):
        if v is None or isinstance(v, (bool, str)) and not isinstance(v, enum.Enum):
            return v
        if isinstance(v, enum.Enum):
            return self.value(v.value, depth + 1)
        if isinstance(v, int):
            return int(v)
        if isinstance(v, float):
            if math.isfinite(v):
                return float(v)
            self.note("numbers that are not finite are given as text")
            return "NaN" if math.isnan(v) else "Infinity" if v > 0 else "-Infinity"
        if depth > 100 or id(v) in self.open:
            self.note("a value that contains itself or nests too deeply was cut")
            return "..."
        self.open.add(id(v))
        try:
            return self.compound(v, depth + 1)
        finally:
            self.open.discard(id(v))

    def compound(self, v, depth):
        if isinstance(v, collections.abc.Mapping):
            return {k if isinstance(k, str) else str(self.value(k, depth)): self.value(x, depth) for k, x in v.items()}
        if isinstance(v, (list, tuple, set, frozenset, collections.abc.KeysView, collections.abc.ValuesView)):
            return [self.value(x, depth) for x in v]
        if dataclasses.is_dataclass(v) and not isinstance(v, type):
            return {f.name: self.value(getattr(v, f.name), depth) for f in dataclasses.fields(v)}
        if hasattr(v, "model_dump") and not isinstance(v, type):
            return self.value(v.model_dump(), depth)
        if isinstance(v, (datetime.datetime, datetime.date, datetime.time)):
            return v.isoformat()
        if isinstance(v, (uuid.UUID, decimal.Decimal, pathlib.PurePath)):
            return str(v)
        if isinstance(v, (bytes, bytearray, memoryview)):
            return base64.b64encode(bytes(v)).decode("ascii")
        self.note("some values have no JSON form and are shown as Python prints them")
        try:
            return repr(v)[:1000]
        except Exception:
            return "<%s>" % type(v).__name__


MAGIC = ((b"\x89PNG\r\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"%PDF-", "application/pdf"))


def blob(data):
    mime = next((m for magic, m in MAGIC if data.startswith(magic)), "application/octet-stream")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        mime = "image/webp"
    text = base64.b64encode(data).decode("ascii")
    if mime.startswith("image/"):
        return {"type": "image", "data": text, "mimeType": mime}
    return {"type": "resource", "resource": {"uri": "data:", "mimeType": mime, "blob": text}}


def text_part(s):
    return {"type": "text", "text": s}


def encode(v):
    """The MCP result of what a function returned."""
    if v is None:
        return {"content": []}
    if isinstance(v, str) and not isinstance(v, enum.Enum):
        return {"content": [text_part(v)]}
    if isinstance(v, (bytes, bytearray, memoryview)):
        return {"content": [blob(bytes(v))]}
    plain = Plain()
    value = plain.value(v)
    out = {"content": [text_part(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False))]}
    if isinstance(value, (dict, list)):
        out["structuredContent"] = value
    out["content"] += [text_part("note: " + n) for n in plain.notes]
    return out


def failure(text):
    return {"content": [text_part(text)], "isError": True}
