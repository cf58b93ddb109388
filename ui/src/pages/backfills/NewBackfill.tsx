import { useNavigate } from "@tanstack/react-router";
import { useAllSchedules } from "@/api/wholeLists";
import styles from "./NewBackfill.module.css";

/** Leads to the calendar of a workflow that has a schedule. */
export function NewBackfill() {
  const navigate = useNavigate();
  const { data } = useAllSchedules();
  const names = [...new Set(data?.items.map(({ workflow }) => workflow))].sort();
  const open = (name: string) =>
    void navigate({ to: "/workflows/$name", params: { name }, search: { dialog: "backfill" } as object });
  return (
    <select
      className={styles.select}
      aria-label="New backfill"
      value=""
      disabled={names.length === 0}
      onChange={(event) => open(event.target.value)}
    >
      <option value="">{data && names.length === 0 ? "No workflow has a schedule" : "New backfill of…"}</option>
      {names.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
