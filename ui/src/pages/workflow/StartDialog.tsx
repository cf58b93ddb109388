import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api } from "@/api/client";
import { Problem } from "@/api/problem";
import type { Schema } from "@/api/types";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import { SchemaForm } from "@/design/SchemaForm/SchemaForm";
import { initialValues, type JsonSchema } from "@/design/SchemaForm/schema";
import styles from "./StartDialog.module.css";

/** Starts a run, with a form made from the params of the workflow; then the page of the run opens. */
export function StartDialog({ workflow, onClose }: { workflow: Schema<"WorkflowDetails">; onClose: () => void }) {
  const schema = (workflow.params ?? {}) as JsonSchema;
  const [values, setValues] = useState(() => initialValues(schema, schema.$defs ?? {}));
  const [note, setNote] = useState("");
  const navigate = useNavigate();
  const start = api.useMutation("post", "/api/v1/workflows/{name}/runs", {
    onSuccess: ({ id }) => void navigate({ to: "/runs/$run", params: { run: id } }),
  });
  const submit = () =>
    start.mutate({
      params: { path: { name: workflow.name } },
      body: { params: values, note: note.trim() === "" ? null : note.trim() },
    });
  const fields = start.error instanceof Problem ? start.error.fields : [];
  return (
    <FormDialog
      title={`Start ${workflow.name}`}
      action="Start a run"
      onSubmit={submit}
      onClose={onClose}
      isBusy={start.isPending}
      error={start.error}
    >
      {workflow.paused && (
        <p className={styles.notice}>The workflow is paused, and starts no run before it is resumed.</p>
      )}
      <SchemaForm schema={schema} values={values} onChange={setValues} errors={fields} path="params" />
      <Field label="Note (optional)" hint="Why this run is started; the list of runs shows it.">
        {(attributes) => <input {...attributes} value={note} onChange={(event) => setNote(event.target.value)} />}
      </Field>
    </FormDialog>
  );
}
