import { Link, useNavigate } from "@tanstack/react-router";
import type { Schema } from "@/api/types";
import { useAllPackages } from "@/api/wholeLists";
import { useDialog } from "@/app/useDialog";
import { useMayUpload } from "@/app/useMe";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { RecordsPage } from "@/design/RecordsPage/RecordsPage";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import type { Column } from "@/design/Table/Table";
import { Time } from "@/design/Time/Time";
import { ImportErrors } from "./ImportErrors";
import styles from "./PackagesPage.module.css";
import { UploadPackage } from "./UploadPackage";

type Package = Schema<"PackageInfo">;

/** The packages that are published, loaded or wanted, and why some are not loaded. */
export function PackagesPage() {
  const dialog = useDialog();
  const navigate = useNavigate();
  const mayUpload = useMayUpload();
  const packages = useAllPackages();
  return (
    <RecordsPage
      title="Packages"
      noun="package"
      query={packages}
      columns={COLUMNS}
      rowKey={({ name }) => name}
      searchText={({ name, source, state }) => `${name} ${source} ${state}`}
      empty={<NoPackages />}
      onOpen={({ name }) => void navigate({ to: "/packages/$name", params: { name } })}
      newLabel="Upload a package"
      onNew={mayUpload ? () => dialog.open("upload") : undefined}
    >
      <ImportErrors />
      {dialog.kind === "upload" && <UploadPackage onClose={dialog.close} />}
    </RecordsPage>
  );
}

const COLUMNS: Column<Package>[] = [
  {
    header: "Package",
    cell: ({ name }) => (
      <Link to="/packages/$name" params={{ name }}>
        {name}
      </Link>
    ),
  },
  { header: "State", cell: ({ state }) => <StateBadge state={state} /> },
  { header: "Version", cell: ({ version, wanted }) => <Version loaded={version ?? null} wanted={wanted} /> },
  {
    header: "Digest",
    isSecondary: true,
    cell: ({ digest }) => digest && <code title={digest}>{digest.slice(0, 12)}</code>,
  },
  {
    header: "Source",
    isSecondary: true,
    cell: ({ source }) => (
      <code className={styles.source} title={source}>
        <bdi>{source}</bdi>
      </code>
    ),
  },
  { header: "Since", cell: ({ since }) => <Time at={since} isRelative /> },
];

function Version({ loaded, wanted }: { loaded: string | null; wanted: string | null }) {
  if (loaded === null || wanted === null || loaded === wanted) return loaded ?? wanted;
  return `${loaded}, wants ${wanted}`;
}

function NoPackages() {
  return (
    <EmptyState title="No package is loaded." commands={["tidemill package new hello", "tidemill dev hello"]}>
      A package is a folder of Python files with graphs and workflows. These commands write one and run it.
    </EmptyState>
  );
}
