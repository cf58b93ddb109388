import { createMemoryHistory, createRootRoute, createRouter } from "@tanstack/react-router";
import { expect, test } from "vitest";
import { parseSearch, stringifySearch } from "./search";

const TEXTS = ["12e45678", "007", "true", "null", '"quoted"', "a b&c=d", "[1]", "", "99999999999999999999"];

test.each(TEXTS)("the text %j comes back from an address as it was", (q) => {
  expect(parseSearch(stringifySearch({ q }))).toEqual({ q });
});

test("what is not defined is not in the address", () => {
  expect(stringifySearch({ q: undefined, tab: null })).toBe("");
  expect(stringifySearch({ index: 3, task: undefined })).toBe("?index=3");
});

test("the router keeps a search that looks like a number", async () => {
  const history = createMemoryHistory({ initialEntries: ["/?q=12e45678"] });
  const router = createRouter({ routeTree: createRootRoute(), history, parseSearch, stringifySearch });
  await router.load();
  expect(router.state.location.search).toEqual({ q: "12e45678" });
  expect(router.state.location.href).toBe("/?q=12e45678");
});
