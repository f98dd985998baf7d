"""Parses a Python file, and finds the texts that its expressions can have. The file is not executed."""
import ast
import itertools

LOOPS = (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# An expression that can have more texts than this is not a list of names.
MAX_TEXTS = 256


class Module:
    """The syntax tree of one file. `path` is relative to the checkout. Raises SyntaxError."""

    def __init__(self, path, text):
        self.path, self.tree, self.parents, self.known = path, ast.parse(text), {}, {}
        # Assigned values by the name of a class's attribute, assigned values by scope and name, and calls by the called name.
        self.attributes, self.assigned, self.calls = {}, {}, {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        for assign in self.nodes(ast.Assign, ast.AnnAssign):
            scope = self._scope(assign)
            for target in assign.targets if isinstance(assign, ast.Assign) else [assign.target]:
                if assign.value is None:
                    continue
                if isinstance(target, ast.Name) and not isinstance(scope, ast.ClassDef):
                    self.assigned.setdefault((scope, target.id), []).append(assign.value)
                elif isinstance(target, ast.Name) or _of_class(target):
                    name = getattr(target, "id", getattr(target, "attr", None))
                    self.attributes.setdefault(name, []).append(assign.value)
        for call in self.nodes(ast.Call):
            self.calls.setdefault(called(call), []).append(call)

    def nodes(self, *kinds, scopes=None):
        """All nodes of these kinds. With `scopes`, only those inside classes and functions with these names."""
        tops = [self.tree] if scopes is None else [
            node for node in self.nodes(ast.ClassDef, *FUNCTIONS) if node.name in scopes]
        return [node for top in tops for node in ast.walk(top) if isinstance(node, kinds)]

    def texts(self, node):
        """The texts that an expression can have, or None if the syntax does not show them."""
        if node not in self.known:
            # Prevents an endless recursion if a name is assigned from itself.
            self.known[node] = None
            texts = self._texts(node)
            self.known[node] = texts if texts is None or len(texts) <= MAX_TEXTS else None
        return self.known[node]

    def _texts(self, node):
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.BinOp(op=ast.Add()):
                return self._joined([node.left, node.right])
            case ast.JoinedStr():
                return self._joined([part.value if isinstance(part, ast.FormattedValue) else part for part in node.values])
            case ast.IfExp():
                return self._united([node.body, node.orelse])
            case ast.Attribute() if _of_class(node):
                return self._united(self.attributes.get(node.attr))
            case ast.Name():
                return self._united(self._values(node))
        return None

    def _joined(self, parts):
        all_texts = [self.texts(part) for part in parts]
        if None in all_texts:
            return None
        return {"".join(texts) for texts in itertools.islice(itertools.product(*all_texts), MAX_TEXTS + 1)}

    def _united(self, values):
        all_texts = [self.texts(value) for value in values or [None]]
        return None if None in all_texts else set().union(*all_texts)

    def _values(self, name):
        """The expressions that a name can stand for, from the innermost scope that defines it: a loop, a
        comprehension, a function or the file."""
        node = name
        while node := self.parents.get(node):
            loops = node.generators if isinstance(node, LOOPS) else [node] if isinstance(node, (ast.For, ast.AsyncFor)) else []
            for loop in loops:
                for position, target in enumerate(getattr(loop.target, "elts", [loop.target])):
                    if isinstance(target, ast.Name) and target.id == name.id:
                        return self._loop_values(loop, position)
            if isinstance(node, FUNCTIONS) and any(parameter.arg == name.id for parameter in ast.walk(node.args)
                                                   if isinstance(parameter, ast.arg)):
                return self._arguments(node, name.id)
            if (node, name.id) in self.assigned:
                return self.assigned[node, name.id]
        return None

    def _arguments(self, function, name):
        """The values that calls in this file pass for a parameter."""
        names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        position = names.index(name) if name in names else None
        callee = getattr(self.parents[function], "name", "") if function.name == "__init__" else function.name
        given = [argument(call, position, name) for call in self.calls.get(callee, [])]
        return [value for value in given if value is not None]

    def _loop_values(self, loop, position):
        elements = self._elements(loop.iter)
        if elements is None or isinstance(loop.target, ast.Name):
            return elements
        rows = [getattr(element, "elts", []) for element in elements]
        return [row[position] if position < len(row) else None for row in rows]

    def _elements(self, node):
        """The elements of a literal such as a list, or of a constant that is such a literal."""
        if isinstance(node, ast.Name):
            values = self.assigned.get((self.tree, node.id), [])
            node = values[0] if len(values) == 1 else None
        return node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else None

    def _scope(self, node):
        while not isinstance(node, (ast.Module, ast.ClassDef, ast.Lambda, *FUNCTIONS)):
            node = self.parents[node]
        return node


def _of_class(node):
    """True for `self.a`, `cls.a` and `Class.a`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (
        node.value.id in ("self", "cls") or node.value.id[0].isupper())


def called(call):
    """The last part of the called name: `b` for `a.b()`."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def argument(call, position, name):
    """An argument of a call, or None."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return named[0] if named else call.args[position] if position is not None and position < len(call.args) else None
