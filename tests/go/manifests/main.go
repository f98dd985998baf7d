// manifests reads Kubernetes manifests with the Go types of their controllers. It decodes each document into the Go type of its
// API, and an unknown field, a wrong type, a duplicate key or an unknown kind is an error.
//
//	manifests decode FILE...            "-" is stdin; prints the number of objects of each kind
//	manifests patch OBJECT PATCH        prints OBJECT after the strategic merge patch, as "kubectl patch --patch-file" does
//	manifests data NAME KEY FILE        prints one key of a ConfigMap
//	manifests json FILE...              prints a line of JSON for each object, of any kind
//	manifests rules FILE RULES...       compares the PrometheusRules of FILE with the groups of files of Prometheus
//	manifests restricted FILE...        judges each pod by the Pod Security Standard "restricted", with the code of the API server
//	manifests openshift FILE...         judges each pod by OpenShift's constraint restricted-v2
//	manifests args FILE...              prints a line for each container called trtllm-exporter: its arguments, separated by tabs
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func run(arguments []string) error {
	switch {
	case len(arguments) > 1 && arguments[0] == "decode":
		documents, err := decodeFiles(arguments[1:])
		fmt.Println(summary(documents))
		return err
	case len(arguments) == 3 && arguments[0] == "patch":
		text, err := patched(arguments[1], arguments[2])
		fmt.Print(string(text))
		return err
	case len(arguments) == 4 && arguments[0] == "data":
		documents, err := decodeFiles(arguments[3:])
		for _, d := range documents {
			if config, ok := d.object.(*core.ConfigMap); ok && config.Name == arguments[1] {
				if text, ok := config.Data[arguments[2]]; ok {
					fmt.Print(text)
					return err
				}
			}
		}
		return errors.Join(err, fmt.Errorf("no ConfigMap %s with the key %s", arguments[1], arguments[2]))
	case len(arguments) > 1 && arguments[0] == "json":
		var problems []error
		for _, path := range arguments[1:] {
			documents, err := decodeAll(path, nil)
			problems = append(problems, err)
			for _, d := range documents {
				line, err := yaml.YAMLToJSON(d.bytes)
				fmt.Println(string(line))
				problems = append(problems, err)
			}
		}
		return errors.Join(problems...)
	case len(arguments) > 2 && arguments[0] == "rules":
		documents, err := decodeFiles(arguments[1:2])
		return errors.Join(err, sameRules(documents, arguments[2:]))
	case len(arguments) > 1 && arguments[0] == "restricted":
		documents, err := decodeFiles(arguments[1:])
		return errors.Join(err, restricted(documents))
	case len(arguments) > 1 && arguments[0] == "openshift":
		documents, err := decodeFiles(arguments[1:])
		return errors.Join(err, openshift(documents))
	case len(arguments) > 1 && arguments[0] == "args":
		documents, err := decodeFiles(arguments[1:])
		for _, d := range documents {
			if spec := podSpec(d.object); spec != nil {
				for _, container := range append(spec.InitContainers, spec.Containers...) {
					if container.Name == "trtllm-exporter" {
						fmt.Println(strings.Join(container.Args, "\t"))
					}
				}
			}
		}
		return err
	}
	return errors.New("usage: manifests decode FILE... | json FILE... | restricted FILE... | openshift FILE... | rules FILE RULES... | patch OBJECT PATCH | data NAME KEY FILE | args FILE...")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
