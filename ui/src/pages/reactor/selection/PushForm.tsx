import { useState } from "react";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { Button } from "@/design/Button/Button";
import { SchemaValue } from "@/design/SchemaForm/SchemaValue";
import { initialValues, type JsonSchema } from "@/design/SchemaForm/schema";
import styles from "./Selection.module.css";

/** Pushes one event, written in a form that is made from the event's schema, and shows its receipt. */
export function PushForm({ accumulator, schema }: { accumulator: string; schema: JsonSchema }) {
  const definitions = schema.$defs ?? {};
  const [event, setEvent] = useState<unknown>(() => initialValues(schema, definitions));
  const push = api.useMutation("post", "/api/v1/accumulators/{name}/events");
  const send = () =>
    push.mutate({
      params: { path: { name: accumulator } },
      body: event as never,
      headers: { "content-type": JSON_TYPE },
    });
  return (
    <div>
      <h3 className={styles.heading}>Push a test event</h3>
      <div className={styles.push}>
        <SchemaValue schema={schema} value={event} onChange={setEvent} path="" />
        <Button isBusy={push.isPending} onClick={send}>
          Push event
        </Button>
        <p className={styles.receipt} role="status" data-error={push.isError || isDead(push.data) || undefined}>
          {push.isError ? messageOf(push.error) : push.data && receiptText(push.data as Schema<"Receipt">)}
        </p>
      </div>
    </div>
  );
}

const JSON_TYPE = "application/json";

function isDead(receipt: unknown): boolean {
  return (receipt as Schema<"Receipt"> | undefined)?.outcome === "dead_lettered";
}

function receiptText({ sequence, outcome, reason }: Schema<"Receipt">): string {
  const text = `Event ${sequence} was ${outcome.replace("dead_lettered", "not valid, and is a dead letter now")}`;
  return reason === null ? `${text}.` : `${text}: ${reason}`;
}
