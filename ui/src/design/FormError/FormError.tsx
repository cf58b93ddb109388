import { useEffect, useRef } from "react";
import { messageOf } from "@/api/problem";
import styles from "./FormError.module.css";

/**
 * Why the server refused a form, in sight of the one who sent it: the first field that is at fault gets the focus,
 * and if none is, this text is scrolled to.
 */
export function FormError({ error }: { error: unknown }) {
  const ref = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    if (error == null) return;
    const field = ref.current?.closest("form, dialog")?.querySelector<HTMLElement>("[aria-invalid='true']");
    field?.focus();
    // The parent of a control has its label and its message.
    (field?.parentElement ?? ref.current)?.scrollIntoView({ block: "nearest" });
  }, [error]);
  if (error == null) return null;
  return (
    <p ref={ref} className={styles.error} role="alert">
      {messageOf(error)}
    </p>
  );
}
