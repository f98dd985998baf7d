// The custom resources among the documents on stdin (JSON), by the published models of their definitions.
// Copy it to a folder whose node_modules holds @kubernetes-models/prometheus-operator.
import {readFileSync} from "node:fs";
import {PodMonitor} from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";

const models = {PodMonitor};
let seen = 0;
for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  if (!document.apiVersion.startsWith("monitoring.coreos.com/")) continue;
  const {apiVersion, kind, ...rest} = document;
  new models[kind](rest).validate();
  // The models accept unknown fields; so compare with the names they know at the places that matter.
  for (const endpoint of rest.spec.podMetricsEndpoints)
    for (const key of Object.keys(endpoint))
      if (!["port", "interval", "path", "scrapeTimeout", "relabelings", "metricRelabelings"].includes(key)) throw new Error(`unexpected field ${key}`);
  console.log(`${kind} ${document.metadata.name} is valid`);
  seen++;
}
if (seen !== 1) throw new Error(`${seen} custom resources, 1 expected`);
