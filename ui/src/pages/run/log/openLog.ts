/** Reads the log of a task from the server: as a stream, or page by page. */

import { client } from "@/api/client";
import type { LogLine } from "./logBuffer";
import type { OpenStream } from "./stream";

const PATH = "/api/v1/runs/{run}/tasks/{task}/logs";
const PAGE_SIZE = 500;

export interface LogSource {
  run: string;
  task: string;
  /** An element of a mapped task; `null` is all of them. */
  index: number | null;
  attempt: number | null;
}

/** Opens streams of a log: each begins after a given id. */
export function openLog({ run, task, index, attempt }: LogSource): OpenStream {
  return async (last, signal) => {
    const { data } = await client.GET(PATH, {
      params: { path: { run, task }, query: { index, attempt } },
      headers: { accept: "text/event-stream", ...(last === null ? {} : { "last-event-id": last }) },
      parseAs: "stream",
      signal,
    });
    if (!data) throw new Error("The server sent no log.");
    return data;
  };
}

/** All lines that the log has now. */
export async function readWholeLog({ run, task, index, attempt }: LogSource): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  let cursor: string | null = null;
  do {
    const query = { index, attempt, limit: PAGE_SIZE, cursor };
    const answer: { data?: { items: LogLine[]; next: string | null } } = await client.GET(PATH, {
      params: { path: { run, task }, query },
    });
    for (const line of answer.data?.items ?? []) lines.push(line);
    cursor = answer.data?.next ?? null;
  } while (cursor !== null);
  return lines;
}
