# Lists the tools of a Python file without running a line of it: names, descriptions, parameters and traits as far
# as they stand there literally. Arguments: the file. Prints one JSON object. common.py runs before this.
import ast
import json
import sys
import tokenize

WRAP = {"Annotated", "Optional", "Union", "Literal", "List", "Sequence", "Iterable", "Collection", "MutableSequence",
        "Set", "AbstractSet", "MutableSet", "FrozenSet", "Tuple", "Dict", "Mapping", "MutableMapping", "Required",
        "NotRequired", "Final", "ClassVar", "ReadOnly"}


class NotLiteral(Exception):
    pass


class Module:
    """What the top level of the file says."""

    def __init__(self, tree):
        self.imports, self.assigned, self.count, self.classes = {}, {}, {}, {}
        self.functions, self.instances = [], set()
        self.body(tree.body)

    def body(self, statements):
        for s in statements:
            if isinstance(s, ast.Import):
                for a in s.names:
                    self.imports[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
            elif isinstance(s, ast.ImportFrom):
                for a in s.names:
                    self.imports[a.asname or a.name] = ("." * s.level) + (s.module or "") + "." + a.name
            elif isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.append((s, None))
            elif isinstance(s, ast.ClassDef):
                self.classes[s.name] = s
                self.functions.extend((f, s) for f in s.body if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)))
            elif isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None:
                for t in s.targets if isinstance(s, ast.Assign) else [s.target]:
                    if isinstance(t, ast.Name):
                        self.assigned[t.id] = s.value
                        self.count[t.id] = self.count.get(t.id, 0) + 1
                        if isinstance(s.value, ast.Call) and isinstance(s.value.func, ast.Name):
                            self.instances.add(s.value.func.id)
            elif isinstance(s, ast.If):
                if not self.skipped(s.test):
                    self.body(s.body)
                self.body(s.orelse)
            elif isinstance(s, ast.Try):
                for part in [s.body, *[h.body for h in s.handlers], s.orelse, s.finalbody]:
                    self.body(part)
            elif isinstance(s, ast.With):
                self.body(s.body)

    @staticmethod
    def skipped(test):
        text = ast.dump(test)
        return "'__main__'" in text

    def path(self, node):
        """The dotted path a name or attribute stands for, through the imports."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            base = self.path(node.value)
            return base + "." + node.attr if base else ""
        return ""

    def constant(self, name):
        """The one value of a name that is assigned exactly once."""
        if self.count.get(name) == 1:
            return self.assigned[name]
        return None

    def value(self, node, depth=0):
        """The value of a literal expression; names of constants and members of enums of this file count."""
        if depth > 20:
            raise NotLiteral()
        if isinstance(node, ast.Name):
            target = self.constant(node.id)
            if target is not None:
                return self.value(target, depth + 1)
        if isinstance(node, ast.Attribute):
            owner = self.classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
            if owner is None and node.attr == "value" and isinstance(node.value, ast.Attribute):
                return self.value(node.value, depth + 1)
            if owner is not None and self.is_enum(owner):
                for k, v in self.members(owner):
                    if k == node.attr:
                        return v
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            a, b = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            if isinstance(a, str) and isinstance(b, str):
                return a + b
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = [self.value(x, depth + 1) for x in node.elts]
            return items if not isinstance(node, ast.Set) else sorted(items, key=str)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {self.value(k, depth + 1): self.value(v, depth + 1) for k, v in zip(node.keys, node.values)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            if all(k.arg for k in node.keywords):
                return {k.arg: self.value(k.value, depth + 1) for k in node.keywords}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args and not node.keywords:
            if node.func.id in ("list", "tuple", "set", "frozenset"):
                return []
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise NotLiteral() from None

    def base_names(self, cls):
        return [self.path(b).rsplit(".", 1)[-1] for b in cls.bases]

    def is_enum(self, cls):
        return any(b in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag") for b in self.base_names(cls))

    def members(self, cls):
        out, number = [], 0
        for s in cls.body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and not s.targets[0].id.startswith("_"):
                try:
                    if isinstance(s.value, ast.Call) and self.path(s.value.func).rsplit(".", 1)[-1] == "auto":
                        number += 1
                        v = s.targets[0].id.lower() if "StrEnum" in self.base_names(cls) else number
                    else:
                        v = self.value(s.value)
                        number = v if isinstance(v, int) else number
                    out.append((s.targets[0].id, v))
                except NotLiteral:
                    pass
        return out

    # ---- annotations -------------------------------------------------------------------------------------------

    def annotation(self, node, depth=0):
        """(schema, description) of an annotation; what cannot be told is anything."""
        if node is None or depth > 20:
            return {}, ""
        if isinstance(node, ast.Constant):
            if node.value is None:
                return dict(SCALARS["None"]), ""
            if isinstance(node.value, str):
                try:
                    return self.annotation(ast.parse(node.value, mode="eval").body, depth + 1)
                except SyntaxError:
                    return {}, ""
            return {}, ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return union([self.annotation(node.left, depth + 1)[0], self.annotation(node.right, depth + 1)[0]]), ""
        if isinstance(node, ast.Subscript):
            return self.subscript(node, depth)
        name = self.path(node).rsplit(".", 1)[-1]
        if isinstance(node, ast.Name):
            if node.id in self.classes:
                return self.local_class(self.classes[node.id], depth), ""
            alias = self.constant(node.id)
            if alias is not None:
                if isinstance(alias, ast.Call) and self.path(alias.func).endswith("NewType") and len(alias.args) == 2:
                    return self.annotation(alias.args[1], depth + 1)
                return self.annotation(alias, depth + 1)
        name = {"List": "list", "Sequence": "list", "Iterable": "list", "Collection": "list", "MutableSequence": "list",
                "Set": "set", "AbstractSet": "set", "MutableSet": "set", "FrozenSet": "frozenset", "Tuple": "tuple",
                "Dict": "dict", "Mapping": "dict", "MutableMapping": "dict", "PurePath": "Path"}.get(name, name)
        return dict(SCALARS.get(name, {})), ""

    def subscript(self, node, depth):
        outer = self.path(node.value).rsplit(".", 1)[-1]
        inner = node.slice
        if type(inner).__name__ == "Index":  # Python 3.8 and older; kept for trees made by other tools
            inner = inner.value
        args = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        sub = lambda n: self.annotation(n, depth + 1)[0]
        if outer == "Annotated":
            schema, text = self.annotation(args[0], depth + 1)
            for extra in args[1:]:
                try:
                    v = self.value(extra)
                except NotLiteral:
                    continue
                if isinstance(v, str):
                    return schema, v
            return schema, text
        if outer == "Optional":
            return nullable(sub(args[0])), ""
        if outer == "Union":
            return union([sub(a) for a in args]), ""
        if outer == "Literal":
            try:
                return literal([self.value(a) for a in args]), ""
            except NotLiteral:
                return {}, ""
        if outer in ("Required", "NotRequired", "Final", "ClassVar", "ReadOnly"):
            return self.annotation(args[0], depth + 1)
        if outer in ("list", "List", "Sequence", "Iterable", "Collection", "MutableSequence"):
            return array(sub(args[0])), ""
        if outer in ("set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"):
            return array(sub(args[0]), unique=True), ""
        if outer in ("tuple", "Tuple"):
            if len(args) == 2 and isinstance(args[1], ast.Constant) and args[1].value is Ellipsis:
                return array(sub(args[0])), ""
            return fixed_array([sub(a) for a in args]), ""
        if outer in ("dict", "Dict", "Mapping", "MutableMapping"):
            return mapping(sub(args[1]) if len(args) == 2 else {}), ""
        return {}, ""

    def local_class(self, cls, depth):
        if self.is_enum(cls):
            return literal([v for _, v in self.members(cls)])
        bases = self.base_names(cls)
        typed = "TypedDict" in bases or any(b in self.classes and "TypedDict" in self.base_names(self.classes[b]) for b in bases)
        data = any(self.path(d.func if isinstance(d, ast.Call) else d).rsplit(".", 1)[-1] == "dataclass" for d in cls.decorator_list)
        if not typed and not data:
            return {}
        properties, required = {}, []
        for b in cls.bases:
            parent = self.classes.get(b.id) if isinstance(b, ast.Name) else None
            if parent is not None:
                schema = self.local_class(parent, depth + 1)
                properties.update(schema.get("properties", {}))
                required.extend(schema.get("required", []))
        total = not any(k.arg == "total" and isinstance(k.value, ast.Constant) and k.value.value is False for k in cls.keywords)
        for s in cls.body:
            if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name):
                continue
            wrapper = self.path(s.annotation.value).rsplit(".", 1)[-1] if isinstance(s.annotation, ast.Subscript) else ""
            if data and (wrapper == "ClassVar" or self.path(s.annotation).rsplit(".", 1)[-1] == "ClassVar"):
                continue
            schema, text = self.annotation(s.annotation, depth + 1)
            schema = dict(schema)
            if text:
                schema["description"] = text
            properties[s.target.id] = schema
            needed = s.value is None if data else (wrapper == "Required" or (total and wrapper != "NotRequired"))
            if data and isinstance(s.value, ast.Call) and self.path(s.value.func).rsplit(".", 1)[-1] == "field":
                needed = not any(k.arg in ("default", "default_factory") for k in s.value.keywords)
            if needed:
                required.append(s.target.id)
        return record(properties, required)

    # ---- tools -------------------------------------------------------------------------------------------------

    def decorator(self, node):
        """("kernel"|"trait"|"", call or None) of a decorator."""
        call = node if isinstance(node, ast.Call) else None
        path = self.path(call.func if call else node)
        head, _, last = path.rpartition(".")
        if last == KERNEL and head:
            return "kernel", call
        if last == TRAIT and (head == "tool_traits" or head.endswith(".tool_traits")):
            return "trait", call
        return "", call

    def tools(self):
        tools, problems = [], []
        for fn, cls in self.functions:
            kernel, found, traits, bad = None, False, {}, ""
            for d in reversed(fn.decorator_list):
                kind, call = self.decorator(d)
                if kind == "kernel":
                    found, kernel = True, call
                elif kind == "trait" and call is not None:
                    try:
                        traits = merge_traits(traits, self.trait(call))
                    except NotLiteral:
                        bad = "its traits are not written literally; only importing the file can tell them"
            if not found:
                if traits or bad:
                    problems.append(problem(fn.name, ONLY_TRAIT))
                continue
            name, description = fn.name, ""
            try:
                given = self.arguments(kernel, ["func", "name", "description"])
                name = given.get("name") or fn.name
                description = given.get("description") or ""
            except NotLiteral:
                problems.append(problem(fn.name, "its name or description is not written literally; only importing the file can tell it"))
            bound = not any(isinstance(d, ast.Name) and d.id in ("staticmethod", "classmethod") for d in fn.decorator_list)
            if cls is not None and bound and not self.constructible(cls):
                problems.append(problem(name, NO_INSTANCE % cls.name))
                continue
            if bad:
                problems.append(problem(name, bad))
                traits = {}
            tools.append(self.tool(fn, cls, name, description, traits))
        return tools, problems

    def arguments(self, call, positional):
        if call is None:
            return {}
        out = {positional[i]: self.value(a) for i, a in enumerate(call.args) if i < len(positional)}
        for k in call.keywords:
            if k.arg is None:
                raise NotLiteral()
            out[k.arg] = self.value(k.value)
        return out

    def trait(self, call):
        given = self.arguments(call, ["strategy", "execution"])
        return {k: as_list(v) if k == "strategy" else v for k, v in given.items() if v is not None}

    def constructible(self, cls):
        if cls.name in self.instances:
            return True
        for f in cls.body:
            if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and f.name == "__init__":
                a = f.args
                plain = len(a.posonlyargs) + len(a.args) - 1
                return plain <= len(a.defaults) and all(d is not None for d in a.kw_defaults)
        return True

    def tool(self, fn, cls, name, description, traits):
        a = fn.args
        positional = a.posonlyargs + a.args
        defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults)
        pairs = list(zip(positional, defaults))
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in fn.decorator_list)
        if cls is not None and not static:
            pairs = pairs[1:]
        pairs += list(zip(a.kwonlyargs, a.kw_defaults))
        params = []
        for arg, default in pairs:
            schema, text = self.annotation(arg.annotation)
            p = Param(arg.arg, schema, text, has_default=default is not None)
            if default is not None:
                try:
                    p.default, p.default_known = self.value(default), True
                    json.dumps(p.default, allow_nan=False)
                except (NotLiteral, TypeError, ValueError):
                    p.default_known = False
            params.append(p)
        doc = ast.get_docstring(fn) or ""
        return tool(name, describe(description, doc), function_schema(params, doc, a.kwarg), traits)


def parse_main(path):
    try:
        with tokenize.open(path) as f:
            source = f.read()
        tree = ast.parse(source, path)
    except SyntaxError as e:
        return {"error": "%s:%s: %s" % (path, e.lineno or 1, e.msg)}
    except (OSError, ValueError, RecursionError, MemoryError) as e:
        return {"error": "%s: %s" % (path, e)}
    try:
        tools, problems = Module(tree).tools()
    except RecursionError:
        return {"error": "%s: nested too deeply to be read" % path}
    return {"tools": tools, "problems": problems}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(parse_main(sys.argv[1]), ensure_ascii=True, default=str))
