import { useState } from "react";
import { api } from "@/api/client";
import { useOutcome } from "@/api/useOutcome";
import { Field } from "@/design/Field/Field";
import { FormDialog } from "@/design/FormDialog/FormDialog";
import { formatBytes } from "@/format/number";
import { packageName } from "./packageName";

/** Uploads an archive, which every node on the store loads. The server checks it first, and says what is wrong. */
export function UploadPackage({ onClose }: { onClose: () => void }) {
  const [file, setFile] = useState<File | null>(null);
  const [name, setName] = useState("");
  const [allowDowngrade, setAllowDowngrade] = useState(false);
  const { succeeded } = useOutcome("/api/v1/packages", "/api/v1/import-errors", "/api/v1/workflows");
  const upload = api.useMutation("put", "/api/v1/packages/{name}", {
    onSuccess: ({ name, state, published }) => {
      succeeded(`Package ${name} ${published} is uploaded, and ${state}.`);
      onClose();
    },
  });
  const choose = (chosen: File | null) => {
    setFile(chosen);
    setName(chosen === null ? "" : packageName(chosen.name));
  };
  const send = () => {
    if (file === null) return;
    upload.mutate({
      params: { path: { name }, query: { allow_downgrade: allowDowngrade } },
      headers: { "content-type": "application/octet-stream" },
      body: file,
      bodySerializer: (body: unknown) => body as File,
    });
  };
  return (
    <FormDialog
      title="Upload a package"
      action="Upload"
      onSubmit={send}
      onClose={onClose}
      isBusy={upload.isPending}
      isReady={file !== null && name !== ""}
      error={upload.error}
    >
      <Field
        label="Archive"
        hint={file === null ? "A .tidemill file, as tidemill package build writes it." : formatBytes(file.size)}
      >
        {(attributes) => (
          <input
            {...attributes}
            type="file"
            accept=".tidemill"
            onChange={(event) => choose(event.target.files?.item(0) ?? null)}
          />
        )}
      </Field>
      <Field label="Name" hint="The name in the package's package.toml.">
        {(attributes) => (
          <input {...attributes} required value={name} onChange={(event) => setName(event.target.value)} />
        )}
      </Field>
      <Field label="Accept a lower version" hint="Needed to go back to a version before the last published one.">
        {(attributes) => (
          <input
            {...attributes}
            type="checkbox"
            checked={allowDowngrade}
            onChange={() => setAllowDowngrade(!allowDowngrade)}
          />
        )}
      </Field>
    </FormDialog>
  );
}
