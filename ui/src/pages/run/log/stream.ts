/** Follows the log of a task over server-sent events, across lost connections, until the task has ended. */

import { Problem } from "@/api/problem";
import { actingTenant } from "@/api/tenant";
import type { Schema } from "@/api/types";
import { reconnectDelay } from "@/live/backoff";
import { EventParser } from "./sse";

export type LogLine = Schema<"LogLineView">;

export interface LogHandlers {
  onLines: (lines: LogLine[]) => void;
  onState: (state: LogState, error?: unknown) => void;
  /** The id after which the stream goes on, kept by the caller across streams. */
  position: { last: string | null };
}

export type LogState = "following" | "reconnecting" | "ended" | "failed";

export async function followLog(url: string, handlers: LogHandlers, signal: AbortSignal): Promise<void> {
  for (let attempt = 0; !signal.aborted; attempt++) {
    try {
      await readOnce(url, handlers, signal, () => {
        attempt = 0;
      });
      handlers.onState("ended");
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
  url: string,
  { onLines, onState, position }: LogHandlers,
  signal: AbortSignal,
  onProgress: () => void,
): Promise<void> {
  const headers = new Headers({ accept: "text/event-stream", "x-requested-with": "tidemill-ui" });
  const tenant = actingTenant();
  if (tenant !== null) headers.set("tidemill-tenant", tenant);
  if (position.last !== null) headers.set("last-event-id", position.last);
  const response = await fetch(url, { headers, signal, credentials: "same-origin" });
  if (!response.ok || response.body === null) throw await Problem.from(response);
  onState("following");
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    onProgress();
    const lines: LogLine[] = [];
    for (const event of parser.push(piece.value)) {
      position.last = event.id ?? position.last;
      if (event.type === "error") throw new Problem({ status: 500, ...(JSON.parse(event.data) as object) });
      if (event.type === "log") lines.push(JSON.parse(event.data) as LogLine);
    }
    if (lines.length > 0) onLines(lines);
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
