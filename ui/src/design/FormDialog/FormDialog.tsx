import { type FormEvent, type ReactNode, useEffect, useId, useRef } from "react";
import { Button } from "../Button/Button";
import { Dialog } from "../Dialog/Dialog";
import { FormError } from "../FormError/FormError";
import styles from "./FormDialog.module.css";

interface Props {
  title: string;
  /** The fields. */
  children: ReactNode;
  /** The verb of the button: "Create". */
  action: string;
  onSubmit: () => void;
  onClose: () => void;
  isBusy?: boolean;
  /** Whether the form may be sent. */
  isReady?: boolean;
  /** What it does cannot be undone. */
  isDangerous?: boolean;
  /** Why the server refused. */
  error?: unknown;
}

/** A form in a dialog; Enter sends it, and a refusal of the server stays beside what was typed. */
export function FormDialog({ title, children, action, onSubmit, onClose, error, ...options }: Props) {
  const { isBusy = false, isReady = true, isDangerous = false } = options;
  const form = useId();
  const ref = useRef<HTMLFormElement>(null);
  // A dialog focuses its first button, but people want to type.
  useEffect(() => ref.current?.querySelector<HTMLElement>("input, select, textarea")?.focus(), []);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  const actions = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button look={isDangerous ? "danger" : "primary"} type="submit" form={form} isBusy={isBusy} disabled={!isReady}>
        {action}
      </Button>
    </>
  );
  return (
    <Dialog title={title} onClose={onClose} actions={actions}>
      <form ref={ref} id={form} className={styles.form} onSubmit={submit}>
        {children}
        <FormError error={error} />
      </form>
    </Dialog>
  );
}
