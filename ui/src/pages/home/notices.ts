/** Events of the feed and runs of the store, as sentences. */

import type { Schema } from "@/api/types";
import { stateLabel, type Tone, toneOf } from "@/design/tone";
import { formatDuration } from "@/format/duration";
import { secondsBetween } from "@/format/time";
import type { FeedEvent } from "@/live/feed";

export interface Notice {
  /** The same for the same happening, whichever way it became known. */
  key: string;
  at: string;
  tone: Tone;
  subject: string;
  text: string;
  to: string | null;
}

const SHOWN = 40;

type Wording = (event: FeedEvent) => Pick<Notice, "tone" | "subject" | "text" | "to">;

const runLink = ({ run }: FeedEvent) => `/runs/${String(run)}`;
const reactorLink = ({ reactor }: FeedEvent) => `/reactors/${encodeURIComponent(String(reactor))}`;
const packageLink = (event: FeedEvent) => `/packages/${encodeURIComponent(String(event.package))}`;

const WORDINGS: Record<string, Wording> = {
  "run.started": (event) => ({
    tone: "blue",
    subject: String(event.workflow),
    text: "has started",
    to: runLink(event),
  }),
  "run.ended": (event) => ({
    tone: toneOf(String(event.state)),
    subject: String(event.workflow),
    text: ended(String(event.state), String(event.reason ?? "")),
    to: runLink(event),
  }),
  "run.cleared": (event) => ({
    tone: "blue",
    subject: String(event.workflow),
    text: "runs again",
    to: runLink(event),
  }),
  "reactor.loaded": (event) => ({
    tone: "grey",
    subject: String(event.reactor),
    text: "is loaded",
    to: reactorLink(event),
  }),
  "reactor.unloaded": (event) => ({ tone: "grey", subject: String(event.reactor), text: "is unloaded", to: null }),
  "reactor.health": (event) => ({
    tone: toneOf(String(event.health)),
    subject: String(event.reactor),
    text: `is ${stateLabel(String(event.health))}`,
    to: reactorLink(event),
  }),
  "accumulator.health": (event) => ({
    tone: toneOf(String(event.health)),
    subject: String(event.accumulator),
    text: `is ${stateLabel(String(event.health))}${because(event.reason)}`,
    to: null,
  }),
  "dead_letter.added": (event) => ({
    tone: "amber",
    subject: String(event.source),
    text: `has a dead letter${because(event.error)}`,
    to: null,
  }),
  "component.recovery": (event) => ({
    tone: "amber",
    subject: String(event.name),
    text: `${stateLabel(String(event.action))}${because(event.reason)}`,
    to: null,
  }),
  "package.loaded": (event) => ({
    tone: "green",
    subject: String(event.package),
    text: `${String(event.version)} is loaded`,
    to: packageLink(event),
  }),
  "package.removed": (event) => ({ tone: "grey", subject: String(event.package), text: "is unloaded", to: null }),
  "package.failed": (event) => ({
    tone: "red",
    subject: String(event.package),
    text: `cannot be loaded${because(event.reason)}`,
    to: packageLink(event),
  }),
  "leadership.won": (event) => ({ tone: "violet", subject: String(event.node), text: "leads now", to: "/nodes" }),
  "leadership.lost": (event) => ({
    tone: "amber",
    subject: String(event.node),
    text: "no longer leads",
    to: "/nodes",
  }),
  "node.joined": (event) => ({ tone: "grey", subject: String(event.name), text: "has joined", to: "/nodes" }),
  "node.left": (event) => ({ tone: "grey", subject: String(event.name), text: "has left", to: "/nodes" }),
};

export function noticeOfEvent(event: FeedEvent): Notice {
  const wording = WORDINGS[event.type];
  const words = wording ? wording(event) : { tone: "grey" as const, subject: event.type, text: "", to: null };
  return {
    key: event.type.startsWith("run.") ? `${event.type} ${String(event.run)}` : event.id,
    at: event.at,
    ...words,
  };
}

/** A run of the store: its end if it has ended, else its beginning. */
export function noticeOfRun(run: Schema<"RunInfo">): Notice {
  const to = `/runs/${run.id}`;
  if (run.ended_at === null) {
    const text = run.started_at === null ? "is queued" : "has started";
    const at = run.started_at ?? run.created_at;
    return { key: `run.started ${run.id}`, at, tone: toneOf(run.state), subject: run.workflow, text, to };
  }
  const took = run.started_at === null ? "" : ` in ${formatDuration(secondsBetween(run.started_at, run.ended_at))}`;
  const text = ended(run.state, run.reason, took);
  return { key: `run.ended ${run.id}`, at: run.ended_at, tone: toneOf(run.state), subject: run.workflow, text, to };
}

/** Each happening once, newest first. */
export function newestFirst(notices: Notice[]): Notice[] {
  const byKey = new Map(notices.map((notice) => [notice.key, notice]));
  return [...byKey.values()].sort((one, other) => Date.parse(other.at) - Date.parse(one.at)).slice(0, SHOWN);
}

function ended(state: string, reason: string, took = ""): string {
  const words: Record<string, string> = { success: "has succeeded", failed: "has failed", cancelled: "was cancelled" };
  return `${words[state] ?? stateLabel(state)}${took}${because(reason)}`;
}

function because(reason: unknown): string {
  return reason ? `: ${String(reason)}` : "";
}
