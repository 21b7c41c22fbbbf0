import { Component, type ReactNode } from "react";
import { Failure } from "../../ui/Failure/Failure";

interface Props {
  /** A new value forgets the error: the address of the page. */
  place: string;
  children: ReactNode;
}

/** Keeps an error of one page from taking the whole console with it. */
export class Boundary extends Component<Props, { error: unknown; place: string }> {
  override state = { error: null, place: this.props.place };

  static getDerivedStateFromError(error: unknown) {
    return { error };
  }

  static getDerivedStateFromProps(props: Props, state: { place: string }) {
    return props.place === state.place ? null : { error: null, place: props.place };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <main id="main">
        <Failure error={this.state.error} retry={() => this.setState({ error: null })} />
      </main>
    );
  }
}
