import { Link } from "@tanstack/react-router";
import { api } from "@/api/client";
import { EmptyState } from "@/design/EmptyState/EmptyState";
import { Panel } from "@/design/Panel/Panel";
import { Time } from "@/design/Time/Time";
import { useRecentEvents } from "@/live/LiveProvider";
import styles from "./EventFeed.module.css";
import { type Notice, newestFirst, noticeOfEvent, noticeOfRun } from "./notices";

const RUNS = 20;

/** What has happened, newest first: runs that ended before the page was opened, and everything since. */
export function EventFeed({ className }: { className?: string | undefined }) {
  const events = useRecentEvents();
  const { data: runs } = api.useQuery("get", "/api/v1/runs", { params: { query: { limit: RUNS } } });
  const notices = newestFirst([...events.map(noticeOfEvent), ...(runs?.items ?? []).map(noticeOfRun)]);
  return (
    <Panel title="Recent events" isFlush className={className}>
      {notices.length === 0 ? (
        <EmptyState title="Nothing has happened yet.">Runs, reactors and packages report here.</EmptyState>
      ) : (
        <ul>
          {notices.map((notice) => (
            <Row key={notice.key} notice={notice} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Row({ notice: { at, tone, subject, text, to } }: { notice: Notice }) {
  return (
    <li className={styles.event}>
      <span className={styles.dot} data-tone={tone} aria-hidden="true" />
      <span className={styles.text}>
        {to === null ? <span>{subject}</span> : <Link to={to}>{subject}</Link>}
        <span className={styles.words}>{text}</span>
      </span>
      <span className={styles.at}>
        <Time at={at} />
      </span>
    </li>
  );
}
