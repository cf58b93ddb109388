import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { NameField } from "@/design/Field/NameField";
import { FormDialog } from "@/design/FormDialog/FormDialog";
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
  const { succeeded } = useOutcome("/api/v1/variables");
  const save = api.useMutation("put", "/api/v1/variables/{name}", {
    onSuccess: () => {
      succeeded(`Variable ${name} is set.`);
      onClose();
    },
  });
  const value = parseValue(text);
  return (
    <FormDialog
      title={variable === undefined ? "New variable" : `Change ${variable.name}`}
      action="Save"
      onSubmit={() => value.isValid && save.mutate({ params: { path: { name } }, body: { value: value.value } })}
      onClose={onClose}
      isBusy={save.isPending}
      error={save.error}
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
    </FormDialog>
  );
}
