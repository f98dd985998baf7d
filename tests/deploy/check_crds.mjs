// Validates the custom resources among the documents on stdin (JSON) with the published models of their definitions.
// Copy this file to a folder whose node_modules holds @kubernetes-models/prometheus-operator.
import {readFileSync} from "node:fs";
import {PodMonitor} from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";

const models = {PodMonitor};
let seen = 0;
for (const document of JSON.parse(readFileSync(0, "utf8"))) {
  if (!document.apiVersion.startsWith("monitoring.coreos.com/")) continue;
  const {apiVersion, kind, ...rest} = document;
  new models[kind](rest).validate();
  // The models accept unknown fields, so the fields of an endpoint are compared with a list.
  for (const endpoint of rest.spec.podMetricsEndpoints)
    for (const key of Object.keys(endpoint))
      if (!["port", "interval", "path", "scrapeTimeout", "relabelings", "metricRelabelings"].includes(key)) throw new Error(`unexpected field ${key}`);
  console.log(`${kind} ${document.metadata.name} is valid`);
  seen++;
}
if (seen !== 1) throw new Error(`${seen} custom resources, 1 expected`);
