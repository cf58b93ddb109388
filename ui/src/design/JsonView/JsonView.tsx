import { useState } from "react";
import { Button } from "../Button/Button";
import { CopyButton } from "../CopyButton/CopyButton";
import { ScrollRegion } from "../ScrollRegion/ScrollRegion";
import styles from "./JsonView.module.css";

const LONG = 4000;

interface Props {
  value: unknown;
  label: string;
  /** It takes the room that there is, instead of a box in a list. */
  isFull?: boolean;
}

/** A value as indented JSON, to copy; a long one is unfolded on demand. */
export function JsonView({ value, label, isFull = false }: Props) {
  const [isOpen, setOpen] = useState(false);
  const text = JSON.stringify(value, null, 2) ?? "null";
  const isLong = text.length > LONG;
  return (
    <div className={styles.view}>
      <ScrollRegion className={styles.json} label={label} data-full={isFull || isOpen || undefined}>
        <pre>{isLong && !isOpen ? `${text.slice(0, LONG)}\n…` : text}</pre>
      </ScrollRegion>
      <span className={styles.copy}>
        <CopyButton text={text} label={`Copy the value of ${label}`} />
      </span>
      {isLong && (
        <Button look="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Fold" : `Show all ${text.length.toLocaleString("en")} characters`}
        </Button>
      )}
    </div>
  );
}
