/** The dialog that a page shows, in its address: `?dialog=edit:region`, so that a link leads to it. */

import { useSearchParam } from "./useSearchParam";

export interface OpenDialog {
  /** What the dialog does: "new", "edit", "delete". */
  kind: string;
  /** What it is about, such as the name of a variable; "" for something new. */
  subject: string;
  open: (kind: string, subject?: string) => void;
  close: () => void;
}

export function useDialog(): OpenDialog {
  const [value, setValue] = useSearchParam("dialog", "");
  const [kind = "", ...rest] = value.split(":");
  return {
    kind,
    subject: rest.join(":"),
    open: (kind, subject = "") => setValue(subject === "" ? kind : `${kind}:${subject}`),
    close: () => setValue(""),
  };
}
