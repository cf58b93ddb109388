import { Dialog } from "@/design/Dialog/Dialog";
import { Kbd } from "@/design/Kbd/Kbd";
import { NAVIGATION } from "./navigation";
import styles from "./ShortcutHelp.module.css";

const EVERYWHERE: [keys: string, action: string][] = [
  ["Ctrl K", "Search or go to"],
  ["/", "Search on this page"],
  ["j", "Next item of the list"],
  ["k", "Previous item of the list"],
  ["Enter", "Open the selected item"],
  ["t", "Switch between dark and light"],
  ["?", "Show this list"],
  ["Esc", "Close"],
];

export function ShortcutHelp({ onClose }: { onClose: () => void }) {
  const pages = NAVIGATION.flatMap((group) => group.items).filter((item) => item.key !== undefined);
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose} isWide>
      <div className={styles.columns}>
        <Keys title="Everywhere" rows={EVERYWHERE} />
        <Keys title="Go to" rows={pages.map((page) => [`g ${page.key}`, page.label])} />
      </div>
    </Dialog>
  );
}

function Keys({ title, rows }: { title: string; rows: [string, string][] }) {
  return (
    <div>
      <h3 className={styles.title}>{title}</h3>
      <dl className={styles.keys}>
        {rows.map(([keys, action]) => (
          <div key={keys} className={styles.row}>
            <dt>
              {keys.split(" ").map((key) => (
                <Kbd key={key}>{key}</Kbd>
              ))}
            </dt>
            <dd>{action}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
