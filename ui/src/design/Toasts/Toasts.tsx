import { createContext, type ReactNode, useCallback, useContext, useRef, useState } from "react";
import styles from "./Toasts.module.css";

interface Toast {
  id: number;
  text: string;
  tone: "plain" | "error";
}

type Announce = (text: string, tone?: Toast["tone"]) => void;

const SHOWN = 5000;
const ToastContext = createContext<Announce>(() => {});

/** Short messages at the edge of the screen: what an action did, or why it failed. */
export function Toasts({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Toast[]>([]);
  const next = useRef(0);
  const announce = useCallback<Announce>((text, tone = "plain") => {
    const id = next.current++;
    setToasts((shown) => [...shown.slice(-3), { id, text, tone }]);
    setTimeout(() => setToasts((shown) => shown.filter((toast) => toast.id !== id)), SHOWN);
  }, []);
  return (
    <ToastContext value={announce}>
      {children}
      <div className={styles.toasts} role="status" aria-live="polite">
        {toasts.map((toast) => (
          <div key={toast.id} className={styles.toast} data-tone={toast.tone}>
            {toast.text}
          </div>
        ))}
      </div>
    </ToastContext>
  );
}

export function useToast(): Announce {
  return useContext(ToastContext);
}
