import { useEffect, useRef, useState } from "react";
import { followLog, type LogLine, type LogState } from "./stream";

interface Source {
  run: string;
  task: string;
  index: number | null;
  attempt: number | null;
  /** Whether the task has not ended: its log still grows. */
  isActive: boolean;
}

interface Log {
  lines: LogLine[];
  state: LogState | "connecting";
  error: unknown;
}

const EMPTY: Log = { lines: [], state: "connecting", error: null };

/** The log of a task, line by line as it is written. */
export function useLog({ run, task, index, attempt, isActive }: Source): Log {
  const [log, setLog] = useState(EMPTY);
  const position = useRef<{ url: string; last: string | null }>({ url: "", last: null });
  const url = urlOf(run, task, index, attempt);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a rerun of a task that has ended continues its log
  useEffect(() => {
    if (position.current.url !== url) {
      position.current = { url, last: null };
      setLog(EMPTY);
    }
    const abort = new AbortController();
    const batch = makeBatch((lines) => setLog((log) => ({ ...log, lines: [...log.lines, ...lines] })));
    const handlers = {
      position: position.current,
      onLines: batch.add,
      onState: (state: LogState, error: unknown = null) => setLog((log) => ({ ...log, state, error })),
    };
    void followLog(url, handlers, abort.signal);
    return () => {
      abort.abort();
      batch.flush();
    };
  }, [url, isActive]);
  return log;
}

/** Lines that arrive within a frame are shown together. */
function makeBatch(show: (lines: LogLine[]) => void) {
  let waiting: LogLine[] = [];
  let frame: number | null = null;
  const flush = () => {
    if (frame !== null) cancelAnimationFrame(frame);
    frame = null;
    if (waiting.length > 0) show(waiting);
    waiting = [];
  };
  const add = (lines: LogLine[]) => {
    waiting.push(...lines);
    frame ??= requestAnimationFrame(flush);
  };
  return { add, flush };
}

function urlOf(run: string, task: string, index: number | null, attempt: number | null): string {
  const query = new URLSearchParams();
  if (index !== null) query.set("index", String(index));
  if (attempt !== null) query.set("attempt", String(attempt));
  return `/api/v1/runs/${run}/tasks/${encodeURIComponent(task)}/logs?${query}`;
}
