import { ReactFlowProvider } from "@xyflow/react";
import { useEffect } from "react";
import { useParams } from "wouter";
import { Page } from "../../app/shell/Page";
import { keepChecking } from "../../canvas/checking";
import { EditorContext } from "../../canvas/editor";
import { useKinds } from "../../canvas/useKinds";
import { Failure } from "../../ui/Failure/Failure";
import { Studio } from "./Studio";
import { useLoaded } from "./useLoaded";

/** A workflow to edit. */
export default function CanvasPage() {
  const { id = "" } = useParams<{ id: string }>();
  const name = decodeURIComponent(id);
  const kinds = useKinds();
  const { loaded, error, retry } = useLoaded(name, kinds);
  useEffect(() => loaded && keepChecking(loaded.editor), [loaded]);
  return (
    <Page crumbs={["Workflows", name]} full={!error}>
      {error !== undefined && <Failure error={error} retry={retry} />}
      {loaded && (
        <EditorContext.Provider value={loaded.editor}>
          <ReactFlowProvider>
            <Studio key={name} saver={loaded.saver} />
          </ReactFlowProvider>
        </EditorContext.Provider>
      )}
    </Page>
  );
}
