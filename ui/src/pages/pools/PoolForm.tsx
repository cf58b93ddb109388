import { useState } from "react";
import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";

interface Props {
  /** The pool to resize; a new one without it. */
  pool?: Schema<"Pool">;
  onClose: () => void;
}

export function PoolForm({ pool, onClose }: Props) {
  const [name, setName] = useState(pool?.name ?? "");
  const [slots, setSlots] = useState(pool?.slots ?? 1);
  const { succeeded } = useOutcome("/api/v1/pools");
  const save = api.useMutation("put", "/api/v1/pools/{name}", {
    onSuccess: () => {
      succeeded(`Pool ${name} has ${slots} ${slots === 1 ? "slot" : "slots"}.`);
      onClose();
    },
  });
  return (
    <FormDialog
      title={pool === undefined ? "New pool" : `Resize ${pool.name}`}
      action="Save"
      onSubmit={() => save.mutate({ params: { path: { name } }, body: { slots } })}
      onClose={onClose}
      isBusy={save.isPending}
      error={save.error}
    >
      {pool === undefined && (
        <Field label="Name" hint="The name that tasks give as pool=">
          {(attributes) => (
            <input {...attributes} required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
      )}
      <Field label="Slots" hint="Tasks that have a slot keep it, also if the pool shrinks.">
        {(attributes) => (
          <input
            {...attributes}
            required
            type="number"
            min={1}
            value={slots}
            onChange={(event) => setSlots(event.target.valueAsNumber)}
          />
        )}
      </Field>
    </FormDialog>
  );
}
