import { useState } from "react";
import { Problem } from "@/api/problem";
import { Button } from "@/design/Button/Button";
import { Dialog } from "@/design/Dialog/Dialog";
import { FormError } from "@/design/FormError/FormError";
import type { Firing } from "../firings";
import { parseKey } from "../keys";
import type { ReactorState } from "../useLiveReactor";
import styles from "./FireWithDialog.module.css";
import { InputForm } from "./InputForm";
import { KeyField } from "./KeyField";
import { useReactorCommand } from "./useReactorCommand";

interface Props {
  state: ReactorState;
  onFired: (firing: Firing) => void;
  onClose: () => void;
}

/** Fires a reactor with inputs that the reader gives, starting from those in the cache when the dialog opened. */
export function FireWithDialog({ state, onFired, onClose }: Props) {
  const names = Object.keys(state.accumulators);
  const [key, setKey] = useState("");
  const [inputs, setInputs] = useState<Record<string, unknown>>(() => presentOf(state.cache));
  const { give, isPending, error } = useReactorCommand(state.name, ({ firing }) => {
    if (firing) onFired(firing);
    onClose();
  });
  const problems = error instanceof Problem ? error.fields : [];
  const change = (name: string, value: unknown) => {
    const { [name]: _, ...others } = inputs;
    setInputs(value === undefined ? others : { ...others, [name]: value });
  };
  return (
    <Dialog
      title={`Fire ${state.name} with`}
      onClose={onClose}
      isWide
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            look="primary"
            isBusy={isPending}
            onClick={() => give("fire_with", inputs, state.keys ? parseKey(key) : null)}
          >
            Fire
          </Button>
        </>
      }
    >
      <p className={styles.hint}>
        These inputs replace the whole cache{state.keys ? " of the key" : ""}. Inputs that are left out are absent
        afterwards.
      </p>
      <FormError error={error} />
      <div className={styles.inputs}>
        {state.keys && <KeyField value={key} onChange={setKey} />}
        {names.map((name) => (
          <InputForm
            key={name}
            accumulator={name}
            value={inputs[name]}
            onChange={(value) => change(name, value)}
            errors={problems}
          />
        ))}
      </div>
    </Dialog>
  );
}

function presentOf(cache: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(cache).filter(([, value]) => value !== null));
}
