/** What needs a person: failed runs by workflow, packages that do not load, unhealthy parts, dead letters, late and waiting work. */

import type { Schema } from "@/api/types";
import type { Tone } from "@/design/tone";
import { plural } from "@/format/number";

export interface Attention {
  key: string;
  kind: string;
  tone: Tone;
  title: string;
  reason: string;
  since: string | null;
  to: string;
  search?: Record<string, string>;
}

/** The most urgent first; within a kind the order of the server, which is stable. */
export function attentionOf(overview: Schema<"Overview">): Attention[] {
  return [
    ...overview.failing.map(ofWorkflow),
    ...overview.failed_packages.map(ofPackage),
    ...overview.degraded.map(ofPart),
    ...(overview.dead_letter_sources ?? []).map(ofDeadLetters),
    ...(overview.waiting ?? []).map(ofWaiting),
    ...overview.late.slots.map(ofSlot),
    ...overview.late.runs.map(ofRun),
  ];
}

function ofWorkflow({ workflow, run, at, task, reason, failures }: Schema<"FailingWorkflow">): Attention {
  return {
    key: `failing ${workflow}`,
    kind: failures > 1 ? `failed ${failures}×` : "failed",
    tone: "red",
    title: task === null ? workflow : `${workflow} · ${task}`,
    reason,
    since: at,
    ...(failures > 1 ? { to: "/runs", search: { unresolved: "true", workflow } } : { to: `/runs/${run}` }),
  };
}

function ofPackage({ name, since, reason }: Schema<"FailedPackage">): Attention {
  const to = `/packages/${encodeURIComponent(name)}`;
  return { key: `package ${name}`, kind: "not loaded", tone: "red", title: name, reason, since, to };
}

function ofPart({ kind, name, health, since, reason }: Schema<"UnhealthyPart">): Attention {
  const to = kind === "reactor" ? `/reactors/${encodeURIComponent(name)}` : "/reactors";
  return { key: `${kind} ${name}`, kind: health, tone: "amber", title: `${kind} ${name}`, reason, since, to };
}

function ofDeadLetters({ kind, name, reactor, number }: Schema<"DeadLetterCount">): Attention {
  return {
    key: `dead letters ${kind} ${name}`,
    kind: plural(number, "dead letter"),
    tone: "amber",
    title: `${kind} ${name}`,
    reason: "Failed for good: replay them once the cause is repaired, or delete them.",
    since: null,
    to: `/reactors/${encodeURIComponent(reactor)}`,
    search: { tab: "dead-letters" },
  };
}

const WAITS: Record<Schema<"WaitingTasks">["waits_for"], string> = {
  code: "waits for code",
  pool: "waits for a pool",
  worker: "waits for a worker",
  slot: "waits for a slot",
  answer: "waits for an answer",
};

function ofWaiting({ workflow, waits_for, runs, run, task, since, reasons }: Schema<"WaitingTasks">): Attention {
  const others = runs > 1 ? ` (${plural(runs, "run")})` : "";
  return {
    key: `waiting ${workflow} ${waits_for}`,
    kind: WAITS[waits_for],
    tone: "amber",
    title: `${workflow} · ${task}${others}`,
    reason: reasons.join(" "),
    since,
    to: `/runs/${run}`,
  };
}

function ofSlot({ workflow, key, slot, slots, reason }: Schema<"LateSlot">): Attention {
  return {
    key: `slot ${workflow} ${key}`,
    kind: slots > 1 ? `${slots} late slots` : "late slot",
    tone: "amber",
    title: workflow,
    reason,
    since: slot,
    to: `/workflows/${encodeURIComponent(workflow)}`,
  };
}

function ofRun({ run, workflow, since, reasons }: Schema<"LateRun">): Attention {
  return {
    key: `run ${run}`,
    kind: "waits",
    tone: "amber",
    title: workflow,
    reason: reasons.join(" "),
    since,
    to: `/runs/${run}`,
  };
}
