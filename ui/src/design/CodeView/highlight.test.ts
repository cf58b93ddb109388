import { expect, test } from "vitest";
import { highlightPython } from "./highlight";

const kinds = (code: string) =>
  highlightPython(code).map((line) => line.filter(({ kind }) => kind).map(({ text, kind }) => `${kind} ${text}`));

test("each line has its tokens", () => {
  expect(kinds('@daily.task\nasync def send(price: float = 1_0.5) -> None:  # now\n    return f"{price}"')).toEqual([
    ["decorator @daily.task"],
    ["keyword async", "keyword def", "name send", "number 1_0.5", "constant None", "comment # now"],
    ["keyword return", 'string f"{price}"'],
  ]);
});

test("a text of several lines is one in each of them, and holds no keyword", () => {
  expect(kinds('"""Return it\nfor all."""\nif a: pass')).toEqual([
    ['string """Return it'],
    ['string for all."""'],
    ["keyword if", "keyword pass"],
  ]);
});

test("quotes inside quotes, and code that is not finished, stay what they are", () => {
  expect(kinds("a = 'it\\'s # no'\nb = 'open")).toEqual([["string 'it\\'s # no'"], ["string 'open"]]);
  expect(kinds('class Open:\n    """never closed\n    def')).toEqual([
    ["keyword class", "name Open"],
    ['string """never closed'],
    ["string     def"],
  ]);
});

test("the text stays as it is", () => {
  const code = "x = call(1)\n\n\ty = {'a': [None]}\n";
  const lines = highlightPython(code).map((line) => line.map(({ text }) => text).join(""));
  expect(lines.join("\n")).toBe(code);
});
