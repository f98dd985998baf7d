"""Finds names in a file of TensorRT-LLM: routes, metric families, keys of JSON, options and values. Each public function
yields pairs of a name and its line."""
import ast
import re

from syntax import FUNCTIONS, argument, called

METHODS = ("get", "post", "put", "delete", "patch", "head", "options")
FAMILIES = ("Counter", "Gauge", "Histogram", "Summary", "Info")
# Words in names that are about statistics. If the name of a class has a word of OF_CLASSES, all its options are about statistics. Any
# other option must have a word of OF_OPTIONS in its own name.
OF_CLASSES = {"stats", "statistics", "metrics", "events", "prometheus", "energy", "telemetry"}
OF_OPTIONS = OF_CLASSES | {"perf", "iter", "event"}
JSON_KEY = re.compile(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")


def routes(module):
    """Routes such as `GET /metrics`. The method is `*` if the syntax does not show it."""
    prefixes = {target.id: _only(module, argument(assign.value, None, "prefix"), "") for assign in module.nodes(ast.Assign)
                for target in assign.targets if isinstance(target, ast.Name)
                and isinstance(assign.value, ast.Call) and called(assign.value) == "APIRouter"}
    for call in module.nodes(ast.Call):
        methods = None
        if called(call) in ("add_api_route", "add_route"):
            listed = argument(call, 2, "methods")
            methods = [_only(module, method, "*") for method in getattr(listed, "elts", [])] or ["GET"]
        elif called(call) in ("mount", "Mount"):
            methods = ["GET"]
        elif called(call) in ("websocket", "add_websocket_route", "add_api_websocket_route"):
            methods = ["WEBSOCKET"]
        elif called(call) in METHODS and _decorates(module, call):
            methods = [called(call).upper()]
        if methods is None:
            continue
        prefix = prefixes.get(getattr(getattr(call.func, "value", None), "id", None), "")
        for path in _texts(module, argument(call, 0, "path")):
            if path.startswith(("/", "{")):
                yield from ((f"{method} {prefix}{path}", call.lineno) for method in methods)


def _decorates(module, call):
    function = module.parents[call]
    return isinstance(function, FUNCTIONS) and call in function.decorator_list


def _only(module, node, otherwise):
    texts = sorted(module.texts(node) or ())
    return texts[0] if len(texts) == 1 else otherwise


def _texts(module, node):
    """The texts that an expression can have. If the syntax does not show them, its source code in braces."""
    if node is None:
        return []
    texts = module.texts(node)
    return sorted(texts) if texts is not None else [f"{{{ast.unparse(node)}}} in {module.path}"]


def families(module):
    """Metric families, without the `_total` that the Python client appends."""
    imported = {alias.asname or alias.name for node in module.nodes(ast.ImportFrom)
                if (node.module or "").startswith("prometheus_client") for alias in node.names}
    for call in module.nodes(ast.Call):
        is_family = called(call) in imported and called(call).removesuffix("MetricFamily") in FAMILIES
        if is_family or called(call) in ("MetricsDefinition", "MetricDefinition"):
            yield from ((name.removesuffix("_total"), call.lineno) for name in _texts(module, argument(call, 0, "name")))


def keys(module, scopes=None, classes=None):
    """Keys that are set in dictionaries, and the fields of classes whose names match `classes`."""
    for node in module.nodes(ast.Dict, ast.DictComp, ast.Subscript, ast.Call, ast.ClassDef, scopes=scopes):
        found = []
        if isinstance(node, ast.Dict):
            found = node.keys
        elif isinstance(node, ast.DictComp):
            found = [node.key]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found = [node.slice]
        elif isinstance(node, ast.Call) and called(node) in ("update", "dict"):
            yield from ((keyword.arg, keyword.value.lineno) for keyword in node.keywords if keyword.arg)
        elif isinstance(node, ast.ClassDef) and classes and re.fullmatch(classes, node.name):
            yield from ((field.target.id, field.lineno) for field in _fields(node))
        for key in found:
            yield from ((text, key.lineno) for text in module.texts(key) or () if JSON_KEY.fullmatch(text))


def camel_case_keys(module):
    """Keys in the style of records (camelCase). Names in Python code have another style, so this function can search any
    file."""
    return ((name, line) for name, line in keys(module) if re.search("[a-z][A-Z]", name))


def _fields(node):
    return [field for field in node.body if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)]


def _has(words, name):
    return not words.isdisjoint(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def options(module):
    """Fields of configurations and command line options that are about statistics, judged by their names."""
    for node in module.nodes(ast.ClassDef, ast.Call):
        if isinstance(node, ast.ClassDef):
            whole = _has(OF_CLASSES, node.name)
            yield from ((field.target.id, field.lineno) for field in _fields(node)
                        if not field.target.id.startswith("_") and (whole or _has(OF_OPTIONS, field.target.id)))
        elif called(node).lstrip("_") in ("option", "add_argument"):
            texts = [text for part in node.args for text in module.texts(part) or () if text.startswith("--")]
            names = [text[2:].split("/")[0].replace("-", "_") for text in texts]
            yield from ((name, node.lineno) for name in names if _has(OF_OPTIONS, name))


def variables(module):
    """Environment variables that are about statistics."""
    for node in module.nodes(ast.Call, ast.Subscript):
        texts = set()
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "getenv", "os.environ.get", "environ.get"):
            texts = module.texts(argument(node, 0, "key")) or set()
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
            texts = module.texts(node.slice) or set()
        yield from ((text, node.lineno) for text in texts if _has(OF_OPTIONS, text))


def enum_values(module, classes):
    """The values of enumerations whose names match `classes`."""
    for node in module.nodes(ast.ClassDef):
        if re.fullmatch(classes, node.name):
            for assign in node.body:
                value = getattr(assign, "value", None)
                if isinstance(assign, ast.Assign) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value, assign.lineno


def field_values(module, field, scopes=None):
    """The texts that are assigned to the field, that are compared with it, or that its type annotation allows."""
    is_field = lambda node: field in (getattr(node, "id", None), getattr(node, "attr", None)) or (
        isinstance(node, ast.Subscript) and module.texts(node.slice) == {field})
    for node in module.nodes(ast.Assign, ast.AnnAssign, ast.Compare, ast.Dict, ast.keyword, scopes=scopes):
        values = []
        match node:
            case ast.Assign() if any(is_field(target) for target in node.targets):
                values = [node.value]
            case ast.AnnAssign() if is_field(node.target):
                values = [node.value, *_literals(node.annotation)]
            case ast.Compare() if is_field(node.left):
                values = [value for side in node.comparators for value in getattr(side, "elts", [side])]
            case ast.Dict():
                values = [value for key, value in zip(node.keys, node.values) if module.texts(key) == {field}]
            case ast.keyword() if node.arg == field:
                values = [node.value]
        for value in values:
            yield from ((text, value.lineno) for text in module.texts(value) or ())


def _literals(annotation):
    subscripts = [node for node in ast.walk(annotation) if isinstance(node, ast.Subscript)]
    return [value for node in subscripts if ast.unparse(node.value).endswith("Literal")
            for value in getattr(node.slice, "elts", [node.slice])]
