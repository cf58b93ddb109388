/** What needs a person: failed runs by workflow, packages that do not load, unhealthy parts, late work. */

import type { Schema } from "@/api/types";
import type { Tone } from "@/design/tone";

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
