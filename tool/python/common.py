# Shared by worker.py and parse.py, so that importing a file and parsing it describe its tools alike. Standard
# library only, Python 3.9 and newer. Runs in front of either script.
import inspect
import re

KERNEL = "kernel_function"
TRAIT = "tool_trait"
ANY = {}
NO_INSTANCE = "left out: class %s needs arguments and the module has no instance of it"
ONLY_TRAIT = "has @tool_trait but no @kernel_function, so it is not offered"


def nullable(schema):
    """schema, and null."""
    return union([schema, {"type": "null"}])


def union(options):
    """One schema for several; flat and without repeats."""
    flat = []
    for o in options:
        for x in o["anyOf"] if list(o) == ["anyOf"] else [o]:
            if x == ANY:
                return {}
            if x not in flat:
                flat.append(x)
    if len(flat) == 1:
        return flat[0]
    return {"anyOf": flat}


def literal(values):
    """The schema of a fixed set of JSON scalars."""
    kinds = []
    for v in values:
        kind = ("null" if v is None else "boolean" if isinstance(v, bool) else "integer" if isinstance(v, int)
                else "number" if isinstance(v, float) else "string" if isinstance(v, str) else "")
        if kind and kind not in kinds:
            kinds.append(kind)
    out = {"enum": list(values)}
    if len(kinds) == 1:
        out = {"type": kinds[0], "enum": list(values)}
    return out


def array(item, unique=False):
    out = {"type": "array"}
    if item != ANY:
        out["items"] = item
    if unique:
        out["uniqueItems"] = True
    return out


def fixed_array(items):
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def mapping(value):
    out = {"type": "object"}
    if value != ANY:
        out["additionalProperties"] = value
    return out


def record(properties, required):
    """A TypedDict or a dataclass."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


SCALARS = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "datetime": {"type": "string", "format": "date-time"},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "UUID": {"type": "string", "format": "uuid"},
    "Path": {"type": "string"},
    "Decimal": {"type": "string"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "set": {"type": "array", "uniqueItems": True},
    "frozenset": {"type": "array", "uniqueItems": True},
    "dict": {"type": "object"},
}


class Param:
    """One parameter of a tool, as far as it is known."""

    def __init__(self, name, schema, description="", has_default=False, default=None, default_known=False):
        self.name, self.schema, self.description = name, schema, description
        self.has_default, self.default, self.default_known = has_default, default, default_known


def function_schema(params, doc, extra):
    """The JSON Schema of a tool's parameters. extra says that unnamed ones are taken (**kwargs)."""
    docs = doc_params(doc)
    properties, required = {}, []
    for p in params:
        schema = dict(p.schema)
        if p.default_known and p.default is None and p.has_default and schema != ANY:
            schema = dict(nullable(schema))
        text = p.description or docs.get(p.name, "")
        if text:
            schema["description"] = text
        if p.has_default and p.default_known:
            schema["default"] = p.default
        if not p.has_default:
            required.append(p.name)
        properties[p.name] = schema
    out = {"type": "object", "properties": properties}
    if required:
        out["required"] = required
    out["additionalProperties"] = bool(extra)
    return out


SECTION = re.compile(r"^(Args|Arguments|Parameters|Params)\s*:\s*$")
GOOGLE = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
SPHINX = re.compile(r"^\s*:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")


def doc_params(doc):
    """Parameter descriptions from a docstring in the style of Google or Sphinx."""
    out, section, indent, last = {}, False, None, None
    for line in inspect.cleandoc(doc or "").splitlines():
        m = SPHINX.match(line)
        if m:
            out[m.group(1)] = m.group(2).strip()
            last = None
            continue
        if SECTION.match(line):
            section, indent, last = True, None, None
            continue
        if not section:
            continue
        if line.strip() and not line[0].isspace():
            section = False
            continue
        m = GOOGLE.match(line)
        if m and (indent is None or len(m.group(1)) <= indent):
            indent = len(m.group(1))
            last = m.group(2)
            out[last] = m.group(3).strip()
        elif last and line.strip():
            out[last] = (out[last] + " " + line.strip()).strip()
    return {k: v for k, v in out.items() if v}


def describe(description, doc):
    """The decorator's description, else the docstring."""
    return description if description else inspect.cleandoc(doc or "").strip()


def merge_traits(first, second):
    """Stacked decorators: strategies add up, any other key of the later one replaces the earlier."""
    out = dict(first)
    for k, v in second.items():
        if k == "strategy" and "strategy" in out:
            merged = []
            for s in as_list(out["strategy"]) + as_list(v):
                if s not in merged:
                    merged.append(s)
            out[k] = merged
        else:
            out[k] = v
    return out


def as_list(v):
    if v is None:
        return []
    if isinstance(v, (list, tuple)):
        return list(v)
    if isinstance(v, (set, frozenset)):
        return sorted(v, key=str)
    return [v]


def tool(name, description, schema, traits):
    """One entry of tools/list."""
    out = {"name": name, "description": description, "inputSchema": schema}
    if traits:
        out["_meta"] = {"tool_traits": traits}
    return out


def problem(name, message, hint=""):
    return {"Tool": name, "Message": message, "Hint": hint}
