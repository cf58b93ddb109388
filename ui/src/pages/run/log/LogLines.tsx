import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useEffect, useRef } from "react";
import { styledPieces } from "./ansi";
import { leavesEnd } from "./follow";
import styles from "./LogView.module.css";
import type { LogLine } from "./logBuffer";
import { splitMatches, textOf, writtenText } from "./search";

interface Props {
  lines: LogLine[];
  wanted: string;
  /** The line of the match that was stepped to. */
  current: number | null;
  isWrapped: boolean;
  isFollowing: boolean;
  /** The reader scrolled up: what they read must stay. */
  onLeaveEnd: () => void;
  showsElements: boolean;
  empty: string;
}

const LINE = 20;

/** The lines of a log; only those in view exist, so that a long one stays smooth. */
export function LogLines({ lines, wanted, current, isWrapped, isFollowing, onLeaveEnd, showsElements, empty }: Props) {
  const scroll = useRef<HTMLDivElement>(null);
  const top = useRef(0);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => LINE,
    overscan: 20,
  });
  useEffect(() => {
    if (isFollowing && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [isFollowing, lines.length, virtual]);
  useEffect(() => {
    if (current !== null) virtual.scrollToIndex(current, { align: "center" });
  }, [current, virtual]);
  return (
    <div
      ref={scroll}
      className={styles.lines}
      role="log"
      aria-label="Log"
      aria-live="off"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
      tabIndex={0}
      data-wrap={isWrapped || undefined}
      onScroll={({ currentTarget }) => {
        if (isFollowing && leavesEnd(top.current, currentTarget)) onLeaveEnd();
        top.current = currentTarget.scrollTop;
      }}
    >
      {lines.length === 0 && <p className={styles.empty}>{empty}</p>}
      <div className={styles.content} style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map(({ index, start }) => (
          <div
            key={index}
            ref={virtual.measureElement}
            data-index={index}
            className={styles.line}
            data-current={index === current || undefined}
            style={{ transform: `translateY(${start}px)` }}
          >
            <Line line={lines[index] as LogLine} wanted={wanted} showsElement={showsElements} />
          </div>
        ))}
      </div>
    </div>
  );
}

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hour12: false,
});

const Line = memo(function Line({
  line,
  wanted,
  showsElement,
}: {
  line: LogLine;
  wanted: string;
  showsElement: boolean;
}) {
  return (
    <>
      <time className={styles.time} dateTime={line.at}>
        {CLOCK.format(new Date(line.at))}
      </time>
      <span className={styles.level} data-level={line.level.toLowerCase()}>
        {line.stream === "log" ? line.level.toLowerCase() : line.stream}
      </span>
      {showsElement && line.index !== null && <span className={styles.element}>[{line.index}]</span>}
      <span className={styles.message}>
        <Message line={line} wanted={wanted} />
      </span>
    </>
  );
});

/** The text in the colours that the program gave it; while something is searched, the matches are marked instead. */
function Message({ line, wanted }: { line: LogLine; wanted: string }) {
  if (wanted !== "") {
    return splitMatches(textOf(line), wanted).map((part, index) =>
      part.isMatch ? (
        // biome-ignore lint/suspicious/noArrayIndexKey: a part is its position
        <mark key={index}>{part.text}</mark>
      ) : (
        part.text
      ),
    );
  }
  return styledPieces(writtenText(line)).map(({ text, style }, index) =>
    style === null ? (
      text
    ) : (
      <span
        // biome-ignore lint/suspicious/noArrayIndexKey: a piece is its position
        key={index}
        className={styles.piece}
        data-color={style.color}
        data-ground={style.background}
        data-bold={style.isBold}
        data-faint={style.isFaint}
        data-italic={style.isItalic}
        data-underlined={style.isUnderlined}
      >
        {text}
      </span>
    ),
  );
}
