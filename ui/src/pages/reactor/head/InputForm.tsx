import { api } from "@/api/client";
import { Answer } from "@/design/Answer/Answer";
import { SchemaValue } from "@/design/SchemaForm/SchemaValue";
import { type FieldError, initialValues, type JsonSchema, resolve } from "@/design/SchemaForm/schema";
import styles from "./FireWithDialog.module.css";

interface Props {
  accumulator: string;
  /** `undefined` leaves the input out. */
  value: unknown;
  onChange: (value: unknown) => void;
  errors: FieldError[];
}

/** One input of a firing: given or left out, as a form made from the boundary that its accumulator emits. */
export function InputForm({ accumulator, value, onChange, errors }: Props) {
  const details = api.useQuery("get", "/api/v1/accumulators/{name}", { params: { path: { name: accumulator } } });
  const isGiven = value !== undefined;
  return (
    <fieldset className={styles.input}>
      <legend>
        <input
          type="checkbox"
          id={`give-${accumulator}`}
          checked={isGiven}
          onChange={() => onChange(isGiven ? undefined : emptyValue(details.data?.boundary_schema ?? null))}
        />
        <label htmlFor={`give-${accumulator}`}>{accumulator}</label>
      </legend>
      {isGiven ? (
        <Answer query={details}>
          {({ boundary_schema }) => (
            <SchemaValue
              schema={boundary_schema ?? {}}
              value={value}
              onChange={onChange}
              errors={errors}
              path={`inputs.${accumulator}`}
            />
          )}
        </Answer>
      ) : (
        <span className={styles.absent}>left out</span>
      )}
    </fieldset>
  );
}

function emptyValue(schema: JsonSchema | null): unknown {
  if (schema === null) return null;
  const definitions = schema.$defs ?? {};
  const { schema: root } = resolve(schema, definitions);
  return root.type === "array" ? [] : initialValues(root, definitions);
}
