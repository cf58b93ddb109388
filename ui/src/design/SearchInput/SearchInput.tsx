import { useEffect, useState } from "react";
import { Icon } from "../Icon/Icon";
import { Reports } from "./reports";
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
  const [reports] = useState(() => new Reports());
  useEffect(() => {
    if (!reports.takeBack(value)) setText(value);
  }, [value, reports]);
  useEffect(() => {
    if (text === reports.expected(value)) return;
    const timer = setTimeout(() => {
      reports.add(text);
      onChange(text);
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text, value, onChange, reports]);
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
