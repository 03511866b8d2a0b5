# Type hints to JSON Schema, and JSON values to what the hints promise. Part of the worker; common.py runs before this.
import base64
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import sys
import types
import typing
import uuid

UNION_TYPE = getattr(types, "UnionType", None)


class Hints:
    """Type hints to JSON Schema, and JSON values to what the hints promise."""

    SCALAR = {str: "str", int: "int", float: "float", bool: "bool", type(None): "None", None: "None", bytes: "bytes",
              datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time", uuid.UUID: "UUID",
              pathlib.Path: "Path", pathlib.PurePath: "Path", decimal.Decimal: "Decimal", list: "list", tuple: "tuple",
              set: "set", frozenset: "frozenset", dict: "dict"}
    LISTS = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection,
             collections.abc.MutableSequence)
    SETS = (set, frozenset, collections.abc.Set, collections.abc.MutableSet)
    DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

    @classmethod
    def schema(cls, hint, depth=0):
        """(schema, description)"""
        if depth > 20:
            return {}, ""
        hint = cls.bare(hint)
        if hasattr(hint, "__metadata__"):
            schema, text = cls.schema(hint.__origin__, depth + 1)
            for m in hint.__metadata__:
                if isinstance(m, str):
                    return schema, m
            return schema, text
        sub = lambda h: cls.schema(h, depth + 1)[0]
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Union or (UNION_TYPE and origin is UNION_TYPE):
            return union([sub(a) for a in args]), ""
        if origin is typing.Literal:
            return literal([a.value if isinstance(a, enum.Enum) else a for a in args]), ""
        if origin in cls.LISTS:
            return array(sub(args[0]) if args else {}), ""
        if origin in cls.SETS:
            return array(sub(args[0]) if args else {}, unique=True), ""
        if origin is tuple:
            if len(args) == 2 and args[1] is Ellipsis:
                return array(sub(args[0])), ""
            return (fixed_array([sub(a) for a in args]) if args else dict(SCALARS["tuple"])), ""
        if origin in cls.DICTS:
            return mapping(sub(args[1]) if len(args) == 2 else {}), ""
        return cls.plain(hint, depth), ""

    @classmethod
    def plain(cls, hint, depth):
        try:
            if hint in cls.SCALAR:
                return dict(SCALARS[cls.SCALAR[hint]])
        except TypeError:
            return {}
        if hint in cls.LISTS:
            return {"type": "array"}
        if hint in cls.SETS:
            return {"type": "array", "uniqueItems": True}
        if hint in cls.DICTS:
            return {"type": "object"}
        if not isinstance(hint, type):
            return {}
        if issubclass(hint, enum.Enum):
            return literal([m.value for m in hint])
        if is_typed_dict(hint):
            fields = hints_of(hint)
            needed = [n for n in fields if n in hint.__required_keys__]
            return record({n: cls.described(h, depth) for n, h in fields.items()}, needed)
        if dataclasses.is_dataclass(hint):
            fields, known = dataclasses.fields(hint), hints_of(hint)
            needed = [f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
            return record({f.name: cls.described(known.get(f.name), depth) for f in fields}, needed)
        if hasattr(hint, "model_json_schema"):
            return {"type": "object"}
        return {}

    @classmethod
    def described(cls, hint, depth):
        schema, text = cls.schema(hint, depth + 1)
        return dict(schema, description=text) if text else schema

    @staticmethod
    def bare(hint):
        while True:
            if hasattr(hint, "__supertype__"):
                hint = hint.__supertype__
            elif getattr(typing.get_origin(hint), "_name", "") in ("Required", "NotRequired", "Final", "ClassVar", "ReadOnly"):
                hint = typing.get_args(hint)[0]
            else:
                return hint

    @classmethod
    def convert(cls, value, hint):
        """What the function is promised: an enum member, a dataclass, a set. A value that does not fit stays as it is."""
        hint = cls.bare(hint)
        if hasattr(hint, "__metadata__"):
            return cls.convert(value, hint.__origin__)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Union or (UNION_TYPE and origin is UNION_TYPE):
            return cls.first_fit(value, args)
        if isinstance(value, list):
            inner = args[0] if args else None
            if origin is tuple and len(args) == len(value) and Ellipsis not in args:
                return tuple(cls.convert(v, a) for v, a in zip(value, args))
            items = [cls.convert(v, inner) for v in value] if inner else value
            if origin is tuple or hint is tuple:
                return tuple(items)
            if origin in cls.SETS or hint in (set, frozenset):
                return frozenset(items) if frozenset in (origin, hint) else set(items)
            return items
        if isinstance(value, dict) and origin in cls.DICTS and len(args) == 2:
            return {k: cls.convert(v, args[1]) for k, v in value.items()}
        return cls.scalar(value, hint)

    @classmethod
    def scalar(cls, value, hint):
        if not isinstance(hint, type):
            return value
        if issubclass(hint, enum.Enum):
            return hint(value)
        if isinstance(value, dict):
            if dataclasses.is_dataclass(hint):
                known = hints_of(hint)
                return hint(**{k: cls.convert(v, known.get(k)) for k, v in value.items()})
            if is_typed_dict(hint):
                known = hints_of(hint)
                return {k: cls.convert(v, known.get(k)) for k, v in value.items()}
            if hasattr(hint, "model_validate"):
                return hint.model_validate(value)
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            if hint in (datetime.datetime, datetime.date, datetime.time):
                return hint.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") else value)
            if hint in (uuid.UUID, decimal.Decimal) or issubclass(hint, pathlib.PurePath):
                return hint(value)
            if hint is bytes:
                return base64.b64decode(value)
        return value

    @classmethod
    def first_fit(cls, value, options):
        for h in options:
            if cls.bare(h) in (type(value), typing.Any) or (value is None and h is type(None)):
                return value
        for h in options:
            if h is type(None) and value is not None:
                continue
            try:
                out = cls.convert(value, h)
            except Exception:
                continue
            if out is not value or len(options) == 1:
                return out
        return value


def is_typed_dict(hint):
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__")


def hints_of(obj):
    """Resolved hints, each by itself where one of them cannot be resolved."""
    try:
        return typing.get_type_hints(obj, include_extras=True)
    except Exception:
        pass
    out = {}
    space = getattr(sys.modules.get(getattr(obj, "__module__", "")), "__dict__", {})
    for name, hint in getattr(obj, "__annotations__", {}).items():
        if isinstance(hint, str):
            try:
                hint = eval(hint, dict(space))  # the file's own annotation, in the file's own names
            except Exception:
                continue
        out[name] = hint
    return out
