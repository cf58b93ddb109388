import { useMemo, useState } from "react";
import { messageOf } from "@/api/problem";
import { useSearchParam } from "@/app/useSearchParam";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { useToast } from "@/design/Toasts/Toasts";
import { formatCount } from "@/format/number";
import { download } from "./download";
import { LogLines } from "./LogLines";
import { LogTools } from "./LogTools";
import styles from "./LogView.module.css";
import type { LogLine } from "./logBuffer";
import { type LogSource, readWholeLog } from "./openLog";
import { findMatches, isAtLeast } from "./search";
import { useLog } from "./useLog";

interface Props extends LogSource {
  isActive: boolean;
}

/** The log of a task, streaming while it runs: search, levels, follow, wrap, copy, download. */
export function LogView({ isActive, ...source }: Props) {
  const log = useLog({ ...source, isActive });
  const [text, setText] = useSearchParam("find", "");
  const [level, setLevel] = useSearchParam("level", "debug");
  const [wrap, setWrap] = useSearchParam("wrap", "on");
  const isWrapped = wrap === "on";
  const [isFollowing, setFollowing] = useState(text === "" && isActive);
  const [match, setMatch] = useState(0);
  const lines = useMemo(
    () => (level === "debug" ? log.lines : log.lines.filter((line) => isAtLeast(line, level))),
    [log.lines, level],
  );
  const matches = useMemo(() => findMatches(lines, text), [lines, text]);
  const current = matches.length === 0 ? null : (matches[match % matches.length] ?? null);

  const search = (text: string) => {
    setText(text);
    setMatch(0);
    if (text !== "") setFollowing(false);
  };
  const step = (by: number) => {
    setFollowing(false);
    setMatch((match + by + matches.length) % Math.max(1, matches.length));
  };
  const save = useDownload(source, log.dropped, lines, level);
  return (
    <div className={styles.view}>
      <LogTools
        lines={lines}
        onDownload={save}
        search={{ text, onChange: search, count: matches.length, current: match, step }}
        level={level}
        onLevel={setLevel}
        isWrapped={isWrapped}
        onWrap={() => setWrap(isWrapped ? "off" : "on")}
        isFollowing={isFollowing}
        onFollow={() => setFollowing(!isFollowing)}
      />
      {log.dropped > 0 && (
        <p className={styles.earlier}>
          {formatCount(log.dropped)} earlier lines are not shown: download the log to read them.
        </p>
      )}
      <LogLines
        lines={lines}
        wanted={text}
        current={current}
        isWrapped={isWrapped}
        isFollowing={isFollowing}
        onLeaveEnd={() => setFollowing(false)}
        showsElements={source.index === null}
        empty={emptyText(log.state, log.lines.length, isActive)}
      />
      {log.state === "failed" && <ErrorState error={log.error} onRetry={log.retry} />}
      <div className={styles.status} role="status">
        {statusText(log.state, isActive)}
      </div>
    </div>
  );
}

/** Saves the lines that are shown, and those before them that this page no longer has. */
function useDownload(source: LogSource, dropped: number, lines: LogLine[], level: string): () => void {
  const announce = useToast();
  const { run, task, index } = source;
  const name = `${run}-${task}${index === null ? "" : `-${index}`}`;
  return () => {
    if (dropped === 0) return download(name, lines);
    readWholeLog(source).then(
      (all) =>
        download(
          name,
          all.filter((line) => isAtLeast(line, level)),
        ),
      (error) => announce(messageOf(error), "error"),
    );
  };
}

function emptyText(state: string, written: number, isActive: boolean): string {
  if (written > 0) return "No line has this level.";
  if (state === "connecting" || state === "failed") return "";
  return isActive ? "Nothing has been logged so far." : "This task logged nothing.";
}

function statusText(state: string, isActive: boolean): string {
  if (state === "failed") return "The rest of the log could not be read";
  if (state === "reconnecting") return "The connection was lost; reconnecting";
  if (state === "following" && isActive) return "Following the log";
  return state === "ended" || !isActive ? "The log is complete" : "Connecting";
}
