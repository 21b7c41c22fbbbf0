import css from "./Meter.module.css";

/** How much of something is used. */
export function Meter({ value, of, label }: { value: number; of: number; label: string }) {
  const share = of > 0 ? Math.min(1, value / of) : 1;
  return (
    <div className={css.meter}>
      <div
        role="meter"
        aria-label={label}
        aria-valuenow={value}
        aria-valuemin={0}
        aria-valuemax={of}
        className={css.bar}
      >
        <div
          className={css.fill}
          data-full={share >= 1 || undefined}
          style={{ width: `${share * 100}%` }}
        />
      </div>
      <span className="number">{label}</span>
    </div>
  );
}
