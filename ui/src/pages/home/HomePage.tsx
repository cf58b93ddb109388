import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { Answer } from "@/design/Answer/Answer";
import { Page } from "@/design/Page/Page";
import { ActiveRuns } from "./ActiveRuns";
import { AttentionList } from "./AttentionList";
import { attentionOf } from "./attention";
import { EventFeed } from "./EventFeed";
import { FirstSteps } from "./FirstSteps";
import styles from "./HomePage.module.css";
import { NextHour } from "./NextHour";
import { ReactorRates } from "./ReactorRates";
import { RunsOfDay } from "./RunsOfDay";
import { Tiles } from "./Tiles";

/** Time alone makes this answer old: a slot that nothing starts leaves no event. */
const REFRESH = 15_000;

/** What runs, what is late, what fails, what is degraded, and what the next hour brings. */
export function HomePage() {
  const overview = api.useQuery("get", "/api/v1/overview", {}, { refetchInterval: REFRESH });
  const packages = api.useQuery("get", "/api/v1/packages", { params: { query: { limit: 1 } } });
  if (packages.data?.total === 0) return <FirstSteps />;
  return (
    <Page title="Home">
      <Answer query={overview}>{(data) => <Overview overview={data} />}</Answer>
    </Page>
  );
}

function Overview({ overview }: { overview: Schema<"Overview"> }) {
  const attention = attentionOf(overview);
  return (
    <>
      <Tiles overview={overview} />
      <div className={styles.grid}>
        <ReactorRates className={styles.panel} />
        <AttentionList className={styles.panel} items={attention} />
        <NextHour className={styles.panel} upcoming={overview.upcoming} />
        <RunsOfDay className={styles.panel} hours={overview.ended} />
        <ActiveRuns className={styles.panel} runs={overview.oldest} active={overview.active} />
        <EventFeed className={styles.panel} />
      </div>
    </>
  );
}
