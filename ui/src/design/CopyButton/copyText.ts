/**
 * Puts a text on the clipboard.
 *
 * Browsers have `navigator.clipboard` only on https and localhost; elsewhere a selection that is copied does the same.
 */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) await navigator.clipboard.writeText(text);
  else copySelection(text);
}

function copySelection(text: string): void {
  const focused = document.activeElement as HTMLElement | null;
  const field = document.createElement("textarea");
  field.value = text;
  field.style.position = "fixed";
  field.style.opacity = "0";
  // Nothing outside of an open dialog can be selected.
  (focused?.closest("dialog") ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!isCopied) throw new Error("The browser does not let this page copy: select the text and copy it yourself.");
}
