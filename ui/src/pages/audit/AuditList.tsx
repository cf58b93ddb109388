import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import type { Schema } from "@/api/types";
import { JsonView } from "@/design/JsonView/JsonView";
import { ScrollRegion } from "@/design/ScrollRegion/ScrollRegion";
import { Time } from "@/design/Time/Time";
import styles from "./AuditList.module.css";

type Entry = Schema<"AuditEntry">;
type FilterBy = Record<"actor" | "action" | "target", (value: string) => void>;

const ROW = 32;
/** Rows before the end at which the next page is asked for. */
const AHEAD = 20;

interface Props {
  entries: Entry[];
  total: number;
  onEnd: () => void;
  onFilter: FilterBy;
}

/** The entries, of which only the visible rows exist; a click on a word filters by it. */
export function AuditList({ entries, total, onEnd, onFilter }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  const [opened, setOpened] = useState<string | null>(null);
  const rows = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW,
    getItemKey: (index) => entries[index]?.id ?? index,
    overscan: 10,
  });
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= entries.length - AHEAD && entries.length < total) onEnd();
  }, [last, entries.length, total, onEnd]);
  return (
    <ScrollRegion ref={scroll} className={styles.scroll} label="Changes">
      <div className={styles.head} aria-hidden="true">
        {["When", "Actor", "Action", "Target", "Details"].map((title) => (
          <span key={title}>{title}</span>
        ))}
      </div>
      <div className={styles.rows} style={{ height: rows.getTotalSize() }}>
        {items.map(({ index, start, key }) => {
          const entry = entries[index];
          return entry === undefined ? null : (
            <div
              key={key}
              ref={rows.measureElement}
              data-index={index}
              className={styles.item}
              style={{ transform: `translateY(${start}px)` }}
            >
              <EntryRow
                entry={entry}
                isOpen={opened === entry.id}
                onToggle={() => setOpened(opened === entry.id ? null : entry.id)}
                onFilter={onFilter}
              />
            </div>
          );
        })}
      </div>
    </ScrollRegion>
  );
}

interface RowProps {
  entry: Entry;
  isOpen: boolean;
  onToggle: () => void;
  onFilter: FilterBy;
}

function EntryRow({ entry, isOpen, onToggle, onFilter }: RowProps) {
  const { at, actor, action, target, details = {}, request_id } = entry;
  return (
    <>
      <div className={styles.row}>
        <button type="button" className={styles.toggle} aria-expanded={isOpen} onClick={onToggle}>
          <span className="visually-hidden">Details of {action} </span>
          <Time at={at} />
        </button>
        <Word kind="actor" text={actor} onFilter={onFilter} />
        <Word kind="action" text={action} onFilter={onFilter} />
        <Word kind="target" text={target} onFilter={onFilter} />
        <code className={styles.details}>{Object.keys(details).length > 0 && JSON.stringify(details)}</code>
      </div>
      {isOpen && (
        <div className={styles.open}>
          <JsonView value={{ ...details, request_id: request_id ?? undefined }} label={`Details of ${action}`} />
        </div>
      )}
    </>
  );
}

function Word({ kind, text, onFilter }: { kind: keyof FilterBy; text: string; onFilter: FilterBy }) {
  return (
    <button type="button" className={styles.word} title={`Only ${text}`} onClick={() => onFilter[kind](text)}>
      {text}
    </button>
  );
}
