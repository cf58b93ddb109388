import { useState } from "react";
import { Icon } from "../Icon/Icon";
import styles from "./CopyButton.module.css";
import { useCopy } from "./useCopy";

const SHOWN = 1500;

/** Copies a text, and says that it did. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = useCopy();
  const showCopied = () => {
    setCopied(true);
    setTimeout(() => setCopied(false), SHOWN);
  };
  return (
    <button
      type="button"
      className={styles.copy}
      aria-label={isCopied ? "Copied" : label}
      onClick={() => copy(text, showCopied)}
    >
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  );
}
