import { useCallback, useEffect, useRef, useState } from "react";
import { type Excerpt, LogBuffer } from "./logBuffer";
import { type LogSource, openLog } from "./openLog";
import { followLog, type LogState } from "./stream";

interface Followed extends LogSource {
  /** Whether the task has not ended: its log still grows. */
  isActive: boolean;
}

interface Log extends Excerpt {
  state: LogState | "connecting";
  error: unknown;
}

const EMPTY: Log = { lines: [], dropped: 0, state: "connecting", error: null };

/** The log of a task, line by line as it is written; `retry` reads on after an error. */
export function useLog({ run, task, index, attempt, isActive }: Followed): Log & { retry: () => void } {
  const [log, setLog] = useState(EMPTY);
  const [round, setRound] = useState(0);
  const followed = useRef({ key: "", buffer: new LogBuffer() });
  // biome-ignore lint/correctness/useExhaustiveDependencies: a rerun of a task that has ended continues its log, and so does a retry
  useEffect(() => {
    const source = { run, task, index, attempt };
    const key = JSON.stringify(source);
    if (followed.current.key !== key) {
      followed.current = { key, buffer: new LogBuffer() };
      setLog(EMPTY);
    }
    const { buffer } = followed.current;
    const abort = new AbortController();
    const frame = oncePerFrame(() => setLog((log) => ({ ...log, ...buffer.excerpt() })));
    const handlers = {
      onChange: frame.request,
      onState: (state: LogState, error: unknown = null) => setLog((log) => ({ ...log, state, error })),
    };
    void followLog(openLog(source), buffer, handlers, abort.signal);
    return () => {
      abort.abort();
      frame.cancel();
    };
  }, [run, task, index, attempt, isActive, round]);
  return { ...log, retry: useCallback(() => setRound((round) => round + 1), []) };
}

/** What changes within a frame is shown together. */
function oncePerFrame(show: () => void) {
  let frame: number | null = null;
  const request = () => {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      show();
    });
  };
  const cancel = () => {
    if (frame !== null) cancelAnimationFrame(frame);
  };
  return { request, cancel };
}
