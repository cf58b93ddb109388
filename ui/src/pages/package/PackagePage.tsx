import { useParams } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useDialog } from "@/app/useDialog";
import { useMayAdminister } from "@/app/useMe";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { Facts } from "@/design/Facts/Facts";
import { Page } from "@/design/Page/Page";
import { Panel } from "@/design/Panel/Panel";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Time } from "@/design/Time/Time";
import { LoadSteps } from "./LoadSteps";
import { PackageProblems } from "./PackageProblems";
import { UnloadPackage } from "./UnloadPackage";
import { Versions } from "./Versions";

type Package = Schema<"PackageInfo">;

/** One package: what is loaded and from where, how the last load went, what is wrong, and the versions that are kept. */
export function PackagePage() {
  const { name } = useParams({ strict: false }) as { name: string };
  const dialog = useDialog();
  const mayUnload = useMayAdminister();
  const query = api.useQuery("get", "/api/v1/packages/{name}", { params: { path: { name } } });
  const isPublished = query.data != null && query.data.published !== null;
  return (
    <Page
      title={name}
      mark={query.data && <StateBadge state={query.data.state} />}
      subtitle="Package"
      actions={
        mayUnload &&
        isPublished && (
          <Button look="danger" onClick={() => dialog.open("unload")}>
            Unload
          </Button>
        )
      }
    >
      <Answer query={query}>{(data) => <Content data={data} />}</Answer>
      {dialog.kind === "unload" && isPublished && <UnloadPackage name={name} onClose={dialog.close} />}
    </Page>
  );
}

function Content({ data }: { data: Package }) {
  return (
    <>
      <PackageProblems data={data} />
      <Panel title="Steps of the last load">
        <LoadSteps steps={data.steps} />
      </Panel>
      <Versions name={data.name} loaded={data.version} />
      <Panel title="Facts">
        <Facts facts={factsOf(data)} />
      </Panel>
    </>
  );
}

function factsOf(data: Package): [name: string, value: ReactNode][] {
  return [
    ["Loaded version", data.version ?? "none"],
    ["Wanted version", data.wanted ?? "none"],
    ["Published version", data.published ?? "not published: a folder or a program loads it"],
    ["Since", <Time key="since" at={data.since} isRelative />],
    ["Source", <code key="source">{data.source || "a program"}</code>],
    ["Digest (SHA-256)", data.digest === null ? "none" : <code key="digest">{data.digest}</code>],
  ];
}
