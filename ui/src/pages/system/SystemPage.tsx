import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Facts } from "@/design/Facts/Facts";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { Time } from "@/design/Time/Time";
import { formatElapsed } from "@/format/duration";
import { plural } from "@/format/number";
import { secondsBetween } from "@/format/time";
import { useNow } from "@/format/useNow";
import { InstancePanels } from "./InstancePanels";
import { MetricPlots } from "./MetricPlots";
import styles from "./SystemPage.module.css";

/** Memory and sizes are no events: the page asks. */
const REFRESH = 10_000;
const DAY = 86_400;

const LINKS: [href: string, label: string][] = [
  ["/metrics", "Metrics for Prometheus"],
  ["/health/ready", "Readiness"],
  ["/api/docs", "API reference"],
  ["/docs/", "Documentation"],
];

/** The server that answers, and the instance that it belongs to: build, leader, store, retention, settings, metrics. */
export function SystemPage() {
  const system = api.useQuery("get", "/api/v1/system", {}, { refetchInterval: REFRESH });
  return (
    <Page title="System" actions={<Links />}>
      <Answer query={system}>{(data) => <Server system={data} />}</Answer>
      <MetricPlots />
      {system.data?.instance && <InstancePanels instance={system.data.instance} />}
    </Page>
  );
}

function Links() {
  return LINKS.map(([href, label]) => (
    <a key={href} href={href} className={styles.link}>
      {label}
    </a>
  ));
}

function Server({ system }: { system: Schema<"SystemInfo"> }) {
  const { version, python, started_at, leader, retention } = system;
  return (
    <Panel title="This server">
      <Facts
        facts={[
          ["Tidemill", version],
          ["Python", python],
          ["Up for", <UpFor key="up" since={started_at} />],
          ["Leader", leader === null ? "none: schedules wait" : leaderText(leader)],
          ["Keeps ended runs for", inDays(retention.runs)],
          ["Keeps the audit log for", inDays(retention.audit)],
          ["Last clean-up", <CleanUp key="clean" retention={retention} />],
        ]}
      />
    </Panel>
  );
}

function inDays(seconds: number): string {
  return seconds < DAY ? formatElapsed(seconds) : plural(Math.round(seconds / DAY), "day");
}

function leaderText({ name, epoch, is_this_node }: Schema<"LeaderInfo">): string {
  return `${name}${is_this_node ? " (this one)" : ""}, epoch ${epoch}`;
}

function UpFor({ since }: { since: string }) {
  const now = useNow();
  return formatElapsed(secondsBetween(since, null, now));
}

function CleanUp({ retention }: { retention: Schema<"RetentionInfo"> }) {
  const { last_pass_at, last_pass_deleted } = retention;
  if (last_pass_at === null) return "not yet, or another server leads";
  return (
    <>
      <Time at={last_pass_at} isRelative />, deleted {plural(last_pass_deleted ?? 0, "run")}
    </>
  );
}
