/** The name under which an edge's problems are kept, beside those of nodes. */
export function edgePlace(key: string): string {
  return `edge ${key}`;
}
