import { Dialog } from "../../ui/Dialog/Dialog";
import { boundKeys, useSingleKeys } from "../keys";
import css from "./KeyHelp.module.css";

/** All keys that do something on this page. */
export function KeyHelp({ onClose }: { onClose: () => void }) {
  const single = useSingleKeys();
  return (
    <Dialog title="Keys" onClose={onClose}>
      <table className={css.keys}>
        <tbody>
          {boundKeys().map((each) => (
            <tr key={`${each.keys}${each.what}`}>
              <th scope="row">
                <kbd>{each.keys}</kbd>
              </th>
              <td>{each.what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <label className={css.single}>
        <input
          type="checkbox"
          checked={single.on}
          onChange={(event) => single.set(event.target.checked)}
        />
        Keys without Ctrl and Alt
      </label>
    </Dialog>
  );
}
