import type { ComponentProps } from "react";

interface Props extends Omit<ComponentProps<"div">, "role" | "tabIndex" | "aria-label"> {
  label: string;
}

/** A part of a page that scrolls: it has a name and takes the focus, so that the keyboard scrolls it too. */
export function ScrollRegion({ label, ...rest }: Props) {
  return (
    // biome-ignore lint/a11y/useSemanticElements: a section would be one more landmark for each table of a page
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls what has the focus
    <div {...rest} role="group" aria-label={label} tabIndex={0} />
  );
}
