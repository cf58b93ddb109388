import { useState } from "react";
import { api } from "@/api/client";
import { Problem } from "@/api/problem";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { NameField } from "@/design/Field/NameField";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import { Conflict } from "./Conflict";
import { parseValue } from "./value";

interface Props {
  /** The variable to change; a new one without it. */
  variable?: Schema<"Variable">;
  onClose: () => void;
}

/** Sets a variable: its value is JSON, and a text needs no quotes. */
export function VariableForm({ variable, onClose }: Props) {
  const [name, setName] = useState(variable?.name ?? "");
  const [text, setText] = useState(variable === undefined ? "" : JSON.stringify(variable.value, null, 2));
  // The version that the reader has seen: the list behind the form follows what others change.
  const [seen, setSeen] = useState(variable?.etag ?? null);
  const { succeeded } = useOutcome("/api/v1/variables");
  const save = api.useMutation("put", "/api/v1/variables/{name}", {
    onSuccess: () => {
      succeeded(`Variable ${name} is set.`);
      onClose();
    },
  });
  const value = parseValue(text);
  const isStale = save.error instanceof Problem && save.error.code === "stale_etag";
  const submit = () => {
    if (!value.isValid) return;
    save.mutate({
      params: { path: { name }, header: seen === null ? { "if-none-match": "*" } : { "if-match": seen } },
      body: { value: value.value },
    });
  };
  return (
    <FormDialog
      title={variable === undefined ? "New variable" : `Change ${variable.name}`}
      action="Save"
      onSubmit={submit}
      onClose={onClose}
      isBusy={save.isPending}
      isReady={!isStale}
      error={isStale ? null : save.error}
    >
      {variable === undefined && <NameField value={name} onChange={setName} />}
      <Field
        label="Value"
        hint={`JSON: a text, a number, true, a list or an object. This is ${value.kind}.`}
        error={value.isValid ? undefined : "This begins as JSON, but is none."}
      >
        {(attributes) => (
          <textarea {...attributes} required value={text} onChange={(event) => setText(event.target.value)} />
        )}
      </Field>
      {isStale && (
        <Conflict
          name={name}
          onKeepMine={(current) => {
            setSeen(current.etag);
            save.reset();
          }}
          onTakeTheirs={(current) => {
            setSeen(current.etag);
            setText(JSON.stringify(current.value, null, 2));
            save.reset();
          }}
        />
      )}
    </FormDialog>
  );
}
