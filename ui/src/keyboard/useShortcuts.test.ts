import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { actionOf } from "./useShortcuts";

beforeEach(() => void vi.stubGlobal("document", { querySelector: () => null }));
afterEach(() => void vi.unstubAllGlobals());

/** A key on an element that a selector finds. */
function press(key: string, selector: string): KeyboardEvent {
  const target = { matches: (selectors: string) => selectors.split(", ").includes(selector) };
  return { key, target } as unknown as KeyboardEvent;
}

const open = () => {};
const next = () => {};
const SHORTCUTS = { Enter: open, j: next };

test("Enter opens the selected row, but clicks a button or a link that has the focus", () => {
  expect(actionOf(press("Enter", "body"), SHORTCUTS, false)).toBe(open);
  for (const selector of ["button", "a", "summary", "[role=button]"])
    expect(actionOf(press("Enter", selector), SHORTCUTS, false)).toBeUndefined();
});

test("other keys work on buttons too, and none while something is typed", () => {
  expect(actionOf(press("j", "button"), SHORTCUTS, false)).toBe(next);
  expect(actionOf(press("j", "input"), SHORTCUTS, false)).toBeUndefined();
});
