/** Follows the log of a task over server-sent events, across lost connections, until the task has ended. */

import { Problem } from "@/api/problem";
import { reconnectDelay } from "@/live/backoff";
import type { LogBuffer, LogLine } from "./logBuffer";
import { EventParser } from "./sse";

/** Opens a stream that begins after the line with an id; `null` is the first line. */
export type OpenStream = (last: string | null, signal: AbortSignal) => Promise<ReadableStream<Uint8Array<ArrayBuffer>>>;

export interface LogHandlers {
  /** Lines were added to the buffer, or taken back. */
  onChange: () => void;
  onState: (state: LogState, error?: unknown) => void;
}

export type LogState = "following" | "reconnecting" | "ended" | "failed";

export async function followLog(
  open: OpenStream,
  buffer: LogBuffer,
  handlers: LogHandlers,
  signal: AbortSignal,
): Promise<void> {
  for (let attempt = 0; !signal.aborted; attempt++) {
    try {
      await readOnce(open, buffer, handlers, signal, () => {
        attempt = 0;
      });
      if (!signal.aborted) handlers.onState("ended");
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && !error.isTransient) {
        handlers.onState("failed", error);
        return;
      }
      handlers.onState("reconnecting");
      await pause(reconnectDelay(attempt), signal);
    }
  }
}

async function readOnce(
  open: OpenStream,
  buffer: LogBuffer,
  { onChange, onState }: LogHandlers,
  signal: AbortSignal,
  onProgress: () => void,
): Promise<void> {
  const stream = await open(buffer.last, signal);
  if (signal.aborted) return;
  buffer.rewind();
  onChange();
  onState("following");
  const parser = new EventParser();
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done && !signal.aborted; piece = await reader.read()) {
    for (const event of parser.push(piece.value)) {
      // An error is the last event: the status of the answer could not say it any more.
      if (event.type === "error") throw new Problem({ status: 500, ...(JSON.parse(event.data) as object) });
      if (event.type !== "log") continue;
      buffer.add(JSON.parse(event.data) as LogLine, event.id);
      onProgress();
    }
    onChange();
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
