import { useEffect, useState } from "react";
import { Icon } from "../Icon/Icon";
import styles from "./SearchInput.module.css";

const PAUSE = 200;

interface Props {
  label: string;
  value: string;
  onChange: (value: string) => void;
}

/** A search field that reports what was typed once typing pauses. `/` focuses it. */
export function SearchInput({ label, value, onChange }: Props) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <span className={styles.search}>
      <Icon name="search" size={14} />
      <input
        type="search"
        className={styles.input}
        aria-label={label}
        placeholder={label}
        value={text}
        data-search
        onChange={(event) => setText(event.target.value)}
      />
    </span>
  );
}
