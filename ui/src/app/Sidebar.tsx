import { Link } from "@tanstack/react-router";
import { ROOT } from "@/api/root";
import { Icon } from "@/design/Icon/Icon";
import { NAVIGATION } from "./navigation";
import { SessionMenu } from "./SessionMenu";
import styles from "./Sidebar.module.css";
import { mayOpen, useMe } from "./useMe";

export function Sidebar({ onNavigate }: { onNavigate: () => void }) {
  const { data: me } = useMe();
  return (
    <nav className={styles.sidebar} aria-label="Pages">
      <Link to="/" className={styles.brand} onClick={onNavigate}>
        <img src={`${ROOT}/favicon.svg`} width="24" height="24" alt="" />
        Tidemill
      </Link>
      <div className={styles.groups}>
        {NAVIGATION.map((group) => {
          const items = group.items.filter((item) => mayOpen(me, item));
          return items.length === 0 ? null : (
            <div key={group.title}>
              {group.title !== "" && <h2 className={styles.group}>{group.title}</h2>}
              <ul>
                {items.map((item) => (
                  <li key={item.path}>
                    <Link
                      to={item.path}
                      className={styles.link}
                      activeOptions={{ exact: item.path === "/", includeSearch: false }}
                      onClick={onNavigate}
                    >
                      <Icon name={item.icon} />
                      {item.label}
                    </Link>
                  </li>
                ))}
              </ul>
            </div>
          );
        })}
      </div>
      <div className={styles.foot}>
        <a className={styles.link} href={`${ROOT}/docs/`}>
          <Icon name="book" />
          Documentation
        </a>
        <SessionMenu />
      </div>
    </nav>
  );
}
