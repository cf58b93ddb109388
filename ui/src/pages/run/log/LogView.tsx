import { useMemo, useState } from "react";
import { ErrorState } from "@/design/ErrorState/ErrorState";
import { LogLines } from "./LogLines";
import { LogTools } from "./LogTools";
import styles from "./LogView.module.css";
import { findMatches, isAtLeast } from "./search";
import { useLog } from "./useLog";

interface Props {
  run: string;
  task: string;
  index: number | null;
  attempt: number | null;
  isActive: boolean;
}

/** The log of a task, streaming while it runs: search, levels, follow, wrap, copy, download. */
export function LogView({ run, task, index, attempt, isActive }: Props) {
  const log = useLog({ run, task, index, attempt, isActive });
  const [text, setText] = useState("");
  const [level, setLevel] = useState("debug");
  const [isWrapped, setWrapped] = useState(true);
  const [isFollowing, setFollowing] = useState(true);
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
  if (log.state === "failed") return <ErrorState error={log.error} />;
  return (
    <div className={styles.view}>
      <LogTools
        name={`${run}-${task}${index === null ? "" : `-${index}`}`}
        lines={lines}
        search={{ text, onChange: search, count: matches.length, current: match, step }}
        level={level}
        onLevel={setLevel}
        isWrapped={isWrapped}
        onWrap={() => setWrapped(!isWrapped)}
        isFollowing={isFollowing}
        onFollow={() => setFollowing(!isFollowing)}
      />
      <LogLines
        lines={lines}
        wanted={text}
        current={current}
        isWrapped={isWrapped}
        isFollowing={isFollowing}
        onLeaveEnd={() => setFollowing(false)}
        showsElements={index === null}
        empty={emptyText(log.state, log.lines.length, isActive)}
      />
      <div className={styles.status} role="status">
        {statusText(log.state, isActive)}
      </div>
    </div>
  );
}

function emptyText(state: string, written: number, isActive: boolean): string {
  if (written > 0) return "No line has this level.";
  if (state === "connecting") return "";
  return isActive ? "Nothing has been logged so far." : "This task logged nothing.";
}

function statusText(state: string, isActive: boolean): string {
  if (state === "reconnecting") return "The connection was lost; reconnecting";
  if (state === "following" && isActive) return "Following the log";
  return state === "ended" || !isActive ? "The log is complete" : "Connecting";
}
