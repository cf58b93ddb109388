import type { Schema } from "@/api/types";
import { Badge } from "@/design/Badge/Badge";
import { Facts } from "@/design/Facts/Facts";
import { Panel } from "@/design/Panel/Panel";
import { type Column, Table } from "@/design/Table/Table";
import { formatDuration } from "@/format/duration";
import { formatBytes, formatCount, plural } from "@/format/number";
import styles from "./InstancePanels.module.css";

type Setting = Schema<"SettingInfo">;

/** What only an admin of the instance sees: the store and its size, the process, the settings. */
export function InstancePanels({ instance: { store, settings, process } }: { instance: Schema<"InstanceInfo"> }) {
  return (
    <div className={styles.panels}>
      <div className={styles.column}>
        <Panel title="Store" aside={store.bytes !== null && formatBytes(store.bytes)}>
          <p className={styles.title}>
            {store.title}, schema version {store.schema_version}
          </p>
          <Facts
            facts={store.rows.map(({ what, number, exact }) => [what, `${exact ? "" : "≈ "}${formatCount(number)}`])}
          />
        </Panel>
        <Panel title="Process">
          <Facts facts={processFacts(process)} />
        </Panel>
      </div>
      <Panel title="Settings" aside={plural(settings.length, "setting")} isFlush className={styles.settings}>
        <Table label="Settings of this server" columns={COLUMNS} rows={settings} rowKey={({ name }) => name} />
      </Panel>
    </div>
  );
}

const COLUMNS: Column<Setting>[] = [
  { header: "Setting", cell: ({ name }) => <code>{name}</code> },
  { header: "Value", cell: ({ value }) => <code className={styles.value}>{JSON.stringify(value)}</code> },
  {
    header: "Source",
    align: "right",
    cell: ({ is_default }) => (is_default ? "default" : <Badge tone="blue">set</Badge>),
  },
];

function processFacts({ pid, memory, peak_memory, cpu_seconds, threads }: Schema<"ProcessUsage">): [string, string][] {
  return [
    ["Process id", String(pid)],
    ["Memory", memory === null ? "not known" : formatBytes(memory)],
    ["Peak memory", formatBytes(peak_memory)],
    ["Processor time", formatDuration(cpu_seconds)],
    ["Threads", formatCount(threads)],
  ];
}
