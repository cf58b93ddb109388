import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from "react";
import { Button } from "../Button/Button";
import { Icon } from "../Icon/Icon";
import styles from "./Toasts.module.css";

interface Toast {
  id: number;
  text: string;
  tone: "plain" | "error";
}

type Announce = (text: string, tone?: Toast["tone"]) => void;

/** Milliseconds; an error stays until it is closed. */
const SHOWN = 5000;
const ToastContext = createContext<Announce>(() => {});

/** Short messages at the edge of the screen: what an action did, or why it failed. */
export function Toasts({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const next = useRef(0);
  const close = useCallback((id: number) => setToasts((shown) => shown.filter((toast) => toast.id !== id)), []);
  const announce = useCallback<Announce>(
    (text, tone = "plain") => {
      const id = next.current++;
      setToasts((shown) => [...shown.slice(-3), { id, text, tone }]);
      if (tone === "plain") setTimeout(close, SHOWN, id);
    },
    [close],
  );
  return (
    <ToastContext value={announce}>
      {children}
      <div className={styles.toasts} role="status" aria-live="polite">
        {toasts.map((toast) => (
          <div key={toast.id} className={styles.toast} data-tone={toast.tone}>
            {toast.text}
            {toast.tone === "error" && (
              <Button look="quiet" aria-label="Close the message" onClick={() => close(toast.id)}>
                <Icon name="close" size={14} />
              </Button>
            )}
          </div>
        ))}
      </div>
    </ToastContext>
  );
}

export function useToast(): Announce {
  return useContext(ToastContext);
}
