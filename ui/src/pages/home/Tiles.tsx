import { Link } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import type { Tone } from "@/design/tone";
import { formatCount } from "@/format/number";
import styles from "./Tiles.module.css";

interface Tile {
  label: string;
  count: number;
  /** The tone if there are any. */
  tone: Tone;
  to: string;
  search?: Record<string, string>;
}

/** The state of everything in six figures, each a link to what it counts. */
export function Tiles({ overview }: { overview: Schema<"Overview"> }) {
  return (
    <ul className={styles.tiles}>
      {tilesOf(overview).map(({ label, count, tone, to, search }) => (
        <li key={label}>
          <Link to={to} search={search ?? {}} className={styles.tile} data-tone={count > 0 ? tone : "none"}>
            <span className={styles.count}>{formatCount(count)}</span>
            <span className={styles.label}>{label}</span>
          </Link>
        </li>
      ))}
    </ul>
  );
}

function tilesOf({ active, late, failed_runs, degraded, failed_packages, ...rest }: Schema<"Overview">): Tile[] {
  return [
    { label: "Running", count: active.running ?? 0, tone: "blue", to: "/runs", search: { state: "running" } },
    { label: "Queued", count: active.queued ?? 0, tone: "grey", to: "/runs", search: { state: "queued" } },
    { label: "Late slots", count: late.slots.length, tone: "amber", to: "/schedules" },
    { label: "Failed runs", count: failed_runs ?? 0, tone: "red", to: "/runs", search: { unresolved: "true" } },
    ...packageTiles(failed_packages.length),
    { label: "Reactors not live", count: notLive(degraded), tone: "amber", to: "/reactors" },
    {
      label: "Dead letters",
      count: rest.dead_letters,
      tone: "amber",
      ...deadLetterPage(rest.dead_letter_sources ?? []),
    },
  ];
}

/** Packages nearly always load: their tile is there only if one did not. */
function packageTiles(count: number): Tile[] {
  return count > 0 ? [{ label: "Packages not loaded", count, tone: "red", to: "/packages" }] : [];
}

/** An accumulator that is not live is shown with its reactor. */
function notLive(degraded: Schema<"UnhealthyPart">[]): number {
  return degraded.filter(({ kind }) => kind === "reactor").length;
}

/** The dead letters of one reactor are a tab of its page; those of several are a column of the list. */
function deadLetterPage(sources: Schema<"DeadLetterCount">[]): Pick<Tile, "to" | "search"> {
  const [first, ...others] = new Set(sources.map(({ reactor }) => reactor));
  if (first === undefined || others.length > 0) return { to: "/reactors" };
  return { to: `/reactors/${encodeURIComponent(first)}`, search: { tab: "dead-letters" } };
}
