import css from "./Bars.module.css";
import { heights } from "./heights";

export interface Bar {
  key: string;
  /** What a pointer over the bar is told. */
  title: string;
  /** From the bottom to the top. */
  parts: { tone: "ok" | "bad" | "off" | "ink"; value: number }[];
}

interface Props {
  caption: string;
  /** What the bars say, for those who do not see them. */
  summary: string;
  bars: Bar[];
  width?: number;
  height?: number;
}

/** Small bars side by side, one for each day. */
export function Bars({ caption, summary, bars, width = 168, height = 24 }: Props) {
  const step = width / Math.max(1, bars.length);
  const thick = Math.max(1, Math.min(24, step - 2));
  const scaled = heights(
    bars.map((bar) => bar.parts.map((part) => part.value)),
    height,
  );
  return (
    <span className={css.bars}>
      <svg className={css.chart} width={width} height={height} role="img" aria-label={summary}>
        <line className={css.base} x1={0} x2={width} y1={height - 0.5} y2={height - 0.5} />
        {bars.map((bar, at) => {
          let top = height;
          return (
            <g key={bar.key}>
              <title>{bar.title}</title>
              {bar.parts.map((part, index) => {
                const tall = scaled[at]?.[index] ?? 0;
                top -= tall;
                return tall === 0 ? null : (
                  <rect
                    key={part.tone}
                    className={css.part}
                    data-tone={part.tone}
                    x={at * step + 1}
                    y={top}
                    width={thick}
                    height={tall}
                  />
                );
              })}
            </g>
          );
        })}
      </svg>
      <span className={css.caption}>{caption}</span>
    </span>
  );
}
