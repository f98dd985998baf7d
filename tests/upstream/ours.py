"""Finds the names of TensorRT-LLM that the exporter knows, in the exporter's source and documents. known.toml has only
names that the exporter does not read, each with a reason. tests/it/drift.rs compares the keys with the compiled table of
fields."""
import fnmatch
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("route", "family", "key", "value", "option", "policy")
# Minimum number of names of each kind. If there are fewer, the source has changed, and this file no longer finds the names.
AT_LEAST = {"route": 6, "family": 60, "key": 150, "value": 20, "option": 500, "policy": 500}
# The files that read other programs' Prometheus pages.
PAGES = ("crates/sources/src/*prometheus*.rs", "crates/sources/src/*page*.rs", "crates/records/src/server_metrics.rs")
# The files of crates/records/src that define the enumerations of records, request rows and finished requests.
ENUMS = ("iteration", "names")


class Unreadable(Exception):
    """A file cannot be read, so the tool has no result."""


def sources(*patterns):
    """The text of each file that matches a pattern, without its tests."""
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text().split("#[cfg(test)]")[0]


def routes():
    for text in sources("crates/sources/src/**/*.rs"):
        for method, path in re.findall(r'Method::(\w+),\s*(?:path:\s*)?"(/[\w/]+)"', text):
            yield f"{method} {path}"
        for path in re.findall(r'(?:FactReader::new|read_fact)\((?:[&\w. ]+, )?"(/[\w/]+)"', text):
            yield f"GET {path}"
        for path in re.findall(r'const \w*PATH: &str = "(/[\w/]+)"', text):
            yield f"GET {path}"


def families():
    """Families in the catalog, in its table of unread families and in src/tools/metrics.md, and all string literals in the
    readers of pages that could be a name."""
    for text in sources("crates/page/src/metrics/catalog/**/*.rs", "src/tools/metrics.md"):
        yield from re.findall(r'["`](trtllm_\w+)["`]', text)
    for text in sources(*PAGES):
        for name in re.findall(r'"([a-z][a-z0-9_]+)"', text):
            yield from (name, f"trtllm_{name}")


def keys():
    """Keys in the tables of the schema and in the list of keys that are not read."""
    for text in sources("crates/records/src/statistics.rs", "crates/records/src/step_times.rs"):
        for line in re.findall(r"^ +(?:@cpp )?(\w+): [\w<>]+ =\s([^\[]+)\[", text, re.MULTILINE):
            yield from (line[0], *re.findall(r'"(\w+)"', line[1]))
        # An entry may also say where the key occurs.
        yield from re.findall(r'^    \(\s*"(\w+)[^"]*",\s', text, re.MULTILINE)


def values():
    """Values of the enumerations of records and finished requests, without the variant for all other values."""
    for text in sources(*(f"crates/records/src/{name}.rs" for name in ENUMS)):
        for attributes, body in re.findall(r"((?:^ *#\[[^\n]*\n)+) *pub enum \w+ \{\n(.*?)^ *\}", text, re.MULTILINE | re.DOTALL):
            yield from re.findall(r'(?:rename|alias) = "(\w+)"', body)
            if 'rename_all = "snake_case"' in attributes:
                variants = re.findall(r'^ +(\w+)(?: = "\w+")?,$', re.sub(r"#\[serde\(other\)\]\n.*", "", body), re.MULTILINE)
                yield from (re.sub(r"(?<=[a-z])(?=[A-Z])", "_", variant).lower() for variant in variants)


def documented():
    """All names with an underscore in the documents. An option or a policy is known if a document mentions it."""
    for text in sources("docs/**/*.md"):
        yield from re.findall(r"\w+_\w+", text)


class Ours:
    """`names` has the known names by kind. `left_out` has the entries of known.toml, which may contain `*` and `?`."""

    def __init__(self):
        read = {"route": routes, "family": families, "key": keys, "value": values, "option": documented, "policy": documented}
        self.names = {kind: set(read[kind]()) for kind in KINDS}
        for kind, least in AT_LEAST.items():
            if len(self.names[kind]) < least:
                raise Unreadable(f"tests/upstream/ours.py finds only {len(self.names[kind])} of the exporter's {kind} names")
        self.known = {kind: {plain(kind, name) for name in names} for kind, names in self.names.items()}
        self.left_out = tomllib.loads((ROOT / "tests/upstream/known.toml").read_text())
        for kind, entries in self.left_out.items():
            for name, reason in entries.items():
                if kind not in KINDS or len(reason.split()) < 4:
                    raise Unreadable(f"tests/upstream/known.toml: {kind} {name}: give one of {', '.join(KINDS)}, and a reason")
                if plain(kind, name) in self.known[kind]:
                    raise Unreadable(f"tests/upstream/known.toml: the exporter knows the {kind} {name}; remove the entry")

    def has(self, kind, name):
        if kind == "route" and any(fnmatch.fnmatchcase(route, name) for route in self.known[kind]):
            return True
        name = plain(kind, name)
        return name in self.known[kind] or any(
            fnmatch.fnmatchcase(name, plain(kind, pattern)) for pattern in self.left_out.get(kind, {}))


def plain(kind, name):
    """The name in a common form: TensorRT-LLM writes keys in two styles, and the Python client appends `_total` to families."""
    if kind == "key":
        return name.replace("_", "").lower()
    return name.removesuffix("_total") if kind == "family" else name
