"""The type checker of expressions: finds what would fail, or never hold, for every firing.

It knows the types of variables as far as annotations tell them. What it does not know is "any", and passes.
"""

from collections.abc import Mapping

from tidemill.kernel.suggestions import did_you_mean
from tidemill.workflows.cel_syntax import (
    Binary,
    Call,
    Conditional,
    Index,
    ListLiteral,
    Literal,
    MapLiteral,
    Name,
    Node,
    Select,
    Unary,
    to_text,
)
from tidemill.workflows.cel_types import (
    ANY,
    BOOL,
    BYTES,
    DURATION,
    NULL,
    NUMBER,
    STRING,
    TIMESTAMP,
    TYPE,
    CelType,
    list_of,
    map_of,
    union_of,
)

_MACROS = ("all", "exists", "exists_one", "existsOne", "map", "filter")
_ORDERED = frozenset(["number", "string", "bool", "bytes", "timestamp", "duration"])
_MAPS = frozenset(["map", "record"])
_SIZED = frozenset(["string", "bytes", "list", "map", "record"])
_TIMES = frozenset(["timestamp", "duration"])
_TEXT = frozenset(["string"])
_ARITHMETIC = {
    "+": frozenset(["number", "string", "bytes", "list", *_TIMES]),
    "-": frozenset(["number", *_TIMES]),
    "*": frozenset(["number"]),
    "/": frozenset(["number"]),
    "%": frozenset(["number"]),
}
_TIME_PARTS = ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours", "Minutes", "Seconds")
_FUNCTIONS: dict[str, tuple[frozenset[str] | None, CelType]] = {
    "size": (_SIZED, NUMBER),
    **dict.fromkeys(("startsWith", "endsWith", "contains", "matches"), (_TEXT, BOOL)),
    **dict.fromkeys(("int", "uint", "double"), (None, NUMBER)),
    **{f"get{part}": (_TIMES, NUMBER) for part in (*_TIME_PARTS, "Milliseconds")},
    "string": (None, STRING),
    "bytes": (None, BYTES),
    "bool": (None, BOOL),
    "type": (None, TYPE),
    "timestamp": (frozenset(["string", "number", "timestamp"]), TIMESTAMP),
    "duration": (frozenset(["string", "number", "duration"]), DURATION),
    "hasValue": (None, BOOL),
}
"""By name: the kinds that the function takes, as its target or first argument (None: any), and what it returns."""

KNOWN_FUNCTIONS = (*_FUNCTIONS, *_MACROS, "has", "dyn")
"""Functions and macros to suggest in place of a misspelt one."""


def check_types(expression: Node, variables: Mapping[str, CelType], *, is_condition: bool) -> list[str]:
    """Return what is wrong with an expression over variables of these types; a condition has to give a bool."""
    checker = _Checker()
    result = checker.check(expression, variables)
    if is_condition and not checker.problems and not _may_be(result, frozenset(["bool"])):
        checker.problems.append(f"it gives {result.describe()}, neither true nor false")
    return checker.problems


