import { useCallback } from "react";
import { useAllWorkflows } from "@/api/wholeLists";
import { Button } from "@/design/Button/Button";
import { FilterChips } from "@/design/FilterChips/FilterChips";
import { SearchInput } from "@/design/SearchInput/SearchInput";
import { StateMark } from "@/design/StateMark/StateMark";
import { CAUSES, isFiltered, RUN_STATES, type RunSearch, statesOf, toggleState } from "./filter";
import styles from "./RunFilters.module.css";

const NO_FILTERS: RunSearch = { q: "", workflow: "", state: "", cause: "", from: "", to: "", unresolved: "" };

interface Props {
  search: RunSearch;
  onChange: (part: Partial<RunSearch>) => void;
}

/** What to show of all runs: text, workflow, states, what started them, days. */
export function RunFilters({ search, onChange }: Props) {
  const { data } = useAllWorkflows();
  const type = useCallback((q: string) => onChange({ q }), [onChange]);
  const names = new Set([...(data?.items.map(({ name }) => name) ?? []), search.workflow].filter(Boolean));
  return (
    <div className={styles.filters}>
      <SearchInput label="Search runs" value={search.q} onChange={type} />
      <select
        className={styles.control}
        aria-label="Workflow"
        value={search.workflow}
        onChange={(event) => onChange({ workflow: event.target.value })}
      >
        <option value="">All workflows</option>
        {[...names].sort().map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <FilterChips
        label="States"
        chips={RUN_STATES.map((state) => ({
          id: state,
          isOn: statesOf(search.state).includes(state),
          label: (
            <>
              <StateMark state={state} /> {state}
            </>
          ),
        }))}
        onToggle={(state) => onChange({ state: toggleState(search.state, state) })}
      />
      <FilterChips
        label="Started by"
        chips={CAUSES.map((cause) => ({ id: cause, isOn: search.cause === cause, label: cause }))}
        onToggle={(cause) => onChange({ cause: search.cause === cause ? "" : cause })}
      />
      <FilterChips
        label="Need a person"
        chips={[{ id: "unresolved", isOn: search.unresolved === "true", label: "unresolved failures" }]}
        onToggle={() => onChange({ unresolved: search.unresolved === "true" ? "" : "true" })}
      />
      <span className={styles.days}>
        <label>
          from{" "}
          <input
            type="date"
            className={styles.control}
            value={search.from}
            onChange={(event) => onChange({ from: event.target.value })}
          />
        </label>
        <label>
          to{" "}
          <input
            type="date"
            className={styles.control}
            value={search.to}
            onChange={(event) => onChange({ to: event.target.value })}
          />
        </label>
      </span>
      {isFiltered(search) && (
        <Button look="quiet" onClick={() => onChange(NO_FILTERS)}>
          Clear filters
        </Button>
      )}
    </div>
  );
}
