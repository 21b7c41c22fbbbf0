/** Ports as people type them: one a line, with the model behind it if they know it. */
import type { ConnectionPort } from "../../api/generated";

export function portsText(ports: ConnectionPort[]): string {
  return ports.map(({ port, profile }) => (profile ? `${port} ${profile}` : `${port}`)).join("\n");
}

/** Return the ports of a text; throws an Error that says which line is none. */
export function readPorts(text: string): (number | { port: number; profile: string })[] {
  const lines = text.split(/[\n,]/).map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const [number = "", ...rest] = line.split(/\s+/);
    const port = Number(number);
    if (!Number.isInteger(port) || port < 1 || port > 65_535) {
      throw new Error(`“${line}” does not begin with a port, a number from 1 to 65535.`);
    }
    return rest.length ? { port, profile: rest.join(" ") } : port;
  });
}
