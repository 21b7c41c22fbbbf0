/** Server-sent events, read from the pieces of a response. */

export interface Frame {
  /** What to continue after, as the server names it. */
  id: string;
  /** The JSON texts before that name: one event may be several messages. */
  data: string[];
}

/** Returns a function that takes text as it arrives and returns the frames that are complete. */
export function frameReader(): (text: string) => Frame[] {
  let rest = "";
  let waiting: string[] = [];
  return (text) => {
    rest += text;
    const frames: Frame[] = [];
    let from = 0;
    for (let end = rest.indexOf("\n\n", from); end >= 0; end = rest.indexOf("\n\n", from)) {
      let id: string | null = null;
      for (const line of rest.slice(from, end).split("\n")) {
        if (line.startsWith("data: ")) waiting.push(line.slice(6));
        else if (line.startsWith("id: ")) id = line.slice(4);
      }
      if (id !== null) {
        frames.push({ id, data: waiting });
        waiting = [];
      }
      from = end + 2;
    }
    rest = rest.slice(from);
    return frames;
  };
}
