import { describe, expect, it } from "vitest";
import { parseValue } from "./value";

describe("parseValue", () => {
  it("reads JSON as what it is", () => {
    expect(parseValue("4")).toEqual({ value: 4, kind: "a number", isValid: true });
    expect(parseValue(' {"a": [1]} ').value).toEqual({ a: [1] });
    expect(parseValue('"4"').value).toBe("4");
    expect(parseValue("null").kind).toBe("null");
  });

  it("takes a text without quotes", () => {
    expect(parseValue("eu-west")).toEqual({ value: "eu-west", kind: "a text", isValid: true });
  });

  it("refuses what begins as JSON and is none", () => {
    expect(parseValue('{"a": }').isValid).toBe(false);
  });
});
