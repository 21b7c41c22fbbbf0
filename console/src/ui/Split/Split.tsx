import type { ReactNode } from "react";
import { Link } from "wouter";
import css from "./Split.module.css";

interface Props {
  /** The list. */
  side: ReactNode;
  /** What is shown of the list beside it; on a phone, instead of it. */
  children: ReactNode;
  /** Something was chosen: a phone shows it and not the list. */
  isChosen: boolean;
  /** The way back to the list on a phone: its address and name. */
  back: { href: string; label: string };
  /** Another link beside the way back. */
  next?: ReactNode;
  /** `form`: the detail scrolls itself; `log`: it is a log. */
  look?: "form" | "log";
  label?: string;
}

/** A list beside the detail of one of its items. */
export function Split({ side, children, isChosen, back, next, look, label }: Props) {
  return (
    <div className={css.split} data-chosen={isChosen || undefined}>
      <div className={css.side}>{side}</div>
      <section className={css.detail} data-look={look} aria-label={label ?? "Detail"}>
        <p className={css.back}>
          <Link href={back.href}>‹ {back.label}</Link>
          {next}
        </p>
        {children}
      </section>
    </div>
  );
}

interface ItemProps {
  href: string;
  isShown: boolean;
  title: ReactNode;
  detail: ReactNode;
}

/** One line of the list. */
export function SplitItem({ href, isShown, title, detail }: ItemProps) {
  return (
    <Link href={href} className={css.item} aria-current={isShown || undefined}>
      <p>{title}</p>
      <p>{detail}</p>
    </Link>
  );
}
