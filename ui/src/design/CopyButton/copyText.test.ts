import { afterEach, expect, test, vi } from "vitest";
import { copyText } from "./copyText";

afterEach(() => void vi.unstubAllGlobals());

/** A page on plain http: without a clipboard, and with a dialog open if given. */
function plainPage(isCopied: boolean, dialog: object | null = null) {
  const field = { value: "", style: {}, select: vi.fn(), remove: vi.fn() };
  const body = { append: vi.fn() };
  vi.stubGlobal("navigator", {});
  vi.stubGlobal("document", {
    activeElement: { closest: () => dialog, focus: () => {} },
    createElement: () => field,
    execCommand: () => isCopied,
    body,
  });
  return { field, body };
}

test("where there is a clipboard, the text goes there", async () => {
  const writeText = vi.fn();
  vi.stubGlobal("navigator", { clipboard: { writeText } });
  await copyText("tidemill dev");
  expect(writeText).toHaveBeenCalledWith("tidemill dev");
});

test("on plain http a selection is copied, inside of the dialog that is open", async () => {
  const dialog = { append: vi.fn() };
  const { field, body } = plainPage(true, dialog);
  await copyText("tidemill dev");
  expect(field.value).toBe("tidemill dev");
  expect(dialog.append).toHaveBeenCalledWith(field);
  expect(body.append).not.toHaveBeenCalled();
  expect(field.remove).toHaveBeenCalled();
});

test("a browser that refuses is an error", async () => {
  plainPage(false);
  await expect(copyText("x")).rejects.toThrow("does not let this page copy");
});
