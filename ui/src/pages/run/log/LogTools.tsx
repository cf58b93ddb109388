import { Button } from "@/design/Button/Button";
import { useCopy } from "@/design/CopyButton/useCopy";
import { Icon } from "@/design/Icon/Icon";
import { useToast } from "@/design/Toasts/Toasts";
import { plural } from "@/format/number";
import styles from "./LogView.module.css";
import type { LogLine } from "./logBuffer";
import { LEVELS, recordOf } from "./search";

interface Props {
  lines: LogLine[];
  onDownload: () => void;
  search: {
    text: string;
    onChange: (text: string) => void;
    count: number;
    current: number;
    step: (by: number) => void;
  };
  level: string;
  onLevel: (level: string) => void;
  isWrapped: boolean;
  onWrap: () => void;
  isFollowing: boolean;
  onFollow: () => void;
}

/** The row above a log: find, filter, follow, wrap, take along. */
export function LogTools({ lines, onDownload, search, level, onLevel, ...toggles }: Props) {
  const announce = useToast();
  const copy = useCopy();
  const copyLines = () =>
    copy(lines.map(recordOf).join("\n"), () => announce(`Copied ${plural(lines.length, "line")}.`));
  return (
    <div className={styles.tools}>
      <LogSearch {...search} />
      <select
        className={styles.select}
        aria-label="Least level"
        value={level}
        onChange={(event) => onLevel(event.target.value)}
      >
        {LEVELS.map((one) => (
          <option key={one} value={one}>
            {one === "debug" ? "All levels" : one === "error" ? "Errors" : `From ${one}`}
          </option>
        ))}
      </select>
      <span className={styles.toggles}>
        <Button look="quiet" aria-pressed={toggles.isFollowing} onClick={toggles.onFollow}>
          Follow
        </Button>
        <Button look="quiet" aria-pressed={toggles.isWrapped} onClick={toggles.onWrap}>
          Wrap
        </Button>
        <Button look="quiet" aria-label="Copy the log" title="Copy" onClick={copyLines}>
          <Icon name="copy" />
        </Button>
        <Button look="quiet" aria-label="Download the log" title="Download" onClick={onDownload}>
          <Icon name="download" />
        </Button>
      </span>
    </div>
  );
}

function LogSearch({ text, onChange, count, current, step }: Props["search"]) {
  return (
    <span className={styles.search}>
      <Icon name="search" size={14} />
      <input
        type="search"
        aria-label="Search the log"
        placeholder="Search the log"
        value={text}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1)}
      />
      <span className={styles.count} role="status">
        {text !== "" && (count === 0 ? "none" : `${(current % count) + 1} of ${count}`)}
      </span>
      <button type="button" aria-label="Previous match" disabled={count === 0} onClick={() => step(-1)}>
        ↑
      </button>
      <button type="button" aria-label="Next match" disabled={count === 0} onClick={() => step(1)}>
        ↓
      </button>
    </span>
  );
}
