import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Icon } from "@/design/Icon/Icon";
import styles from "./CommandPalette.module.css";
import { type Command, useCommands } from "./commands";
import { matchScore } from "./match";

const SHOWN = 12;

/** Goes to any page, workflow, reactor, package or run, and does what needs no form. */
export function CommandPalette({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const list = useId();
  const navigate = useNavigate();
  const [typed, setTyped] = useState("");
  const [selected, setSelected] = useState(0);
  const found = find(useCommands(typed), typed);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);

  const choose = (command: Command | undefined) => {
    if (command === undefined) return;
    onClose();
    if (command.to !== undefined) void navigate({ to: command.to, search: command.search ?? {} });
    else command.act?.();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) setSelected((selected + step + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") choose(found[selected]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog ref={dialog} className={styles.palette} aria-label="Search or go to" onCancel={onClose}>
      <div className={styles.field}>
        <Icon name="search" />
        <input
          className={styles.input}
          role="combobox"
          aria-label="Search or go to"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={found[selected] && `${list}-${selected}`}
          placeholder="A page, workflow, reactor, package or run"
          autoFocus
          value={typed}
          onChange={(event) => {
            setTyped(event.target.value);
            setSelected(0);
          }}
          onKeyDown={onKey}
        />
      </div>
      <div id={list} className={styles.list} role="listbox" aria-label="Results">
        {found.map((command, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are handled by the field
          // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus, and names the selected option
          <div
            key={command.id}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === selected}
            className={styles.option}
            onClick={() => choose(command)}
            onPointerMove={() => setSelected(index)}
          >
            <Icon name={command.icon} />
            <span className={styles.label}>{command.label}</span>
            <span className={styles.kind}>{command.kind}</span>
          </div>
        ))}
        {found.length === 0 && <div className={styles.none}>Nothing has this name.</div>}
      </div>
    </dialog>
  );
}

function find(commands: Command[], typed: string): Command[] {
  if (typed.trim() === "") return commands.slice(0, SHOWN);
  return commands
    .map((command) => ({ command, score: matchScore(`${command.label} ${command.words ?? ""}`, typed.trim()) }))
    .filter(({ score }) => score > 0)
    .sort((one, other) => other.score - one.score)
    .slice(0, SHOWN)
    .map(({ command }) => command);
}
