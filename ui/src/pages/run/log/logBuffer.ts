/** The lines of a log as they arrive: the newest ones, and how far a stream that was lost can be continued. */

import type { Schema } from "@/api/types";

export type LogLine = Schema<"TaskLogLine">;

/** At least this many of the newest lines are kept. */
export const KEPT = 50_000;
/** Older lines go in blocks, so that the lines in view seldom move. */
const BLOCK = 10_000;

export interface Excerpt {
  lines: LogLine[];
  /** The number of lines before them that are no longer kept. */
  dropped: number;
}

export class LogBuffer {
  /** The id after which a stream goes on. */
  last: string | null = null;
  private lines: LogLine[] = [];
  private dropped = 0;
  private isOrdered = true;
  /** The number of lines, dropped ones too, up to the one with that id. */
  private settled = 0;

  /** Not every line has an id: that of a task with many elements is long. */
  add(line: LogLine, id: string | null): void {
    const before = this.lines.at(-1);
    if (before !== undefined && byTime(before, line) > 0) this.isOrdered = false;
    this.lines.push(line);
    if (id !== null) {
      this.last = id;
      this.settled = this.dropped + this.lines.length;
    }
    if (this.lines.length >= KEPT + BLOCK) {
      this.lines.splice(0, BLOCK);
      this.dropped += BLOCK;
    }
  }

  /** A stream begins after the last id, so it repeats the lines that came after that. */
  rewind(): void {
    this.lines.length = Math.max(0, this.settled - this.dropped);
  }

  /** In order of time: what a program prints and what it logs come on two ways. */
  excerpt(): Excerpt {
    const lines = this.isOrdered ? this.lines.slice() : this.lines.toSorted(byTime);
    return { lines, dropped: this.dropped };
  }
}

/** Times are in UTC, with the fraction of a second that they need. */
function byTime(one: LogLine, other: LogLine): number {
  const [first, second] = [one.at.slice(0, -1), other.at.slice(0, -1)];
  return first < second ? -1 : first > second ? 1 : 0;
}
