import type { Schema } from "@/api/types";
import { Field } from "../Field/Field";

type Role = Schema<"Role">;

const ROLES: Record<Role, string> = {
  read: "Sees everything of the tenant, and changes nothing.",
  write: "Starts, retries and cancels runs, commands reactors, pushes events, sets variables.",
  admin: "Also keeps packages, secrets, keys and accounts.",
};

/** Chooses the role of a key or an account, and says what it allows. */
export function RoleField({ role, onChange }: { role: Role; onChange: (role: Role) => void }) {
  return (
    <Field label="Role" hint={ROLES[role]}>
      {(attributes) => (
        <select {...attributes} value={role} onChange={(event) => onChange(event.target.value as Role)}>
          {Object.keys(ROLES).map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      )}
    </Field>
  );
}
