import type { ReactNode } from "react";
import { Button } from "../Button/Button";
import { Dialog } from "../Dialog/Dialog";
import { FormError } from "../FormError/FormError";
import styles from "./ConfirmDialog.module.css";

interface Props {
  title: string;
  /** What will happen, exactly. */
  children: ReactNode;
  /** The verb of the button: "Delete". */
  action: string;
  onConfirm: () => void;
  onClose: () => void;
  isBusy?: boolean;
  /** Why the server refused. */
  error?: unknown;
}

/** Asks before something that cannot be undone; a refusal of the server stays in the dialog. */
export function ConfirmDialog({ title, children, action, onConfirm, onClose, isBusy = false, error }: Props) {
  const actions = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button look="danger" onClick={onConfirm} isBusy={isBusy}>
        {action}
      </Button>
    </>
  );
  return (
    <Dialog title={title} onClose={onClose} actions={actions}>
      <div className={styles.text}>{children}</div>
      <FormError error={error} />
    </Dialog>
  );
}
