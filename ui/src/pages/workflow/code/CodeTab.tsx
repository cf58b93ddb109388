import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useSearchParam } from "@/app/useSearchParam";
import { Answer } from "@/design/Answer/Answer";
import { CodeView } from "@/design/CodeView/CodeView";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { formatTime } from "@/format/time";
import styles from "./CodeTab.module.css";
import { DiffView } from "./DiffView";

type Workflow = Schema<"WorkflowDetails">;

/** The source of any version of a workflow, alone or as the difference from another version. */
export function CodeTab({ workflow }: { workflow: Workflow }) {
  const [version, setVersion] = useSearchParam("version", workflow.version);
  const [against, setAgainst] = useSearchParam("against", "");
  const choices = (
    <>
      <VersionSelect label="Version" versions={workflow.versions} value={version} onChange={setVersion} />
      <VersionSelect
        label="Compare with"
        versions={workflow.versions.filter((one) => one.version !== version)}
        value={against}
        onChange={setAgainst}
        none="Compare with…"
      />
    </>
  );
  return (
    <Panel title={against === "" ? "Code" : "Changes"} aside={choices} isFlush>
      {against === "" ? (
        <Source name={workflow.name} version={version} />
      ) : (
        <Comparison name={workflow.name} before={against} after={version} />
      )}
    </Panel>
  );
}

interface SelectProps {
  label: string;
  versions: Workflow["versions"];
  value: string;
  onChange: (version: string) => void;
  /** The text of the choice of no version. */
  none?: string;
}

function VersionSelect({ label, versions, value, onChange, none }: SelectProps) {
  return (
    <select
      className={styles.select}
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    >
      {none !== undefined && <option value="">{none}</option>}
      {versions.map((one) => (
        <option key={one.version} value={one.version}>
          {one.version.slice(0, 8)} · {one.current ? "current" : formatTime(one.seen_at)}
        </option>
      ))}
    </select>
  );
}

function useSource(name: string, version: string) {
  return api.useQuery(
    "get",
    "/api/v1/workflows/{name}/versions/{version}",
    { params: { path: { name, version } } },
    { staleTime: Number.POSITIVE_INFINITY },
  );
}

function Source({ name, version }: { name: string; version: string }) {
  return (
    <Answer query={useSource(name, version)}>
      {({ source }) => (source === null ? <NoSource /> : <CodeView code={source} label={`Source of ${name}`} />)}
    </Answer>
  );
}

function Comparison({ name, before, after }: { name: string; before: string; after: string }) {
  const [old, young] = [useSource(name, before), useSource(name, after)];
  return (
    <Answer query={old}>
      {({ source: oldSource }) => (
        <Answer query={young}>
          {({ source }) =>
            source === null || oldSource === null ? (
              <NoSource />
            ) : (
              <DiffView before={oldSource} after={source} label={`Changes of ${name}`} />
            )
          }
        </Answer>
      )}
    </Answer>
  );
}

function NoSource() {
  return <EmptyState title="The source of this version was not stored." />;
}
