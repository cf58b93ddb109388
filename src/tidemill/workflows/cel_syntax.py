"""The syntax tree of expressions in the Common Expression Language (CEL).

The library that evaluates expressions does not show their structure. This parser reads what that library has accepted,
so that the types of an expression can be checked, and its operators be replaced, before the first firing.
"""

import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|//[^\n]*)
  | (?P<raw>(?:[rR][bB]?|[bB][rR])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|"[^"\n]*"))
  | (?P<string>[bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*"))
  | (?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?|\d+[uU]?)
  | (?P<name>[A-Za-z_]\w*|`[^`]+`)
  | (?P<operator>\|\||&&|[<>=!]=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_PRECEDENCE = (("||",), ("&&",), ("<", "<=", ">", ">=", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
"""Binary operators, those that bind least first. All are left-associative."""


class Literal(msgspec.Struct, frozen=True):
    """A constant, as it was written: a string, bytes, a number, true, false or null."""

    text: str


class Name(msgspec.Struct, frozen=True):
    """A variable, or a name that a macro binds."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """`operand.field`."""

    operand: "Node"
    field: str


class Index(msgspec.Struct, frozen=True):
    """`operand[key]`."""

    operand: "Node"
    key: "Node"


class Call(msgspec.Struct, frozen=True):
    """`name(arguments)` or `target.name(arguments)`: a function, a method or a macro."""

    target: "Node | None"
    name: str
    arguments: tuple["Node", ...]


class ListLiteral(msgspec.Struct, frozen=True):
    """`[items]`."""

    items: tuple["Node", ...]


class MapLiteral(msgspec.Struct, frozen=True):
    """`{key: value}`."""

    pairs: tuple[tuple["Node", "Node"], ...]


class Unary(msgspec.Struct, frozen=True):
    """`!operand` or `-operand`."""

    operator: str
    operand: "Node"


class Binary(msgspec.Struct, frozen=True):
    """`left operator right`."""

    operator: str
    left: "Node"
    right: "Node"


class Conditional(msgspec.Struct, frozen=True):
    """`test ? then : otherwise`."""

    test: "Node"
    then: "Node"
    otherwise: "Node"


Node = Literal | Name | Select | Index | Call | ListLiteral | MapLiteral | Unary | Binary | Conditional


def parse(text: str) -> Node:
    """Return the syntax tree of an expression; ValueError if this parser does not know what the text has."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [*_tokenize(text), ("end", "")]
        self._position = 0

    def parse(self) -> Node:
        node = self._conditional()
        if self._kind != "end":
            self._fail()
        return node

    @property
    def _kind(self) -> str:
        return self._tokens[self._position][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._position][1]

    def _next(self) -> str:
        text = self._text
        self._position += 1
        return text

    def _accept(self, text: str) -> bool:
        found = self._kind != "string" and self._text == text and self._kind != "end"
        self._position += found
        return found

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail()

    def _fail(self) -> NoReturn:
        raise ValueError(f"it has {self._text or 'its end'!r} where that is not expected")

    def _conditional(self) -> Node:
        test = self._binary(0)
        if not self._accept("?"):
            return test
        then = self._binary(0)
        self._expect(":")
        return Conditional(test, then, self._conditional())

    def _binary(self, level: int) -> Node:
        if level == len(_PRECEDENCE):
            return self._unary()
        left = self._binary(level + 1)
        while self._kind != "string" and self._text in _PRECEDENCE[level]:
            left = Binary(self._next(), left, self._binary(level + 1))
        return left

    def _unary(self) -> Node:
        if self._kind == "operator" and self._text in ("!", "-"):
            return Unary(self._next(), self._unary())
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._accept("."):
                name = self._name()
                node = Call(node, name, self._list(")")) if self._accept("(") else Select(node, name)
            elif self._accept("["):
                node = Index(node, self._conditional())
                self._expect("]")
            else:
                return node

    def _name(self) -> str:
        if self._kind != "name":
            self._fail()
        return self._next()

    def _primary(self) -> Node:
        if self._kind in ("string", "number") or self._text in ("true", "false", "null"):
            return Literal(self._next())
        if self._accept("("):
            node = self._conditional()
            self._expect(")")
            return node
        if self._accept("["):
            return ListLiteral(self._list("]"))
        if self._accept("{"):
            return MapLiteral(self._pairs())
        self._accept(".")  # a name may begin with a dot: it is then not looked for in containers, of which we have none
        name = self._name()
        return Call(None, name, self._list(")")) if self._accept("(") else Name(name)

    def _list(self, end: str) -> tuple[Node, ...]:
        items = []
        while not self._accept(end):
            items.append(self._conditional())
            if not self._accept(","):
                self._expect(end)
                break
        return tuple(items)

    def _pairs(self) -> tuple[tuple[Node, Node], ...]:
        pairs = []
        while not self._accept("}"):
            key = self._conditional()
            self._expect(":")
            pairs.append((key, self._conditional()))
            if not self._accept(","):
                self._expect("}")
                break
        return tuple(pairs)


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"it has {text[position]!r} where that is not expected")
        kind = match.lastgroup or ""
        if kind != "blank":
            yield "string" if kind == "raw" else kind, match.group()
        position = match.end()


def to_text(node: Node, functions: dict[str, str] | None = None) -> str:
    """Return the text of a tree. `functions` has the names of functions that are called in place of operators."""
    functions = functions or {}

    def write(one: Node, *, in_operator: bool = False) -> str:
        text = _write(one)
        return f"({text})" if in_operator and isinstance(one, Binary | Conditional | Unary) else text

    def _write(one: Node) -> str:
        match one:
            case Literal(text) | Name(text):
                return text
            case Select(operand, field):
                return f"{write(operand, in_operator=True)}.{field}"
            case Index(operand, key):
                return f"{write(operand, in_operator=True)}[{write(key)}]"
            case Call(target, name, arguments):
                receiver = "" if target is None else f"{write(target, in_operator=True)}."
                return f"{receiver}{name}({', '.join(map(write, arguments))})"
            case ListLiteral(items):
                return f"[{', '.join(map(write, items))}]"
            case MapLiteral(pairs):
                return f"{{{', '.join(f'{write(key)}: {write(value)}' for key, value in pairs)}}}"
            case Unary(operator, operand):
                return f"{operator}{write(operand, in_operator=True)}"
            case Binary(operator, left, right) if operator in functions:
                return f"{functions[operator]}({write(left)}, {write(right)})"
            case Binary(operator, left, right):
                return f"{write(left, in_operator=True)} {operator} {write(right, in_operator=True)}"
            case Conditional(test, then, otherwise):
                parts = [write(part, in_operator=True) for part in (test, then, otherwise)]
                return f"{parts[0]} ? {parts[1]} : {parts[2]}"

    return write(node)
