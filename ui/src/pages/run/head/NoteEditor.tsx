import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import { useMayWrite } from "@/app/useMe";
import { Button } from "@/design/Button/Button";
import { useToast } from "@/design/Toasts/Toasts";
import styles from "./NoteEditor.module.css";

/** The note on a run, written where it is read. */
export function NoteEditor({ run, note }: { run: string; note: string | null }) {
  const [draft, setDraft] = useState<string | null>(null);
  const mayWrite = useMayWrite();
  const queries = useQueryClient();
  const announce = useToast();
  const save = api.useMutation("put", "/api/v1/runs/{run}/note", {
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["get", "/api/v1/runs/{run}"] });
      setDraft(null);
    },
    onError: (error) => announce(messageOf(error), "error"),
  });
  if (draft === null) {
    return (
      <span className={styles.note}>
        {note ?? (mayWrite ? "" : "none")}
        {mayWrite && (
          <button type="button" className={styles.edit} onClick={() => setDraft(note ?? "")}>
            {note === null ? "Add a note" : "Edit"}
          </button>
        )}
      </span>
    );
  }
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate({ params: { path: { run } }, body: { text: draft } });
      }}
    >
      <input
        aria-label="Note"
        // biome-ignore lint/a11y/noAutofocus: the click on "Edit" asks for it
        autoFocus
        value={draft}
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={(event) => event.key === "Escape" && setDraft(null)}
      />
      <Button type="submit" look="primary" isBusy={save.isPending}>
        Save
      </Button>
      <Button look="quiet" onClick={() => setDraft(null)}>
        Cancel
      </Button>
    </form>
  );
}
