import { Copy } from "../../ui/Copy/Copy";
import css from "./Approvals.module.css";

/** What to type on the server, where this page may not answer. */
export function Commands({ commands }: { commands: string[] }) {
  return (
    <div className={css.answer}>
      <p>
        This server has no token, so anybody who reaches it could answer, the agent too. Answer on a
        terminal of the server:
      </p>
      {commands.map((command) => (
        <div key={command} className={css.command}>
          <code>{command}</code>
          <Copy text={command} label={`Copy`} />
        </div>
      ))}
    </div>
  );
}
