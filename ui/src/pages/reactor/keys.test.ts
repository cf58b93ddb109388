import { expect, test } from "vitest";
import { hasKey, keyText, parseKey } from "./keys";

test("keys are read as the API reads them", () => {
  expect(["BTC", "42", '"42"', '["X", 1]', "true", "1.5", "null", ""].map(parseKey)).toEqual([
    "BTC",
    42,
    "42",
    ["X", 1],
    "true",
    "1.5",
    "null",
    "",
  ]);
});

test("keys that are not text, or look like others, are shown as JSON", () => {
  const keys = ["BTC", 42, "42", ["X", 1], "true", '"quoted"'];
  expect(keys.map(keyText)).toEqual(["BTC", "42", '"42"', '["X",1]', "true", '"\\"quoted\\""']);
  expect(keys.map((key) => parseKey(keyText(key)))).toEqual(keys);
  expect([{ key: 0 }, { key: "" }, { key: null }, {}].map(hasKey)).toEqual([true, true, false, false]);
});
