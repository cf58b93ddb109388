import { Field } from "@/design/Field/Field";
import styles from "./BackfillDialog.module.css";

interface Props {
  schedules: string[];
  scheduleKey: string | null;
  onKey: (key: string) => void;
  limit: number;
  onLimit: (limit: number) => void;
  isOnlyMissing: boolean;
  onOnlyMissing: (isOnlyMissing: boolean) => void;
}

/** How a backfill runs: which schedule, how many runs at a time, and whether slots that had a run get another. */
export function BackfillOptions(props: Props) {
  const { schedules, scheduleKey, onKey, limit, onLimit, isOnlyMissing, onOnlyMissing } = props;
  return (
    <div className={styles.options}>
      {schedules.length > 1 && (
        <Field label="Schedule">
          {(attributes) => (
            <select {...attributes} value={scheduleKey ?? ""} onChange={(event) => onKey(event.target.value)}>
              {schedules.map((key) => (
                <option key={key}>{key}</option>
              ))}
            </select>
          )}
        </Field>
      )}
      <Field label="Runs at a time">
        {(attributes) => (
          <input
            {...attributes}
            type="number"
            min={1}
            value={limit}
            onChange={(event) => onLimit(Math.max(1, event.target.valueAsNumber || 1))}
          />
        )}
      </Field>
      <label className={styles.check}>
        <input type="checkbox" checked={isOnlyMissing} onChange={() => onOnlyMissing(!isOnlyMissing)} />
        Only slots without a run
      </label>
    </div>
  );
}
