/** Calls back when the network or the reader returns: connections may have been lost meanwhile. */
export function onReturn(listener: () => void): () => void {
  const onVisible = () => document.visibilityState === "visible" && listener();
  window.addEventListener("online", listener);
  document.addEventListener("visibilitychange", onVisible);
  return () => {
    window.removeEventListener("online", listener);
    document.removeEventListener("visibilitychange", onVisible);
  };
}
