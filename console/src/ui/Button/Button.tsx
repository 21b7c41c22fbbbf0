import type { ButtonHTMLAttributes, ReactNode } from "react";
import css from "./Button.module.css";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  /** `primary` is the one thing to do here; `plain` looks like text. */
  look?: "primary" | "normal" | "plain";
  children: ReactNode;
}

export function Button({ look = "normal", className = "", type = "button", ...rest }: Props) {
  return <button type={type} className={`${css.button} ${css[look]} ${className}`} {...rest} />;
}
