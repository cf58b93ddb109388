import { expect, test } from "vitest";
import { EventParser } from "./sse";

test("events are complete however the answer is cut", () => {
  const text =
    'id: a\r\nevent: log\r\ndata: {"n": 1}\r\n\r\n: keep-alive\r\n\r\nid: b\r\nevent: log\r\ndata: {"n": 2}\r\n\r\n';
  for (const size of [1, 7, text.length]) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    expect(events).toEqual([
      { id: "a", type: "log", data: '{"n": 1}' },
      { id: "b", type: "log", data: '{"n": 2}' },
    ]);
  }
});
