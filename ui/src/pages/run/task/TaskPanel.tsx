import { api } from "@/api/client";
import { useMayWrite } from "@/app/useMe";
import { About } from "@/design/About/About";
import { Answer } from "@/design/Answer/Answer";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { StateBadge } from "@/design/StateBadge/StateBadge";
import { Tabs } from "@/design/Tabs/Tabs";
import { LogView } from "../log/LogView";
import { hasEnded } from "../state";
import type { RunData } from "../useRunData";
import type { Task } from "../useRunTasks";
import type { Change, Selection } from "../useSelection";
import { Attempts } from "./Attempts";
import { Elements } from "./Elements";
import { Output } from "./Output";
import { TaskFacts } from "./TaskFacts";
import styles from "./TaskPanel.module.css";

interface Props {
  data: RunData;
  selection: Selection;
  onChange: (change: Change) => void;
  onRerun: (task: string) => void;
}

/** One task of a run, or one element of a mapped task: state, why, attempts, log, output. */
export function TaskPanel({ data, selection, onChange, onRerun }: Props) {
  const run = data.id;
  const { task, index } = selection;
  const declared = data.declared.find(({ name }) => name === task);
  const mayWrite = useMayWrite();
  const query = api.useQuery("get", "/api/v1/runs/{run}/tasks/{task}", {
    params: { path: { run, task }, query: index === null ? {} : { index } },
  });
  return (
    <section className={styles.panel} aria-label={`Task ${labelOf(selection)}`}>
      <header className={styles.header}>
        {index !== null && (
          <Button look="quiet" onClick={() => onChange({ task })} title="All elements">
            {task}
          </Button>
        )}
        <h2 className={styles.title}>{index === null ? task : `[${index}]`}</h2>
        {query.data && <StateBadge state={query.data.state} />}
        <span className={styles.tools}>
          {mayWrite && (
            <Button onClick={() => onRerun(task)}>
              <Icon name="retry" /> Rerun from here
            </Button>
          )}
          <Button look="quiet" aria-label="Close the task" onClick={() => onChange(null)}>
            <Icon name="close" />
          </Button>
        </span>
      </header>
      {declared && (declared.owner || declared.description) && (
        <div className={styles.about}>
          <About owner={declared.owner} description={declared.description} />
        </div>
      )}
      <Answer query={query}>
        {(found) => <TaskBody run={run} task={found} selection={selection} onChange={onChange} />}
      </Answer>
    </section>
  );
}

interface BodyProps {
  run: string;
  task: Task;
  selection: Selection;
  onChange: (change: Change) => void;
}

function TaskBody({ run, task, selection, onChange }: BodyProps) {
  const isMapped = task.elements !== null;
  const view = selection.view ?? (isMapped ? "elements" : "log");
  return (
    <>
      <TaskFacts run={run} task={task} />
      <Tabs tabs={tabsOf(task)} current={view} param="view" label="Parts of this task" />
      <div className={styles.view}>
        {view === "elements" && isMapped && <Elements run={run} task={task} />}
        {view === "log" && (
          <LogView
            run={run}
            task={task.task}
            index={selection.index}
            attempt={selection.attempt}
            isActive={!hasEnded(task.state)}
          />
        )}
        {view === "attempts" && <Attempts run={run} selection={selection} onChange={onChange} />}
        {view === "output" && <Output run={run} task={task} index={selection.index} />}
      </div>
    </>
  );
}

function tabsOf(task: Task) {
  const own = [
    { id: "log", label: "Log" },
    { id: "attempts", label: "Attempts", count: task.elements === null ? task.attempts : undefined },
    { id: "output", label: "Output" },
  ];
  if (task.elements === null) return own;
  const count = Object.values(task.elements).reduce((sum, one) => sum + one, 0);
  return [{ id: "elements", label: "Elements", count }, ...own];
}

function labelOf({ task, index }: Selection): string {
  return index === null ? task : `${task}[${index}]`;
}
