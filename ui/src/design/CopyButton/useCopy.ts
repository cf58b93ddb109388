import { messageOf } from "@/api/problem";
import { useToast } from "../Toasts/Toasts";
import { copyText } from "./copyText";

/** Copies a text, and says so if the browser refuses. */
export function useCopy(): (text: string, onCopied: () => void) => void {
  const announce = useToast();
  return (text, onCopied) => void copyText(text).then(onCopied, (error) => announce(messageOf(error), "error"));
}
