import { Outlet, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { Button } from "@/design/Button/Button";
import { Icon } from "@/design/Icon/Icon";
import { Kbd } from "@/design/Kbd/Kbd";
import { LiveMark } from "@/design/LiveMark/LiveMark";
import { useShortcuts } from "@/keyboard/useShortcuts";
import { useConnection } from "@/live/LiveProvider";
import { CommandPalette } from "./CommandPalette";
import { NAVIGATION } from "./navigation";
import styles from "./Shell.module.css";
import { ShortcutHelp } from "./ShortcutHelp";
import { Sidebar } from "./Sidebar";
import { toggleTheme, useTheme } from "./theme";

/** What is around every page: navigation, search, connection, theme. */
export function Shell() {
  const [overlay, setOverlay] = useState<"palette" | "help" | null>(null);
  const [isMenuOpen, setMenuOpen] = useState(false);
  const { theme } = useTheme();
  const { state } = useConnection();
  const isStale = state === "reconnecting" || state === "closed";
  const close = () => setOverlay(null);
  useShellShortcuts(setOverlay);
  return (
    <div className={styles.shell} data-menu={isMenuOpen || undefined} data-stale={isStale || undefined}>
      <a className={styles.skip} href="#content">
        Skip to content
      </a>
      <Sidebar onNavigate={() => setMenuOpen(false)} />
      <div className={styles.main}>
        <header className={styles.bar}>
          <Button look="quiet" className={styles.menu} aria-label="Menu" onClick={() => setMenuOpen(!isMenuOpen)}>
            <Icon name="menu" />
          </Button>
          <button type="button" className={styles.search} onClick={() => setOverlay("palette")}>
            <Icon name="search" size={14} />
            <span>Search or go to…</span>
            <Kbd>Ctrl K</Kbd>
          </button>
          <div className={styles.tools}>
            <LiveMark />
            <Button
              look="quiet"
              aria-label="Keyboard shortcuts"
              title="Keyboard shortcuts (?)"
              onClick={() => setOverlay("help")}
            >
              ?
            </Button>
            <Button
              look="quiet"
              aria-label={theme === "dark" ? "Use the light theme" : "Use the dark theme"}
              onClick={toggleTheme}
            >
              <Icon name={theme === "dark" ? "sun" : "moon"} />
            </Button>
          </div>
        </header>
        <main id="content" className={styles.content}>
          <Outlet />
        </main>
      </div>
      {overlay === "palette" && <CommandPalette onClose={close} />}
      {overlay === "help" && <ShortcutHelp onClose={close} />}
    </div>
  );
}

function useShellShortcuts(setOverlay: (overlay: "palette" | "help") => void): void {
  const navigate = useNavigate();
  const shortcuts = useMemo(() => {
    const pages = NAVIGATION.flatMap((group) => group.items).filter((item) => item.key !== undefined);
    return {
      "mod+k": () => setOverlay("palette"),
      "?": () => setOverlay("help"),
      "/": () => document.querySelector<HTMLInputElement>("[data-search]")?.focus(),
      t: toggleTheme,
      ...Object.fromEntries(pages.map((page) => [`g ${page.key}`, () => void navigate({ to: page.path })])),
    };
  }, [navigate, setOverlay]);
  useShortcuts(shortcuts);
}
