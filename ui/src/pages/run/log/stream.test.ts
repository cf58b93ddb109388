import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Problem } from "@/api/problem";
import { KEPT, LogBuffer, type LogLine } from "./logBuffer";
import { followLog, type LogState } from "./stream";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const line = (message: string) => ({ at: "", message }) as LogLine;
const logEvent = (message: string, id?: string) =>
  `${id === undefined ? "" : `id: ${id}\n`}event: log\ndata: ${JSON.stringify(line(message))}\n\n`;
const errorEvent = (problem: object) => `event: error\ndata: ${JSON.stringify(problem)}\n\n`;

/** Follows a log whose streams have these events, one after the other; "lost" breaks a connection. */
async function follow(streams: string[][], buffer = new LogBuffer()) {
  const asked: (string | null)[] = [];
  const states: LogState[] = [];
  const open = async (last: string | null) => {
    const events = streams[asked.length] ?? [];
    asked.push(last);
    const bytes = new TextEncoder();
    const pieces = events.values();
    return new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull(controller) {
        const { value, done } = pieces.next();
        if (done) controller.close();
        else if (value === "lost") controller.error(new TypeError("network error"));
        else controller.enqueue(bytes.encode(value));
      },
    });
  };
  const handlers = { onChange: () => undefined, onState: (state: LogState) => states.push(state) };
  const followed = followLog(open, buffer, handlers, new AbortController().signal);
  await vi.runAllTimersAsync();
  await followed;
  return { asked, states, texts: buffer.excerpt().lines.map(({ message }) => message) };
}

test("a stream goes on after the last id, and lines that it repeats are shown once", async () => {
  const { asked, states, texts } = await follow([
    [logEvent("a", "1"), logEvent("b"), logEvent("c"), "lost"],
    [logEvent("b"), logEvent("c"), logEvent("d", "2")],
  ]);
  expect(asked).toEqual([null, "1"]);
  expect(texts).toEqual(["a", "b", "c", "d"]);
  expect(states).toEqual(["following", "reconnecting", "following", "ended"]);
});

test("a log without any id begins anew", async () => {
  const { texts } = await follow([
    [logEvent("a"), "lost"],
    [logEvent("a"), logEvent("b")],
  ]);
  expect(texts).toEqual(["a", "b"]);
});

test.each([
  { status: 503, code: "unavailable" },
  { status: 503, code: "not_running" },
])("a server that stops ($code) is asked again, another error is the end, and the lines stay", async (problem) => {
  const closing = errorEvent(problem);
  const fatal = errorEvent({ status: 403, code: "forbidden", detail: "Not yours." });
  const { states, texts } = await follow([
    [logEvent("a", "1"), closing],
    [logEvent("b", "2"), fatal],
  ]);
  expect(states).toEqual(["following", "reconnecting", "following", "failed"]);
  expect(texts).toEqual(["a", "b"]);
});

test("an answer that refuses the stream is the end", async () => {
  const states: LogState[] = [];
  const open = async () => {
    throw new Problem({ status: 404 });
  };
  const handlers = { onChange: () => undefined, onState: (state: LogState) => states.push(state) };
  await followLog(open, new LogBuffer(), handlers, new AbortController().signal);
  expect(states).toEqual(["failed"]);
});

test("UD-12: what came late is shown in order of time, and the stream still goes on after the last id", () => {
  const buffer = new LogBuffer();
  const at = (time: string, message: string) => ({ at: `2026-01-01T00:00:${time}Z`, message }) as LogLine;
  buffer.add(at("01", "one"), "1");
  buffer.add(at("03.5", "three"), "2");
  buffer.add(at("03", "two"), "3");
  buffer.add(at("04", "four"), null);
  expect(buffer.excerpt().lines.map(({ message }) => message)).toEqual(["one", "two", "three", "four"]);
  buffer.rewind();
  expect(buffer.excerpt().lines.map(({ message }) => message)).toEqual(["one", "two", "three"]);
});

test("a long log keeps its newest lines, says how many it dropped, and can still go back to the last id", () => {
  const buffer = new LogBuffer();
  for (let number = 1; number <= KEPT * 3; number++) buffer.add(line(`${number}`), null);
  const { lines, dropped } = buffer.excerpt();
  expect(lines.length).toBeGreaterThanOrEqual(KEPT);
  expect(lines.length).toBeLessThan(KEPT + 10_000);
  expect(lines.length + dropped).toBe(KEPT * 3);
  expect(lines.at(-1)?.message).toBe(`${KEPT * 3}`);
  buffer.add(line("settled"), "9");
  buffer.add(line("repeated"), null);
  buffer.rewind();
  expect(buffer.excerpt().lines.at(-1)?.message).toBe("settled");
});
