import { api } from "@/api/client";
import { useDialog } from "@/app/useDialog";
import { useMayUpload } from "@/app/useMe";
import { Badge } from "@/design/Badge/Badge";
import { Panel } from "@/design/Panel/Panel";
import { RowActions } from "@/design/RowActions/RowActions";
import { type Column, Table } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { formatBytes, plural } from "@/format/number";
import { type Kept, keptOf } from "./kept";
import { RollBackPackage } from "./RollBackPackage";
import styles from "./Versions.module.css";

interface Props {
  name: string;
  /** The version that the node has loaded. */
  loaded: string | null | undefined;
}

/** The versions that the registry keeps, the one published last first, each to go back to; absent without any. */
export function Versions({ name, loaded }: Props) {
  const dialog = useDialog();
  const mayUpload = useMayUpload();
  const { data } = api.useQuery("get", "/api/v1/packages/{name}/versions", {
    params: { path: { name }, query: { limit: 500 } },
  });
  if (data === undefined || data.total === 0) return null;
  const versions = keptOf(data.items, loaded);
  const chosen = versions.find(({ version, canReturn }) => canReturn && version === dialog.subject);
  const rollBack = (version: string) => dialog.open("rollback", version);
  return (
    <Panel title="Versions" aside={plural(data.total, "kept version")} isFlush>
      <Table
        label="Kept versions"
        columns={mayUpload ? [...COLUMNS, actionsOf(rollBack)] : COLUMNS}
        rows={versions}
        rowKey={({ digest }) => digest}
      />
      {dialog.kind === "rollback" && mayUpload && chosen && (
        <RollBackPackage
          name={name}
          version={chosen.version}
          published={versions.find((one) => one.published)?.version}
          onClose={dialog.close}
        />
      )}
    </Panel>
  );
}

const COLUMNS: Column<Kept>[] = [
  { header: "Version", cell: ({ version }) => version },
  { header: "State", cell: ({ published, loaded }) => <States published={published} loaded={loaded} /> },
  { header: "Published", cell: ({ at }) => <Time at={at} isRelative /> },
  {
    header: "Unfinished runs",
    align: "right",
    isSecondary: true,
    cell: ({ unfinished_runs }) => unfinished_runs,
  },
  { header: "Size", align: "right", isSecondary: true, cell: ({ size }) => formatBytes(size) },
  {
    header: "Digest",
    isSecondary: true,
    cell: ({ digest }) => <code title={digest}>{digest.slice(0, 12)}</code>,
  },
];

function actionsOf(rollBack: (version: string) => void): Column<Kept> {
  return {
    header: "Actions",
    isHeaderHidden: true,
    align: "right",
    cell: ({ version, canReturn }) =>
      canReturn && (
        <RowActions
          subject={`to ${version}`}
          actions={[{ label: "Roll back", act: () => rollBack(version), isDangerous: true }]}
        />
      ),
  };
}

function States({ published, loaded }: Pick<Kept, "published" | "loaded">) {
  return (
    <span className={styles.states}>
      {published && <Badge tone="blue">published</Badge>}
      {loaded && <Badge tone="green">loaded</Badge>}
    </span>
  );
}
