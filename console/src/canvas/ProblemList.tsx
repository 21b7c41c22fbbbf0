import type { ShownProblem } from "../api/generated";
import { useEditorState } from "./editor";
import css from "./ProblemList.module.css";

interface Props {
  current: number;
  onGo: (problem: ShownProblem, at: number) => void;
}

/** Everything that is wrong with the workflow; F8 goes from one to the next. */
export function ProblemList({ current, onGo }: Props) {
  const problems = useEditorState((state) => state.problems);
  return (
    <section aria-label="Problems" className={css.panel}>
      {problems.length === 0 && <p className={css.none}>No problems.</p>}
      <ol className={css.list}>
        {problems.map((problem, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the same problem may be there twice
          <li key={at}>
            <button
              type="button"
              className={css.problem}
              aria-current={at === current || undefined}
              data-severity={problem.severity}
              onClick={() => onGo(problem, at)}
            >
              <span aria-hidden="true">▲</span>
              <span className="visually-hidden">{problem.severity}</span>
              <code>{problem.place}</code>
              <span>
                {problem.message} <span className="quiet">{problem.hint}</span>
              </span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
