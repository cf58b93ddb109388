import styles from "./About.module.css";

interface Props {
  owner: string;
  description: string;
}

/** Whom to ask about something, and what it is for; nothing if its author says neither. */
export function About({ owner, description }: Props) {
  if (owner === "" && description === "") return null;
  return (
    <div className={styles.about}>
      {description !== "" && <p className={styles.description}>{description}</p>}
      {owner !== "" && (
        <p className={styles.owner}>
          Owner: <strong>{owner}</strong>
        </p>
      )}
    </div>
  );
}
