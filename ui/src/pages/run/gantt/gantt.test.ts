import { expect, test } from "vitest";
import type { Task } from "../useRunTasks";
import { positionOf, scaleOf, ticksOf } from "./scale";
import { type Attempt, readyTimes, spansOf } from "./spans";

const at = (second: number) => new Date(Date.UTC(2026, 0, 5, 10, 0, second)).toISOString();
const ms = (second: number) => Date.parse(at(second));

function task(name: string, other: Partial<Task>): Task {
  return {
    task: name,
    index: null,
    state: "success",
    attempts: 1,
    started_at: null,
    ended_at: null,
    elements: null,
    ...other,
  } as Task;
}

test("ticks are round, and about as many as asked for", () => {
  expect(ticksOf({ start: 0, end: 10_000 })).toEqual([0, 2, 4, 6, 8, 10]);
  expect(ticksOf({ start: 0, end: 240 })).toHaveLength(5);
  expect(positionOf({ start: 0, end: 200 }, 50)).toBe(0.25);
});

test("the axis of a run that goes on ends after now, that of another one at its end", () => {
  const run = { created_at: at(0), started_at: at(1), ended_at: null };
  expect(scaleOf(run, ms(11)).end).toBeGreaterThan(ms(11));
  expect(scaleOf({ ...run, ended_at: at(9) }, ms(60)).end).toBe(ms(9));
});

test("a task could begin when the last task before it had ended, and not before all have", () => {
  const tasks = [task("a", { ended_at: at(3) }), task("b", { ended_at: at(5) }), task("c", {}), task("d", {})];
  const edges = [
    { source: "a", target: "c" },
    { source: "b", target: "c" },
    { source: "c", target: "d" },
  ];
  const ready = readyTimes(tasks, edges, ms(0));
  expect([ready.get("a"), ready.get("c"), ready.get("d")]).toEqual([ms(0), ms(5), undefined]);
});

test("waits are between the attempts, and before the first", () => {
  const attempt = (number: number, from: number, to: number, outcome: string) =>
    ({ attempt: number, started_at: at(from), ended_at: at(to), outcome }) as Attempt;
  const attempts = [attempt(1, 2, 3, "failed"), attempt(2, 5, 6, "success")];
  const spans = spansOf(task("a", {}), ms(0), attempts, ms(60));
  expect(spans.map(({ kind, from, to }) => [kind, (from - ms(0)) / 1000, (to - ms(0)) / 1000])).toEqual([
    ["waiting", 0, 2],
    ["attempt", 2, 3],
    ["waiting", 3, 5],
    ["attempt", 5, 6],
  ]);
});

test("a task that is queued waits until now, a skipped one not at all", () => {
  expect(spansOf(task("a", { state: "queued" }), ms(1), [], ms(4))).toMatchObject([{ kind: "waiting", to: ms(4) }]);
  expect(spansOf(task("a", { state: "skipped" }), ms(1), [], ms(4))).toEqual([]);
});
