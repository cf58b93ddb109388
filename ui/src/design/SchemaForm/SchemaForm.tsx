import { useId } from "react";
import { SchemaField } from "./SchemaField";
import styles from "./SchemaForm.module.css";
import {
  errorAt,
  type FieldError,
  type FormField,
  fieldsOf,
  isOptional,
  type JsonSchema,
  switchedGroup,
} from "./schema";

type Values = Record<string, unknown>;

interface Props {
  schema: JsonSchema;
  values: Values;
  onChange: (values: Values) => void;
  /** Problems by path, as the server reports them: `params.day`. */
  errors?: FieldError[];
  /** The path of these values in the request: "params". */
  path?: string;
  /** The definitions that this form is part of. */
  above?: string[];
}

/** A form made from a JSON Schema: a control per property, JSON where a form would be worse. */
export function SchemaForm({ schema, values, onChange, errors = [], path = "", above = [] }: Props) {
  const definitions = schema.$defs ?? {};
  const change = (name: string, value: unknown) => {
    const { [name]: _, ...others } = values;
    onChange(value === undefined ? others : { ...others, [name]: value });
  };
  return (
    <div className={styles.form}>
      {fieldsOf(schema, definitions, above).map((field) => {
        const below = path === "" ? field.name : `${path}.${field.name}`;
        const shared = { field, value: values[field.name], onChange: (value: unknown) => change(field.name, value) };
        return field.control === "group" ? (
          <SchemaGroup key={field.name} {...shared} definitions={definitions} errors={errors} path={below} />
        ) : (
          <SchemaField key={field.name} {...shared} error={errorAt(errors, below)} />
        );
      })}
    </div>
  );
}

interface GroupProps {
  field: FormField;
  value: unknown;
  onChange: (value: unknown) => void;
  definitions: Record<string, JsonSchema>;
  errors: FieldError[];
  path: string;
}

/** An object inside an object; one that may be left out has a checkbox, and no fields until it is given. */
function SchemaGroup({ field, value, onChange, definitions, errors, path }: GroupProps) {
  const id = useId();
  const error = errors.find((one) => one.path === path)?.message;
  const isGiven = !isOptional(field) || (value !== undefined && value !== null);
  return (
    <fieldset className={styles.group} aria-describedby={`${id}-error`}>
      <legend>
        {isOptional(field) ? (
          <>
            <input
              type="checkbox"
              id={id}
              checked={isGiven}
              onChange={() => onChange(switchedGroup(field, !isGiven, definitions))}
            />
            <label htmlFor={id}>{field.name} (optional)</label>
          </>
        ) : (
          field.name
        )}
      </legend>
      {isGiven ? (
        <SchemaForm
          schema={{ ...field.schema, $defs: definitions }}
          values={(value as Values | null | undefined) ?? {}}
          onChange={onChange}
          errors={errors}
          path={path}
          above={field.above}
        />
      ) : (
        <span className={styles.absent}>left out</span>
      )}
      {error !== undefined && (
        <p id={`${id}-error`} className={styles.error}>
          {error}
        </p>
      )}
    </fieldset>
  );
}
