import styles from "./RerunDialog.module.css";

interface Props {
  tasks: string[];
  chosen: string[];
  onChange: (chosen: string[]) => void;
}

/** The tasks from which on a run reruns. */
export function TaskChoice({ tasks, chosen, onChange }: Props) {
  const toggle = (task: string) =>
    onChange(chosen.includes(task) ? chosen.filter((one) => one !== task) : [...chosen, task]);
  return (
    <fieldset className={styles.choice}>
      <legend>Rerun from</legend>
      {tasks.map((task) => (
        <label key={task} className={styles.option}>
          <input type="checkbox" checked={chosen.includes(task)} onChange={() => toggle(task)} />
          {task}
        </label>
      ))}
    </fieldset>
  );
}