class _Checker:
    def __init__(self) -> None:
        self.problems: list[str] = []

    def check(self, node: Node, scope: Mapping[str, CelType]) -> CelType:
        """Return the type of a node, and collect its problems."""
        match node:
            case Literal(text):
                return _literal_type(text)
            case Name(name):
                return scope.get(name, ANY)
            case Select(operand, field):
                return self._field(operand, self.check(operand, scope), field)
            case Index(operand, key):
                return self._item(operand, self.check(operand, scope), key, self.check(key, scope))
            case ListLiteral(items):
                return list_of(union_of([self.check(one, scope) for one in items]))
            case MapLiteral(pairs):
                for key, _ in pairs:
                    self.check(key, scope)
                return map_of(union_of([self.check(value, scope) for _, value in pairs]))
            case Unary(operator, operand):
                wanted = frozenset(["bool"]) if operator == "!" else frozenset(["number", "duration"])
                self._expect(operand, self.check(operand, scope), wanted, f"'{operator}'")
                return BOOL if operator == "!" else ANY
            case Conditional(test, then, otherwise):
                self._expect(test, self.check(test, scope), frozenset(["bool"]), "'?'")
                return union_of([self.check(then, scope), self.check(otherwise, scope)])
            case Binary(operator, left, right):
                return self._binary(node, operator, (left, self.check(left, scope)), (right, self.check(right, scope)))
            case Call():
                return self._call(node, scope)

    # -- fields and items

    def _field(self, operand: Node, given: CelType, field: str) -> CelType:
        alternatives = given.alternatives()
        if alternatives is None:
            return ANY
        found = [one for one in alternatives if one.kind == "map" or field in one.fields]
        if found:
            return union_of(one.fields[field]() if field in one.fields else one.element or ANY for one in found)
        records = [one for one in alternatives if one.kind == "record"]
        if records:
            known = list(dict.fromkeys(name for one in records for name in one.fields))
            listed = did_you_mean(field, known) or f"; it has {', '.join(known) or 'none'}"
            self.problems.append(f"{to_text(operand)} has no field '{field}'{listed}")
        elif alternatives:
            self.problems.append(f"{to_text(operand)} is {given.describe()} and has no field '{field}'")
        return ANY

    def _item(self, operand: Node, given: CelType, key: Node, key_type: CelType) -> CelType:
        alternatives = given.alternatives()
        if alternatives is None:
            return ANY
        if isinstance(key, Literal) and key_type is STRING and all(one.kind in _MAPS for one in alternatives):
            return self._field(operand, given, key.text.strip("'\""))
        self._expect(operand, given, _MAPS | {"list"}, "'[]'")
        if all(one.kind == "list" for one in alternatives):
            self._expect(key, key_type, frozenset(["number"]), f"an index of {to_text(operand)}")
        return union_of(one.element or ANY for one in alternatives)

    # -- operators

    def _binary(self, node: Node, operator: str, left: tuple[Node, CelType], right: tuple[Node, CelType]) -> CelType:
        if operator in ("&&", "||"):
            for one, given in (left, right):
                self._expect(one, given, frozenset(["bool"]), f"'{operator}'")
            return BOOL
        if operator == "in":
            return self._membership(node, left, right)
        if operator in _ARITHMETIC:
            return self._arithmetic(node, operator, left, right)
        if operator in ("==", "!="):
            is_comparable = NULL not in (left[1], right[1])  # what may be missing is compared with null
        else:
            is_comparable = all(self._expect(*one, _ORDERED, f"'{operator}'") for one in (left, right))
        if is_comparable and _are_unlike(left[1], right[1]):
            self._unlike("compares", node, left, right)
        return BOOL

    def _membership(self, node: Node, left: tuple[Node, CelType], right: tuple[Node, CelType]) -> CelType:
        is_container = self._expect(*right, _MAPS | {"list"}, "'in'")
        for one in right[1].alternatives() or () if is_container else ():
            element = one.element if one.kind == "list" else STRING
            if element is not None and _are_unlike(left[1], element):
                self._unlike("looks for", node, left, right)
        return BOOL

    def _arithmetic(
        self, node: Node, operator: str, left: tuple[Node, CelType], right: tuple[Node, CelType]
    ) -> CelType:
        is_defined = all(self._expect(*one, _ARITHMETIC[operator], f"'{operator}'") for one in (left, right))
        kinds = [{one.kind for one in given.alternatives() or ()} for _, given in (left, right)]
        if is_defined and _are_unlike(left[1], right[1]) and not all(kind <= _TIMES for kind in kinds):
            self._unlike("combines", node, left, right)
        return left[1] if left[1].kind == right[1].kind and left[1].kind in ("number", "string") else ANY

    def _unlike(self, verb: str, node: Node, left: tuple[Node, CelType], right: tuple[Node, CelType]) -> None:
        subject, other = (f"{to_text(one)}, {given.describe()}" for one, given in (left, right))
        self.problems.append(f"'{to_text(node)}' {verb} {subject}, {'in' if verb == 'looks for' else 'with'} {other}")

    # -- calls

    def _call(self, node: Call, scope: Mapping[str, CelType]) -> CelType:
        if node.target is not None and node.name in _MACROS and len(node.arguments) > 1:
            return self._macro(node, node.target, scope)
        if node.target is not None and isinstance(node.target, Name) and node.target.name not in scope:
            for one in node.arguments:  # a function with a prefix, such as optional.of
                self.check(one, scope)
            return ANY
        operands = [*([node.target] if node.target is not None else []), *node.arguments]
        types = [self.check(one, scope) for one in operands]
        if node.name == "has":
            return BOOL
        wanted, result = _FUNCTIONS.get(node.name, (None, ANY))
        if operands and wanted is not None:
            checked = len(operands) if wanted is _TEXT else 1
            for one, given in list(zip(operands, types, strict=True))[:checked]:
                self._expect(one, given, wanted, f"{node.name}()")
        return result

    def _macro(self, node: Call, target: Node, scope: Mapping[str, CelType]) -> CelType:
        given = self.check(target, scope)
        self._expect(target, given, _MAPS | {"list"}, f"{node.name}()")
        alternatives = given.alternatives()
        elements = [STRING if one.kind in _MAPS else one.element or ANY for one in alternatives or ()]
        variable, *bodies = node.arguments
        inner = {**scope, variable.name: union_of(elements)} if isinstance(variable, Name) else scope
        types = [self.check(body, inner) for body in bodies]
        tests = bodies[:-1] if node.name == "map" else bodies
        for body, body_type in zip(tests, types, strict=False):
            self._expect(body, body_type, frozenset(["bool"]), f"{node.name}()")
        if node.name in ("map", "filter"):
            return list_of(types[-1] if node.name == "map" else union_of(elements))
        return BOOL

    def _expect(self, node: Node, given: CelType, wanted: frozenset[str], user: str) -> bool:
        """Return whether a node may be of a wanted kind; else that is a problem of its user."""
        is_possible = _may_be(given, wanted)
        if not is_possible:
            kinds = " or ".join(one for one in sorted(wanted) if one != "record")
            self.problems.append(f"{to_text(node)} is {given.describe()}, and {user} takes {kinds}")
        return is_possible


def _literal_type(text: str) -> CelType:
    if text in ("true", "false"):
        return BOOL
    if text == "null":
        return NULL
    if text[0].isdigit() or text[0] == ".":
        return NUMBER
    prefix = text[: min(text.find(quote) for quote in "'\"" if quote in text)]
    return BYTES if "b" in prefix.lower() else STRING


def _may_be(given: CelType, wanted: frozenset[str]) -> bool:
    alternatives = given.alternatives()
    return alternatives is None or any(one.kind in wanted for one in alternatives)


def _are_unlike(left: CelType, right: CelType) -> bool:
    """Return whether values of two types are of different kinds, whatever they are."""
    ours, theirs = left.alternatives(), right.alternatives()
    if not ours or not theirs:
        return False
    kinds, others = ({"map" if one.kind == "record" else one.kind for one in some} for some in (ours, theirs))
    return kinds.isdisjoint(others)
